"""Plan the memory of a run before a table is made, and refuse a run that does not fit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..models.base import Model, Outcome, Preparable
from ..optimizers.base import Optimizer
from ..settings import Config, OptimizerConfig, TableConfig, VocabularyConfig
from ..settings.flag_values import by_name, from_names
from ..system import machine
from ..system.devices import gpu_bytes
from ..system.graphs import VIEWS, called_graphs, executed
from ..tables import memory, sharded
from ..tables.base import Slot, TableSpec
from ..tables.cached import NONE, CacheSize
from ..tables.device import DeviceTable
from ..tables.dynamic.keys import INT64, STRING, key_bytes
from ..tables.memory import FILE, Item, too_much
from ..training.compiled_steps import Representatives
from ..training.gradients import unique_rows_of_any
from ..training.step import lookup_function, train_step
from ..types import HOST as CPU
from ..types import Batch, Rows
from .learning import make_optimizer
from .storage import dtypes

# Bytes of compiled steps, their executors and the text in the pipeline. Measured with skip-gram,
# 4,096 tokens a step, and blocks of 0.25 and 2 MB of text: 0.09 GB.
_RUN = 90_000_000
# Steps of a call overlap: while one writes its rows, the next one reads.
_OVERLAP = 2
# The size of the cache for rows that are not pinned, as a multiple of the rows that the first chunk
# loads. Later chunks may need more, and a row that stays in the cache need not be loaded again.
_HEADROOM = 1.5
# The fraction of the ids of a step that are unique. Measured on English text: 0.5 for 4,096 ids,
# 0.6 with negative samples.
_UNIQUE = 0.6
# Operations whose results take no memory of the step.
_FREE = ("Placeholder", "Const", "ReadVariableOp")
# Bytes of a word of --table=dynamic in the distribution of negatives, and while that is computed.
_WEIGHT_BYTES = 4 * 8
# Bytes of an id of --table=dynamic that has a row.
ID_BYTES = key_bytes(INT64, 1)


class Plan(NamedTuple):
    """The memory of a run.

    Attributes:
        items: Everything that takes memory.
        cache_sizes: The sizes of the device caches, by table; empty for kinds without caches.
        uncompiled: Why XLA compiles no step on a GPU; empty if it does.
    """

    items: list[Item]
    cache_sizes: dict[str, CacheSize]
    uncompiled: str = ""


def plan(
    model: Model,
    batches: Callable[[], Iterable],
    micro_batch: Any,
    config: Config,
    device: str,
    others: Sequence[Item] = (),
    rows: Mapping[str, int] = {},
) -> Plan:
    """Plan the memory of a run, before a table is made; --hot_rows=auto is as many as fit.

    Args:
        batches: Gives the batches of the first epoch, to count the rows of a chunk of steps. It is
            called only to plan caches, also as a remedy for other tables that do not fit.
        micro_batch: The nest of tensor specs of one micro-batch of one step.
        device: The device of the steps.
        others: Other memory of the task.
        rows: The rows of tables that get fewer than the model asks for, by name.

    Raises:
        UsageError: The memory is not enough; the message names flags that would help.
    """
    free = free_memory(config.table, [device, *_places_of_shards(config.table)])
    calls = calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)
    drawn = config.run.seed, device, calls, config.input.micro_batches or 1
    specs = {
        name: dataclasses.replace(spec, rows=rows.get(name, spec.rows))
        for name, spec in model.tables().items()
    }
    lookups = functools.cache(lambda: first_lookups(model, batches(), *drawn))

    beside_tables = _beside_tables(model, micro_batch, config, device, others)

    def plan_with(config: Config) -> Plan:
        """Return the plan with these settings, fitting or not; `auto` is all hot rows that fit."""
        chosen = plan_tables(specs, config, device)
        if too_much(chosen.items, free):
            return chosen
        beside = functools.partial(beside_tables, config.optimizer)
        chosen = plan_tables(specs, config, device, beside)
        # On a GPU, a step that is not compiled may take less.
        is_final = device.startswith("CPU") and too_much(chosen.items, free)
        if not config.table.is_cached or is_final:
            return chosen
        cached = functools.partial(plan_tables, specs, config, device, beside, lookups())
        return _fit_hot_rows(cached, specs, config.table.hot_rows, free)

    chosen = plan_with(config)
    if too_much(chosen.items, free):
        remedies = _remedies(config, lambda other: not too_much(plan_with(other).items, free))
        raise memory.refusal(chosen.items, free, remedies)
    return chosen


def _beside_tables(
    model: Model, data: Any, config: Config, device: str, others: Sequence[Item]
) -> Callable[[OptimizerConfig, bool], tuple[list[Item], str]]:
    """Return a function from an optimizer, and whether XLA compiles, to `beside` of `plan_tables`.

    Args:
        data: The nest of tensor specs of one micro-batch of one step.
        others: Other memory of the task.
    """
    # Gradients that are added: of micro-batches, or of replicas, which are two at least.
    are_replicas = config.run.strategy != "none" and config.run.sync_steps == 1
    parts = max(config.input.micro_batches, 1 + are_replicas)
    program = Item("program, graph and text", "", memory.HOST, machine.resident_bytes() + _RUN)

    @functools.cache  # the trace of a step can take minutes
    def beside(optimizer: OptimizerConfig, is_compiled: bool) -> tuple[list[Item], str]:
        """Return the memory of everything but tables, and why XLA has no form of the step."""
        traced, reason = (model, make_optimizer(optimizer), data), ""
        try:
            count = step_bytes(*traced, device if is_compiled else "", parts)
        except tf.errors.UnimplementedError as error:
            count, reason = step_bytes(*traced, "", parts), error.message
        return [*others, Item("activations of a step", "", device, count), program], reason

    return beside


def plan_tables(
    specs: Mapping[str, TableSpec],
    config: Config,
    device: str,
    beside: Callable[[bool], tuple[list[Item], str]] = lambda is_compiled: ([], ""),
    lookups: Mapping[str, list[np.ndarray]] = {},
    hot_rows: int = 0,
) -> Plan:
    """Return the plan of the tables and their caches with these settings, whether it fits or not.

    Args:
        device: The device of the steps.
        beside: Takes whether XLA is to compile the steps, and returns all other memory, and why XLA
            cannot, as `Plan.uncompiled`.
        lookups: The ids that each call of the first chunk looks up, by table; a table without them
            has a cache only if that holds all its rows.
        hot_rows: The number of rows of each table with a cache that stay on the device.
    """
    slots, items = make_optimizer(config.optimizer).slots, []
    calls = calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)
    cache_sizes = {
        name: estimate_cache_size(spec, lookups.get(name, [])[:calls], hot_rows)
        for name, spec in specs.items()
        if name in lookups or hot_rows >= spec.rows
    }
    # Before the lookups are known, a cache may hold what a compiled step needs.
    reason = why_uncompiled(config, specs if lookups else (), lookups, cache_sizes)
    is_compiled = device.startswith("GPU") and not reason
    rest, lacking = beside(is_compiled)
    for name, spec in specs.items():
        parts = memory.row_parts(name, spec, slots, dtypes(config.table))
        stored = memory.table(parts, _places(spec, config, device))
        items += stored
        if any(item.place == FILE for item in stored):
            items.append(memory.journals(name, spec.rows, parts, config.run.keep_checkpoints))
        if config.run.sync_steps > 1:
            items += memory.last_exchange(name, spec.rows, stored, device)
        # Those that the steps address.
        rows = spec.rows if config.table.table in ("device", "dynamic") else 0
        if name in cache_sizes:
            home = device if config.table.table == "sharded" else memory.HOST
            items += memory.cache(name, parts, spec.rows, cache_sizes[name], device, home)
            rows = len(cache_sizes[name].pinned_N) + cache_sizes[name].unpinned
        if rows and is_compiled:
            items.append(memory.representatives(name, rows, device))
    return Plan([*items, *rest], cache_sizes, reason or lacking)


def why_uncompiled(
    config: Config,
    tables: Iterable[str],
    lookups: Mapping[str, Sequence[np.ndarray]],
    cache_sizes: Mapping[str, CacheSize],
) -> str:
    """Return why XLA compiles no step on a GPU, as far as settings tell; empty if it may.

    Args:
        tables: The names of all tables.
        lookups: The ids that the first calls look up in tables that have a cache, by table: (S, N),
            or (N,) where the steps of a call do not look up equally many.
        cache_sizes: The sizes of these caches, and of those of all rows.
    """
    table, is_cached = config.table.table, config.table.is_cached
    some = f"--table={table} keeps only some on the device (--hot_rows={config.table.hot_rows})"
    reasons = {
        "--strategy=multi_worker with --sync_steps=1": (
            config.run.strategy == "multi_worker" and config.run.sync_steps == 1
        ),
        f"--loss={config.model.loss} goes through all rows, and {some}": (
            is_cached and not cache_sizes.keys() >= {*tables}
        ),
        f"steps look up different numbers of rows, and {some}": (
            is_cached and any(lookups[n][0].ndim == 1 and cache_sizes[n].unpinned for n in lookups)
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _places_of_shards(settings: TableConfig) -> list[str]:
    """Return the devices of the shards of a table; empty if it has none."""
    if settings.table != "sharded":
        return []
    return [name.rpartition("device:")[2] for name in sharded.local_devices()]


def _places(spec: TableSpec, config: Config, device: str) -> dict[str, int]:
    """Return the number of rows of a table in each place: a device, `HOST` or `FILE`."""
    if config.table.table == "sharded":
        names = _places_of_shards(config.table)
        return {name: -(-spec.rows // len(names)) for name in names}
    if config.table.table == "host":
        return {FILE if config.table.table_file else memory.HOST: spec.rows}
    return {device: spec.rows}


def _fit_hot_rows(
    plan_cached: Callable[[int], Plan],
    specs: Mapping[str, TableSpec],
    hot_rows: str,
    free: Mapping[str, int],
) -> Plan:
    """Return the plan with the rows of --hot_rows on the device; `auto` is all that fit."""
    if hot_rows != "auto":
        return plan_cached(int(hot_rows))

    def exceeds(hot: int) -> bool:
        """Return whether so many rows of each table do not fit."""
        return bool(too_much(plan_cached(hot).items, free))

    most = max(spec.rows for spec in specs.values())
    return plan_cached(bisect_left(range(1, most), True, key=exceeds) if exceeds(most) else most)


def _remedies(config: Config, fits: Callable[[Config], bool]) -> list[str]:
    """Return the changes of flags with which a run fits into memory, or else other advice."""
    if config.table.is_dynamic:
        return [f"give less than --table_gb={config.table.table_gb}"]
    values = by_name(config)
    first = "samples" if config.run.task == "recommend" else "max_vocab_size"
    changes = [one for one in _smaller(config) if fits(from_names(values | one))]
    shown = [" ".join(f"--{name}={value}" for name, value in one.items()) for one in changes]
    return shown or [f"lower --{first}, --dim or --batch_tokens"]


def _smaller(config: Config) -> list[dict[str, Any]]:
    """Return flags that may take less memory, in the order in which to propose them."""
    host = {"table": "host", "hot_rows": "auto"}
    return [
        {"optimizer": "rowwise_adagrad"},
        {"table_dtype": "bfloat16"},
        host,
        {**host, "stage_steps": config.input.steps_per_call},
        {**host, "table_file": "FILE"},
    ]


def free_memory(settings: TableConfig, devices: list[str]) -> dict[str, int]:
    """Return the bytes that a run may use in each place, including the bytes that it uses already.

    Of the free memory of the machine and of a GPU, 95 percent count. --device_memory gives the
    bytes of every device instead. A place whose limit is not known is left out.

    Args:
        devices: The devices of the run, such as `GPU:0`.

    Returns:
        Bytes by place: the host, each GPU or limited device, and the file of --table_file.
    """
    free = {memory.HOST: int(memory.SHARE * machine.free_bytes()) + machine.resident_bytes()}
    for name in devices:
        if settings.device_memory:
            free[name] = int(settings.device_memory * 1e9)
        elif name.startswith("GPU"):
            free[name] = int(memory.SHARE * gpu_bytes(name))
    if settings.table_file:
        path = Path(settings.table_file)
        file_bytes = path.stat().st_size if path.is_file() else 0
        with contextlib.suppress(OSError):  # the folder may not exist yet
            free[FILE] = file_bytes + shutil.disk_usage(path.absolute().parent).free
    return free


def calls_per_chunk(stage_steps: int, steps_per_batch: int) -> int:
    """Return the number of calls in a chunk of at least --stage_steps steps."""
    return -(-stage_steps // steps_per_batch)


def first_lookups(
    model: Model, batches: Iterable, seed: int, device: str, count: int, micro_batches: int = 1
) -> dict[str, list[np.ndarray]]:
    """Return the ids that the first batches of a run look up: for each table a list by batch.

    The ids of all S steps of a batch are in the order of the lookups, with repetitions; for their
    shape see `lookup_function`. If there are fewer batches than `count`, the lists are shorter;
    without any batch, the result is an empty dictionary.

    Args:
        batches: Pairs of an epoch and the data of S steps. At most `count` are taken.
    """
    lookups = lookup_function(model, seed, micro_batches)
    ids_by_table: dict[str, list[np.ndarray]] = {}
    for number, (_, tokens) in enumerate(itertools.islice(batches, count)):
        first = tf.constant(number * tf.nest.flatten(tokens)[0].shape[0], tf.int64)
        with tf.device(device):
            for name, ids in lookups(tokens, first).items():
                ids_by_table.setdefault(name, []).append(ids.numpy())
    return ids_by_table


def estimate_cache_size(spec: TableSpec, lookups: Sequence[np.ndarray], pinned: int) -> CacheSize:
    """Return the size of a table's cache: the pinned rows, and the number of rows for all others.

    That number is 1.5 times the unique ids of the first chunk that are not pinned, but at least the
    number of ids that any one call looks up, and at most all rows that are not pinned.

    Args:
        spec: Its rows, and whether its ids are by descending frequency. If they are, the first rows
            are pinned, otherwise the rows with the most lookups in the first chunk.
        lookups: The ids that each call of the first chunk looks up, with repetitions and `NONE`.
            There may be no call if all rows are pinned.
        pinned: The number of rows to pin, of --hot_rows. If it exceeds the rows, all are pinned.
    """
    lookups = [ids[ids != NONE] for ids in lookups]
    pinned, ids_N = min(pinned, spec.rows), np.concatenate([np.zeros(0, np.int64), *lookups])
    pinned_N = np.arange(pinned, dtype=np.int64)
    if not spec.by_frequency and pinned < spec.rows:
        counts_V = np.bincount(ids_N, minlength=spec.rows)
        pinned_N = np.sort(np.argsort(-counts_V, kind="stable")[:pinned])
    loaded = np.count_nonzero(np.isin(np.unique(ids_N), pinned_N, invert=True))
    # The ids of any one call must fit.
    most = max([int(_HEADROOM * loaded), *map(len, lookups)])
    return CacheSize(pinned_N, min(most, spec.rows - pinned), loaded)


def step_bytes(
    model: Model, optimizer: Optimizer, data: Any, device: str = "", micro_batches: int = 1
) -> int:
    """Trace a training step and return about how many bytes of tensors it holds at its peak.

    The tables themselves are not counted. A micro-batch is traced with tables of one row each on
    the CPU and not run; a trace can take minutes. A size that the graph does not know is taken to
    be the unique ids of the largest lookup: 0.6 times its ids, rounded up, but at most the rows of
    its table. A second one of the same tensor is that of the next lookup. Behind a known size it is
    that of `Part.scored`, if the loss knows it. Within a function that XLA compiles for a step that
    it does not compile, nothing is counted. Micro-batches, and two steps, run side by side. Several
    micro-batches, or a model that also looks up these rows, have the gradients of a streamed loss.

    A step that XLA compiles has padding for any batch, and its distributions and lists of rows are
    in the memory of the device. They are counted, too. Two of its micro-batches are traced, as some
    rows are then updated in another way.

    Args:
        data: The data of one step, without a dimension of steps, as a nest of tensor specs.
        device: The device for which XLA compiles the step; empty if it does not.
        micro_batches: The number of micro-batches of a step.

    Raises:
        tf.errors.UnimplementedError: XLA has no form of the step.
    """
    peak, streamed = _trace_step(model, optimizer, data, device, min(micro_batches, 2))
    if device:
        return micro_batches * peak
    added = sum(_gradient_bytes(*each, optimizer, micro_batches) for each in streamed)
    return max(_OVERLAP, micro_batches) * peak + added


def _trace_step(
    model: Model, optimizer: Optimizer, data: Any, device: str, micro_batches: int
) -> tuple[int, list[tuple[TableSpec, float]]]:
    """Trace a step for `step_bytes`, with one micro-batch unless XLA compiles it.

    Returns:
        Its bytes, and the tables to whose rows the gradients of a streamed loss are added, with
        the numbers of these rows.
    """
    specs = model.tables()  # not within the trace, where initial values would become constants
    with tf.device(CPU):  # one row is enough: the step is traced, not run
        tables = {  # made here, as a traced function must not create variables
            name: DeviceTable(1, spec.columns, tf.zeros, slots=optimizer.slots)
            for name, spec in specs.items()
        }
    unique: list[int] = []
    streamed: list[tuple[TableSpec, float]] = []
    scored = [0]
    unique_rows = Representatives() if device else unique_rows_of_any
    if isinstance(unique_rows, Representatives):
        unique_rows.prepare(tables)

    def loss(batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the outcome of a batch; add the tables of its parts to `streamed`."""
        outcome = Outcome(*model.loss(batch, rows))
        added = [part for part in outcome.parts if micro_batches > 1 or part.table in rows]
        streamed.extend((specs[part.table], part.rows) for part in added)
        scored.extend(part.scored for part in outcome.parts)
        return outcome

    @tf.function(autograph=False, jit_compile=True if device else None)
    def one(data: Any) -> tf.Tensor:
        """Trace one step on `data`, add its lookups to `unique`, and return its loss."""
        batch = Batch(data, tf.zeros([2], tf.int64))
        if device and isinstance(model, Preparable):
            batch = model.prepare(batch)
        for name, lookup in model.lookups(batch).items():
            ids = max(part.shape.num_elements() or 0 for part in tf.nest.flatten(lookup))
            unique.append(min(math.ceil(_UNIQUE * ids), specs[name].rows))
        number, rate = tf.constant(1, tf.int64), tf.constant(0.1)
        batches = [batch] * (micro_batches if device else 1)
        known: Any = SimpleNamespace(lookups=model.lookups, loss=loss)
        return train_step(known, tables, optimizer, batches, rate, number, unique_rows)[0]

    with tf.device(device):
        graph = one.get_concrete_function(data).graph
    kept = sum(_bytes(variable) for variable in graph.variables) if device else 0
    sizes = sorted(unique, reverse=True) or [0]
    return kept + peak_bytes(graph, sizes, max(scored)), streamed


def _gradient_bytes(spec: TableSpec, rows: float, optimizer: Optimizer, parts: int) -> int:
    """Return the bytes of the gradients of the rows of a streamed loss, as each part has them.

    These are in blocks, joined, and side by side; then come their sum, and the rows with their
    slots. Measured with SGD and two and three parts: 7.5 and 11 times the bytes of the rows.
    """
    row = memory.row_bytes(memory.row_parts("", spec, optimizer.slots, (tf.float32, tf.float32)))
    return int(rows * (4 * spec.columns * (3 * parts + 1) + row))


def peak_bytes(graph: tf.Graph, unknown: Sequence[int], scored: int = 0) -> int:
    """Return the bytes of all live tensors at the moment when they take the most.

    The operations are assumed to run in the order of the graph. An operation needs its inputs and
    its results at once, and the peak of the largest function that it calls. Arguments, constants
    and variables count as 0 bytes, and a view (see `VIEWS`) counts as the tensor that it views.

    Args:
        graph: The graph of a traced function.
        unknown: The sizes to assume for the dimensions of a tensor that the graph does not know;
            the last is used again for further ones.
        scored: The size to assume for those after a known one; 0 to assume it as for others.
    """
    operations = executed(graph)
    buffer: dict[str, str] = {}  # a view -> the tensor that owns its memory
    last: dict[str, int] = {}  # a tensor -> the last operation that reads it
    for index, operation in enumerate(operations):
        for tensor in operation.inputs:
            last[buffer.get(tensor.name, tensor.name)] = index
        if operation.type in VIEWS:
            for source, view in zip(operation.inputs, operation.outputs, strict=False):
                buffer[view.name] = buffer.get(source.name, source.name)
    sizes: dict[str, int] = {}
    alive = peak = 0
    for index, operation in enumerate(operations):
        if operation.type not in (*VIEWS, *_FREE):
            for tensor in operation.outputs:
                sizes[tensor.name] = _bytes(tensor, unknown, scored)
                alive += sizes[tensor.name]
        inner = [] if "_XlaMustCompile" in operation.node_def.attr else called_graphs(operation)
        called = (peak_bytes(each, unknown, scored) for each in inner)
        peak = max(peak, alive + max(called, default=0))
        for tensor in (*operation.inputs, *operation.outputs):
            name = buffer.get(tensor.name, tensor.name)
            if last.get(name, index) == index:
                alive -= sizes.pop(name, 0)
    return peak


def _bytes(tensor: tf.Tensor | tf.Variable, unknown: Sequence[int] = (0,), scored: int = 0) -> int:
    """Return the bytes of a tensor, with sizes for its unknown dimensions (see `peak_bytes`).

    Return 0 if the rank or the size of the dtype is not known.
    """
    if tensor.shape.rank is None or not tensor.dtype.size:
        return 0
    known = [size for size in tensor.shape if size is not None]
    missing = len(tensor.shape) - len(known)
    assumed = [*unknown, *[unknown[-1]] * missing][:missing]
    if scored and missing and tensor.shape[0] is not None:
        assumed[0] = scored
    return math.prod([*known, *assumed]) * tensor.dtype.size


def rows_for_ids(
    specs: Mapping[str, TableSpec], slots: Mapping[str, Slot], settings: TableConfig
) -> dict[str, int]:
    """Return how many rows each table that grows gets, if they share the memory of --table_gb.

    All of them get the same number of rows. A table that has fewer ids leaves the rest of its share
    to the others.

    Raises:
        UsageError: The memory is not enough for one row of each.
    """
    specs = {name: spec for name, spec in specs.items() if spec.grows}
    sizes = {name: _row_bytes(spec, slots, settings) + ID_BYTES for name, spec in specs.items()}
    left = int(settings.table_gb * 1e9)
    rows: dict[str, int] = {}
    for name in sorted(specs, key=lambda name: specs[name].rows):
        share = left // sum(sizes[other] for other in sizes.keys() - rows.keys())
        rows[name] = min(share, specs[name].rows)
        left -= rows[name] * sizes[name]
    if not all(rows.values()):
        raise UsageError(
            f"--table_gb={settings.table_gb}: a row of each table takes {sum(sizes.values())} "
            "bytes; give more"
        )
    return rows


def rows_for_words(
    specs: Mapping[str, TableSpec],
    slots: Mapping[str, Slot],
    settings: TableConfig,
    vocabulary: VocabularyConfig,
) -> int:
    """Return the number of words whose rows fit in --table_gb, at most --max_vocab_size.

    Args:
        specs: The tables, which have a row for each word.

    Raises:
        UsageError: The memory is not enough for a single word, or a map of so many words does not
            fit in the memory of the machine; nothing of its size has been made.
    """
    taken = sum(_row_bytes(spec, slots, settings) for spec in specs.values())
    taken += _word_bytes(vocabulary.min_count)
    rows = min(int(settings.table_gb * 1e9) // taken, vocabulary.max_vocab_size or 2**31 - 2)
    if not rows:
        raise UsageError(f"--table_gb={settings.table_gb}: a word takes {taken} bytes; give more")
    items, free = [word_map(rows, vocabulary.min_count)], free_memory(settings, [])
    if too_much(items, free):
        raise memory.refusal(items, free, [f"give less than --table_gb={settings.table_gb}"])
    return rows


def id_map(rows: Mapping[str, int]) -> Item:
    """Return the approximate memory of the maps of ids, without their rows.

    Args:
        rows: The number of rows of each table that grows, by name.
    """
    count = sum(rows.values())
    return Item("ids and their counts", f"{count:,} ids", memory.HOST, count * ID_BYTES)


def word_map(rows: int, min_count: int) -> Item:
    """Return the approximate memory of a map of words, without their rows."""
    count = rows * _word_bytes(min_count)
    return Item("words and their counts", f"{rows:,} words", memory.HOST, count)


def _word_bytes(min_count: int) -> int:
    """Return the host bytes of a word in the map and in the distribution of negatives."""
    return key_bytes(STRING, min_count) + _WEIGHT_BYTES


def _row_bytes(spec: TableSpec, slots: Mapping[str, Slot], settings: TableConfig) -> int:
    """Return the bytes of a row with its slots."""
    return memory.row_bytes(memory.row_parts("", spec, slots, dtypes(settings)))
