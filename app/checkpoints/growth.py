"""Let the tables of a finished run grow by rows for new words or labels (--grow_vocab)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import RunError, UsageError
from ..system.checked_files import list_folder
from ..tables.arrays import row_slices
from ..tables.base import Table, TableSpec
from ..tables.initial import initial_rows
from . import checkpoint, stored
from .checkpoint import Position, read_position
from .table_checkpoints import Checkpoints, restore_writes
from .workdir import Workdir, write_flags


class RowMap(NamedTuple):
    """The new ids of the rows of a table after names were added.

    Rows without a name, such as those of hashed n-grams, follow the rows with names, before and
    after.

    Attributes:
        new_ids_V: The new id of each row that had a name, (V,) int64.
        size: The number of rows that have a name now.
    """

    new_ids_V: np.ndarray
    size: int

    def added(self) -> np.ndarray:
        """Return the ids of the rows whose names are new, rising, (N,) int64."""
        return np.setdiff1d(np.arange(self.size), self.new_ids_V)


class Growth(NamedTuple):
    """How the names of the rows of a finished run have become more (--grow_vocab).

    Attributes:
        maps: The new ids of the rows of each table, by its name.
        record: Writes the files to a workdir that give the new ids their meaning.
        summary: How many names there were and how many are new, for the log.
    """

    maps: Mapping[str, RowMap]
    record: Callable[[Workdir], None]
    summary: str


def check_growth(
    growth: Growth, specs: Mapping[str, TableSpec], loss: str, workdir: Workdir
) -> None:
    """Check that the tables of a run can grow from those of the workdir.

    Raises:
        UsageError: The rows of --loss cannot grow, or the workdir keeps the tables of its best
            epoch.
    """
    if list_folder(workdir.best, "step-"):
        raise UsageError(
            f"--grow_vocab: --workdir={workdir.path} keeps its best epoch on other held-out text "
            "(--patience); train in a new workdir"
        )
    if any(spec.rows < growth.maps[name].size for name, spec in specs.items()):
        raise UsageError(
            f"--loss={loss}: its rows are not those of single words, so they "
            "cannot grow; give --nogrow_vocab, or train in a new workdir"
        )


def grow_workdir(
    growth: Growth,
    specs: Mapping[str, TableSpec],
    tables: Mapping[str, Table],
    flags: dict[str, Any],
    workdir: Workdir,
) -> None:
    """Replace the checkpoint and the names of a finished run by grown ones, all or none.

    The rows and slots of the newest checkpoint go to their new ids. A new row gets the initial
    values of an id beyond the old table.

    Args:
        tables: The grown tables, which are filled.
        flags: Every flag of the run by name, which are written, too.
        workdir: The locked workdir of the finished run.

    Raises:
        RunError: The checkpoint cannot be read or does not fit, or the workdir cannot be written.
    """
    logging.info("--grow_vocab: %s", growth.summary)
    position = checkpoint.read_newest(
        workdir.checkpoints, lambda folder: _fill_tables(folder, growth.maps, specs, tables)
    )

    def write(grown: Workdir) -> None:
        """Write the grown checkpoint, the names of its rows and the flags to a workdir."""
        Checkpoints(grown.checkpoints, tables).save(position)
        growth.record(grown)
        write_flags(grown.flags, flags)

    workdir.replace_files(write)


def _fill_tables(
    folder: Path,
    maps: Mapping[str, RowMap],
    specs: Mapping[str, TableSpec],
    tables: Mapping[str, Table],
) -> Position:
    """Assign the rows and slots of a checkpoint to the grown tables; return its position."""
    position = read_position(folder)
    for name, table in tables.items():
        for slot, target in {"": table, **table.slots}.items():
            rows_VD = stored.read_rows(folder, name, slot)
            ids_V = _new_ids(len(rows_VD), maps[name], target.rows)
            if ids_V is None or rows_VD.shape[1] != target.columns:
                raise RunError(
                    f"{folder} holds table {name!r} with shape {rows_VD.shape}, which cannot grow "
                    f"to {(target.rows, target.columns)}; give the flags that it was made with"
                )
            for part in row_slices(*rows_VD.shape):
                target.assign(tf.constant(ids_V[part]), tf.constant(rows_VD[part]))
        _assign_new_rows(table, specs[name], ids_V)
        restore_writes(folder, name, table)
    return dataclasses.replace(position, batch=0, since=0, best=None)


def _new_ids(rows: int, row_map: RowMap, grown: int) -> np.ndarray | None:
    """Return the new id of each row of a table, (V,) int64; None if the sizes do not fit.

    Args:
        rows: The rows of the table before.
        row_map: The new ids of those that have a name; the others stay behind them, in order.
        grown: The rows of the grown table.
    """
    named = len(row_map.new_ids_V)
    if rows < named or rows - named != grown - row_map.size:
        return None
    return np.concatenate([row_map.new_ids_V, np.arange(row_map.size, grown)])


def _assign_new_rows(table: Table, spec: TableSpec, old_ids_V: np.ndarray) -> None:
    """Assign initial values to the rows that no old row has taken.

    In the old table, other words began with the initial values of these ids. If such a word was
    seldom trained, a new word with the same values would be its neighbor. So new rows take the
    initial values of ids beyond the old table.
    """
    ids_N = np.setdiff1d(np.arange(table.rows), old_ids_V)
    birth_ids_N = len(old_ids_V) + np.arange(len(ids_N))
    for part in row_slices(len(ids_N), table.columns):
        births = tf.constant(birth_ids_N[part])
        rows = initial_rows(spec.initial, births, (table.rows, table.columns))
        table.assign(tf.constant(ids_N[part]), rows)
