"""Build the tables of a run. Only this module maps names of kinds of tables to classes."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping
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
from ..tables.dynamic.dynamic import DynamicTable, RowStore
from ..tables.dynamic.keys import INT64, KeyMap
from ..types import HOST


def make_tables(
    specs: Mapping[str, TableSpec],
    settings: TableConfig,
    device: str,
    seed: int,
    slots: Mapping[str, Slot] | None = None,
    file: TableFile | None = None,
    keys: KeyMap | None = None,
    most: Mapping[str, int] = {},
) -> dict[str, Table]:
    """Make the tables of a run.

    Rows of a table in host memory or in a file are used on the device of the steps.

    Args:
        device: The device of the steps.
        slots: The slots of trained tables; by default there are none, for tables that are only
            read.
        file: The file of --table_file, from `open_file`.
        keys: The map that gives each word its row in all tables of --table=dynamic.
        most: The most rows of each dynamic table by id, by name. Such a table gives an id a row
            when it first occurs; others have all their rows on the device.

    Returns:
        The tables, by name.
    """
    dtype, slot_dtype = dtypes(settings)
    is_host, tables = settings.table == "host", {}
    for name, spec in specs.items():
        options: dict[str, Any] = {
            "columns": spec.columns,
            "initial": spec.initial,
            "slots": slots if slots and spec.trained else {},
            "dtype": dtype,
            "slot_dtype": slot_dtype,
            "rounding": settings.rounding,
            "seed": zlib.crc32(name.encode()) ^ seed,
        }
        table: Table
        with tf.device(HOST if is_host else device):
            if file is not None:
                table = FileTable(file, name, spec.rows, **options)
            elif settings.table == "sharded":
                table = sharded.make(spec.rows, devices=sharded.local_devices(), **options)
            elif keys is not None:
                table = RowStore(keys, **options)
            elif name in most:
                key_map = KeyMap(most[name], INT64, max_age=settings.max_age)
                table = DynamicTable(key_map, **options)
            else:
                table = DeviceTable(spec.rows, **options)
        if is_host:
            table.device = device
        tables[name] = table
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


def open_file(path: str, workdir: Workdir) -> TableFile:
    """Open the file of --table_file, or create it if no checkpoint has a table in a file.

    A file of this run is then replaced, and a new workdir gets the id of its run. The rows are
    checked later, when a checkpoint is loaded.

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
    return TableFile(Path(path), files.owner_id(workdir, resume), resume)
