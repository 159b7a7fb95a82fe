"""From settings to tables, and to what brings their rows to the steps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from app.config import Config
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
from app.training import checkpoint, growing, plan, stored
from app.training import workdir as files
from app.training.staging import InPlace, Room, Staging
from app.training.workdir import Workdir

DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}
# Of a word of --table=dynamic: its share of the distribution of negatives, and while that is made.
_WEIGHT_BYTES = 4 * 8


def make(
    specs: Mapping[str, TableSpec],
    config: Config,
    devices: list[str],
    workdir: Workdir,
    words: KeyMap | None = None,
) -> dict[str, Table]:
    """The tables, each where it is to live.

    devices: those that `TableSpec.device` counts. words: which has which row, of --table=dynamic.
    UsageError or RunError for a --table_file that cannot be, or that is not of this workdir.
    """
    makers = TABLES
    if config.table.table_file:
        makers = TABLES | {"host": functools.partial(_in_file, _table_file(config, workdir))}
    if words is not None:
        makers = TABLES | {"dynamic": functools.partial(_of_keys, words)}
    return {
        name: makers[config.table.table](name, spec, config, devices)
        for name, spec in specs.items()
    }


def staged(
    rooms: Mapping[str, Room],
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
        rooms=rooms,
        stage_steps=config.table.stage_steps,
        steps_per_batch=config.input.steps_per_call,
    )


def _on_device(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    with tf.device(devices[spec.device]):
        return DeviceTable(spec.rows, spec.columns, spec.initial, **_stored(name, config))


def _on_host(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    with tf.device("CPU:0"):
        table = DeviceTable(spec.rows, spec.columns, spec.initial, **_stored(name, config))
    table.device = devices[spec.device]  # where what is read of it is used
    return table


def _in_file(
    file: TableFile, name: str, spec: TableSpec, config: Config, devices: list[str]
) -> Table:
    table = FileTable(file, name, spec.rows, spec.columns, spec.initial, **_stored(name, config))
    table.device = devices[spec.device]
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
    settings, admits = config.table, config.vocabulary.min_count
    items = [
        item
        for name, spec in model.tables().items()
        for item in plan.table(
            name, dataclasses.replace(spec, rows=1), optimizer, {"": 1}, dtypes(config)
        )
    ]
    row_bytes = sum(item.bytes for item in items) + word_bytes(config)
    most = config.vocabulary.max_vocab_size or 2**31 - 2
    rows = min(int(settings.table_gb * 1e9) // row_bytes, most)
    if not rows:
        raise UsageError(
            f"--table_gb={settings.table_gb}: a word takes {row_bytes} bytes; give more"
        )
    return KeyMap(rows, STRING, admits, settings.max_age, growing.PINNED)


def word_bytes(config: Config) -> int:
    """Bytes that a word of --table=dynamic takes beside its rows, about."""
    return keys.key_bytes(STRING, config.vocabulary.min_count) + _WEIGHT_BYTES


def _table_file(config: Config, workdir: Workdir) -> TableFile:
    """The file of --table_file; whether it holds what a checkpoint needs is for those to tell."""
    kinds = set()
    for folder in checkpoint.paths(workdir.checkpoints):
        with contextlib.suppress(OSError, ValueError):  # a damaged one is passed over when restored
            kinds = {layout["kind"] for layout in stored.read_layouts(folder).values()}
            break
    return TableFile(Path(config.table.table_file), files.owner(workdir), "file" in kinds)


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


def dtypes(config: Config) -> tuple[tf.DType, tf.DType]:
    """Of rows, and of the state of the optimizer."""
    return DTYPES[config.table.table_dtype], DTYPES[config.table.slot_dtype]
