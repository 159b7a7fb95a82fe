"""Build the tables of a run. Only this module maps names of kinds of tables to classes."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..checkpoints import checkpoint, stored
from ..checkpoints import workdir as files
from ..checkpoints.workdir import Workdir
from ..errors import RunError
from ..settings import TableConfig
from ..tables import sharded
from ..tables.base import Slot, Table, TableSpec
from ..tables.device import DeviceTable
from ..tables.disk.file import FileTable
from ..tables.disk.sections import read_own_header
from ..tables.disk.table_file import TableFile
from ..tables.dynamic.dynamic import DynamicTable
from ..tables.dynamic.keys import INT64, KeyMap
from ..tables.dynamic.row_store import RowStore
from ..types import HOST

# Makes a table from its name, its rows, the settings, its device, and the arguments that every kind
# of table takes.
Maker = Callable[[str, int, TableConfig, str, dict[str, Any]], Table]


def make_tables(
    specs: Mapping[str, TableSpec],
    settings: TableConfig,
    device: str,
    seed: int,
    slots: Mapping[str, Slot] | None = None,
    maker: Maker | None = None,
) -> dict[str, Table]:
    """Make the tables of a run.

    Args:
        device: The device of the steps.
        slots: The slots of trained tables; by default there are none, for tables that are only
            read.
        maker: Makes the tables, by default as --table says.

    Returns:
        The tables, by name.
    """
    maker, dtype, slot_dtype = maker or TABLES[settings.table], *dtypes(settings)
    tables = {}
    for name, spec in specs.items():
        options = {
            "columns": spec.columns,
            "initial": spec.initial,
            "slots": slots if slots and spec.trained else {},
            "dtype": dtype,
            "slot_dtype": slot_dtype,
            "rounding": settings.rounding,
            "seed": zlib.crc32(name.encode()) ^ seed,
        }
        tables[name] = maker(name, spec.rows, settings, device, options)
    return tables


def dtypes(settings: TableConfig) -> tuple[tf.DType, tf.DType]:
    """Return the dtype of rows, and the dtype of slots of several columns."""
    return tf.as_dtype(settings.table_dtype), tf.as_dtype(settings.slot_dtype)


def scoring_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables to score with: of a dynamic table a view that gives new ids no rows."""
    return {
        name: table.known if isinstance(table, DynamicTable) else table
        for name, table in tables.items()
    }


def _on_device(name: str, rows: int, settings: TableConfig, device: str, options: dict) -> Table:
    """Return a table in the memory of its device."""
    with tf.device(device):
        return DeviceTable(rows, **options)


def _on_host(name: str, rows: int, settings: TableConfig, device: str, options: dict) -> Table:
    """Return a table in host memory whose `device` is the device of the steps."""
    with tf.device(HOST):
        table = DeviceTable(rows, **options)
    table.device = device  # rows that are read from the table are used there
    return table


def _sharded(name: str, rows: int, settings: TableConfig, device: str, options: dict) -> Table:
    """Return a table in shards over all local devices, not only the given ones."""
    return sharded.make(rows, devices=sharded.local_devices(), **options)


def in_file(path: str, workdir: Workdir) -> Maker:
    """Return a maker of tables in a file whose `device` is the device of the steps.

    The file is opened, or created if no checkpoint has a table in a file. A file of this run is
    then replaced, and a new workdir gets the id of its run. The rows are checked later, when a
    checkpoint is loaded.

    Raises:
        UsageError: The file cannot be used, or another run has it.
        RunError: The file cannot be written, or the workdir has lost the id of its run.
    """
    resume = False
    for folder in checkpoint.list_checkpoints(workdir.checkpoints):
        resume = True  # a damaged checkpoint keeps the file as well
        with contextlib.suppress(RunError):
            resume = "file" in {layout["kind"] for layout in stored.read_layouts(folder).values()}
            break
    if not workdir.owner.exists() and not resume:
        read_own_header(Path(path), "", resume)  # refused before the workdir gets an id of a run
    file = TableFile(Path(path), files.owner_id(workdir, resume), resume)

    def make(name: str, rows: int, settings: TableConfig, device: str, options: dict) -> Table:
        """Return a table in the file."""
        table = FileTable(file, name, rows, **options)
        table.device = device
        return table

    return make


def by_word(keys: KeyMap) -> Maker:
    """Return a maker of tables in which a map, which all tables share, gives each word its row."""

    def make(name: str, rows: int, settings: TableConfig, device: str, options: dict) -> Table:
        """Return a table on its device."""
        with tf.device(device):
            return RowStore(keys, **options)

    return make


def by_id(most: Mapping[str, int]) -> Maker:
    """Return a maker of dynamic tables, which give an id a row when it first occurs.

    Args:
        most: The most rows of each dynamic table, by name. The maker makes other tables with all
            their rows on the device.
    """

    def make(name: str, rows: int, settings: TableConfig, device: str, options: dict) -> Table:
        """Return a table on its device, dynamic and with its own map of ids if `most` names it."""
        if name not in most:
            return _on_device(name, rows, settings, device, options)
        with tf.device(device):
            return DynamicTable(KeyMap(most[name], INT64, max_age=settings.max_age), **options)

    return make


TABLES: dict[str, Maker] = {
    "device": _on_device,
    "host": _on_host,
    "sharded": _sharded,
    "dynamic": by_id({}),  # replaced by the argument `maker` of `make_tables`
}
