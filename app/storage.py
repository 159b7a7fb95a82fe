"""From settings to tables: where each lives, whether all fit, what brings rows to the device."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client import device_lib  # the only one to tell the memory of a GPU

from app import system
from app.config import Config, OptimizerConfig
from app.errors import UsageError
from app.models.base import Model
from app.optimizers.base import Optimizer
from app.tables import keys, sharded
from app.tables.base import Table, TableSpec
from app.tables.device import DeviceTable
from app.tables.file import FileTable
from app.tables.keys import STRING, KeyMap
from app.tables.slab import Slab
from app.tables.table_file import TableFile
from app.training import checkpoint, growing, plan, staging, stored
from app.training import workdir as files
from app.training.activations import step_bytes
from app.training.plan import FILE, HOST, Item
from app.training.staging import InPlace, Room, Staging
from app.training.workdir import Workdir

DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}
# What --hot_rows=auto chooses from, as shares of a table's rows: the largest that fits.
_SHARES = (*(0.9**power for power in range(90)), 0.0)
# Of a word of --table=dynamic: its share of the distribution of negatives, and while that is made.
_WEIGHT_BYTES = 4 * 8
# Of the memory that is free, what a plan may take; the rest is for what no plan knows of.
_SHARE = 0.95
# What else a run takes: compiled steps, their executors and the text on its way. Measured with
# skip-gram, 4,096 tokens a step, and blocks of 0.25 and 2 MB of text: 0.09 GB.
_RUN = 90_000_000
# Steps of a call overlap: while one writes its rows, the next one reads.
_OVERLAP = 2
# Flags that take less memory, in the order in which a plan that does not fit proposes them.
_SMALLER = (
    {"optimizer": {"optimizer": "rowwise_adagrad"}},
    {"table": {"table_dtype": "bfloat16"}},
    {"table": {"table": "host", "hot_rows": "auto"}},
    {"table": {"table": "host", "hot_rows": "auto", "table_file": "FILE"}},
)


@dataclasses.dataclass(frozen=True)
class Storage:
    """Where tables are to live (see `decide`), and all that takes memory."""

    specs: Mapping[str, TableSpec]
    items: list[Item]
    rooms: dict[str, Room]


def decide(
    model: Model,
    batches: Callable[[], Iterable],
    tokens_BL: tf.TensorSpec,
    config: Config,
    devices: list[str],
    optimizers: Callable[[OptimizerConfig], Optimizer],
) -> Storage:
    """Where the tables of a run are to live, before any is made.

    batches: of the first epoch, to see what chunks of steps need. tokens_BL: of a step. devices:
    those that `TableSpec` counts; steps run on the first. optimizers: from settings to an
    optimizer. UsageError, with flags that would help, where the memory is not enough.
    """

    @functools.cache
    def needs() -> Mapping[str, list[np.ndarray]]:
        calls = staging.calls(config.table.stage_steps, config.input.steps_per_call)
        return staging.needs(model, batches(), config.run.seed, devices[0], calls)

    def plan_of(config: Config) -> Storage:
        optimizer = optimizers(config.optimizer)
        specs, step = model.tables(), _OVERLAP * step_bytes(model, optimizer, tokens_BL)
        others = [
            Item("activations of a step", "", devices[0], step),
            Item("program, graph and text", "", HOST, program + _RUN),
        ]
        return _storage(specs, optimizer, others, config, devices, needs, free)

    program = system.resident_bytes()
    free = _free(config, devices)
    found = plan_of(config)
    if plan.too_much(found.items, free):
        helping = [
            " ".join(
                f"--{name}={value}" for part in changes.values() for name, value in part.items()
            )
            for changes in _SMALLER
            if not plan.too_much(plan_of(_changed(config, changes)).items, free)
        ]
        raise plan.refusal(found.items, free, helping)
    return found


def make(
    storage: Storage,
    config: Config,
    devices: list[str],
    workdir: Workdir,
    words: KeyMap | None = None,
) -> dict[str, Table]:
    """The tables, each where it is to live.

    words: which have which row, of --table=dynamic.

    UsageError or RunError for a --table_file that cannot be, or that is not of this workdir.
    """
    makers = TABLES
    if config.table.table_file:
        makers = TABLES | {"host": functools.partial(_in_file, _table_file(config, workdir))}
    if words is not None:
        makers = TABLES | {"dynamic": functools.partial(_of_keys, words)}
    return {
        name: makers[config.table.table](name, spec, config, devices)
        for name, spec in storage.specs.items()
    }


def staged(
    storage: Storage,
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    config: Config,
    devices: list[str],
) -> InPlace | Staging:
    """What brings the rows of a run's tables to its steps."""
    if config.table.table != "host":
        return InPlace(tables)
    return Staging(
        model,
        tables,
        optimizer,
        seed=config.run.seed,
        device=devices[0],
        rooms=storage.rooms,
        stage_steps=config.table.stage_steps,
        steps_per_batch=config.input.steps_per_call,
    )


def _on_device(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    with tf.device(devices[spec.device]):
        return DeviceTable(spec.rows, spec.columns, spec.initial, **_stored(name, config))


def _on_host(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    with tf.device("CPU:0"):
        table = DeviceTable(spec.rows, spec.columns, spec.initial, **_stored(name, config))
    table.device = devices[0]  # where what is read of it is used
    return table


def _in_file(
    file: TableFile, name: str, spec: TableSpec, config: Config, devices: list[str]
) -> Table:
    table = FileTable(file, name, spec.rows, spec.columns, spec.initial, **_stored(name, config))
    table.device = devices[0]
    return table


def _of_keys(
    words: KeyMap, name: str, spec: TableSpec, config: Config, devices: list[str]
) -> Table:
    with tf.device(devices[spec.device]):
        return Slab(words, spec.columns, spec.initial, **_stored(name, config))


def key_map(model: Model, optimizer: Optimizer, config: Config) -> KeyMap:
    """A map of as many words as --table_gb has room for, with rows as those of the model.

    At most --max_vocab_size. UsageError if that is none.
    """
    dtypes, settings, admits = _dtypes(config), config.table, config.vocabulary.min_count
    items = [
        item
        for name, spec in model.tables().items()
        for item in plan.table(name, dataclasses.replace(spec, rows=1), optimizer, {"": 1}, dtypes)
    ]
    row_bytes = sum(item.bytes for item in items) + _WEIGHT_BYTES
    row_bytes += keys.key_bytes(STRING, admits)
    most = config.vocabulary.max_vocab_size or 2**31 - 2
    rows = min(int(settings.table_gb * 1e9) // row_bytes, most)
    if not rows:
        raise UsageError(
            f"--table_gb={settings.table_gb}: a word takes {row_bytes} bytes; give more"
        )
    return KeyMap(rows, STRING, admits, settings.max_age, growing.PINNED)


def _table_file(config: Config, workdir: Workdir) -> TableFile:
    path, newest = Path(config.table.table_file), checkpoint.paths(workdir.checkpoints)[:1]
    # Only a checkpoint of rows in a file needs what the file holds.
    layouts = [layout for folder in newest for layout in stored.read_layouts(folder).values()]
    resume = any(layout["kind"] == "file" for layout in layouts)
    return TableFile(path, files.owner(workdir), resume)


def _sharded(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    return sharded.make(
        spec.rows,
        spec.columns,
        spec.initial,
        sharded.local_devices(),
        config.table.shard_rule,
        **_stored(name, config),
    )


TABLES: dict[str, Callable[[str, TableSpec, Config, list[str]], Table]] = {
    "device": _on_device,
    "host": _on_host,
    "sharded": _sharded,
    "dynamic": _of_keys,  # which `make` gives the map
}


def _stored(name: str, config: Config) -> dict[str, Any]:
    """How numbers are stored: options of `DeviceTable`."""
    return {
        "dtype": DTYPES[config.table.table_dtype],
        "slot_dtype": DTYPES[config.table.slot_dtype],
        "rounding": config.table.rounding,
        "seed": zlib.crc32(name.encode()) ^ config.run.seed,
    }


def _storage(
    specs: Mapping[str, TableSpec],
    optimizer: Optimizer,
    others: list[Item],
    config: Config,
    devices: list[str],
    needs: Callable[[], Mapping[str, list[np.ndarray]]],
    free: Mapping[str, int],
) -> Storage:
    """The plan of a run with these settings, whether it fits or not."""
    dtypes = _dtypes(config)

    if config.table.table == "dynamic":
        rows = max(spec.rows for spec in specs.values())
        size = rows * (keys.key_bytes(STRING, config.vocabulary.min_count) + _WEIGHT_BYTES)
        others = [*others, Item("words and their counts", f"{rows:,} words", HOST, size)]

    def items(rooms: Mapping[str, Room]) -> list[Item]:
        found = []
        for name, spec in specs.items():
            places = _places(spec, config, devices)
            found += plan.table(name, spec, optimizer, places, dtypes)
            if name in rooms:
                size = plan.Size(len(rooms[name].hot_N), rooms[name].cold, rooms[name].needed)
                found += plan.staged(name, spec, optimizer, size, devices[0], dtypes)
        return found + others

    def rooms(hot: Callable[[TableSpec], int]) -> dict[str, Room]:
        return {
            name: staging.room(specs[name], needed, hot(specs[name]))
            for name, needed in needs().items()
        }

    if config.table.table != "host":
        return Storage(specs, items({}), {})
    if config.table.hot_rows != "auto":
        chosen = rooms(lambda spec: int(config.table.hot_rows))
    else:
        for share in _SHARES:
            chosen = rooms(lambda spec, share=share: int(share * spec.rows))
            if not plan.too_much(items(chosen), free):
                break
    return Storage(specs, items(chosen), chosen)


def _dtypes(config: Config) -> tuple[tf.DType, tf.DType]:
    return DTYPES[config.table.table_dtype], DTYPES[config.table.slot_dtype]


def _places(spec: TableSpec, config: Config, devices: list[str]) -> dict[str, int]:
    """How many rows of a table lie where."""
    if config.table.table == "sharded":
        names = [name.rpartition("device:")[2] for name in sharded.local_devices()]
        return {name: -(-spec.rows // len(names)) for name in names}
    if config.table.table == "host":
        return {FILE if config.table.table_file else HOST: spec.rows}
    return {devices[spec.device]: spec.rows}


def _free(config: Config, devices: list[str]) -> dict[str, int]:
    """What each place has for tables, in bytes, with what this process has taken already."""
    found = {HOST: int(_SHARE * system.free_bytes()) + system.resident_bytes()}
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


def _as_flags(changes: Mapping[str, Mapping[str, str]]) -> str:
    values = {name: value for part in changes.values() for name, value in part.items()}
    return " ".join(f"--{name}={value}" for name, value in values.items())


def _changed(config: Config, changes: Mapping[str, Mapping[str, str]]) -> Config:
    parts = {
        name: dataclasses.replace(getattr(config, name), **values)
        for name, values in changes.items()
    }
    return dataclasses.replace(config, **parts)
