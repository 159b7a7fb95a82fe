"""Scores of vectors with the nodes on paths, and their gradients, as loops that XLA compiles.

To gather the rows of the nodes on all paths takes more time than the arithmetic. In the loops here
a row is read where it is used. A function of rows has no arithmetic on indices, which XLA would
repeat for each column.

Shapes: P pairs of a vector and a word, C depths, U rows, Q runs of R entries, and D columns, which
are padded to a multiple of `LANES`.
"""

from __future__ import annotations

import tensorflow as tf

from ...types import HOST
from .paths import pad

# The numbers of a vector register (AVX2), which a loop over columns takes at once.
LANES = 8
# Up to this many gradients of a row are summed by gathers, one for each. A scatter then adds these
# sums. A scatter takes four times as long as a gather.
_RUN = 8


@tf.function(autograph=False, jit_compile=True)
def partial_scores(
    hidden_ND: tf.Tensor, owner_P: tf.Tensor, rows_UD: tf.Tensor, row_PC: tf.Tensor
) -> tf.Tensor:
    """Return the products of each pair's vector and the rows of its nodes, each in `LANES` parts.

    XLA adds the columns of a whole product one after the other.

    Args:
        hidden_ND: The vectors, float32.
        owner_P: The vector of each pair, int32.
        rows_UD: The rows, float32.
        row_PC: The row of each node, int32.

    Returns:
        Numbers (P, C, `LANES`), float32, whose sum over the last dimension is the score.
    """
    hidden_P1D = tf.gather(hidden_ND, owner_P)[:, tf.newaxis]
    columns = [slice(begin, begin + LANES) for begin in range(0, hidden_ND.shape[1], LANES)]
    return tf.add_n(
        [hidden_P1D[:, :, part] * tf.gather(rows_UD[:, part], row_PC) for part in columns]
    )


@tf.function(autograph=False, jit_compile=True)
def errors(
    parts_PCL: tf.Tensor, is_real_PC: tf.Tensor, is_left_PC: tf.Tensor, weight_P: tf.Tensor
) -> tf.Tensor:
    """Return the gradient of the loss by each score, (P, C); 0 where a path has ended."""
    chance_PC = tf.sigmoid(tf.reduce_sum(parts_PCL, axis=2))
    error_PC = weight_P[:, tf.newaxis] * (chance_PC - tf.cast(is_left_PC, tf.float32))
    return tf.where(is_real_PC, error_PC, 0)


@tf.function(autograph=False, jit_compile=True)
def by_pair(rows_UD: tf.Tensor, row_PC: tf.Tensor, error_PC: tf.Tensor) -> tf.Tensor:
    """Return the gradient by the vector of each pair, (P, D)."""
    return tf.reduce_sum(error_PC[:, :, tf.newaxis] * tf.gather(rows_UD, row_PC), axis=1)


def run_starts(row_PC: tf.Tensor, is_real_PC: tf.Tensor) -> tf.Tensor:
    """Return where runs of pairs with one node begin, (Q,) int32; the padding at the end is 0.

    The pairs are in the order of their words, so that pairs with one node are neighbors. They are
    in blocks of `_RUN`, whose vectors fit in the processor's cache. The order is by block, then by
    depth, then by pair; a run does not leave its block.

    Args:
        row_PC: The row of each node, int32.
        is_real_PC: Whether the path of a pair reaches a depth.
    """
    with tf.device(HOST):
        starts_Q = tf.reshape(tf.where(_is_run_start(row_PC, is_real_PC)), [-1])
        return pad(tf.cast(starts_Q, tf.int32), 0)


@tf.function(autograph=False, jit_compile=True)
def _is_run_start(row_PC: tf.Tensor, is_real_PC: tf.Tensor) -> tf.Tensor:
    """Return whether a run begins at each place of the order of `run_starts`, (P C,) bool."""
    before_PC = tf.pad(row_PC[:-1], [[1, 0], [0, 0]])
    is_first_P1 = tf.range(tf.shape(row_PC)[0])[:, tf.newaxis] % _RUN == 0
    is_start_PC = is_real_PC & (is_first_P1 | (row_PC != before_PC))
    is_start_BRC = tf.reshape(is_start_PC, (-1, _RUN, tf.shape(row_PC)[1]))
    return tf.reshape(tf.transpose(is_start_BRC, (0, 2, 1)), [-1])


def by_row(
    hidden_ND: tf.Tensor,
    owner_P: tf.Tensor,
    rows_UD: tf.Tensor,
    row_PC: tf.Tensor,
    error_PC: tf.Tensor,
    starts_Q: tf.Tensor,
) -> tf.Tensor:
    """Return the gradient by the rows, (U, D).

    Args:
        hidden_ND: The vectors.
        owner_P: The vector of each pair.
        rows_UD: The rows.
        row_PC: The row of each node.
        error_PC: The gradient by each score.
        starts_Q: The result of `run_starts`.
    """
    row_Q, owner_QR, error_QR = _runs(starts_Q, owner_P, row_PC, error_PC)
    return _sum_runs(hidden_ND, rows_UD, row_Q, owner_QR, error_QR)


@tf.function(autograph=False, jit_compile=True)
def _runs(
    starts_Q: tf.Tensor, owner_P: tf.Tensor, row_PC: tf.Tensor, error_PC: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the row of each run, (Q,), its vectors, (Q, R), and their errors, (Q, R).

    The errors are 0 after the end of a run. The padding repeats run 0, with errors of 0.
    """
    depths = tf.shape(row_PC)[1]
    start_Q1 = starts_Q[:, tf.newaxis]
    depth_Q1, place_Q1 = start_Q1 // _RUN % depths, start_Q1 % _RUN
    first_Q1 = start_Q1 // (_RUN * depths) * _RUN
    place_QR = place_Q1 + tf.range(_RUN)
    pair_QR = first_Q1 + tf.minimum(place_QR, _RUN - 1)
    entry_QR = pair_QR * depths + depth_Q1
    row_QR = tf.gather(tf.reshape(row_PC, [-1]), entry_QR)
    is_new_Q = tf.concat([[True], starts_Q[1:] > starts_Q[:-1]], axis=0)
    is_in_run_QR = (place_QR < _RUN) & (row_QR == row_QR[:, :1]) & is_new_Q[:, tf.newaxis]
    error_QR = tf.gather(tf.reshape(error_PC, [-1]), entry_QR)
    return row_QR[:, 0], tf.gather(owner_P, pair_QR), tf.where(is_in_run_QR, error_QR, 0)


@tf.function(autograph=False, jit_compile=True)
def _sum_runs(
    hidden_ND: tf.Tensor,
    rows_UD: tf.Tensor,
    row_Q: tf.Tensor,
    owner_QR: tf.Tensor,
    error_QR: tf.Tensor,
) -> tf.Tensor:
    """Return the sum of errors times vectors over the runs of each row, (U, D)."""
    by_run_QD = tf.reduce_sum(error_QR[:, :, tf.newaxis] * tf.gather(hidden_ND, owner_QR), axis=1)
    return tf.math.unsorted_segment_sum(by_run_QD, row_Q, tf.shape(rows_UD)[0])
