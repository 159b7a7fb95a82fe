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

from ..checkpoints import checkpoint, stored
from ..checkpoints import workdir as files
from ..checkpoints.checkpoint import Checkpoints, Position
from ..checkpoints.workdir import Workdir
from ..config import Config
from ..errors import RunError, UsageError
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..tables import served, sharded
from ..tables.base import Table, TableSpec
from ..tables.device import DeviceTable
from ..tables.disk.file import FileTable
from ..tables.disk.table_file import TableFile
from ..tables.dynamic import keys
from ..tables.dynamic.dynamic import DynamicTable
from ..tables.dynamic.keys import INT64, STRING, KeyMap
from ..tables.dynamic.slab import Slab
from ..tables.initial import Unwritten
from ..training import memory_plan
from ..training.cache_size import CacheSize
from ..training.locating import Locating
from ..training.staging import InPlace, Staging

Maker = Callable[[str, TableSpec, Config, list[str]], Table]  # of the table of this name

DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}
# Of a word of --table=dynamic: its share of the distribution of negatives, and while that is made.
_WEIGHT_BYTES = 4 * 8
# Of an id of --table=dynamic that has a row.
ID_BYTES = keys.key_bytes(INT64, 1)


def make(
    specs: Mapping[str, TableSpec],
    config: Config,
    devices: list[str],
    workdir: Workdir,
    dynamic: Maker | None = None,
) -> dict[str, Table]:
    """The tables, each where it is to live.

    devices: those that `TableSpec.device` counts. dynamic: makes those of --table=dynamic, see
    `of_words` and `of_ids`. UsageError or RunError for a --table_file that cannot be, or that is
    not of this workdir.
    """
    makers = TABLES
    if config.run.strategy == "parameter_server":
        makers = dict.fromkeys(TABLES, _on_servers)
    elif config.table.table_file:
        makers = TABLES | {"host": functools.partial(_in_file, _table_file(config, workdir))}
    if dynamic is not None:
        makers = TABLES | {"dynamic": dynamic}
    return {
        name: makers[config.table.table](name, spec, config, devices)
        for name, spec in specs.items()
    }


def staged(
    rooms: Mapping[str, CacheSize],
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    config: Config,
    devices: list[str],
) -> InPlace | Staging:
    """What brings the rows of a run's tables to its steps."""
    micro_batches = config.input.micro_batches or 1
    if any(isinstance(table, DynamicTable) for table in tables.values()):
        return Locating(model, tables, config.run.seed, micro_batches)
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
        micro_batches=micro_batches,
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


def of_words(keys: KeyMap) -> Maker:
    """Makes tables of which a map says which word has which row."""

    def make(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
        with tf.device(devices[spec.device]):
            return Slab(keys, spec.columns, spec.initial, **_stored(name, config))

    return make


def of_ids(rows: Mapping[str, int]) -> Maker:
    """Makes tables of so many rows at most, by name, for ids as they come; others on the device."""

    def make(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
        if name not in rows:
            return _on_device(name, spec, config, devices)
        keys = KeyMap(rows[name], INT64, max_age=config.table.max_age)
        with tf.device(devices[spec.device]):
            return DynamicTable(keys, spec.columns, spec.initial, **_stored(name, config))

    return make


def read(
    specs: Mapping[str, TableSpec], config: Config, devices: list[str], workdir: Workdir
) -> tuple[dict[str, Table], Position]:
    """The tables of the newest checkpoint, or of the best, without the optimizer's state.

    They are in memory, wherever they were: on the device if they were trained there, else in that
    of the machine, as the device may not hold them. devices: see `make`. RunError if there is no
    whole checkpoint.
    """
    if config.table.table != "dynamic":  # of which ids without a row are as at first
        specs = {
            name: dataclasses.replace(spec, initial=Unwritten()) for name, spec in specs.items()
        }
    place = "device" if config.table.table == "device" else "host"
    settings = dataclasses.replace(config.table, table=place, table_file="")
    run = dataclasses.replace(config.run, strategy="none")
    tables = make(specs, dataclasses.replace(config, table=settings, run=run), devices, workdir)
    return tables, Checkpoints(workdir.trained, tables).read()


def readable(tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables to score with: a dynamic one makes no row for what it is asked for."""
    return {
        name: table.known if isinstance(table, DynamicTable) else table
        for name, table in tables.items()
    }


def rows_of_ids(
    specs: Mapping[str, TableSpec], optimizer: Optimizer, config: Config
) -> dict[str, int]:
    """The rows of each table of --table=dynamic that grows, by name.

    As many in each as --table_gb has room for in all, at most those that there are ids for.
    UsageError if that is none.
    """
    specs = {name: spec for name, spec in specs.items() if spec.grows}
    sizes = {name: _row_bytes(spec, optimizer, config) + ID_BYTES for name, spec in specs.items()}
    left, found = int(config.table.table_gb * 1e9), {}
    for name in sorted(specs, key=lambda name: specs[name].rows):  # what one leaves, others have
        of_each = left // sum(sizes[other] for other in sizes.keys() - found.keys())
        found[name] = min(of_each, specs[name].rows)
        left -= found[name] * sizes[name]
    if not all(found.values()):
        raise UsageError(
            f"--table_gb={config.table.table_gb}: a row of each table takes {sum(sizes.values())} "
            "bytes; give more"
        )
    return found


def _row_bytes(spec: TableSpec, optimizer: Optimizer, config: Config) -> int:
    """Of a row with its state."""
    one = dataclasses.replace(spec, rows=1)
    items = memory_plan.table("", one, optimizer, {"": 1}, dtypes(config))
    return sum(item.bytes for item in items)


def rows_of_words(model: Model, optimizer: Optimizer, config: Config) -> int:
    """Return for how many words --table_gb has room, with rows like those of a model.

    Raises:
        UsageError: There is no room for a single word.
    """
    specs = model.tables().values()
    row_bytes = sum(_row_bytes(spec, optimizer, config) for spec in specs) + word_bytes(config)
    most = config.vocabulary.max_vocab_size or 2**31 - 2
    rows = min(int(config.table.table_gb * 1e9) // row_bytes, most)
    if not rows:
        raise UsageError(
            f"--table_gb={config.table.table_gb}: a word takes {row_bytes} bytes; give more"
        )
    return rows


def key_map(rows: int, config: Config, pinned: int) -> KeyMap:
    """Return an empty map that gives words their rows; pinned: see `KeyMap`."""
    admits = config.vocabulary.min_count
    return KeyMap(rows, STRING, admits, config.table.max_age, pinned)


def word_bytes(config: Config) -> int:
    """Bytes that a word of --table=dynamic takes beside its rows, about."""
    return keys.key_bytes(STRING, config.vocabulary.min_count) + _WEIGHT_BYTES


def _table_file(config: Config, workdir: Workdir) -> TableFile:
    """The file of --table_file; whether it holds what a checkpoint needs is for those to tell."""
    resume = False
    for folder in checkpoint.paths(workdir.checkpoints):
        resume = True  # also for a damaged one, so that the file is kept
        with contextlib.suppress(RunError):
            layouts = stored.read_layouts(folder).values()
            resume = "file" in {layout["kind"] for layout in layouts}
            break
    return TableFile(Path(config.table.table_file), files.owner(workdir, resume), resume)


def _sharded(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    return sharded.make(
        spec.rows,
        spec.columns,
        spec.initial,
        sharded.local_devices(),
        config.table.shard_rule,
        **_stored(name, config),
    )


def _on_servers(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    if not spec.trained:  # workers keep that to themselves
        return _on_device(name, spec, config, devices)
    rule = config.table.shard_rule
    options = _stored(name, config)
    return sharded.make(spec.rows, spec.columns, spec.initial, served.devices(), rule, **options)


TABLES: dict[str, Maker] = {
    "device": _on_device,
    "host": _on_host,
    "sharded": _sharded,
    "dynamic": of_ids({}),  # which `make` is given instead
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
