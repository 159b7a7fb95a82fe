"""Several steps of `fit` as one program of XLA, and a step of a replica as two."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..tables.cached import cached_rows_only
from ..types import HOST
from .backend import is_ours, require_model
from .layers.embedding_reduce import RowEmbeddingReduce
from .layers.softmax_base import OutputLayer
from .optimizers.row_sparse import RowSparse
from .prefetched_rows import are_cached
from .tables.table_kinds import KINDS, has_cache

_NEEDS_LAYERS = "needs layers that XLA can compile, not "


def compile_steps(model: keras.Model, inputs: Callable[[Any], Any] | None = None) -> None:
    """Let `fit` train all steps of a call as one program, which XLA compiles to a loop.

    With `steps_per_execution`, Keras starts a program for each step. On a GPU, a step with row
    updates can take less time than its start. The numbers stay those of `jit_compile=True`. Steps
    whose batches differ in shape, and those at the end of an epoch that do not fill a call, run one
    by one.

    A model that has layers with a cache (`hot_rows`; `table="host"` has one beside a GPU) needs no
    `jit_compile`, and may have any `steps_per_execution`. XLA compiles its steps on batches of
    `prefetch_rows`, whose rows are all in the caches. As with `jit_compile=True`, layers such as
    `keras.layers.Dropout` draw other random numbers there, from the same seeds. All other steps run
    as without this function. The map from ids to cached rows takes 4 bytes of the device for each
    row of a table. A row that only training looks up, as where a model changes ids at random, reads
    as NaN unless it is cached.

    Under `tf.distribute.MirroredStrategy`, a replica runs two programs in each step: one before the
    exchange of gradients, which XLA cannot compile, and one after it, if the optimizer is one of
    `lexrow.keras`; `RowEmbeddingReduce` and output layers need one. The model needs tables on the
    device, and no `jit_compile`. It may have any `steps_per_execution`, also where `fit` alone
    cannot.

    Example:
        >>> model.compile(
        ...     lexrow.keras.LazyAdam(0.001), "mse", steps_per_execution=32, jit_compile=True
        ... )
        >>> lexrow.keras.compile_steps(model)
        >>> history = model.fit(dataset, verbose=0)

    Args:
        model: A model that is compiled with `steps_per_execution` and `jit_compile=True`, except as
            above. After another call of its `compile`, `fit` takes the new values.
        inputs: For a model with `hot_rows` and batches of another form: see `prefetch_rows`.

    Raises:
        ValueError: The model is not compiled so, or XLA cannot compile it, or the strategy of
            tf.distribute is another one.
    """
    require_model(model)
    reason = _reason_against(model)
    if reason:
        raise ValueError(f"{model.name}: compile_steps {reason}")

    def make_train_function(force: bool = False) -> Callable[[Any], Any]:
        """Make the function that trains on the batches of an iterator, unless there is one."""
        if model.train_function is None or force:
            type(model).make_train_function(model, force=True)
            if not _reason_against(model):
                model.train_function = (
                    _train_function(model, model.train_function, inputs)
                    if model._distribute_strategy is None
                    else _train_function_of_replicas(model)
                )
        return model.train_function

    model.make_train_function = make_train_function
    model.train_function = None


def are_compiled(model: Any) -> bool:
    """Return whether XLA compiles the steps of `fit` of a model, all or those on cached rows."""
    if not isinstance(model, keras.Model) or not model.compiled or model.run_eagerly:
        return False
    has_program = "make_train_function" in vars(model) and not _reason_against(model)
    return has_program or (model.jit_compile and model._distribute_strategy is None)


def _reason_against(model: keras.Model) -> str:
    """Return why XLA cannot compile the steps of a model as here, empty if it can."""
    layers = model._flatten_layers()
    by_xla = model.jit_compile  # Keras judged the other layers
    unusual = (
        "needs a model compiled with steps_per_execution=2 or more and jit_compile=True, or a "
        "layer with a cache (hot_rows), which table='host' has beside a GPU"
    )
    if not model.compiled or model.run_eagerly:
        return unusual
    if model._distribute_strategy is not None:
        return _reason_against_replicas(model)
    others = [
        each
        for each in layers
        if not (each.supports_jit or has_cache(each) or (by_xla and not is_ours(type(each))))
    ]
    if others:
        reason = f"{_NEEDS_LAYERS}{_names(others)}"
        tables = [getattr(each, "table", "dynamic") for each in others if is_ours(type(each))]
        if set(tables) <= {"device"}:
            return reason
        return (
            f"{reason}: on a GPU, a table other than 'device' needs hot_rows, which only a "
            "RowEmbedding can have"
        )
    # `prefetch_rows` does not load the rows that such a layer reads. XLA would take NaN for them.
    if tied := [each for each in layers if getattr(each, "is_tied_to_cache", False)]:
        return (
            f"{_NEEDS_LAYERS}{_names(tied)}: tied_to= names a layer with hot_rows, whose cache "
            "lacks rows that are predicted; leave out tied_to, or give that layer table='device'"
        )
    is_usual = model.steps_per_execution > 1 and by_xla
    return "" if is_usual or any(map(has_cache, layers)) else unusual


def _reason_against_replicas(model: keras.Model) -> str:
    """Return why XLA cannot compile the steps of a model under a strategy, empty if it can."""
    strategy = type(model._distribute_strategy)
    if not issubclass(strategy, tf.distribute.MirroredStrategy):
        return f"needs tf.distribute.MirroredStrategy, not {strategy.__name__}"
    if model.jit_compile:
        return "makes the programs of a strategy; compile the model with jit_compile=False"
    layers, inner = model._flatten_layers(), _inner_optimizer(model)
    optimizer_of = getattr(inner, "_optimizer_map", lambda _: inner)
    # In a program, the gradients of these have rows twice, or ids of no row. Keras' optimizers add
    # the former wrongly, and do not know the latter.
    if others := [
        each
        for each in layers
        if isinstance(each, (RowEmbeddingReduce, OutputLayer))
        and not all(isinstance(optimizer_of(v), RowSparse) for v in each.trainable_variables)
    ]:
        return (
            "under a strategy needs an optimizer of lexrow.keras, such as LazyAdam, for "
            f"{_names(others)}"
        )
    # `iterations` of an optimizer that accumulates gradients is a quotient.
    made = [model.optimizer._iterations, *model.metrics_variables]
    if not all(isinstance(each.value, tf.distribute.DistributedValues) for each in made):
        return "under a strategy needs compile() and its optimizer within strategy.scope()"
    others = [
        each
        for each in layers
        if not each.supports_jit
        or (is_ours(type(each)) and getattr(each, "table", "") in KINDS[1:])
    ]
    if others:
        return f"{_NEEDS_LAYERS}{_names(others)}: under a strategy a table must be table='device'"
    return ""


def _names(layers: Sequence[keras.layers.Layer]) -> str:
    """Return the names of layers, for a message."""
    return ", ".join(layer.name for layer in layers)


def _inner_optimizer(model: keras.Model) -> Any:
    """Return the optimizer of a model, or the one within its loss scale."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def _train_function_of_replicas(model: keras.Model) -> Callable[[Any], Any]:
    """Return a function that makes the steps of one call, as the one of Keras does."""
    train = model._make_function(_step_of_replica(model))
    if model.steps_per_execution == 1:
        return train
    # For these, Keras calls a function for each step. Its loop in a graph fails on several devices.
    return lambda iterator: train(itertools.chain([next(iterator)], iterator))


def _step_of_replica(model: keras.Model) -> Callable[[Any], Any]:
    """Return a training step of a replica that XLA compiles to two programs.

    The first ends with the gradients. The optimizer exchanges them, for which XLA has no operation,
    and makes the second, the update; the optimizers of a MultiOptimizer update without XLA.
    """
    optimizer: Any = model.optimizer
    inner = _inner_optimizer(model)
    updates_by_xla = isinstance(inner, RowSparse)
    variables: list[Any] = []

    @tf.function(autograph=False, jit_compile=True, reduce_retracing=True)
    def differentiate(data: Any) -> tuple[Any, list[Any]]:
        """Return the result of a step, which does not update the variables, and the gradients."""
        calls: list[Any] = []

        def keep(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
            """Keep the arguments of a call."""
            calls.append((grads, trainable_variables or optimizer._trainable_variables))

        vars(optimizer)["apply"] = keep  # in place of the method
        try:
            result = model.train_step(data)
        finally:
            del vars(optimizer)["apply"]
        if len(calls) != 1:
            raise ValueError(
                f"{model.name}: compile_steps needs a train_step that applies gradients once under "
                f"a strategy, not {len(calls)} times"
            )
        gradients, variables[:] = calls[0]
        return result, inner.merge(gradients, variables) if updates_by_xla else list(gradients)

    def train_step(data: Any) -> Any:
        """Make a step."""
        result, gradients = differentiate(data)
        inner.updates_by_xla = updates_by_xla
        try:
            optimizer.apply(gradients, variables)
        finally:
            inner.updates_by_xla = False
        return result

    return train_step


def _train_function(
    model: keras.Model, one_by_one: Callable, inputs: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    """Return a function that makes the steps of one call, as the one of Keras does.

    Args:
        one_by_one: The function of Keras, for inputs that are not dense tensors of a dataset.
        inputs: See `compile_steps`.
    """

    def train_step(data: Any) -> Any:
        """Make a step on cached rows, for XLA."""
        with cached_rows_only():
            return model.train_step(data)

    by_xla = tf.function(train_step, autograph=False, jit_compile=True, reduce_retracing=True)
    traced_once = tf.function(autograph=False, reduce_retracing=True)
    is_cached, step = None, by_xla
    if any(map(has_cache, model._flatten_layers())):
        is_cached = traced_once(functools.partial(are_cached, model=model, inputs=inputs))

        @traced_once
        def step(batch: Any) -> Any:
            """Make a step, by XLA if all its rows are there."""
            return tf.cond(is_cached(batch), lambda: by_xla(batch), lambda: model.train_step(batch))

    call = _call_function(model.steps_per_execution, step, _one_program(train_step), is_cached)

    def train_function(iterator: Any) -> Any:
        """Make the steps of one call; raise StopIteration if there is no batch."""
        is_dense = isinstance(iterator, tf.data.Iterator) and all(
            isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(iterator.element_spec)
        )
        return call(next(iterator), iterator) if is_dense else one_by_one(iterator)

    return train_function


def _call_function(
    steps: int,
    step: Callable[[Any], Any],
    train: Callable[[Any], Any],
    is_cached: Callable[[Any], tf.Tensor] | None,
) -> Callable[[Any, Any], Any]:
    """Return a function that makes the steps of one call, all in one program if it can.

    Args:
        steps: The number of steps of a call; at the end of a dataset there can be fewer.
        step: Makes a step on a batch.
        train: Makes a step for each element of a nest of tensors (S, ...).
        is_cached: Returns whether `train` can make a step on a batch; None if it always can.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def call(first: Any, iterator: Any) -> Any:
        """Make the steps of a call, the first on a batch that was taken from the iterator."""
        rest = [iterator.get_next_as_optional() for _ in range(steps - 1)]
        if not rest:
            return step(first)

        def together() -> Any:
            """Make all steps as one program."""
            batches = [first, *(optional.get_value() for optional in rest)]
            with tf.device(HOST):  # the batches are there: one copy to a GPU instead of many
                data_S = tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *batches)
            return train(data_S)

        def apart() -> Any:
            """Make a step for each batch that there is."""
            result = step(first)
            for optional in rest:
                result = tf.cond(
                    optional.has_value(),
                    lambda optional=optional: step(optional.get_value()),
                    lambda result=result: result,
                )
            return result

        return tf.cond(_are_alike(first, rest, is_cached), together, apart)

    return call


def _one_program(train_step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that makes a step for each element of a nest of tensors (S, ...).

    It is one program of XLA, and returns the result of the last step.
    """

    @tf.function(autograph=False, jit_compile=True, reduce_retracing=True)
    def train(data_S: Any) -> Any:
        """Make the steps, and return the result of the last."""
        count = tf.nest.flatten(data_S)[0].shape[0]

        def make(index: tf.Tensor | int) -> Any:
            """Make one of the steps."""
            return train_step(tf.nest.map_structure(lambda tensor_S: tensor_S[index], data_S))

        # The result of a step has a structure that only the step tells, so one is not in the loop.
        _, result = tf.while_loop(
            lambda index, _: index < count,
            lambda index, _: (index + 1, make(index)),
            (tf.constant(1), make(0)),
            parallel_iterations=1,
        )
        return result

    return train


def _are_alike(
    first: Any,
    rest: Sequence[tf.experimental.Optional],
    is_cached: Callable[[Any], tf.Tensor] | None,
) -> tf.Tensor:
    """Return whether there are all batches, of the shapes of the first; a bool scalar.

    Args:
        is_cached: Returns for a batch what must be true for each; None for nothing.
    """

    def have_shapes() -> tf.Tensor:
        """Return whether all batches have the shapes of the first, and the rest is true."""
        batches = [first, *(optional.get_value() for optional in rest)]
        same = [
            tf.reduce_all(tf.equal(tf.shape(tensor), tf.shape(expected)))
            for batch in batches[1:]
            for tensor, expected in zip(tf.nest.flatten(batch), tf.nest.flatten(first), strict=True)
        ]
        return tf.reduce_all([*same, *(map(is_cached, batches) if is_cached else ())])

    with tf.device(HOST):
        there = tf.reduce_all([optional.has_value() for optional in rest])
        return tf.cond(there, have_shapes, lambda: tf.constant(False))
