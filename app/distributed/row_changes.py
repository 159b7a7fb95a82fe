"""The changes of rows since the last exchange: read, written, merged over replicas, and packed.

A change is the difference of a row, and of each slot of it, from its value at the last exchange.

The layout of a packed vector, all float32: the number of rows of each table (the bits of int32);
then for each table its ids (the bits of int32) and the numbers of each block, as float32 or as
pairs of bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..tables.base import Slot, Table
from ..tables.row_reads import unique
from ..tables.variable import VariableRows
from ..types import HOST
from .damped_sum import damped_sum, has_changed


class Block(NamedTuple):
    """The numbers of a row that are stored together: the row itself, or a slot of it.

    Attributes:
        slot: The name of the slot, or "" for the row.
        width: The number of columns.
        merge: How the changes of several replicas become one, see `tables.base.Slot`; "" for
            rows.
        is_half: Whether changes are sent as bfloat16.
    """

    slot: str
    width: int
    merge: str
    is_half: bool

    @property
    def sent(self) -> int:
        """Return how many float32 numbers carry the change of one row."""
        return (self.width + 1) // 2 if self.is_half else self.width

    def table(self, table: Table) -> Table:
        """Return the table of this block: the given one, or a slot of it."""
        return table.slots[self.slot] if self.slot else table


Layouts = Mapping[str, Sequence[Block]]  # by name of the table


class Changes(NamedTuple):
    """Changes of some rows of one table.

    Attributes:
        ids_U: Unique ids, int32.
        values: The change of each block, (U, width) float32.
    """

    ids_U: tf.Tensor
    values: Sequence[tf.Tensor]


def blocks(table: Table, slots: Mapping[str, Slot], is_half: bool) -> list[Block]:
    """Return the blocks of a table: its rows, then its slots.

    Args:
        table: The table.
        slots: The slots of the optimizer. A table that is not trained lacks them.
        is_half: Whether changes are sent as bfloat16. Slots of one column count or sum: they are
            sent as float32, as they are stored.
    """
    of_slots = [
        Block(name, slot.columns, slots[name].merge, is_half and slot.columns > 1)
        for name, slot in table.slots.items()
    ]
    return [Block("", table.columns, "", is_half), *of_slots]


def read(
    table: Table, before: Mapping[str, VariableRows], layout: Sequence[Block], ids_U: tf.Tensor
) -> Changes:
    """Return the changes of some rows and their slots.

    Args:
        table: The table.
        before: The rows and slots at the last exchange, by `Block.slot`.
        layout: The blocks of the table.
        ids_U: The ids of the rows.
    """
    values = [b.table(table).gather(ids_U) - before[b.slot].gather(ids_U) for b in layout]
    return Changes(ids_U, values)


def write(
    table: Table, before: Mapping[str, VariableRows], layout: Sequence[Block], changes: Changes
) -> None:
    """Set rows and slots to their value at the last exchange plus a change, and `before` to that.

    Args:
        table: The table.
        before: The rows and slots at the last exchange, by `Block.slot`.
        layout: The blocks of the table.
        changes: The changes.
    """
    ids_U = changes.ids_U
    for block, change_UD in zip(layout, changes.values, strict=True):
        stored, base = block.table(table), before[block.slot]
        new_UD = base.gather(ids_U) + change_UD
        stored.assign(ids_U, new_UD)
        is_rounded = base.values.dtype != tf.float32
        base.assign(ids_U, stored.gather(ids_U) if is_rounded else new_UD)


def merge(parts: Sequence[Changes], layout: Sequence[Block], steps: tf.Tensor) -> Changes:
    """Return the changes of several replicas as one change for each row.

    Rows are added by `damped_sum`, slots by `Block.merge`.

    Args:
        parts: The changes of each replica.
        layout: The blocks of the table.
        steps: The number of steps since the last exchange, an int32 scalar.
    """
    with tf.device(HOST):
        ids_M, inverse_N = unique(tf.concat([part.ids_U for part in parts], axis=0))
        count = tf.size(ids_M)

    def total(values_ND: tf.Tensor) -> tf.Tensor:
        """Return the sum over the replicas, (M, D)."""
        return tf.math.unsorted_segment_sum(values_ND, inverse_N, count)

    def merged(values_ND: tf.Tensor, kind: str) -> tf.Tensor:
        """Return the merged changes of a block, (M, D), from those of all replicas."""
        if kind == "sum":
            return total(values_ND)
        if kind == "mean":
            return tf.math.divide_no_nan(total(values_ND), total(has_changed(values_ND)))
        if kind == "largest":
            return tf.math.unsorted_segment_max(values_ND, inverse_N, count)
        return damped_sum(values_ND, inverse_N, count, steps)

    by_block = zip(*(part.values for part in parts), strict=True)
    return Changes(
        ids_M,
        [
            merged(tf.concat(values, axis=0), block.merge)
            for values, block in zip(by_block, layout, strict=True)
        ],
    )


def packed_size(ids: Mapping[str, tf.Tensor], layouts: Layouts) -> tf.Tensor:
    """Return the length of the packed vector of the changes of some rows, an int32 scalar.

    Args:
        ids: The ids of the rows (U,), by table.
        layouts: The blocks of each table.
    """
    each = {name: 1 + sum(b.sent for b in layout) for name, layout in layouts.items()}
    return tf.add_n([each[name] * tf.size(ids_U) for name, ids_U in ids.items()]) + len(ids)


def pack(changes: Mapping[str, Changes], layouts: Layouts, size: tf.Tensor) -> tf.Tensor:
    """Return changes as one float32 vector.

    Args:
        changes: The changes by table.
        layouts: The blocks of each table.
        size: The length of the vector, which is filled up with zeros; at least `packed_size`.
    """
    ids = {name: part.ids_U for name, part in changes.items()}
    pieces = [tf.bitcast(tf.stack([tf.size(ids_U) for ids_U in ids.values()]), tf.float32)]
    for name, part in changes.items():
        pieces.append(tf.bitcast(part.ids_U, tf.float32))
        pieces += [
            _encode(values_UD, block)
            for values_UD, block in zip(part.values, layouts[name], strict=True)
        ]
    return tf.concat([*pieces, tf.zeros([size - packed_size(ids, layouts)])], axis=0)


def unpack(vectors: tf.Tensor, offset: tf.Tensor, layouts: Layouts) -> dict[str, Changes]:
    """Return the changes by table that one packed vector has.

    Args:
        vectors: Packed vectors, one after the other.
        offset: The index at which the vector begins.
        layouts: The blocks of each table.
    """
    sizes = tf.bitcast(vectors[offset : offset + len(layouts)], tf.int32)
    offset += len(layouts)
    changes = {}
    for (name, layout), count in zip(
        layouts.items(), tf.unstack(sizes, num=len(layouts)), strict=True
    ):
        ids_U = tf.bitcast(vectors[offset : offset + count], tf.int32)
        offset += count
        values = []
        for block in layout:
            end = offset + count * block.sent
            values.append(_decode(vectors[offset:end], block))
            offset = end
        changes[name] = Changes(ids_U, values)
    return changes


def _encode(values_UD: tf.Tensor, block: Block) -> tf.Tensor:
    """Return the numbers of a block as a float32 vector."""
    if not block.is_half:
        return tf.reshape(values_UD, [-1])
    half_UD = tf.cast(values_UD, tf.bfloat16)
    if block.width % 2:
        half_UD = tf.pad(half_UD, [[0, 0], [0, 1]])
    return tf.bitcast(tf.reshape(half_UD, [-1, 2]), tf.float32)


def _decode(numbers_N: tf.Tensor, block: Block) -> tf.Tensor:
    """Return the numbers of a block, (U, width) float32, from the result of `_encode`."""
    if not block.is_half:
        return tf.reshape(numbers_N, [-1, block.width])
    half_UD = tf.reshape(tf.bitcast(numbers_N, tf.bfloat16), [-1, 2 * block.sent])
    return tf.cast(half_UD[:, : block.width] if block.width % 2 else half_UD, tf.float32)
