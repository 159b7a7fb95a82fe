"""Tables that are alike, updated together: on a GPU one kernel takes the time of many."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla  # no public way to stop XLA's fusion

from ..system.xla import under_xla
from .base import Ids, Slot, Table, plain_ids
from .device import DeviceTable
from .initial import Constant

# XLA reads rows of several tables again wherever it uses them: of 26 tables so late that it copied
# 30 of them whole. A barrier stops that. With two tables nothing was copied, and a barrier adds two
# kernels to a step of skip-gram (XLA's compiler for an H100).
_READ_AGAIN = 2


def kind(table: Table) -> Hashable:
    """Return a value that is equal for tables that a `JoinedTable` can join."""
    return table.columns, tuple((name, slot.columns) for name, slot in table.slots.items())


class StackedTable:
    """Some rows of a larger table as a table of their own, whose ids start at 0.

    The rows of several such tables are read and written by one operation (see `JoinedTable`).

    Args:
        whole: The table that has the rows.
        start: The id of the first row there.

    Attributes:
        together: The tables whose slots are made in one table, by default only this one.
    """

    def __init__(self, whole: DeviceTable, start: int, rows: int):
        self.whole, self.start, self.rows = whole, start, rows
        self.columns, self.device = whole.columns, whole.device
        self.slots: dict[str, StackedTable] = {}
        self.together: Sequence[StackedTable] = [self]

    def locate(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the ids; see `Table.locate`."""
        return ids_U

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the rows of the given ids; see `Table.gather`."""
        return self.whole.gather(self.ids_in_whole(ids_U))

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids; see `Table.assign`."""
        self.whole.assign(self.ids_to_write(ids_U), rows_UD)

    def ids_in_whole(self, ids: tf.Tensor) -> tf.Tensor:
        """Return ids of the larger table; of an id out of range, that of the nearest row."""
        ids = self._wide(ids)
        # Elsewhere, ids are checked before.
        return (tf.clip_by_value(ids, 0, self.rows - 1) if under_xla() else ids) + self.start

    def ids_to_write(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return ids of the larger table; of an id out of range, one that XLA does not write."""
        ids_U = self._wide(ids_U)
        if not under_xla():
            return ids_U + self.start
        is_row_U = (ids_U >= 0) & (ids_U < self.rows)
        return tf.where(is_row_U, ids_U + self.start, ids_U.dtype.max)

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make further slots, of the tables in `together` at once; see `Table.add_slots`."""
        for name, slot in slots.items():
            if name in self.slots:
                continue  # made with those of another table
            rows, columns = sum(table.rows for table in self.together), slot.columns
            with tf.device(self.device):
                whole = DeviceTable(rows, columns or self.columns, Constant(slot.initial))
            parts = stack(whole, [table.rows for table in self.together])
            for table, part in zip(self.together, parts, strict=True):
                table.slots[name] = part

    def _wide(self, ids: tf.Tensor) -> tf.Tensor:
        """Return ids in a dtype that has all ids of the larger table."""
        return ids if self.whole.rows <= ids.dtype.max else tf.cast(ids, tf.int64)


def stack(whole: DeviceTable, rows: Sequence[int]) -> list[StackedTable]:
    """Return tables of so many rows each, one after the other in a larger table."""
    ends = list(itertools.accumulate(rows))
    return [StackedTable(whole, end - own, own) for end, own in zip(ends, rows, strict=True)]


def join_slots(tables: Iterable[Any]) -> None:
    """Let new slots of tables in one larger table be in one table, too.

    Args:
        tables: The tables of an optimizer, of any kind.
    """
    stacks: dict[int, list[StackedTable]] = {}
    for table in tables:
        if isinstance(table, StackedTable):
            stacks.setdefault(id(table.whole), []).append(table)
    for together in stacks.values():
        for table in together:
            table.slots, table.together = {}, together


class JoinedTable:
    """Tables that are alike as one `tables.base.Table` for an update; its ids are those of each.

    Args:
        tables: Tables of the same columns.
        slots: The slots of each table, of the same names; by default those that it has.
    """

    def __init__(self, tables: Sequence[Any], slots: Sequence[Mapping[str, Any]] | None = None):
        self._tables = tables
        slots = [table.slots for table in tables] if slots is None else slots
        self.slots = {name: JoinedTable([own[name] for own in slots]) for name in slots[0]}
        wholes = {getattr(table, "whole", None) for table in tables}
        # The larger table that has the rows of all tables, or None.
        self._whole: DeviceTable | None = wholes.pop() if len(wholes) == 1 else None

    def locate(self, ids: Sequence[Ids]) -> Sequence[Ids]:
        """Return the ids of each table, located."""
        return [table.locate(ids_U) for table, ids_U in zip(self._tables, ids, strict=True)]

    def gather(self, ids: Sequence[Ids]) -> tf.Tensor:
        """Return the rows of all tables, one table after the other."""
        if self._whole is not None:
            places = [t.ids_in_whole(own) for t, own in zip(self._tables, ids, strict=True)]
            return self._whole.gather(concat_ids(places))
        rows = [table.gather(ids_U) for table, ids_U in zip(self._tables, ids, strict=True)]
        if len(rows) > _READ_AGAIN:
            rows = xla.optimization_barrier(*rows)
        return tf.concat(rows, axis=0)

    def assign(self, ids: Sequence[Ids], rows_ND: tf.Tensor) -> None:
        """Replace the rows of all tables."""
        if self._whole is not None:
            places = [t.ids_to_write(own) for t, own in zip(self._tables, ids, strict=True)]
            self._whole.assign(concat_ids(places), rows_ND)
            return
        # Otherwise XLA computes the rows of each table apart, and copies tables for that.
        (rows_ND,) = xla.optimization_barrier(rows_ND)
        parts = tf.split(rows_ND, [tf.size(plain_ids(ids_U)) for ids_U in ids])
        for table, ids_U, rows_UD in zip(self._tables, ids, parts, strict=True):
            table.assign(ids_U, rows_UD)


def concat_ids(ids: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return ids of one table one after the other, as int64 if they have several dtypes."""
    if len({each.dtype for each in ids}) > 1:
        ids = [tf.cast(each, tf.int64) for each in ids]
    return tf.concat(ids, axis=0)
