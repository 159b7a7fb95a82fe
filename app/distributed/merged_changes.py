"""Merge the changes that several replicas made to the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from ..tables.row_reads import unique
from ..types import HOST
from .damped_sum import damped_sum, damping, has_changed
from .row_changes import Changes, Layout, changed, in_parts

# The matrix of `damping` is made of about this many rows for each column. With 100 columns, all
# rows of an exchange took twice as long. For the scores see data/benchmarks/README.md.
_SAMPLE = 40


class Places(NamedTuple):
    """Where the changes of rows are, among those of all replicas.

    Attributes:
        ids_M: The unique ids of the rows, int32, or `NO_ID`.
        places_MR: The index of the change of a row by each of R replicas, int32, counted from 1;
            0 if there is none.
    """

    ids_M: tf.Tensor
    places_MR: tf.Tensor


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
        return Places(ids_M, tf.scatter_nd(cells_U2, indices_U + 1, [tf.size(ids_M), replicas]))


def merge(changes: Changes, places: Places, layout: Layout, steps: tf.Tensor) -> Changes:
    """Return the changes of several replicas as one change for each row.

    Rows are added by `damped_sum`, slots by `Block.merge`.

    Args:
        changes: The changes of all replicas.
        places: Where the changes of each row are.
        layout: The layout of the changes of the table.
        steps: The number of steps since the last exchange, an int32 scalar.
    """
    filter_DD = damping(_take(changes.values[0], _sample(places, layout)), steps)

    def merged(places_PR: tf.Tensor) -> list[tf.Tensor]:
        """Return the merged change of each block, of a part of the rows."""
        rows, *slots = (_take(values_ND, places_PR) for values_ND in changes.values)
        kinds = (block.merge for block in layout.blocks[1:])
        every = [
            damped_sum(rows, filter_DD),
            *(_MERGES[kind](values) for kind, values in zip(kinds, slots, strict=True)),
        ]
        return [tf.cast(v, block.dtype) for v, block in zip(every, layout.blocks, strict=True)]

    return Changes(places.ids_M, in_parts(merged, [places.places_MR], layout))


def _sample(places: Places, layout: Layout) -> tf.Tensor:
    """Return the places of some of the rows that several replicas have changed, (S, R)."""
    with tf.device(HOST):
        counts_M = tf.reduce_sum(tf.cast(places.places_MR > 0, tf.int32), axis=1)
        shared_S = tf.where(counts_M > 1)[:, 0]
        each = 1 + tf.size(shared_S) // (_SAMPLE * layout.blocks[0].width)
        sample_S = tf.gather(shared_S, tf.range(0, tf.size(shared_S), each))
        return tf.gather(places.places_MR, sample_S)


def _take(values_ND: tf.Tensor, places_PR: tf.Tensor) -> list[tf.Tensor]:
    """Return the changes of some rows by each replica, (P, D) float32 each; 0 where there is none.

    Args:
        values_ND: The changes of all replicas.
        places_PR: Where each replica has the change of a row (see `Places`).
    """
    changes = []
    for places_P in tf.unstack(places_PR, axis=1):
        values_PD = tf.cast(tf.gather(values_ND, tf.maximum(places_P - 1, 0)), tf.float32)
        changes.append(tf.where(places_P[:, tf.newaxis] > 0, values_PD, 0.0))
    return changes


def _mean(changes: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the mean over the replicas that have changed a row."""
    return tf.math.divide_no_nan(tf.add_n(changes), tf.add_n(list(map(has_changed, changes))))


def _largest(changes: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the largest change of each number; it is 0 in a replica without a change."""
    return tf.reduce_max(tf.stack(changes), axis=0)


# By `tables.base.Slot.merge`.
_MERGES = {"sum": tf.add_n, "mean": _mean, "largest": _largest}
