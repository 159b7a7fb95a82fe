"""Tables that are alike, updated together: on a GPU one kernel takes the time of many."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla  # no public way to stop XLA's fusion

from .base import Ids, Table, plain_ids

# XLA reads rows of several tables again wherever it uses them: of 26 tables so late that it copied
# 30 of them whole. A barrier stops that. With two tables nothing was copied, and a barrier adds two
# kernels to a step of skip-gram (XLA's compiler for an H100).
_READ_AGAIN = 2


def kind(table: Table) -> Hashable:
    """Return a value that is equal for tables that a `JoinedTable` can join."""
    return table.columns, tuple((name, slot.columns) for name, slot in table.slots.items())


class JoinedTable:
    """Tables that are alike as one `tables.base.Table` for an update; its ids are those of each.

    Args:
        tables: Tables of the same columns, with the same slots.
    """

    def __init__(self, tables: Sequence[Table]):
        self._tables = tables
        self.slots = {
            name: JoinedTable([table.slots[name] for table in tables]) for name in tables[0].slots
        }

    def locate(self, ids: Sequence[Ids]) -> Sequence[Ids]:
        """Return the ids of each table, located."""
        return [table.locate(ids_U) for table, ids_U in zip(self._tables, ids, strict=True)]

    def gather(self, ids: Sequence[Ids]) -> tf.Tensor:
        """Return the rows of all tables, one table after the other."""
        rows = [table.gather(ids_U) for table, ids_U in zip(self._tables, ids, strict=True)]
        if len(rows) > _READ_AGAIN:
            rows = xla.optimization_barrier(*rows)
        return tf.concat(rows, axis=0)

    def assign(self, ids: Sequence[Ids], rows_ND: tf.Tensor) -> None:
        """Replace the rows of all tables."""
        # Otherwise XLA computes the rows of each table apart, and copies tables for that.
        (rows_ND,) = xla.optimization_barrier(rows_ND)
        parts = tf.split(rows_ND, [tf.size(plain_ids(ids_U)) for ids_U in ids])
        for table, ids_U, rows_UD in zip(self._tables, ids, parts, strict=True):
            table.assign(ids_U, rows_UD)
