"""Datasets that load rows ahead or check ids, and a callback that measures the caches of tables."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from ..system.python_functions import from_generator
from ..tables.cached import CachedTable
from ..tables.id_checks import failed_check
from ..tables.prefetch import CacheTooSmallError, Prefetcher
from ..types import HOST
from .backend import require_model
from .tables.table_variable import TableVariable, record_ids

_LAST = "prefetch_rows must be the last stage of a dataset"


def prefetch_rows(
    dataset: tf.data.Dataset,
    model: keras.Model,
    steps: int = 16,
    inputs: Callable[[Any], Any] | None = None,
) -> tf.data.Dataset:
    """Load the rows of the next batches into the caches of a model while it trains on earlier ones.

    The layers with `hot_rows` have caches. The result has the same batches as the dataset. It must
    be the last stage of the pipeline, because rows are loaded between two steps: give it to `fit`,
    or loop over it. Training gives the same rows as without this function, bit for bit.

    Example:
        >>> layer = lexrow.keras.RowEmbedding(100_000, 64, table="host", hot_rows=10_000)
        >>> model = keras.Sequential([layer, keras.layers.Flatten(), keras.layers.Dense(1)])
        >>> model.compile(lexrow.keras.LazyAdam(0.001), loss="mse")
        >>> history = model.fit(lexrow.keras.prefetch_rows(dataset, model), verbose=0)

    Args:
        dataset: Batches x, (x, y) or (x, y, sample_weight).
        model: The model that is trained on the batches. It is called once, to see its look-ups, and
            built before if it is not built yet.
        steps: The number of batches whose rows are loaded together, rounded up to a multiple of
            the `steps_per_execution` of the model. If the caches are too small for so many, the
            rows of fewer batches are loaded.
        inputs: A function from a batch to the inputs of the model, for batches of another form.

    Returns:
        The dataset, or the given one if no layer of the model has `hot_rows`. If the rows of one
        call of steps do not fit into a cache, its iterator raises an error that says so. It has no
        `map` and no `prefetch`, and so `fit` cannot have a `class_weight`.

    Raises:
        ValueError: `steps` is not positive, the model cannot be called on the batches, or it looks
            up rows in a function of its own, such as a branch of `tf.cond`; or the dataset is one
            of this function already.
    """
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps={steps!r}; give a positive number of batches")
    spec = _build_model(dataset, model, inputs)
    look_up, tables = _trace(spec, model, inputs)
    if not tables:
        return dataset
    if _is_last_stage(dataset):  # each would wait for the other
        raise ValueError(f"dataset is one of prefetch_rows already; {_LAST}")
    for table in tables.values():
        table.lacks_prefetch = False

    return _last_stage(lambda: _prefetch(dataset, model, steps, look_up, tables), dataset)


def _prefetch(
    dataset: tf.data.Dataset,
    model: keras.Model,
    steps: int,
    look_up: Callable[[Any], dict[str, tf.Tensor]],
    tables: Mapping[str, CachedTable],
) -> Iterator[Any]:
    """Yield the batches of a dataset once their rows are in the caches of the tables.

    For the arguments see `prefetch_rows` and `_trace`. Raise ValueError for an id out of range, or
    if the rows of one call of steps do not fit into a cache.
    """
    together = model.steps_per_execution
    prefetcher = Prefetcher(
        tables,
        lambda batch, _: look_up(batch),
        HOST,
        calls_per_chunk=-(-steps // together) * together,
        together=together,
        is_shared=True,
    )
    try:
        for _, batch in prefetcher.prefetch(((0, batch) for batch in dataset), 0):
            yield batch
    except CacheTooSmallError as error:
        raise ValueError(
            f"{error.table}: one call of steps ({together}) needs {error.needed:,} rows, and "
            f"hot_rows={error.size}; give the layer hot_rows={error.needed} or more"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(failed_check(error) or error.message) from error


def _last_stage(generate: Callable, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset of generated batches which TensorFlow and Keras take one by one.

    It has the element spec and the cardinality of `dataset`. Its `map` and `prefetch` raise
    ValueError.
    """
    result = from_generator(generate, dataset.element_spec)
    if int(dataset.cardinality()) >= 0:
        result = result.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))
    options = tf.data.Options()  # without any that TensorFlow adds to take batches ahead
    options.experimental_optimization.inject_prefetch = False
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    result = result.with_options(options)

    def refuse(*_: Any, **__: Any) -> None:
        """Raise ValueError whatever the arguments are."""
        raise ValueError(
            f"{_LAST}: apply map and prefetch to the dataset before it, and give fit a "
            "sample_weight in the batches, not a class_weight"
        )

    result.map = result.prefetch = refuse
    return result


def _is_last_stage(dataset: tf.data.Dataset) -> bool:
    """Return whether `_last_stage` made a dataset, or one that it is made from."""
    return "prefetch" in vars(dataset) or any(map(_is_last_stage, dataset._inputs()))


def _trace(
    spec: Any, model: keras.Model, inputs: Callable[[Any], Any] | None
) -> tuple[Callable[[Any], dict[str, tf.Tensor]], dict[str, CachedTable]]:
    """Return a function from a batch to the ids of each cached table, and these tables by name.

    The model is called on symbolic tensors of this spec. Ids are flat, int64, with repetitions.
    Raises ValueError if the model cannot be called, or looks up rows where ids cannot be seen.
    """
    tables: dict[str, CachedTable] = {}

    @tf.function(autograph=False, input_signature=[spec])
    def look_up(batch: Any) -> dict[str, tf.Tensor]:
        """Return the ids of each cached table; the trace adds the tables to `tables`."""
        ids_by_table: dict[str, list[tf.Tensor]] = {}
        for path, table, ids_N in _ids_in_caches(batch, model, inputs):
            name = path
            while tables.setdefault(name, table) is not table:  # paths may repeat
                name += "'"
            ids_by_table.setdefault(name, []).append(tf.cast(ids_N, tf.int64))
        return {name: tf.concat(ids, axis=0) for name, ids in ids_by_table.items()}

    look_up.get_concrete_function()
    return look_up, tables


def are_cached(
    batch: Any, model: keras.Model, inputs: Callable[[Any], Any] | None = None
) -> tf.Tensor:
    """Return whether all rows that a model looks up in cached tables are in the caches.

    The model is called on the batch in the graph that is traced; see `prefetch_rows` for the
    arguments. Raises ValueError as `prefetch_rows` does.

    Returns:
        A bool scalar in host memory.
    """
    with tf.device(HOST):
        looked_up = _ids_in_caches(batch, model, inputs)
        return tf.reduce_all([True, *(table.has_all(ids_N) for _, table, ids_N in looked_up)])


def _ids_in_caches(
    batch: Any, model: keras.Model, inputs: Callable[[Any], Any] | None
) -> Iterator[tuple[str, CachedTable, tf.Tensor]]:
    """Call a model in the graph that is traced, and yield its look-ups in cached tables.

    Yields:
        The path of the variable, its table, and the ids, (N,).
    """
    with record_ids() as recorded:
        _call_model(model, batch, inputs)
    for variable, ids_N in recorded:
        if not isinstance(variable.table, CachedTable):
            continue
        if ids_N.graph is not tf.compat.v1.get_default_graph():
            raise ValueError(
                f"{variable.path} is looked up in a branch, a loop or a tf.function of the "
                "model, where prefetch_rows cannot see the ids; train without prefetch_rows"
            )
        yield variable.path, variable.table, ids_N


def _build_model(
    dataset: tf.data.Dataset, model: keras.Model, inputs: Callable[[Any], Any] | None
) -> Any:
    """Return the spec of the batches of a dataset, by which a model is built if it is not yet.

    Keras calls a model that is not built in a graph of its own first, where no look-up would be
    seen.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            f"dataset is a {type(dataset).__name__}; make it a tf.data.Dataset of batches, as by "
            "tf.data.Dataset.from_tensor_slices((x, y)).batch(128)"
        )
    require_model(model)
    if not all(layer.built for layer in model._flatten_layers()):
        call = tf.function(lambda batch: _call_model(model, batch, inputs), autograph=False)
        call.get_concrete_function(dataset.element_spec)
    return dataset.element_spec


def _call_model(model: keras.Model, batch: Any, inputs: Callable[[Any], Any] | None) -> None:
    """Call a model for inference on the inputs of a batch; raise ValueError if they do not fit."""
    x = inputs(batch) if inputs else keras.utils.unpack_x_y_sample_weight(batch)[0]
    try:
        _check_strings(x, model)
        model(x, training=False)
    except (TypeError, ValueError, KeyError) as error:
        given = tf.nest.map_structure(lambda t: f"{t.dtype.name} {t.shape}", x)
        needed = "those of its method `call`"
        if getattr(model, "inputs", None):
            needed = str([f"{i.name}: {i.dtype} {i.shape}" for i in model.inputs])
        raise ValueError(
            f"the inputs of {model.name} are {needed}, and the batches have {given}; give inputs=, "
            f"a function from a batch to the inputs ({error})"
        ) from error


def _check_strings(x: Any, model: keras.Model) -> None:
    """Raise ValueError if inputs are strings where the model has numbers, or the reverse.

    Keras casts inputs, and TensorFlow then fails when the graph runs.
    """
    symbols = getattr(model, "inputs", None) or []
    if isinstance(x, Mapping):  # Keras ignores values that have another name
        pairs = [(x[symbol.name], symbol) for symbol in symbols if symbol.name in x]
    else:
        pairs = list(zip(tf.nest.flatten(x), symbols, strict=False))
    for value, symbol in pairs:
        if value is not None and (value.dtype == tf.string) != (symbol.dtype == "string"):
            raise ValueError(f"{symbol.name} is {symbol.dtype}, not {value.dtype.name}")


def check_inputs(
    dataset: tf.data.Dataset, model: keras.Model, inputs: Callable[[Any], Any] | None = None
) -> tf.data.Dataset:
    """Check the ids in each batch of a dataset, for a model that XLA compiles.

    A compiled step cannot raise an error: for an id out of range it reads the nearest row and
    trains none, or makes the loss NaN where TensorFlow sees a GPU. The result has the same batches
    as the dataset. For a batch with a wrong id its iterator raises
    `tf.errors.InvalidArgumentError`, which names the layer and the smallest and the largest wrong
    id. The check runs on the CPU as a part of the input pipeline. `prefetch_rows` checks the ids of
    layers with `hot_rows` by itself.

    Example:
        >>> model.compile(lexrow.keras.LazyAdam(0.001), loss="mse", jit_compile=True)
        >>> history = model.fit(lexrow.keras.check_inputs(dataset, model), verbose=0)

    Args:
        dataset: Batches x, (x, y) or (x, y, sample_weight).
        model: The model that is trained on the batches. It is called once, to see its look-ups, and
            built before if it is not built yet.
        inputs: A function from a batch to the inputs of the model, for batches of another form.

    Raises:
        ValueError: The model cannot be called on the batches.
    """
    is_tuple = isinstance(_build_model(dataset, model, inputs), tuple)

    def check(*parts: Any) -> Any:
        batch = parts if is_tuple else parts[0]
        with record_ids():  # TensorFlow runs the checks in the call, and no table is read
            _call_model(model, batch, inputs)
        return batch

    return dataset.map(tf.autograph.experimental.do_not_convert(check))


class TableMetrics(keras.callbacks.Callback):
    """Log how well the caches of layers with `hot_rows` work, at the end of each epoch of `fit`.

    The metrics are sums over all such layers, for batches of `prefetch_rows`. Give this callback
    before `keras.callbacks.TensorBoard`, which then writes them too.

    - `cache_hit_rate`: the fraction of look-ups whose row was cached before it was prefetched.
    - `cache_bytes`: the bytes loaded and evicted in a step, optimizer state included.
    - `cache_evictions`: the rows that were evicted in the epoch.
    - `cache_rows`: the rows in the caches at its end.

    Example:
        >>> metrics = lexrow.keras.TableMetrics()
        >>> history = model.fit(dataset, callbacks=[metrics], verbose=0)
    """

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Set the counts of the tables to 0, and note the number of steps so far."""
        self._first_step = int(self.model.optimizer.iterations.numpy())
        for table in self._tables():
            table.counts.clear()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the metrics of the epoch to the logs, unless no table has a cache.

        Args:
            logs: The logs to add to; None to do nothing.
        """
        tables = self._tables()
        if logs is None or not tables:
            return
        counts: collections.Counter[str] = collections.Counter()
        for table in tables:
            counts.update(table.counts)
            moved = table.counts["loaded"] + table.counts["evicted"]
            counts["bytes"] += moved * table.row_bytes()
        steps = int(self.model.optimizer.iterations.numpy()) - self._first_step
        logs["cache_hit_rate"] = 1 - counts["missed"] / max(counts["looked_up"], 1)
        logs["cache_bytes"] = counts["bytes"] / max(steps, 1)
        logs["cache_evictions"] = counts["evicted"]
        logs["cache_rows"] = sum(table.cached_rows() for table in tables)

    def _tables(self) -> list[CachedTable]:
        """Return the tables of the model that have a cache."""
        tables = [v.table for v in self.model.variables if isinstance(v, TableVariable)]
        return [table for table in tables if isinstance(table, CachedTable)]
