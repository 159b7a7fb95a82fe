"""Plan the memory of a run before a table is made, then place the tables by that plan."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checkpoints.workdir import Workdir
from ..config import Config
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..system import devices, host_memory
from ..tables import sharded
from ..tables.base import TableSpec
from ..tables.dynamic.keys import KeyMap
from ..training import cache_size, memory_plan
from ..training.activations import step_bytes
from ..training.cache_size import CacheSize
from ..training.job import PlacedTables
from ..training.memory_plan import FILE, HOST, Item
from ..types import Batches
from . import dynamic_rows, storage, updates
from .free_memory import free_memory

# --hot_rows=auto chooses the largest of these shares of a table's rows that fits.
_SHARES = (*(0.9**power for power in range(90)), 0.0)
# Bytes of compiled steps, their executors and the text in the pipeline. Measured with skip-gram,
# 4,096 tokens a step, and blocks of 0.25 and 2 MB of text: 0.09 GB.
_RUN = 90_000_000
# Steps of a call overlap: while one writes its rows, the next one reads.
_OVERLAP = 2


class Plan(NamedTuple):
    """The memory of a run.

    Attributes:
        items: Everything that takes memory.
        rooms: The caches on the device for tables that live in the host's memory or in a file.
    """

    items: list[Item]
    rooms: dict[str, CacheSize]


def place_tables(
    model: Model,
    batches: Batches,
    data: Any,
    config: Config,
    optimizer: Optimizer,
    workdir: Workdir,
    others: Sequence[Item] = (),
    keys: KeyMap | None = None,
) -> PlacedTables:
    """Plan the memory of a job, and make its tables unless --plan_only is given.

    Args:
        model: The model.
        batches: The batches of the job.
        data: See `plan`.
        config: The settings of the run.
        optimizer: The optimizer.
        workdir: The workdir of the run.
        others: See `plan`.
        keys: The map from words to rows of --table=dynamic; None to map ids as they occur.

    Returns:
        The tables, empty for --plan_only.

    Raises:
        UsageError: The memory is not enough. No table has been made.
    """
    places, dynamic = devices.shard_devices(config), None
    if keys is not None:
        dynamic = storage.word_table_maker(keys)
    elif config.table.table == "dynamic":
        rows = dynamic_rows.rows_for_ids(model.tables(), optimizer, config)
        dynamic = storage.id_table_maker(rows)
    planned = plan(model, lambda: batches(range(1), 0), data, config, places, others)
    tables = {}
    if not config.run.plan_only:
        tables = storage.make_tables(
            model.tables(), config, places, workdir, dynamic, optimizer.slots
        )
    staging = storage.make_staging(planned.rooms, model, tables, config, places)
    micro_batches = config.input.micro_batches or 1
    return PlacedTables(tables, devices.name(config.run), micro_batches, staging, planned.items)


def check_word_map(rows: int, config: Config) -> None:
    """Check that a map of words fits in memory, before anything of its size is made.

    Args:
        rows: The number of words.
        config: The settings of the run.

    Raises:
        UsageError: The map alone does not fit.
    """
    items, free = [_keys("words", rows, dynamic_rows.word_bytes(config))], free_memory(config, [])
    if memory_plan.too_much(items, free):
        raise memory_plan.refusal(items, free, [_less(config)])


def plan(
    model: Model,
    batches: Callable[[], Iterable],
    data: Any,
    config: Config,
    devices: list[str],
    others: Sequence[Item] = (),
) -> Plan:
    """Plan the memory of a run before a table is made.

    Args:
        model: The model.
        batches: Gives the batches of the first epoch, to count the rows of a chunk of steps.
        data: The nest of tensor specs of a micro-batch.
        config: The settings of the run.
        devices: The devices that `TableSpec` counts; steps run on the first.
        others: Other memory of the task.

    Returns:
        The plan.

    Raises:
        UsageError: The memory is not enough; the message names flags that would help.
    """

    @functools.cache
    def needs() -> Mapping[str, list[np.ndarray]]:
        calls = cache_size.calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)
        micro = config.input.micro_batches or 1
        return cache_size.first_lookups(model, batches(), config.run.seed, devices[0], calls, micro)

    def plan_with(config: Config) -> Plan:
        optimizer = updates.make_optimizer(config.optimizer)
        tables = _tables(model.tables(), optimizer, config, devices)
        # The trace of a step can take minutes, so it is left out for tables that alone do not fit.
        if config.table.table != "dynamic" and memory_plan.too_much(tables, free):
            return Plan([*tables, *others], {})
        parallel = max(_OVERLAP, config.input.micro_batches)  # micro-batches run side by side
        step = parallel * step_bytes(model, optimizer, data)
        items = [
            *others,
            Item("activations of a step", "", devices[0], step),
            Item("program, graph and text", "", HOST, program + _RUN),
        ]
        return _plan(model.tables(), optimizer, items, config, devices, needs, free)

    program, free = host_memory.resident_bytes(), free_memory(config, devices)
    chosen = plan_with(config)
    if memory_plan.too_much(chosen.items, free):
        remedies = [
            _as_flags(changes)
            for changes in _smaller(config)
            if not memory_plan.too_much(plan_with(_changed(config, changes)).items, free)
        ]
        if config.table.table == "dynamic":
            remedies = [_less(config)]
        raise memory_plan.refusal(chosen.items, free, remedies)
    return chosen


def _plan(
    specs: Mapping[str, TableSpec],
    optimizer: Optimizer,
    others: list[Item],
    config: Config,
    devices: list[str],
    needs: Callable[[], Mapping[str, list[np.ndarray]]],
    free: Mapping[str, int],
) -> Plan:
    """Return the plan of a run with these settings, whether it fits or not."""
    if config.table.table == "dynamic":
        rows_by_table = dynamic_rows.rows_for_ids(specs, optimizer, config)
        if rows_by_table:
            rows, kind, key_bytes = sum(rows_by_table.values()), "ids", dynamic_rows.ID_BYTES
        else:
            rows, kind = max(spec.rows for spec in specs.values()), "words"
            key_bytes = dynamic_rows.word_bytes(config)
        others = [*others, _keys(kind, rows, key_bytes)]
        specs = {
            name: dataclasses.replace(spec, rows=rows_by_table.get(name, spec.rows))
            for name, spec in specs.items()
        }

    def items(rooms: Mapping[str, CacheSize]) -> list[Item]:
        tables = _tables(specs, optimizer, config, devices)
        for name, room in rooms.items():
            size = memory_plan.Size(len(room.pinned_N), room.unpinned, room.loaded)
            dtypes = storage.dtypes(config)
            tables += memory_plan.staged(name, specs[name], optimizer, size, devices[0], dtypes)
        return tables + others

    calls = cache_size.calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)

    def rooms(hot: Callable[[TableSpec], int]) -> dict[str, CacheSize]:
        return {
            name: cache_size.estimate_cache_size(specs[name], needed[:calls], hot(specs[name]))
            for name, needed in needs().items()
        }

    # To find the rows that steps need, steps are drawn; no rows help where the rest does not fit.
    if config.table.table != "host" or memory_plan.too_much(others, free):
        return Plan(items({}), {})
    if config.table.hot_rows != "auto":
        chosen = rooms(lambda spec: int(config.table.hot_rows))
    else:
        chosen = rooms(lambda spec: 0)
        for share in () if memory_plan.too_much(items(chosen), free) else _SHARES:
            chosen = rooms(lambda spec, share=share: int(share * spec.rows))
            if not memory_plan.too_much(items(chosen), free):
                break
    return Plan(items(chosen), chosen)


def _keys(kind: str, rows: int, key_bytes: int) -> Item:
    return Item(f"{kind} and their counts", f"{rows:,} {kind}", HOST, rows * key_bytes)


def _less(config: Config) -> str:
    return f"give less than --table_gb={config.table.table_gb}"


def _tables(
    specs: Mapping[str, TableSpec], optimizer: Optimizer, config: Config, devices: list[str]
) -> list[Item]:
    """Return the memory of the tables and their slots, in the place where each table lives."""
    return [
        item
        for name, spec in specs.items()
        for item in memory_plan.table(
            name, spec, optimizer, _places(spec, config, devices), storage.dtypes(config)
        )
    ]


def _places(spec: TableSpec, config: Config, devices: list[str]) -> dict[str, int]:
    """Return the number of rows of a table in each place."""
    if config.run.strategy == "parameter_server" and spec.trained:
        return {"parameter servers": spec.rows}
    if config.table.table == "sharded":
        names = [name.rpartition("device:")[2] for name in sharded.local_devices()]
        return {name: -(-spec.rows // len(names)) for name in names}
    if config.table.table == "host":
        return {FILE if config.table.table_file else HOST: spec.rows}
    return {devices[spec.device]: spec.rows}


def _smaller(config: Config) -> list[dict[str, dict[str, Any]]]:
    """Return changes of flags that take less memory, in the order in which they are proposed."""
    staged = {"table": "host", "hot_rows": "auto"}
    return [
        {"optimizer": {"optimizer": "rowwise_adagrad"}},
        {"table": {"table_dtype": "bfloat16"}},
        {"table": staged},
        {"table": {**staged, "stage_steps": config.input.steps_per_call}},
        {"table": {**staged, "table_file": "FILE"}},
    ]


def _as_flags(changes: Mapping[str, Mapping[str, str]]) -> str:
    values = {name: value for part in changes.values() for name, value in part.items()}
    return " ".join(f"--{name}={value}" for name, value in values.items())


def _changed(config: Config, changes: Mapping[str, Mapping[str, str]]) -> Config:
    for name, values in changes.items():
        section = dataclasses.replace(getattr(config, name), **values)
        config = dataclasses.replace(config, **{name: section})
    return config
