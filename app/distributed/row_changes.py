"""Read, merge, send and write the changes of rows since the last exchange.

A change is the difference of a row, and of each slot of it, from its value at the last exchange.
Wide changes are sent without copying them into one vector.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..system.loops import join, loop, make_arrays, write_arrays
from ..tables.base import Slot, Table
from ..tables.device import VariableRows
from ..tables.row_reads import unique
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
        stages: Functions with their inputs, one after the other. The inputs of a function are
            tensors (N, ...). It takes the same rows of each, and returns the changes of each block
            for these rows, or nothing if not `has_results`.
    """
    rows = layout.part
    if not rows:
        results = [function(*inputs) for function, inputs in stages]
        return [tf.concat(values, axis=0) for values in zip(*results, strict=True)]

    def part(
        function: Callable, inputs: Sequence[tf.Tensor], done: tf.Tensor, index: tf.Tensor, *arrays
    ) -> Sequence[tf.TensorArray]:
        """Compute the results of one part, and write them to the arrays after those `done`."""
        start = index * rows
        results = function(*(values[start : start + rows] for values in inputs))
        return write_arrays(arrays, done + index, results)

    specs = [tf.TensorSpec([None, b.width], b.dtype) for b in layout.blocks if has_results]
    counts = [-(-tf.shape(inputs[0])[0] // rows) for _, inputs in stages]
    arrays: Sequence[tf.TensorArray] = make_arrays(specs, tf.add_n(counts))
    done = tf.constant(0)
    for (function, inputs), count in zip(stages, counts, strict=True):
        arrays = loop(count, functools.partial(part, function, inputs, done), arrays)
        done += count
    return list(map(join, arrays, specs))


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


# The matrix of `damping` is made of about this many rows for each column. With 100 columns, all
# rows of an exchange took twice as long. For the scores see data/benchmarks/README.md.
_SAMPLE = 40
_TINY = 1e-20  # keeps a matrix of zeros invertible; far below the square of any change


class Places(NamedTuple):
    """Where the changes of rows are, among those of all replicas.

    Attributes:
        ids_M: The unique ids of the rows, int32, or `NO_ID`: first those of the rows that several
            replicas have changed.
        places_SR: For each row that several have changed, the index of the change by each of R
            replicas, int32, counted from 1; 0 if there is none.
        places_O: For each other row, the index of its change, int32; any index for `NO_ID`.
    """

    ids_M: tf.Tensor
    places_SR: tf.Tensor
    places_O: tf.Tensor


def find_places(ids_N: tf.Tensor, replicas: int) -> Places:
    """Return the rows that any replica has changed, and where their changes are.

    Args:
        ids_N: The ids of the changes of all replicas, of equal number, one after the other.
    """
    with tf.device(HOST):
        indices_U = changed(ids_N)
        ids_M, inverse_U = unique(tf.gather(ids_N, indices_U))
        cells_U2 = tf.stack([inverse_U, indices_U // (tf.size(ids_N) // replicas)], axis=1)
        places_MR = tf.scatter_nd(cells_U2, indices_U + 1, [tf.size(ids_M), replicas])
        is_shared_M = tf.math.count_nonzero(places_MR, axis=1, dtype=tf.int32) > 1
        others_OR, places_SR = tf.dynamic_partition(places_MR, tf.cast(is_shared_M, tf.int32), 2)
        others_O, shared_S = tf.dynamic_partition(ids_M, tf.cast(is_shared_M, tf.int32), 2)
        places_O = tf.reduce_max(others_OR, axis=1) - 1
        return Places(tf.concat([shared_S, others_O], axis=0), places_SR, places_O)


def fill_places(places: Places, size: tf.Tensor) -> Places:
    """Return places filled up with `NO_ID` to a number of rows, an int32 scalar."""
    others = size - tf.shape(places.places_SR)[0]
    return Places(
        fill(places.ids_M, size, NO_ID), places.places_SR, fill(places.places_O, others, 0)
    )


def merge(changes: Changes, places: Places, layout: Layout, steps: tf.Tensor) -> Changes:
    """Return the changes of several replicas as one change for each row.

    Rows are added by `damped_sum`, slots by `Block.merge`. The change of a row that one replica has
    changed stays as it is.

    Args:
        places: Where the changes of each row are.
        steps: The number of steps since the last exchange, an int32 scalar.
    """
    filter_DD = damping(_take(changes.values[0], _sample(places.places_SR, layout)), steps)

    def merged(places_PR: tf.Tensor) -> list[tf.Tensor]:
        """Return the merged change of each block, of rows that several replicas have changed."""
        rows, *slots = (_take(values_ND, places_PR) for values_ND in changes.values)
        kinds = (block.merge for block in layout.blocks[1:])
        every = [
            damped_sum(rows, filter_DD),
            *(_MERGES[kind](values) for kind, values in zip(kinds, slots, strict=True)),
        ]
        return [tf.cast(v, block.dtype) for v, block in zip(every, layout.blocks, strict=True)]

    def same(places_P: tf.Tensor) -> list[tf.Tensor]:
        """Return the change of each block, of rows that one replica has changed."""
        return [tf.gather(values_ND, places_P) for values_ND in changes.values]

    stages = [(merged, [places.places_SR]), (same, [places.places_O])]
    return Changes(places.ids_M, in_parts(stages, layout))


def _sample(places_SR: tf.Tensor, layout: Layout) -> tf.Tensor:
    """Return some of the places, at even distances."""
    with tf.device(HOST):
        count = tf.shape(places_SR)[0]
        each = 1 + count // (_SAMPLE * layout.blocks[0].width)
        return tf.gather(places_SR, tf.range(0, count, each))


def _take(values_ND: tf.Tensor, places_PR: tf.Tensor) -> list[tf.Tensor]:
    """Return the changes of shared rows by each replica, (P, D) float32; 0 if there is none."""
    by_replica = tf.unstack(places_PR, axis=1)
    changes = []
    for places_P in by_replica:
        values_PD = tf.cast(tf.gather(values_ND, tf.maximum(places_P - 1, 0)), tf.float32)
        if len(by_replica) > 2:  # of two replicas, both have changed the row
            values_PD = tf.where(places_P[:, tf.newaxis] > 0, values_PD, 0.0)
        changes.append(values_PD)
    return changes


def _mean(changes: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the mean over the replicas that have changed a row."""
    return tf.math.divide_no_nan(tf.add_n(changes), tf.add_n(list(map(has_changed, changes))))


def _largest(changes: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the largest change of each number; it is 0 in a replica without a change."""
    return tf.reduce_max(tf.stack(changes), axis=0)


# By `tables.base.Slot.merge`.
_MERGES = {"sum": tf.add_n, "mean": _mean, "largest": _largest}


def damped_sum(parts_RMD: Sequence[tf.Tensor], filter_DD: tf.Tensor) -> tf.Tensor:
    """Return the sum of the changes of each row, with what the replicas have in common damped.

    A row that only one replica has changed is not damped.

    Args:
        parts_RMD: The changes of the same rows by each replica, float32; 0 where a replica has not
            changed a row.
        filter_DD: The result of `damping` for these rows, or for a sample of them.
    """
    sums_MD = tf.add_n(parts_RMD)
    return tf.where(_is_shared(parts_RMD), tf.matmul(sums_MD, filter_DD), sums_MD)


def damping(parts_RMD: Sequence[tf.Tensor], steps: tf.Tensor) -> tf.Tensor:
    """Return the matrix to multiply the sums of changes with.

    Suppose that the change in each of R replicas is a common part and a part of its own, which is
    independent of the others. The best linear estimate of the common part plus all other parts, by
    least squares from the sum Z of the changes D_r, is Z (Z'Z)^-1 (D_1'D_1 + ... + D_R'D_R). This
    is the mean in a direction in which the changes are equal, and the sum in one in which they are
    independent. Adasum (Maleki et al. 2021, section 3) has one factor for a tensor in place of this
    matrix. For what was measured, see data/benchmarks/README.md.

    With plain SGD, the sum after a single step is the step of one batch of all examples. After few
    steps, the loss may not be lowest along any direction yet. So a share of 2 / (S + 1) of the
    result is the sum.

    Few rows are little evidence. So one row is added for each direction, as large as the mean of
    the rows, in which the changes are independent. A row that only one replica has changed is not
    counted.

    Args:
        parts_RMD: The changes of the same rows by each replica, float32, as in `damped_sum`.
        steps: The number of steps since the last exchange, S, an int32 scalar, at least 1.

    Returns:
        The matrix (D, D). If any change is not finite, it is the identity matrix.
    """
    is_shared_M1 = _is_shared(parts_RMD)
    parts = [tf.where(is_shared_M1, part_MD, 0.0) for part_MD in parts_RMD]
    of_sums_DD = _square(tf.add_n(parts))
    of_parts_DD = tf.add_n([_square(part_MD) for part_MD in parts])
    identity_DD = tf.eye(of_sums_DD.shape[0])
    rows = tf.reduce_sum(tf.cast(is_shared_M1, tf.float32))
    prior_DD = (tf.linalg.trace(of_parts_DD) / tf.maximum(rows, 1.0) + _TINY) * identity_DD
    # The solver raises an error for a matrix that is not finite. Here, the sums show what is wrong.
    is_finite = tf.reduce_all(tf.math.is_finite(of_sums_DD + of_parts_DD))
    filter_DD = tf.linalg.solve(
        tf.where(is_finite, of_sums_DD + prior_DD, identity_DD),
        tf.where(is_finite, of_parts_DD + prior_DD, identity_DD),
    )
    share = 2.0 / (tf.cast(steps, tf.float32) + 1.0)
    return filter_DD + share * (identity_DD - filter_DD)


def has_changed(values_MD: tf.Tensor) -> tf.Tensor:
    """Return 1.0 for each row that has changed, and 0.0 for one that was only looked up, (M, 1)."""
    return tf.cast(tf.reduce_any(tf.not_equal(values_MD, 0.0), axis=1, keepdims=True), tf.float32)


def _is_shared(parts_RMD: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return whether several replicas have changed a row, (M, 1)."""
    return tf.add_n([has_changed(part_MD) for part_MD in parts_RMD]) > 1.0


def _square(values_MD: tf.Tensor) -> tf.Tensor:
    """Return the product with itself, (D, D)."""
    return tf.matmul(values_MD, values_MD, transpose_a=True)
