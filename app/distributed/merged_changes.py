"""Merge the changes that several replicas made to the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from ..tables.row_reads import unique
from ..types import HOST
from .damped_sum import damped_sum, damping, has_changed
from .row_changes import NO_ID, Changes, Layout, changed, fill, in_parts

# The matrix of `damping` is made of about this many rows for each column. With 100 columns, all
# rows of an exchange took twice as long. For the scores see data/benchmarks/README.md.
_SAMPLE = 40


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
        ids_N: The ids of the changes of all replicas, as many of each, one after the other.
        replicas: The number of replicas, R.
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
    """Return places filled up with `NO_ID` to a number of rows.

    Args:
        places: The places.
        size: The number of rows, an int32 scalar.
    """
    others = size - tf.shape(places.places_SR)[0]
    return Places(
        fill(places.ids_M, size, NO_ID), places.places_SR, fill(places.places_O, others, 0)
    )


def merge(changes: Changes, places: Places, layout: Layout, steps: tf.Tensor) -> Changes:
    """Return the changes of several replicas as one change for each row.

    Rows are added by `damped_sum`, slots by `Block.merge`. The change of a row that one replica has
    changed stays as it is.

    Args:
        changes: The changes of all replicas.
        places: Where the changes of each row are.
        layout: The layout of the changes of the table.
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
    """Return the changes of shared rows by each replica, (P, D) float32.

    Args:
        values_ND: The changes of all replicas.
        places_PR: Where they are (see `Places`). Where there is none, the change is 0.
    """
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
