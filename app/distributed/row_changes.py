"""Read, send and write the changes of rows since the last exchange.

A change is the difference of a row, and of each slot of it, from its value at the last exchange.
Wide changes are sent without copying them into one vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..system.loops import map_parts
from ..tables.base import Slot, Table
from ..tables.device import VariableRows
from ..types import HOST
from .exchange import key_of_size, round_up

# Rows are read, merged and written in parts of about this many bytes, which stay in the cache of a
# core. With 100 columns all rows at once took more than twice as long, half of that to get memory
# from the system (AMD EPYC, Zen 3).
PART_BYTES = 1 << 20
_FLOAT_BYTES = 4
NO_ID = -1
# The dtype that carries the bits of another: one of the collective operations lacks bfloat16.
_CARRIED = {tf.bfloat16: tf.float16, tf.float32: tf.float32}


class Block(NamedTuple):
    """The numbers of a row that are stored together: the row itself, or a slot of it.

    Attributes:
        slot: The name of the slot, or "" for the row.
        merge: See `tables.base.Slot`; "" for rows.
        dtype: The dtype in which changes are sent, float32 or bfloat16.
    """

    slot: str
    width: int
    merge: str
    dtype: tf.DType

    @property
    def is_wide(self) -> bool:
        """Return whether a row has several numbers."""
        return self.width > 1

    def table(self, table: Table) -> Table:
        """Return the table of this block: the given one, or a slot of it."""
        return table.slots[self.slot] if self.slot else table


class Layout(NamedTuple):
    """How the changes of a table are computed and sent.

    Attributes:
        blocks: The rows, then the slots.
        part: The number of rows that are read, merged or written at a time; 0 for all.
    """

    blocks: Sequence[Block]
    part: int


class Changes(NamedTuple):
    """Changes of some rows of one table, filled up so that all replicas send as many.

    Attributes:
        ids_N: Ids, int32, or `NO_ID` where there is no change.
        values: The change of each block, (N, width), in the dtype in which it is sent.
    """

    ids_N: tf.Tensor
    values: Sequence[tf.Tensor]


def make_layout(
    table: Table, slots: Mapping[str, Slot], is_half: bool, is_gpu: bool = False
) -> Layout:
    """Return the layout of the changes of a table.

    Args:
        slots: The slots of the optimizer. A table that is not trained lacks them.
        is_half: Whether changes are sent as bfloat16. Slots of one column count or sum: these are
            sent as float32, as they are stored.
        is_gpu: Whether the table is on a GPU. Its rows are computed all at a time, and those of a
            small table, too.
    """
    parts = [("", table.columns, "")]
    parts += [(name, slot.columns, slots[name].merge) for name, slot in table.slots.items()]
    blocks = [
        Block(name, columns, merge, tf.bfloat16 if is_half and columns > 1 else tf.float32)
        for name, columns, merge in parts
    ]
    part = max(1, PART_BYTES // (_FLOAT_BYTES * sum(block.width for block in blocks)))
    return Layout(blocks, 0 if is_gpu or table.rows <= part else part)


def read(
    table: Table, before: Mapping[str, VariableRows], layout: Layout, ids_N: tf.Tensor
) -> Changes:
    """Return the changes of some rows and their slots.

    Args:
        before: The rows and slots at the last exchange, by `Block.slot`.
        ids_N: The ids of the rows, or `NO_ID`.
    """

    def changes(ids_P: tf.Tensor) -> list[tf.Tensor]:
        """Return the change of each block, of a part of the rows."""
        values = []
        for block in layout.blocks:
            now_PD, then_PD = (of.gather(ids_P) for of in (block.table(table), before[block.slot]))
            values.append(tf.cast(now_PD - then_PD, block.dtype))
        return values

    return Changes(ids_N, in_parts([(changes, [tf.maximum(ids_N, 0)])], layout))


def write(
    table: Table, before: Mapping[str, VariableRows], layout: Layout, changes: Changes
) -> None:
    """Set rows and slots to their value at the last exchange plus a change, and `before` to that.

    Args:
        before: The rows and slots at the last exchange, by `Block.slot`.
        changes: The changes; no id is in them twice.
    """

    def add(places_P: tf.Tensor) -> list[tf.Tensor]:
        """Write a part of the rows, given their indices among the changes; return nothing."""
        with tf.device(HOST):
            ids_P = tf.gather(changes.ids_N, places_P)
        for block, values_ND in zip(layout.blocks, changes.values, strict=True):
            stored, base = block.table(table), before[block.slot]
            new_PD = base.gather(ids_P) + tf.cast(tf.gather(values_ND, places_P), tf.float32)
            stored.assign(ids_P, new_PD)
            is_rounded = base.values.dtype != tf.float32
            base.assign(ids_P, stored.gather(ids_P) if is_rounded else new_PD)
        return []

    in_parts([(add, [changed(changes.ids_N)])], layout, has_results=False)


def changed(ids_N: tf.Tensor) -> tf.Tensor:
    """Return the indices (U,) int32 of the changes, without those of `NO_ID`."""
    with tf.device(HOST):
        return tf.cast(tf.where(ids_N != NO_ID)[:, 0], tf.int32)


def fill(numbers_N: tf.Tensor, size: tf.Tensor, value: int) -> tf.Tensor:
    """Return numbers, at most `size`, filled up to a size with a value."""
    return tf.pad(numbers_N, [[0, size - tf.size(numbers_N)]], constant_values=value)


def in_parts(
    stages: Sequence[tuple[Callable[..., Sequence[tf.Tensor]], Sequence[tf.Tensor]]],
    layout: Layout,
    has_results: bool = True,
) -> Sequence[tf.Tensor]:
    """Return the joined results of `function(*inputs)`, computed for some rows at a time.

    Args:
        stages: Functions with their inputs, as for `map_parts`. A function returns the changes of
            each block, or nothing if not `has_results`.
    """
    if not layout.part:
        results = [function(*inputs) for function, inputs in stages]
        return [tf.concat(values, axis=0) for values in zip(*results, strict=True)]
    specs = [tf.TensorSpec([None, block.width], block.dtype) for block in layout.blocks]
    return map_parts(stages, specs if has_results else [], layout.part)


def operations(layouts: Mapping[str, Layout]) -> int:
    """Return the number of collective operations of `send`."""
    return 1 + sum(block.is_wide for layout in layouts.values() for block in layout.blocks)


def row_bytes(layout: Layout) -> int:
    """Return the bytes that carry the change of a row, its id included."""
    return tf.int32.size + sum(block.width * block.dtype.size for block in layout.blocks)


def send(
    changes: Mapping[str, Changes],
    layouts: Mapping[str, Layout],
    operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    keys: Iterator[int],
    receivers: int,
) -> dict[str, Changes]:
    """Send changes to other replicas, and return by table the changes that these send.

    Ids and blocks of one column go together, every other block by an operation of its own.

    Args:
        changes: The changes by table. Every replica has as many of a table for every receiver, a
            result of `round_up`.
        operation: A collective operation of `Exchange`. It takes (receivers, K) and a key, and
            returns what each of R replicas has sent, (R, K).
        keys: The keys of the operations; `operations` are taken.
        receivers: The number of replicas that get different changes: R, or 1 if all get all.
    """
    heads = {name: _head(part, layouts[name]) for name, part in changes.items()}
    by_receiver = [tf.reshape(head_NC, [receivers, -1]) for head_NC in heads.values()]
    sizes = [tf.shape(head)[1] for head in by_receiver]
    size = round_up(tf.add_n(sizes))
    filling = tf.zeros([receivers, size - tf.add_n(sizes)], tf.int32)
    joined = operation(tf.concat([*by_receiver, filling], axis=1), key_of_size(next(keys), size))
    with tf.device(HOST):  # a GPU cannot split integers
        *received_heads, _ = tf.split(joined, [*sizes, -1], axis=1)
    received = {}
    for (name, head_NC), head in zip(heads.items(), received_heads, strict=True):
        columns, rows = head_NC.shape[1], tf.shape(head_NC)[0] // receivers
        with tf.device(HOST):
            ids_N1, *narrow = tf.split(tf.reshape(head, [-1, columns]), columns, axis=1)
        values = []
        for block, values_ND in zip(layouts[name].blocks, changes[name].values, strict=True):
            if block.is_wide:
                carried = tf.bitcast(values_ND, _CARRIED[block.dtype])
                key = key_of_size(next(keys), rows)
                sent = operation(tf.reshape(carried, [receivers, -1]), key)
                values.append(tf.bitcast(tf.reshape(sent, [-1, block.width]), block.dtype))
            else:
                values.append(tf.bitcast(narrow.pop(0), block.dtype))
        received[name] = Changes(ids_N1[:, 0], values)
    return received


def _head(part: Changes, layout: Layout) -> tf.Tensor:
    """Return the ids and the bits of the blocks of one column, (N, C) int32."""
    blocks = zip(layout.blocks, part.values, strict=True)
    narrow = [tf.bitcast(values_N1, tf.int32) for block, values_N1 in blocks if not block.is_wide]
    return tf.concat([part.ids_N[:, tf.newaxis], *narrow], axis=1)
