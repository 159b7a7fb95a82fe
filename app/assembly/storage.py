"""Build the tables of a run, and the stage that brings their rows to the steps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..checkpoints import checkpoint, stored
from ..checkpoints import workdir as files
from ..checkpoints.checkpoint import Checkpoints, Position
from ..checkpoints.workdir import Workdir
from ..errors import RunError
from ..models.base import Model
from ..settings import Config, flag_values
from ..system import devices
from ..tables import served, sharded
from ..tables.base import Slot, Table, TableSpec
from ..tables.cached import CacheSize, make_caches
from ..tables.device import DeviceTable
from ..tables.disk.file import FileTable
from ..tables.disk.sections import read_own_header
from ..tables.disk.table_file import TableFile
from ..tables.dynamic.dynamic import DynamicTable
from ..tables.dynamic.keys import INT64, KeyMap
from ..tables.dynamic.row_store import RowStore
from ..tables.in_place import InPlace
from ..tables.initial import Unwritten
from ..tables.prefetch import Prefetcher
from ..training.cache_size import calls_per_chunk
from ..training.key_locator import KeyLocator
from ..training.step import lookup_function
from ..types import HOST

# Makes a table from its name, its spec, the settings, and the devices that `TableSpec.device`
# counts.
Maker = Callable[[str, TableSpec, Config, list[str]], Table]

DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}


def make_tables(
    specs: Mapping[str, TableSpec],
    config: Config,
    devices: list[str],
    workdir: Workdir,
    dynamic: Maker | None = None,
    slots: Mapping[str, Slot] | None = None,
) -> dict[str, Table]:
    """Make the tables of a run on the devices that the flags choose.

    Args:
        specs: The tables, by name.
        config: The settings of the run.
        devices: The devices that `TableSpec.device` counts.
        workdir: The workdir of the run, for --table_file.
        dynamic: Makes the tables of --table=dynamic, see `word_table_maker` and `id_table_maker`.
        slots: The slots of trained tables; by default there are none, for tables that are only
            read.

    Returns:
        The tables, by name.

    Raises:
        UsageError: --table_file names a file that cannot be used, or that another run has.
        RunError: The file cannot be written, or the workdir has lost the id of its run.
    """
    makers = TABLES
    if config.run.strategy == "parameter_server":
        makers = dict.fromkeys(TABLES, _on_servers)
    elif config.table.table_file:
        makers = TABLES | {"host": functools.partial(_in_file, _open_table_file(config, workdir))}
    if dynamic is not None:
        makers = TABLES | {"dynamic": dynamic}
    tables = {}
    for name, spec in specs.items():
        spec = dataclasses.replace(spec, slots=slots if slots and spec.trained else {})
        tables[name] = makers[config.table.table](name, spec, config, devices)
    return tables


def make_staging(
    cache_sizes: Mapping[str, CacheSize],
    model: Model,
    tables: Mapping[str, Table],
    config: Config,
    device: str,
) -> InPlace:
    """Return the stage that brings rows of the tables to the steps.

    Args:
        cache_sizes: The sizes of the device caches of --table=host, by table.
        model: The model.
        tables: The tables, by name.
        config: The settings of the run.
        device: The device of the steps.

    Returns:
        `KeyLocator` for dynamic tables, `Prefetcher` for --table=host, otherwise `InPlace`.
    """
    micro_batches = config.input.micro_batches or 1
    if any(isinstance(table, DynamicTable) for table in tables.values()):
        return KeyLocator(model, tables, config.run.seed, micro_batches)
    if config.table.table != "host":
        return InPlace(tables)
    steps_per_batch = config.input.steps_per_call
    return Prefetcher(
        tables,
        lookup_function(model, config.run.seed, micro_batches),
        device,
        calls_per_chunk=calls_per_chunk(config.table.stage_steps, steps_per_batch),
        steps_per_batch=steps_per_batch,
        make_caches=functools.partial(make_caches, tables, cache_sizes, device),
    )


def _on_device(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    """Return a table in the memory of its device."""
    with tf.device(devices[spec.device]):
        return DeviceTable(spec.rows, **_options(name, spec, config))


def _on_host(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    """Return a table in host memory whose `device` is the device of the steps."""
    with tf.device(HOST):
        table = DeviceTable(spec.rows, **_options(name, spec, config))
    table.device = devices[spec.device]  # rows that are read from the table are used there
    return table


def _in_file(
    file: TableFile, name: str, spec: TableSpec, config: Config, devices: list[str]
) -> Table:
    """Return a table in a file whose `device` is the device of the steps."""
    table = FileTable(file, name, spec.rows, **_options(name, spec, config))
    table.device = devices[spec.device]
    return table


def word_table_maker(keys: KeyMap) -> Maker:
    """Return a maker of tables in which a map of words gives each word its row.

    Args:
        keys: The map, which all tables share.

    Returns:
        The maker.
    """

    def make(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
        """Return a table on its device, whose rows the shared map gives to words."""
        with tf.device(devices[spec.device]):
            return RowStore(keys, **_options(name, spec, config))

    return make


def id_table_maker(rows: Mapping[str, int]) -> Maker:
    """Return a maker of dynamic tables, which give an id a row when it first occurs.

    Args:
        rows: The most rows of each dynamic table, by name. The maker makes other tables with all
            their rows on the device.

    Returns:
        The maker.
    """

    def make(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
        """Return a table on its device, dynamic and with its own map of ids if `rows` names it."""
        if name not in rows:
            return _on_device(name, spec, config, devices)
        keys = KeyMap(rows[name], INT64, max_age=config.table.max_age)
        with tf.device(devices[spec.device]):
            return DynamicTable(keys, **_options(name, spec, config))

    return make


def load_tables(
    specs: Mapping[str, TableSpec], config: Config, workdir: Workdir
) -> tuple[dict[str, Table], Position]:
    """Load the tables of a trained run, without their slots.

    The tables are on the device if they were trained with --table=device. Otherwise they are in
    host memory, as they may be too large for the device.

    Args:
        specs: The tables, by name.
        config: The settings of the run.
        workdir: The workdir of the run.

    Returns:
        The tables of the best checkpoint if --patience kept one, else of the newest, and its
        position.

    Raises:
        RunError: There is no checkpoint that can be loaded.
    """
    # In a dynamic table an id without a row has its initial value, so that is still needed.
    if config.table.table != "dynamic":
        specs = {
            name: dataclasses.replace(spec, initial=Unwritten()) for name, spec in specs.items()
        }
    place = "device" if config.table.table == "device" else "host"
    changes = {"table": place, "table_file": "", "strategy": "none"}
    on_host = flag_values.from_names(flag_values.by_name(config) | changes)
    tables = make_tables(specs, on_host, devices.shard_devices(config), workdir)
    return tables, Checkpoints(workdir.trained, tables).read()


def scoring_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables to score with: of a dynamic table a view that gives new ids no rows.

    Args:
        tables: The tables, by name.

    Returns:
        The tables, by name.
    """
    return {
        name: table.known if isinstance(table, DynamicTable) else table
        for name, table in tables.items()
    }


def _open_table_file(config: Config, workdir: Workdir) -> TableFile:
    """Open the file of --table_file, or create it if no checkpoint has a table in a file.

    A file of this run is then replaced, and a new workdir gets the id of its run. The rows are
    checked later, when a checkpoint is loaded. For errors see `make_tables`.
    """
    resume = False
    for folder in checkpoint.list_checkpoints(workdir.checkpoints):
        resume = True  # a damaged checkpoint keeps the file as well
        with contextlib.suppress(RunError):
            layouts = stored.read_layouts(folder).values()
            resume = "file" in {layout["kind"] for layout in layouts}
            break
    path = Path(config.table.table_file)
    if not workdir.owner.exists() and not resume:
        read_own_header(path, "", resume)  # refused before the workdir gets the id of a new run
    return TableFile(path, files.owner_id(workdir, resume), resume)


def _sharded(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    """Return a table in shards over all local devices, not only the given ones."""
    return _in_shards(name, spec, config, sharded.local_devices())


def _on_servers(name: str, spec: TableSpec, config: Config, devices: list[str]) -> Table:
    """Return a table in shards over the parameter servers; on the device if it is not trained."""
    if not spec.trained:  # each worker has its own
        return _on_device(name, spec, config, devices)
    return _in_shards(name, spec, config, served.devices())


def _in_shards(name: str, spec: TableSpec, config: Config, devices: Sequence[str]) -> Table:
    """Return a table with a shard on each of the devices."""
    rule, options = config.table.shard_rule, _options(name, spec, config)
    return sharded.make(spec.rows, devices=devices, rule=rule, **options)


TABLES: dict[str, Maker] = {
    "device": _on_device,
    "host": _on_host,
    "sharded": _sharded,
    "dynamic": id_table_maker({}),  # replaced by the argument `dynamic` of `make_tables`
}


def _options(name: str, spec: TableSpec, config: Config) -> dict[str, Any]:
    """Return the arguments that every kind of table takes, with a seed by the table's name."""
    return {
        "columns": spec.columns,
        "initial": spec.initial,
        "slots": spec.slots,
        "dtype": DTYPES[config.table.table_dtype],
        "slot_dtype": DTYPES[config.table.slot_dtype],
        "rounding": config.table.rounding,
        "seed": zlib.crc32(name.encode()) ^ config.run.seed,
    }


def dtypes(config: Config) -> tuple[tf.DType, tf.DType]:
    """Return the dtype of rows, and the dtype of slots of several columns."""
    return DTYPES[config.table.table_dtype], DTYPES[config.table.slot_dtype]
