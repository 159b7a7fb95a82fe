"""The loss of hierarchical softmax for vectors that predict one word each, node by node."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...types import HOST
from ..base import Part, Predictions
from .paths import Code, pad, path_nodes


def make_part(code: Code, predictions: Predictions, table: str) -> Part:
    """Return a part, not yet computed, whose losses are the weighted -log P of the words.

    Args:
        predictions: Groups of one vector and one word.
    """
    hidden_ND = tf.reshape(predictions.hidden_GND, (-1, predictions.hidden_GND.shape[2]))
    return Part(table, hidden_ND, lambda *_: _label(code, predictions), _differentiate, _losses)


class _Labels(NamedTuple):
    """The pairs of a vector and its word, in the order of the sorted words, with padding.

    Attributes:
        owners_P: The index of each pair's vector, int32.
        weights_P: The weight of each pair, float32.
        pairs_N: The pair of each vector, int32.
        row_PC: The index among the rows of each node on the pair's path, int32; 0 where it has
            ended.
        is_real_PC: Whether the path of the pair reaches the depth.
        is_left_PC: Whether the path goes left at the node.
        starts_Q: The result of `_run_starts`.
    """

    owners_P: tf.Tensor
    weights_P: tf.Tensor
    pairs_N: tf.Tensor
    row_PC: tf.Tensor
    is_real_PC: tf.Tensor
    is_left_PC: tf.Tensor
    starts_Q: tf.Tensor


def _label(code: Code, predictions: Predictions) -> tuple[tf.Tensor, _Labels]:
    """Return the rows of the nodes on all paths, (U,), and the pairs by descending id of word.

    Both are padded by words of id -1 and pairs of weight 0. A word of weight 0 has the id -1 too.
    """
    with tf.device(HOST):
        weights_N = tf.reshape(predictions.weights_GNM, [-1])
        ids_N = tf.where(weights_N != 0, tf.reshape(predictions.targets_GM, [-1]), -1)
        order_P = tf.argsort(ids_N, direction="DESCENDING", stable=True)
        nodes = path_nodes(code, pad(tf.gather(ids_N, order_P), -1))
        is_real_PC, row_PC = nodes.row_MC >= 0, tf.maximum(nodes.row_MC, 0)
        return nodes.rows_U, _Labels(
            pad(order_P, 0),
            pad(tf.gather(weights_N, order_P), 0),
            tf.math.invert_permutation(order_P),
            row_PC,
            is_real_PC,
            nodes.left_MC > 0,
            _run_starts(row_PC, is_real_PC),
        )


def _differentiate(
    labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the loss of each vector, (N,), and the gradients by vectors and rows, all float32."""
    owners_P, weights_P, pairs_N, row_PC, is_real_PC, is_left_PC, starts_Q = labels
    columns = hidden_ND.shape[1]
    padded_ND, padded_UD, parts_PCL = _score(labels, hidden_ND, rows_UD)
    error_PC = _errors(parts_PCL, is_real_PC, is_left_PC, weights_P)
    by_hidden_ND = tf.gather(_by_pair(padded_UD, row_PC, error_PC), pairs_N)
    by_row_UD = _sum_runs(padded_ND, padded_UD, *_runs(starts_Q, owners_P, row_PC, error_PC))
    losses_N = _weigh(labels, parts_PCL)
    return losses_N, by_hidden_ND[:, :columns], by_row_UD[: tf.shape(rows_UD)[0], :columns]


def _losses(labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor) -> tf.Tensor:
    """Return the loss of each vector at the nodes of all rows, (N,) float32."""
    return _weigh(labels, _score(labels, hidden_ND, rows_UD)[2])


def _score(
    labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the vectors and the rows with padding, and the result of `_partial_scores`."""
    edges = [[0, 0], [0, -hidden_ND.shape[1] % _LANES]]
    padded_ND = pad(tf.pad(tf.cast(hidden_ND, tf.float32), edges), 0)
    padded_UD = pad(tf.pad(rows_UD, edges), 0)
    return (
        padded_ND,
        padded_UD,
        _partial_scores(padded_ND, labels.owners_P, padded_UD, labels.row_PC),
    )


def _weigh(labels: _Labels, parts_PCL: tf.Tensor) -> tf.Tensor:
    """Return the loss of each vector, (N,). TensorFlow removes this from a graph without use."""
    scores_PC = tf.reduce_sum(parts_PCL, axis=2)
    terms_PC = tf.nn.softplus(tf.where(labels.is_left_PC, -scores_PC, scores_PC))
    terms_P = tf.reduce_sum(tf.where(labels.is_real_PC, terms_PC, 0), axis=1)
    return tf.gather(labels.weights_P * terms_P, labels.pairs_N)


# The numbers of a vector register (AVX2), which a loop over columns takes at once.
_LANES = 8
# Up to this many gradients of a row are summed by gathers, one for each. A scatter then adds these
# sums. A scatter takes four times as long as a gather.
_RUN = 8


@tf.function(autograph=False, jit_compile=True)
def _partial_scores(
    hidden_ND: tf.Tensor, owner_P: tf.Tensor, rows_UD: tf.Tensor, row_PC: tf.Tensor
) -> tf.Tensor:
    """Return the products of each pair's vector and the rows of its nodes, (P, C, `_LANES`).

    Their sums over the last dimension are the scores. XLA adds the columns of a whole product one
    after the other.
    """
    hidden_P1D = tf.gather(hidden_ND, owner_P)[:, tf.newaxis]
    columns = [slice(begin, begin + _LANES) for begin in range(0, hidden_ND.shape[1], _LANES)]
    return tf.add_n(
        [hidden_P1D[:, :, part] * tf.gather(rows_UD[:, part], row_PC) for part in columns]
    )


@tf.function(autograph=False, jit_compile=True)
def _errors(
    parts_PCL: tf.Tensor, is_real_PC: tf.Tensor, is_left_PC: tf.Tensor, weight_P: tf.Tensor
) -> tf.Tensor:
    """Return the gradient of the loss by each score, (P, C); 0 where a path has ended."""
    chance_PC = tf.sigmoid(tf.reduce_sum(parts_PCL, axis=2))
    error_PC = weight_P[:, tf.newaxis] * (chance_PC - tf.cast(is_left_PC, tf.float32))
    return tf.where(is_real_PC, error_PC, 0)


@tf.function(autograph=False, jit_compile=True)
def _by_pair(rows_UD: tf.Tensor, row_PC: tf.Tensor, error_PC: tf.Tensor) -> tf.Tensor:
    """Return the gradient by the vector of each pair, (P, D)."""
    return tf.reduce_sum(error_PC[:, :, tf.newaxis] * tf.gather(rows_UD, row_PC), axis=1)


def _run_starts(row_PC: tf.Tensor, is_real_PC: tf.Tensor) -> tf.Tensor:
    """Return where runs of pairs with one node begin, (Q,) int32; the padding at the end is 0.

    The pairs are in the order of their words, so that pairs with one node are neighbors. They are
    in blocks of `_RUN`, whose vectors fit in the processor's cache. The order is by block, then by
    depth, then by pair; a run does not leave its block.
    """
    starts_Q = tf.reshape(tf.where(_is_run_start(row_PC, is_real_PC)), [-1])
    return pad(tf.cast(starts_Q, tf.int32), 0)


@tf.function(autograph=False, jit_compile=True)
def _is_run_start(row_PC: tf.Tensor, is_real_PC: tf.Tensor) -> tf.Tensor:
    """Return whether a run begins at each place of the order of `_run_starts`, (P C,) bool."""
    before_PC = tf.pad(row_PC[:-1], [[1, 0], [0, 0]])
    is_first_P1 = tf.range(tf.shape(row_PC)[0])[:, tf.newaxis] % _RUN == 0
    is_start_PC = is_real_PC & (is_first_P1 | (row_PC != before_PC))
    is_start_BRC = tf.reshape(is_start_PC, (-1, _RUN, tf.shape(row_PC)[1]))
    return tf.reshape(tf.transpose(is_start_BRC, (0, 2, 1)), [-1])


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
