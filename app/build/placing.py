"""Where the tables of a run are to live, decided before any is made: whether they fit, and how."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.client import device_lib  # the only one to tell the memory of a GPU

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
from ..training.memory_plan import FILE, HOST, Item
from ..types import Batches
from . import storage, updates

# What --hot_rows=auto chooses from, as shares of a table's rows: the largest that fits.
_SHARES = (*(0.9**power for power in range(90)), 0.0)
# Of the memory that is free, what a plan may take; the rest is for what no plan knows of.
_SHARE = 0.95
# What else a run takes: compiled steps, their executors and the text on its way. Measured with
# skip-gram, 4,096 tokens a step, and blocks of 0.25 and 2 MB of text: 0.09 GB.
_RUN = 90_000_000
# Steps of a call overlap: while one writes its rows, the next one reads.
_OVERLAP = 2


class Placing(NamedTuple):
    """All that takes memory, and the rooms on the device for tables at home elsewhere."""

    items: list[Item]
    rooms: dict[str, CacheSize]


def place(
    model: Model,
    batches: Batches,
    data: Any,
    config: Config,
    optimizer: Optimizer,
    workdir: Workdir,
    others: Sequence[Item] = (),
    keys: KeyMap | None = None,
) -> dict[str, Any]:
    """Where the tables of a job live, and what brings them to its steps: fields of a `Job`.

    data, others: see `decide`. keys: which word has which row, of --table=dynamic; without, ids
    have rows as they come. UsageError, before any table is made, if they do not fit. Nothing is
    made for --plan_only.
    """
    places, dynamic = devices.several(config), None
    if keys is not None:
        dynamic = storage.of_words(keys)
    elif config.table.table == "dynamic":
        dynamic = storage.of_ids(storage.rows_of_ids(model.tables(), optimizer, config))
    planned = decide(model, lambda: batches(range(1), 0), data, config, places, others)
    tables = {}
    if not config.run.plan_only:
        tables = storage.make(model.tables(), config, places, workdir, dynamic)
    staging = storage.staged(planned.rooms, model, tables, optimizer, config, places)
    return {
        "tables": tables,
        "memory": planned.items,
        "staging": staging,
        "micro_batches": config.input.micro_batches or 1,
    }


def require_words(rows: int, config: Config) -> None:
    """Check that the machine can hold a map of words, before anything of its size is made.

    Raises:
        UsageError: The map alone does not fit.
    """
    items, free = [_keys("words", rows, storage.word_bytes(config))], _free(config, [])
    if memory_plan.too_much(items, free):
        raise memory_plan.refusal(items, free, [_less(config)])


def decide(
    model: Model,
    batches: Callable[[], Iterable],
    data: Any,
    config: Config,
    devices: list[str],
    others: Sequence[Item] = (),
) -> Placing:
    """The memory of a run, before a table is made.

    batches: of the first epoch, to see what chunks of steps need. data: the nest of tensor specs of
    a micro-batch. devices: those that `TableSpec` counts; steps run on the first.
    others: what else the task keeps in memory. UsageError, with flags that would help, where the
    memory is not enough.
    """

    @functools.cache
    def needs() -> Mapping[str, list[np.ndarray]]:
        calls = cache_size.calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)
        micro = config.input.micro_batches or 1
        return cache_size.first_lookups(model, batches(), config.run.seed, devices[0], calls, micro)

    def placing(config: Config) -> Placing:
        optimizer = updates.optimizer(config.optimizer)
        tables = _tables(model.tables(), optimizer, config, devices)
        # To trace a step of tables that are far too large can take minutes, and helps nobody.
        if config.table.table != "dynamic" and memory_plan.too_much(tables, free):
            return Placing([*tables, *others], {})
        each = max(_OVERLAP, config.input.micro_batches)  # as they are made side by side
        step = each * step_bytes(model, optimizer, data)
        items = [
            *others,
            Item("activations of a step", "", devices[0], step),
            Item("program, graph and text", "", HOST, program + _RUN),
        ]
        return _placing(model.tables(), optimizer, items, config, devices, needs, free)

    program, free = host_memory.resident_bytes(), _free(config, devices)
    found = placing(config)
    if memory_plan.too_much(found.items, free):
        helping = [
            _as_flags(changes)
            for changes in _smaller(config)
            if not memory_plan.too_much(placing(_changed(config, changes)).items, free)
        ]
        if config.table.table == "dynamic":
            helping = [_less(config)]
        raise memory_plan.refusal(found.items, free, helping)
    return found


def _placing(
    specs: Mapping[str, TableSpec],
    optimizer: Optimizer,
    others: list[Item],
    config: Config,
    devices: list[str],
    needs: Callable[[], Mapping[str, list[np.ndarray]]],
    free: Mapping[str, int],
) -> Placing:
    """The plan of a run with these settings, whether it fits or not."""
    if config.table.table == "dynamic":
        rows_of = storage.rows_of_ids(specs, optimizer, config)
        if rows_of:
            rows, what, each = sum(rows_of.values()), "ids", storage.ID_BYTES
        else:
            rows, what = max(spec.rows for spec in specs.values()), "words"
            each = storage.word_bytes(config)
        others = [*others, _keys(what, rows, each)]
        specs = {
            name: dataclasses.replace(spec, rows=rows_of.get(name, spec.rows))
            for name, spec in specs.items()
        }

    def items(rooms: Mapping[str, CacheSize]) -> list[Item]:
        found = _tables(specs, optimizer, config, devices)
        for name, room in rooms.items():
            size = memory_plan.Size(len(room.hot_N), room.cold, room.needed)
            dtypes = storage.dtypes(config)
            found += memory_plan.staged(name, specs[name], optimizer, size, devices[0], dtypes)
        return found + others

    calls = cache_size.calls_per_chunk(config.table.stage_steps, config.input.steps_per_call)

    def rooms(hot: Callable[[TableSpec], int]) -> dict[str, CacheSize]:
        return {
            name: cache_size.estimate_cache_size(specs[name], needed[:calls], hot(specs[name]))
            for name, needed in needs().items()
        }

    if config.table.table != "host":
        return Placing(items({}), {})
    if config.table.hot_rows != "auto":
        chosen = rooms(lambda spec: int(config.table.hot_rows))
    else:
        chosen = rooms(lambda spec: 0)
        for share in () if memory_plan.too_much(items(chosen), free) else _SHARES:
            chosen = rooms(lambda spec, share=share: int(share * spec.rows))
            if not memory_plan.too_much(items(chosen), free):
                break
    return Placing(items(chosen), chosen)


def _keys(kind: str, rows: int, each: int) -> Item:
    return Item(f"{kind} and their counts", f"{rows:,} {kind}", HOST, rows * each)


def _less(config: Config) -> str:
    return f"give less than --table_gb={config.table.table_gb}"


def _tables(
    specs: Mapping[str, TableSpec], optimizer: Optimizer, config: Config, devices: list[str]
) -> list[Item]:
    """Return the tables with their slots, where they are at home."""
    return [
        item
        for name, spec in specs.items()
        for item in memory_plan.table(
            name, spec, optimizer, _places(spec, config, devices), storage.dtypes(config)
        )
    ]


def _places(spec: TableSpec, config: Config, devices: list[str]) -> dict[str, int]:
    """How many rows of a table lie where."""
    if config.run.strategy == "parameter_server" and spec.trained:
        return {"parameter servers": spec.rows}
    if config.table.table == "sharded":
        names = [name.rpartition("device:")[2] for name in sharded.local_devices()]
        return {name: -(-spec.rows // len(names)) for name in names}
    if config.table.table == "host":
        return {FILE if config.table.table_file else HOST: spec.rows}
    return {devices[spec.device]: spec.rows}


def _free(config: Config, devices: list[str]) -> dict[str, int]:
    """What each place has for tables, in bytes, with what this process has taken already."""
    found = {HOST: int(_SHARE * host_memory.free_bytes()) + host_memory.resident_bytes()}
    for name in devices:
        if config.table.device_memory:
            found[name] = int(config.table.device_memory * 1e9)
        elif name.startswith("GPU"):
            found[name] = int(_SHARE * _gpu_bytes(name))
    if config.table.table_file:
        path = Path(config.table.table_file)
        there = path.stat().st_size if path.is_file() else 0
        with contextlib.suppress(OSError):  # of a folder that is still to be made
            found[FILE] = there + shutil.disk_usage(path.absolute().parent).free
    return found


def _gpu_bytes(name: str) -> int:
    """The memory that TensorFlow may take of a GPU."""
    for device in device_lib.list_local_devices():
        if device.name.endswith(name):
            return device.memory_limit
    raise AssertionError(f"{name} is not here")


def _smaller(config: Config) -> list[dict[str, dict[str, Any]]]:
    """Flags that take less memory, in the order in which a plan that does not fit proposes them."""
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
    parts = {
        name: dataclasses.replace(getattr(config, name), **values)
        for name, values in changes.items()
    }
    return dataclasses.replace(config, **parts)
