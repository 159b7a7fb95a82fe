"""Plan the memory of a run before a table is made, then place the tables by that plan."""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checkpoints.workdir import Workdir
from ..models.base import Model
from ..settings import Config, OptimizerConfig, flag_values
from ..system import devices, host_memory
from ..system.xla import renumber_functions
from ..tables import sharded
from ..tables.base import TableSpec
from ..tables.cached import CacheSize
from ..tables.dynamic.keys import KeyMap
from ..training import memory_plan
from ..training.activations import step_bytes
from ..training.cache_size import calls_per_chunk, estimate_cache_size, first_lookups
from ..training.job import Job, PlacedTables, TrainingData
from ..training.memory_plan import FILE, HOST, Item, too_much
from ..types import Batches
from . import dynamic_rows, storage, updates
from .free_memory import free_memory

# Bytes of compiled steps, their executors and the text in the pipeline. Measured with skip-gram,
# 4,096 tokens a step, and blocks of 0.25 and 2 MB of text: 0.09 GB.
_RUN = 90_000_000
# Steps of a call overlap: while one writes its rows, the next one reads.
_OVERLAP = 2


class Plan(NamedTuple):
    """The memory of a run.

    Attributes:
        items: Everything that takes memory.
        cache_sizes: The sizes of the device caches of --table=host, by table; empty otherwise.
    """

    items: list[Item]
    cache_sizes: dict[str, CacheSize]


def place_tables(
    model: Model,
    batches: Batches,
    micro_batch: Any,
    config: Config,
    workdir: Workdir,
    others: Sequence[Item] = (),
    keys: KeyMap | None = None,
) -> PlacedTables:
    """Plan the memory of a job, then make its tables and their stage.

    With --plan_only no table is made.

    Args:
        model: The model.
        batches: The batches of the job. Some of the first epoch are read to plan --table=host.
        micro_batch: The nest of tensor specs of one micro-batch of one step.
        config: The settings of the run.
        workdir: The workdir of the run.
        others: Other memory of the task.
        keys: The map from words to rows of --table=dynamic; None to map ids as they occur.

    Returns:
        The tables (none for --plan_only), with their stage, device and memory plan.

    Raises:
        UsageError: The memory is not enough (no table has been made), or --table_file cannot be
            used.
    """
    renumber_functions()  # the plan and the steps share functions, which are traced here
    places, dynamic, rows = devices.shard_devices(config), None, {}
    if keys is not None:
        dynamic = storage.word_table_maker(keys)
        others = [*others, dynamic_rows.word_map(keys.capacity, config)]
    elif config.table.table == "dynamic":
        rows = dynamic_rows.rows_for_ids(model.tables(), config)
        dynamic = storage.id_table_maker(rows)
        others = [*others, dynamic_rows.id_map(rows)]
    planned = plan(model, lambda: batches(range(1), 0), micro_batch, config, places, others, rows)
    tables = {}
    if not config.run.plan_only:
        slots = updates.make_optimizer(config.optimizer).slots
        tables = storage.make_tables(model.tables(), config, places, workdir, dynamic, slots)
    staging = storage.make_staging(planned.cache_sizes, model, tables, config, places[0])
    micro_batches = config.input.micro_batches or 1
    return PlacedTables(tables, places[0], micro_batches, staging, planned.items)


def make_job(
    config: Config, model: Model, placed: PlacedTables, data: TrainingData, **others: Any
) -> Job:
    """Return the job of a model, with the optimizer and the learning rate that the flags choose.

    Args:
        config: The settings of the run.
        model: The model.
        placed: Its tables, from `place_tables`.
        data: The batches to train on.
        **others: The other attributes of `Job`, by name.
    """
    optimizer = updates.make_optimizer(config.optimizer)
    rate = updates.make_learning_rate(config.optimizer)
    return Job(model, placed, optimizer, rate, data, **others)


def check_word_map(rows: int, config: Config) -> None:
    """Raise UsageError if a map of words does not fit in memory; make nothing of its size.

    Args:
        rows: The number of words.
        config: The settings of the run.

    Raises:
        UsageError: The map alone does not fit.
    """
    items, free = [dynamic_rows.word_map(rows, config)], free_memory(config, [])
    if too_much(items, free):
        raise memory_plan.refusal(items, free, _advice(config))


def plan(
    model: Model,
    batches: Callable[[], Iterable],
    micro_batch: Any,
    config: Config,
    devices: list[str],
    others: Sequence[Item] = (),
    rows: Mapping[str, int] = {},
) -> Plan:
    """Plan the memory of a run before a table is made; raise UsageError if it is not enough.

    For --table=host with --hot_rows=auto, the plan has as many hot rows as fit.

    Args:
        model: The model.
        batches: Gives the batches of the first epoch, to count the rows of a chunk of steps. It is
            called only to plan --table=host, also as a remedy for other tables that do not fit.
        micro_batch: The nest of tensor specs of one micro-batch of one step.
        config: The settings of the run.
        devices: The devices that `TableSpec` counts; steps run on the first.
        others: Other memory of the task.
        rows: The rows of tables that get fewer than the model asks for, by name.

    Returns:
        The plan.

    Raises:
        UsageError: The memory is not enough. The message names flags that would help.
    """
    program = Item("program, graph and text", "", HOST, host_memory.resident_bytes() + _RUN)
    free, micro_batches = free_memory(config, devices), config.input.micro_batches or 1
    specs = {
        name: dataclasses.replace(spec, rows=rows.get(name, spec.rows))
        for name, spec in model.tables().items()
    }

    @functools.cache  # the trace of a step can take minutes
    def beside_tables(optimizer: OptimizerConfig) -> list[Item]:
        """Return the memory of everything but tables; trace a step with the optimizer for it."""
        parallel = max(_OVERLAP, micro_batches)  # micro-batches run side by side
        count = parallel * step_bytes(model, updates.make_optimizer(optimizer), micro_batch)
        return [*others, Item("activations of a step", "", devices[0], count), program]

    @functools.cache
    def lookups() -> Mapping[str, list[np.ndarray]]:
        """Read the first batches; return the ids that each call looks up, by table."""
        calls = calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)
        return first_lookups(model, batches(), config.run.seed, devices[0], calls, micro_batches)

    def plan_with(config: Config) -> Plan:
        """Return the plan with these settings, fitting or not; `auto` is all hot rows that fit."""
        chosen = plan_tables(specs, config, devices)
        if too_much(chosen.items, free):
            return chosen
        rest = beside_tables(config.optimizer)
        chosen = plan_tables(specs, config, devices, rest)
        if config.table.table != "host" or too_much(chosen.items, free):
            return chosen
        most, hot_rows = max(spec.rows for spec in specs.values()), config.table.hot_rows
        counts = range(most + 1) if hot_rows == "auto" else [int(hot_rows)]
        cached = functools.partial(plan_tables, specs, config, devices, rest, lookups())
        return cached(_largest(counts, lambda hot: not too_much(cached(hot).items, free)))

    chosen = plan_with(config)
    if too_much(chosen.items, free):
        values, remedies = flag_values.by_name(config), []
        for changes in _smaller(config):
            if not too_much(plan_with(flag_values.from_names(values | changes)).items, free):
                remedies.append(" ".join(f"--{name}={value}" for name, value in changes.items()))
        raise memory_plan.refusal(chosen.items, free, remedies or _advice(config))
    return chosen


def plan_tables(
    specs: Mapping[str, TableSpec],
    config: Config,
    devices: list[str],
    others: Sequence[Item] = (),
    lookups: Mapping[str, list[np.ndarray]] = {},
    hot_rows: int = 0,
) -> Plan:
    """Return the plan of the tables and their caches with these settings, whether it fits or not.

    Args:
        specs: The tables, by name.
        config: The settings.
        devices: The devices that `TableSpec` counts; steps run on the first.
        others: All other memory, which the plan then includes.
        lookups: The ids that each call of the first chunk looks up, by table; a table without them
            has no cache.
        hot_rows: The number of rows of each table with a cache that stay on the device.
    """
    optimizer, items, cache_sizes = updates.make_optimizer(config.optimizer), [], {}
    # As `training.step.train_function` decides it, with the runner of one device.
    is_compiled = devices[0].startswith("GPU") and config.run.strategy == "none"
    for name, spec in specs.items():
        parts = memory_plan.row_parts(name, spec, optimizer, storage.dtypes(config))
        stored = memory_plan.table(parts, _places(spec, config, devices))
        items += stored
        if config.run.sync_steps > 1:
            items += memory_plan.last_exchange(name, spec.rows, stored)
        rows = spec.rows if config.table.table in ("device", "dynamic") else 0  # that steps address
        if name in lookups:
            calls = calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)
            cache_sizes[name] = estimate_cache_size(spec, lookups[name][:calls], hot_rows)
            items += memory_plan.cache(name, parts, spec.rows, cache_sizes[name], devices[0])
            rows = len(cache_sizes[name].pinned_N) + cache_sizes[name].unpinned
        if is_compiled and rows:
            items.append(memory_plan.representatives(name, rows, devices[0]))
    return Plan([*items, *others], cache_sizes)


def _largest(numbers: Sequence[int], fits: Callable[[int], bool]) -> int:
    """Return the largest of rising numbers that fits, by bisection; the first if none fits."""
    if fits(numbers[-1]):
        return numbers[-1]
    return numbers[bisect_left(numbers, True, lo=1, key=lambda number: not fits(number)) - 1]


def _places(spec: TableSpec, config: Config, devices: list[str]) -> dict[str, int]:
    """Return the number of rows of a table in each place: a device, `HOST`, `FILE` or servers."""
    if config.run.strategy == "parameter_server" and spec.trained:
        return {"parameter servers": spec.rows}
    if config.table.table == "sharded":
        names = [name.rpartition("device:")[2] for name in sharded.local_devices()]
        return {name: -(-spec.rows // len(names)) for name in names}
    if config.table.table == "host":
        return {FILE if config.table.table_file else HOST: spec.rows}
    return {devices[spec.device]: spec.rows}


def _smaller(config: Config) -> list[dict[str, Any]]:
    """Return changes of flags that may take less memory, in the order in which to propose them.

    There is none for --table=dynamic.
    """
    host = {"table": "host", "hot_rows": "auto"}
    changes = [
        {"optimizer": "rowwise_adagrad"},
        {"table_dtype": "bfloat16"},
        host,
        {**host, "stage_steps": config.input.steps_per_call},
        {**host, "table_file": "FILE"},
    ]
    return changes if config.table.table != "dynamic" else []


def _advice(config: Config) -> list[str]:
    """Return the advice for a run that no change of `_smaller` helps."""
    if config.table.table == "dynamic":
        return [f"give less than --table_gb={config.table.table_gb}"]
    first = "samples" if config.run.task == "recommend" else "max_vocab_size"
    return [f"lower --{first}, --dim or --batch_tokens"]
