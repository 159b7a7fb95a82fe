"""Softmax cross-entropy over a block of rows, for some of the vectors at a time.

The normalizer of a vector is the log-sum-exp of its scores. If a block has all rows of a softmax,
the normalizer is computed from the block. If a block is one tile of several, `log_sum_exp` computes
it over all tiles first. Each loss function then returns the tile's share of the loss, and the
shares of all tiles sum to the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..system.loops import combine
from ..system.python_functions import custom_gradient
from ..system.xla import under_xla

# The most scores in memory at once: 32 MB. With fewer there are more matrix products; more do not
# fit the processor's caches.
SCORES = 8 << 20
# Rows of at most so many columns are narrow: their time goes into passes over scores and rows, not
# into products. So these are in float32, without casts, and there are fewer passes over rows: four
# times as many scores in memory at once, and tiles of twice the size.
NARROW = 32
# -log P is taken from a share above this one, which float32 represents in full.
_LEAST_SHARE = 1e-30
_SCALARS = tf.TensorSpec([None], tf.float32)


# Returns the values of some of the vectors, given those of all, (M, ...).
Take = Callable[[tf.Tensor], tf.Tensor]


class Labels(NamedTuple):
    """The rows that M vectors are to predict, as positions in one tile.

    Attributes:
        positions_M: The position of each vector's row in the tile, int32. A row of another tile has
            a position outside this one.
        weights_M: The weight of each vector, float32.
        first: Whether this is the first tile, a bool or a bool scalar.
        normalizer_M: The log-sum-exp of each vector's scores of all tiles. None for a single tile.
    """

    positions_M: tf.Tensor
    weights_M: tf.Tensor
    first: tf.Tensor | bool = True
    normalizer_M: tf.Tensor | None = None

    def part(self, take: Take) -> Labels:
        """Return the labels of the vectors whose values `take` returns."""
        normalizer_M = None if self.normalizer_M is None else take(self.normalizer_M)
        return Labels(take(self.positions_M), take(self.weights_M), self.first, normalizer_M)


def summed_loss(labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor) -> tf.Tensor:
    """Return the tile's share of the weighted sum of -log P over the vectors.

    With one tile this is the whole sum. The gradient is computed with the loss, from the same
    scores. The gradients of all tiles sum to the gradient of the whole loss, although none flows to
    the normalizer.

    Args:
        labels: The row that each vector is to predict.
        hidden_MD: The vectors, of the dtype in which products are computed.
        rows_UD: The rows of the tile, float32.

    Returns:
        A float32 scalar.
    """

    @custom_gradient
    def loss(hidden_MD: tf.Tensor, rows_UD: tf.Tensor):
        """Return the loss, with gradients that are computed already."""
        dtype, is_whole = hidden_MD.dtype, labels.normalizer_M is None
        # oneDNN prepares products of bfloat16 anew for the size of each class: 1,580 of a step took
        # 315 ms, and 7 ms in float32.
        is_class = is_whole and rows_UD.shape[0] is None
        is_block = is_whole and not is_class and not under_xla()
        is_float32 = is_class or (is_block and _is_narrow(rows_UD))
        vectors_MD = tf.cast(hidden_MD, tf.float32) if is_float32 else hidden_MD
        by_shares = is_block and vectors_MD.dtype == tf.float32
        value, by_rows, by_hidden = _in_chunks(
            vectors_MD,
            rows_UD,
            lambda take: _loss_and_gradients(
                labels.part(take), take(vectors_MD), rows_UD, by_shares
            ),
            lambda: [tf.constant(0.0), tf.zeros_like(rows_UD)],
            tf.TensorSpec([None, vectors_MD.shape[1]], vectors_MD.dtype),
        )
        if by_shares:
            by_rows, by_hidden = _subtract_targets(labels, vectors_MD, rows_UD, by_rows, by_hidden)
        by_hidden = tf.cast(by_hidden, dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.cast(upstream, by_hidden.dtype) * by_hidden, upstream * by_rows

        return value, gradient

    return loss(hidden_MD, rows_UD)


def vector_losses(labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor) -> tf.Tensor:
    """Return the tile's share of the weighted -log P of each vector, (M,) float32.

    With one tile this is the whole loss. It is computed in float32, and not to be differentiated.

    Args:
        labels: The row that each vector is to predict.
        hidden_MD: The vectors, any float dtype.
        rows_UD: The rows of the tile, float32.
    """
    normalizer_M = labels.normalizer_M
    if normalizer_M is not None:  # of several tiles; this one adds the score of its own row
        inside_M, positions_M = _positions(labels, tf.shape(rows_UD)[0])
        chosen_MD = tf.gather(rows_UD, positions_M)
        score_M = tf.reduce_sum(tf.cast(hidden_MD, tf.float32) * chosen_MD, axis=1)
        first_M = tf.where(labels.first, normalizer_M, tf.zeros_like(normalizer_M))
        return (first_M - tf.where(inside_M, score_M, 0.0)) * labels.weights_M

    def score_chunk(take: Take) -> list[tf.Tensor]:
        """Return the weighted losses of the vectors of a chunk, in a list."""
        scores_MU = tf.matmul(tf.cast(take(hidden_MD), tf.float32), rows_UD, transpose_b=True)
        in_chunk = labels.part(take)
        return [_loss_and_error(scores_MU, in_chunk)[0] * in_chunk.weights_M]

    return _in_chunks(hidden_MD, rows_UD, score_chunk)[0]


def log_sum_exp(hidden_MD: tf.Tensor, rows_UD: tf.Tensor, before_M: tf.Tensor) -> tf.Tensor:
    """Return the log-sum-exp of each vector's scores over the tiles so far, (M,) float32.

    Args:
        hidden_MD: The vectors, of the dtype in which products are computed.
        rows_UD: The rows of the tile, float32.
        before_M: The result for the tiles before this one; -inf before the first.
    """

    def score_chunk(take: Take) -> list[tf.Tensor]:
        """Return the log-sum-exp of the vectors of a chunk over this tile alone, in a list."""
        hidden_ND = take(hidden_MD)
        scores_NU = tf.matmul(hidden_ND, tf.cast(rows_UD, hidden_ND.dtype), transpose_b=True)
        scores_NU = tf.cast(scores_NU, tf.float32)
        return [_normalizer(scores_NU, tf.nn.softmax(scores_NU))]

    (tile_M,) = _in_chunks(hidden_MD, rows_UD, score_chunk)
    greater_M = tf.maximum(before_M, tile_M)
    return greater_M + tf.math.log(tf.exp(before_M - greater_M) + tf.exp(tile_M - greater_M))


def _loss_and_gradients(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor, by_shares: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the weighted loss, and its gradients by the rows (U, D) and by the vectors (M, D).

    The loss and the gradient by the rows are float32; the other has the dtype of the vectors.

    Args:
        by_shares: Whether to leave out what `_subtract_targets` adds.
    """
    block_UD = tf.cast(rows_UD, hidden_MD.dtype)
    scores_MU = tf.matmul(hidden_MD, block_UD, transpose_b=True)
    loss_M, error_MU = _loss_and_error(tf.cast(scores_MU, tf.float32), labels, by_shares)
    loss = tf.reduce_sum(loss_M * labels.weights_M)
    if (rows_UD.shape[0] or math.inf) <= rows_UD.shape[1]:
        error_MU = tf.cast(error_MU * labels.weights_M[:, tf.newaxis], hidden_MD.dtype)
        by_rows_UD = tf.matmul(error_MU, hidden_MD, transpose_a=True)
        return loss, tf.cast(by_rows_UD, tf.float32), tf.matmul(error_MU, block_UD)
    error_MU = tf.cast(error_MU, hidden_MD.dtype)
    # Vectors are multiplied by the weights, since scores are more numerous.
    weights_M1 = tf.cast(labels.weights_M[:, tf.newaxis], hidden_MD.dtype)
    return (
        loss,
        tf.cast(tf.matmul(error_MU, weights_M1 * hidden_MD, transpose_a=True), tf.float32),
        weights_M1 * tf.matmul(error_MU, block_UD),
    )


def _subtract_targets(
    labels: Labels,
    hidden_MD: tf.Tensor,
    rows_UD: tf.Tensor,
    by_rows_UD: tf.Tensor,
    by_hidden_MD: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients by the rows and by the vectors, given those by the shares alone.

    The gradient by a score is its share, less 1 for the target. Here this 1 is subtracted from the
    products of all chunks, which are smaller than the scores: TensorFlow would copy these. All
    arguments are float32, as the difference of two rounded products would not be precise.
    """
    inside_M, positions_M = _positions(labels, tf.shape(rows_UD)[0])
    weights_M1 = tf.where(inside_M, labels.weights_M, 0.0)[:, tf.newaxis]
    indices_M1 = positions_M[:, tf.newaxis]
    return (
        tf.tensor_scatter_nd_sub(by_rows_UD, indices_M1, weights_M1 * hidden_MD),
        by_hidden_MD - weights_M1 * tf.gather(rows_UD, positions_M),
    )


def _loss_and_error(
    scores_MU: tf.Tensor, labels: Labels, by_shares: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unweighted loss of each vector, (M,), and its gradient by the scores, (M, U).

    The normalizer counts in the first tile only, and the score only in the tile that has the row.

    Args:
        by_shares: Whether to return the shares instead of the gradient (see `_subtract_targets`).
    """
    count, rows = tf.unstack(tf.shape(scores_MU))
    inside_M, positions_M = _positions(labels, rows)
    indices_M2 = tf.stack([tf.range(count), positions_M], axis=1)
    normalizer_M = labels.normalizer_M

    def less_score(normalizer_M: tf.Tensor) -> tf.Tensor:
        """Return the loss, given the normalizer."""
        score_M = tf.where(inside_M, tf.gather_nd(scores_MU, indices_M2), 0.0)
        return tf.where(labels.first, normalizer_M, tf.zeros_like(normalizer_M)) - score_M

    if normalizer_M is not None:
        share_MU = tf.exp(scores_MU - normalizer_M[:, tf.newaxis])
        loss_M = less_score(normalizer_M)
    elif scores_MU.shape[1] is None or under_xla():  # which joins these operations to one
        share_MU, normalizer_M = _plain_softmax(scores_MU)
        loss_M = less_score(normalizer_M)
    else:
        share_MU = tf.nn.softmax(scores_MU)
        target_M = tf.gather_nd(share_MU, indices_M2)
        loss_M = tf.cond(
            tf.reduce_all(inside_M & (target_M > _LEAST_SHARE)),
            lambda: -tf.math.log(target_M),
            lambda: less_score(_normalizer(scores_MU, share_MU)),
        )
    if by_shares:
        return loss_M, share_MU
    if under_xla():  # which would add one number after the other, in a kernel of its own
        positions_M = tf.where(inside_M, positions_M, -1)
        return loss_M, share_MU - tf.one_hot(positions_M, rows, dtype=tf.float32)
    return loss_M, tf.tensor_scatter_nd_sub(share_MU, indices_M2, tf.cast(inside_M, tf.float32))


def _positions(labels: Labels, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether each vector's row is in the tile, (M,) bool, and a position in it, int32."""
    inside_M = (labels.positions_M >= 0) & (labels.positions_M < rows)
    # A row of another tile is given any position; its score and error are set to 0. For a GPU
    # tf.clip_by_value keeps this int32 in host memory. tf.where would put it on the device, and the
    # step would wait for it.
    return inside_M, tf.clip_by_value(labels.positions_M, 0, rows - 1)


def _normalizer(scores_MU: tf.Tensor, share_MU: tf.Tensor) -> tf.Tensor:
    """Return the log-sum-exp of each vector's scores, (M,), given their softmax.

    It is the largest score less the logarithm of its share, which is safe because the largest share
    is at least 1 / U. On a CPU TensorFlow's softmax takes 1 to 4 ns a score, and its sparse
    cross-entropy 13 to 22 ns.
    """
    return tf.reduce_max(scores_MU, axis=1) - tf.math.log(tf.reduce_max(share_MU, axis=1))


def _plain_softmax(scores_MU: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the softmax of a class, (M, U), and the log-sum-exp of each vector's scores, (M,).

    TensorFlow's softmax takes 0.06 ms to prepare it for each other size.
    """
    greatest_M1 = tf.reduce_max(scores_MU, axis=1, keepdims=True)
    share_MU = tf.exp(scores_MU - greatest_M1)
    sum_M1 = tf.reduce_sum(share_MU, axis=1, keepdims=True)
    return share_MU / sum_M1, tf.squeeze(greatest_M1 + tf.math.log(sum_M1), axis=1)


def _is_narrow(rows_UD: tf.Tensor) -> bool:
    """Return whether rows have at most `NARROW` columns."""
    return (rows_UD.shape[1] or math.inf) <= NARROW


def _in_chunks(
    hidden_MD: tf.Tensor,
    rows_UD: tf.Tensor,
    compute: Callable[[Take], Sequence[tf.Tensor]],
    sums: Callable[[], Sequence[tf.Tensor]] = tuple,
    joined: tf.TensorSpec = _SCALARS,
) -> Sequence[tf.Tensor]:
    """Return the results of `compute` for chunks of vectors whose scores fit `SCORES`.

    Of narrow rows there are four times as many scores. Chunks of a block are of about equal size.

    Args:
        compute: Function from a chunk, as a function that takes its values, to its results.
        sums: Returns zeros for the first results, which are added over the chunks.
        joined: The shape and the dtype of the last result, which is joined.
    """
    most = 4 * SCORES if _is_narrow(rows_UD) else SCORES
    size: int | tf.Tensor
    if rows_UD.shape[0] is not None:
        size = max(most // max(rows_UD.shape[0], 1), 1)
    else:
        size = tf.maximum(most // tf.maximum(tf.shape(rows_UD)[0], 1), 1)

    def whole() -> Sequence[tf.Tensor]:
        return compute(lambda values: values)

    def by_chunk() -> Sequence[tf.Tensor]:
        count = tf.shape(hidden_MD)[0]
        chunks = -(-count // size)
        even = -(-count // chunks)

        def chunk(index: tf.Tensor) -> Sequence[tf.Tensor]:
            start = index * even
            return compute(lambda values: values[start : tf.minimum(start + even, count)])

        return combine(chunks, chunk, sums(), [joined])

    if isinstance(size, int) and hidden_MD.shape[0] is not None:
        return whole() if hidden_MD.shape[0] <= size else by_chunk()
    return tf.cond(tf.shape(hidden_MD)[0] <= size, lambda: list(whole()), lambda: list(by_chunk()))
