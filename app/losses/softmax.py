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

from ..system import devices
from ..system.loops import combine
from ..system.xla import under_xla

# The most scores in memory at once: 32 MB. With fewer there are more matrix products; more do not
# fit the processor's caches.
SCORES = 8 << 20
# Rows of at most so many columns are narrow: their time goes into passes over scores and rows, not
# into products. So these are in float32, without casts, and there are fewer passes over rows: eight
# times as many scores in memory at once, and tiles of twice the size.
NARROW = 32
# The logarithm of a share above this is as precise as that of a large one: float32 has shares from
# 1e-38.
_SAFE_SHARE = 1e-30
_LOSSES = tf.TensorSpec([None], tf.float32)


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


def losses_and_gradients(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the tile's share of the weighted -log P of each vector, (M,), and its gradients.

    They are those of the sum, by the vectors, (M, D) of their dtype, and by the rows, (U, D). All
    else is float32. The gradients of all tiles sum to the gradient of the whole loss, although none
    flows to the normalizer.

    Args:
        labels: The row that each vector is to predict.
        hidden_MD: The vectors, of the dtype in which products are computed.
        rows_UD: The rows of the tile, float32.
    """
    # A cast of narrow rows takes longer than their products. oneDNN prepares products of
    # bfloat16 anew for the size of each class: 1,580 of a step took 315 ms, 7 ms in float32.
    is_class = rows_UD.shape[0] is None
    is_float32 = labels.normalizer_M is None and (is_class or _is_narrow(rows_UD))
    vectors_MD = tf.cast(hidden_MD, tf.float32) if is_float32 else hidden_MD
    by_rows, losses_M, by_hidden = _in_chunks(
        vectors_MD,
        rows_UD,
        lambda take: _losses_and_gradients(labels.part(take), take(vectors_MD), rows_UD),
        lambda: [tf.zeros_like(rows_UD)],
        [tf.TensorSpec([None, vectors_MD.shape[1]], vectors_MD.dtype)],
    )
    if _subtracts_rows(vectors_MD, rows_UD):
        inside_M, positions_M, _ = _targets(labels, rows_UD.shape[0])
        weights_M1 = tf.where(inside_M, labels.weights_M, 0.0)[:, tf.newaxis]
        by_hidden -= weights_M1 * tf.gather(rows_UD, positions_M)
        by_rows = tf.tensor_scatter_nd_sub(
            by_rows, positions_M[:, tf.newaxis], weights_M1 * vectors_MD
        )
    return losses_M, tf.cast(by_hidden, hidden_MD.dtype), by_rows


def _subtracts_rows(vectors_MD: tf.Tensor, rows_UD: tf.Tensor) -> bool:
    """Return whether targets are subtracted from the gradients, and not from the shares.

    A scatter copies its tensor, and gradients are smaller than the shares of many rows. In bfloat16
    the difference of two rounded numbers would not be precise.
    """
    rows, columns = rows_UD.shape  # rows is None for a class, and for a tile of several
    are_many = rows is not None and rows > columns
    return are_many and vectors_MD.dtype == tf.float32 and not under_xla()


def losses(labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor) -> tf.Tensor:
    """Return the tile's share of the weighted -log P of each vector, (M,) float32.

    With one tile this is the whole loss. It is computed in float32, and not to be differentiated.

    Args:
        labels: The row that each vector is to predict.
        hidden_MD: The vectors, any float dtype.
        rows_UD: The rows of the tile, float32.
    """
    normalizer_M = labels.normalizer_M
    if normalizer_M is not None:  # of several tiles; this one adds the score of its own row
        inside_M, positions_M, _ = _targets(labels, tf.shape(rows_UD)[0])
        chosen_MD = tf.gather(rows_UD, positions_M)
        score_M = tf.reduce_sum(tf.cast(hidden_MD, tf.float32) * chosen_MD, axis=1)
        first_M = tf.where(labels.first, normalizer_M, tf.zeros_like(normalizer_M))
        return (first_M - tf.where(inside_M, score_M, 0.0)) * labels.weights_M

    def score_chunk(take: Take) -> list[tf.Tensor]:
        """Return the weighted losses of the vectors of a chunk, in a list."""
        scores_MU = tf.matmul(tf.cast(take(hidden_MD), tf.float32), rows_UD, transpose_b=True)
        in_chunk = labels.part(take)
        loss_M, _ = _losses_and_shares(
            scores_MU, in_chunk, _targets(in_chunk, tf.shape(scores_MU)[1])
        )
        return [loss_M * in_chunk.weights_M]

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
        return [_plain_softmax(tf.cast(scores_NU, tf.float32))[1]]

    (tile_M,) = _in_chunks(hidden_MD, rows_UD, score_chunk)
    greater_M = tf.maximum(before_M, tile_M)
    return greater_M + tf.math.log(tf.exp(before_M - greater_M) + tf.exp(tile_M - greater_M))


def _losses_and_gradients(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the gradient by the rows (U, D), the weighted losses, and the one by the vectors.

    The gradient by a score is its share of the softmax, less 1 for the target, times the weight.
    """
    dtype, weights_M1 = hidden_MD.dtype, labels.weights_M[:, tf.newaxis]
    block_UD = tf.cast(rows_UD, dtype)
    scores_MU = tf.cast(tf.matmul(hidden_MD, block_UD, transpose_b=True), tf.float32)
    targets = _targets(labels, tf.shape(scores_MU)[1])
    loss_M, error_MU = _losses_and_shares(scores_MU, labels, targets)
    inside_M, positions_M, indices_M2 = targets
    rows, columns = rows_UD.shape  # rows is None for a class, and for a tile of several
    are_few = rows is not None and rows <= columns
    if under_xla():  # which joins this to the shares, and has a slow kernel for a scatter
        positions_M = tf.where(inside_M, positions_M, -1)
        error_MU -= tf.one_hot(positions_M, tf.shape(scores_MU)[1], dtype=tf.float32)
    elif not _subtracts_rows(hidden_MD, rows_UD):
        error_MU = tf.tensor_scatter_nd_sub(error_MU, indices_M2, tf.cast(inside_M, tf.float32))
    # The weights are multiplied by the scores or by the vectors, whichever are fewer numbers.
    if are_few:
        error_MU = tf.cast(error_MU * weights_M1, dtype)
        by_hidden_MD = tf.matmul(error_MU, block_UD)
    else:
        error_MU, weights_M1 = tf.cast(error_MU, dtype), tf.cast(weights_M1, dtype)
        by_hidden_MD = weights_M1 * tf.matmul(error_MU, block_UD)
        hidden_MD = weights_M1 * hidden_MD
    by_rows_UD = tf.cast(tf.matmul(error_MU, hidden_MD, transpose_a=True), tf.float32)
    return by_rows_UD, loss_M * labels.weights_M, by_hidden_MD


def _losses_and_shares(
    scores_MU: tf.Tensor, labels: Labels, targets: _Targets
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unweighted loss of each vector, (M,), and the shares of its softmax, (M, U).

    The normalizer counts in the first tile only, and the score only in the tile that has the row.
    """
    inside_M, _, indices_M2 = targets
    normalizer_M = labels.normalizer_M
    if normalizer_M is not None:
        shares_MU = tf.exp(scores_MU - normalizer_M[:, tf.newaxis])
    elif scores_MU.shape[1] is None or under_xla():
        shares_MU, normalizer_M = _plain_softmax(scores_MU)
    else:
        # On a CPU the softmax takes 1 to 4 ns a score, and TensorFlow's sparse cross-entropy 13 to
        # 22.
        shares_MU = tf.nn.softmax(scores_MU)
        normalizer_M = _normalizer(scores_MU, shares_MU, indices_M2)
    score_M = tf.where(inside_M, tf.gather_nd(scores_MU, indices_M2), 0.0)
    first_M = tf.where(labels.first, normalizer_M, tf.zeros_like(normalizer_M))
    return first_M - score_M, shares_MU


def _normalizer(scores_MU: tf.Tensor, shares_MU: tf.Tensor, indices_M2: tf.Tensor) -> tf.Tensor:
    """Return the log-sum-exp of each vector's scores, (M,), by one score and its share.

    Args:
        shares_MU: The softmax of the scores.
        indices_M2: The index of a score of each vector.
    """

    def by_score(score_M: tf.Tensor, share_M: tf.Tensor) -> tf.Tensor:
        return score_M - tf.math.log(share_M)

    def by_largest() -> tf.Tensor:
        """Return it by the largest share, which is at least 1 / U, with two passes over scores."""
        return by_score(tf.reduce_max(scores_MU, axis=1), tf.reduce_max(shares_MU, axis=1))

    if devices.has_gpu():  # a step would wait for it
        return by_largest()
    share_M = tf.gather_nd(shares_MU, indices_M2)
    return tf.cond(
        tf.reduce_all(share_M > _SAFE_SHARE),
        lambda: by_score(tf.gather_nd(scores_MU, indices_M2), share_M),
        by_largest,
    )


def _plain_softmax(scores_MU: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the softmax, (M, U), and the log-sum-exp of each vector's scores, (M,).

    XLA joins these operations, and TensorFlow's softmax takes 0.06 ms to prepare it for the size of
    each class.
    """
    greatest_M1 = tf.reduce_max(scores_MU, axis=1, keepdims=True)
    share_MU = tf.exp(scores_MU - greatest_M1)
    sum_M1 = tf.reduce_sum(share_MU, axis=1, keepdims=True)
    return share_MU / sum_M1, tf.squeeze(greatest_M1 + tf.math.log(sum_M1), axis=1)


# Whether each vector's row is in the tile, (M,) bool, a position in it, (M,) int32, and the indices
# of the score of the vector at this position, (M, 2).
_Targets = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def _targets(labels: Labels, rows: tf.Tensor) -> _Targets:
    """Return the targets of vectors in a tile of so many rows.

    A row of another tile is given any position; its score and error are set to 0.
    """
    inside_M = (labels.positions_M >= 0) & (labels.positions_M < rows)
    # For a GPU this keeps int32 in host memory. tf.where would put it on the device, and the step
    # would wait for it.
    positions_M = tf.clip_by_value(labels.positions_M, 0, rows - 1)
    indices_M2 = tf.stack([tf.range(tf.size(positions_M)), positions_M], axis=1)
    return inside_M, positions_M, indices_M2


def _is_narrow(rows_UD: tf.Tensor) -> bool:
    """Return whether rows have at most `NARROW` columns."""
    return (rows_UD.shape[1] or math.inf) <= NARROW


def _in_chunks(
    hidden_MD: tf.Tensor,
    rows_UD: tf.Tensor,
    compute: Callable[[Take], Sequence[tf.Tensor]],
    sums: Callable[[], Sequence[tf.Tensor]] = tuple,
    joined: Sequence[tf.TensorSpec] = (),
) -> Sequence[tf.Tensor]:
    """Return the results of `compute` for chunks of vectors whose scores fit `SCORES`.

    Of narrow rows there are eight times as many scores. Chunks of a block are of about equal size.

    Args:
        compute: Function from a chunk, as a function that takes its values, to its results.
        sums: Returns zeros for the first results, which are added over the chunks. The next
            result has a number for each vector.
        joined: The shapes and the dtypes of the results after the losses, which are joined, too.
    """
    most = 8 * SCORES if _is_narrow(rows_UD) else SCORES
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

        return combine(chunks, chunk, sums(), [_LOSSES, *joined])

    if isinstance(size, int) and hidden_MD.shape[0] is not None:
        return whole() if hidden_MD.shape[0] <= size else by_chunk()
    return tf.cond(tf.shape(hidden_MD)[0] <= size, lambda: list(whole()), lambda: list(by_chunk()))
