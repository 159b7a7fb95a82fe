"""Softmax cross-entropy over a block of rows, for some of the vectors at a time.

The normalizer of a vector is the log-sum-exp of its scores. If a block has all rows of a softmax,
the normalizer is computed from the block. If a block is one tile of several, `log_sum_exp` computes
it over all tiles first. Each loss function then returns the tile's share of the loss, and the
shares of all tiles sum to the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..system.gradients import custom_gradient
from ..system.loops import loop

# The most scores in memory at once: 32 MB. With fewer there are more matrix products; more do not
# fit the processor's caches.
_SCORES = 8 << 20


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

    def part(self, start: tf.Tensor | None, stop: tf.Tensor | None) -> Labels:
        """Return the labels of the vectors `start` to `stop` - 1; None is no limit there."""
        normalizer_M = None if self.normalizer_M is None else self.normalizer_M[start:stop]
        positions_M, weights_M = self.positions_M[start:stop], self.weights_M[start:stop]
        return Labels(positions_M, weights_M, self.first, normalizer_M)


def summed_loss(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor, normalizer_M: tf.Tensor | None
) -> tf.Tensor:
    """Return the tile's share of the weighted sum of -log P over the vectors.

    With one tile this is the whole sum. The gradient is computed with the loss, from the same
    scores. The gradients of all tiles sum to the gradient of the whole loss, although none flows to
    the normalizer.

    Args:
        labels: The row that each vector is to predict.
        hidden_MD: The vectors, of the dtype in which products are computed.
        rows_UD: The rows of the tile, float32.
        normalizer_M: The log-sum-exp of each vector's scores of all tiles. None for a single tile.

    Returns:
        A float32 scalar.
    """
    labels, chunk_size = labels._replace(normalizer_M=normalizer_M), _vectors_at_once(rows_UD)

    def in_chunks(hidden_MD: tf.Tensor, rows_UD: tf.Tensor):
        """Return the loss and its gradients by rows and vectors, chunk by chunk of vectors."""

        def body(value, by_rows, by_hidden, index, start, stop):
            """Add a chunk's loss and gradient by the rows; write its gradient by the vectors."""
            chunk = _loss_and_gradients(labels.part(start, stop), hidden_MD[start:stop], rows_UD)
            return value + chunk[0], by_rows + chunk[1], by_hidden.write(index, chunk[2])

        array = _chunk_array(hidden_MD, chunk_size, hidden_MD.dtype, hidden_MD.shape[1:])
        value, by_rows, array = _loop_chunks(
            hidden_MD, chunk_size, body, (tf.constant(0.0), tf.zeros_like(rows_UD), array)
        )
        return value, by_rows, array.concat()

    @custom_gradient
    def loss(hidden_MD: tf.Tensor, rows_UD: tf.Tensor):
        """Return the loss, with gradients that are computed already."""
        value, by_rows, by_hidden = _whole_or_chunks(
            hidden_MD,
            chunk_size,
            lambda: _loss_and_gradients(labels, hidden_MD, rows_UD),
            lambda: in_chunks(hidden_MD, rows_UD),
        )

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.cast(upstream, by_hidden.dtype) * by_hidden, upstream * by_rows

        return value, gradient

    return loss(hidden_MD, rows_UD)


def vector_losses(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor, normalizer_M: tf.Tensor | None
) -> tf.Tensor:
    """Return the tile's share of the weighted -log P of each vector, (M,) float32.

    With one tile this is the whole loss. It is computed in float32, and not to be differentiated.

    Args:
        labels: The row that each vector is to predict.
        hidden_MD: The vectors, any float dtype.
        rows_UD: The rows of the tile, float32.
        normalizer_M: The log-sum-exp of each vector's scores of all tiles. None for a single tile.
    """
    if normalizer_M is not None:  # of several tiles; this one adds the score of its own row
        inside_M, positions_M = _positions(labels, tf.shape(rows_UD)[0])
        chosen_MD = tf.gather(rows_UD, positions_M)
        score_M = tf.reduce_sum(tf.cast(hidden_MD, tf.float32) * chosen_MD, axis=1)
        first_M = tf.where(labels.first, normalizer_M, tf.zeros_like(normalizer_M))
        return (first_M - tf.where(inside_M, score_M, 0.0)) * labels.weights_M

    def score_chunk(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        """Return the weighted losses of the vectors `start` to `stop` - 1."""
        scores_MU = tf.matmul(tf.cast(hidden_MD[start:stop], tf.float32), rows_UD, transpose_b=True)
        chunk = labels.part(start, stop)
        return _loss_and_error(scores_MU, chunk)[0] * chunk.weights_M

    return _map_chunks(hidden_MD, rows_UD, score_chunk)


def log_sum_exp(hidden_MD: tf.Tensor, rows_UD: tf.Tensor, before_M: tf.Tensor) -> tf.Tensor:
    """Return the log-sum-exp of each vector's scores over the tiles so far, (M,) float32.

    Args:
        hidden_MD: The vectors, of the dtype in which products are computed.
        rows_UD: The rows of the tile, float32.
        before_M: The result for the tiles before this one; -inf before the first.
    """

    def score_chunk(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        """Return the log-sum-exp of the vectors `start` to `stop` - 1 over this tile alone."""
        hidden_ND = hidden_MD[start:stop]
        scores_NU = tf.matmul(hidden_ND, tf.cast(rows_UD, hidden_ND.dtype), transpose_b=True)
        return _softmax_and_normalizer(tf.cast(scores_NU, tf.float32))[1]

    tile_M = _map_chunks(hidden_MD, rows_UD, score_chunk)
    greater_M = tf.maximum(before_M, tile_M)
    return greater_M + tf.math.log(tf.exp(before_M - greater_M) + tf.exp(tile_M - greater_M))


def _loss_and_gradients(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the weighted loss, and its gradients by the rows (U, D) and by the vectors (M, D).

    The loss and the gradient by the rows are float32; the other has the dtype of the vectors.
    """
    block_UD = tf.cast(rows_UD, hidden_MD.dtype)
    scores_MU = tf.matmul(hidden_MD, block_UD, transpose_b=True)
    loss_M, error_MU = _loss_and_error(tf.cast(scores_MU, tf.float32), labels)
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


def _loss_and_error(scores_MU: tf.Tensor, labels: Labels) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unweighted loss of each vector, (M,), and its gradient by the scores, (M, U).

    The normalizer counts in the first tile only, and the score only in the tile that has the row.
    """
    count, rows = tf.unstack(tf.shape(scores_MU))
    inside_M, positions_M = _positions(labels, rows)
    indices_M2 = tf.stack([tf.range(count), positions_M], axis=1)
    score_M = tf.where(inside_M, tf.gather_nd(scores_MU, indices_M2), 0.0)
    normalizer_M = labels.normalizer_M
    if normalizer_M is None:
        share_MU, normalizer_M = _softmax_and_normalizer(scores_MU)
    else:
        share_MU = tf.exp(scores_MU - normalizer_M[:, tf.newaxis])
    loss_M = tf.where(labels.first, normalizer_M, tf.zeros_like(normalizer_M)) - score_M
    # The loss reads the shares before they are changed, so the change needs no copy of them.
    with tf.control_dependencies([loss_M]):
        error_MU = tf.tensor_scatter_nd_sub(share_MU, indices_M2, tf.cast(inside_M, tf.float32))
    return loss_M, error_MU


def _positions(labels: Labels, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether each vector's row is in the tile, (M,) bool, and a position in it, int32."""
    inside_M = (labels.positions_M >= 0) & (labels.positions_M < rows)
    # A row of another tile is given any position; its score and error are set to 0. For a GPU
    # tf.clip_by_value keeps this int32 in host memory. tf.where would put it on the device, and the
    # step would wait for it.
    return inside_M, tf.clip_by_value(labels.positions_M, 0, rows - 1)


def _softmax_and_normalizer(scores_MU: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the softmax of the scores, (M, U), and their log-sum-exp, (M,).

    The normalizer is the largest score less the logarithm of its share, which is safe because the
    largest share is at least 1 / U. On a CPU TensorFlow's softmax takes 1 to 4 ns a score, and its
    sparse cross-entropy 13 to 22 ns.
    """
    share_MU = tf.nn.softmax(scores_MU)
    greatest_M = tf.reduce_max(scores_MU, axis=1)
    return share_MU, greatest_M - tf.math.log(tf.reduce_max(share_MU, axis=1))


def _map_chunks(
    hidden_MD: tf.Tensor,
    rows_UD: tf.Tensor,
    score_chunk: Callable[[tf.Tensor | None, tf.Tensor | None], tf.Tensor],
) -> tf.Tensor:
    """Return the numbers of `score_chunk(start, stop)` for all vectors, in order, (M,) float32.

    It is called for chunks of vectors whose scores fit `_SCORES`; as `score_chunk(None, None)` if
    all vectors fit one chunk.
    """
    chunk_size = _vectors_at_once(rows_UD)

    def in_chunks() -> tf.Tensor:
        """Return the numbers of all chunks, joined."""

        def body(array, index, start, stop):
            return [array.write(index, score_chunk(start, stop))]

        (array,) = _loop_chunks(
            hidden_MD, chunk_size, body, [_chunk_array(hidden_MD, chunk_size, tf.float32, ())]
        )
        return array.concat()

    return _whole_or_chunks(hidden_MD, chunk_size, lambda: score_chunk(None, None), in_chunks)


def _vectors_at_once(rows_UD: tf.Tensor) -> int | tf.Tensor:
    """Return how many vectors to score against the rows at once, at least 1.

    The result is an int if the number of rows is static, else a tensor.
    """
    if rows_UD.shape[0] is not None:
        return max(_SCORES // max(rows_UD.shape[0], 1), 1)
    return tf.maximum(_SCORES // tf.maximum(tf.shape(rows_UD)[0], 1), 1)


def _whole_or_chunks(
    hidden_MD: tf.Tensor, chunk_size: int | tf.Tensor, whole: Callable, in_chunks: Callable
) -> Any:
    """Return `whole()` if there are at most `chunk_size` vectors, else `in_chunks()`."""
    if isinstance(chunk_size, int) and hidden_MD.shape[0] is not None:
        return whole() if hidden_MD.shape[0] <= chunk_size else in_chunks()
    return tf.cond(tf.shape(hidden_MD)[0] <= chunk_size, whole, in_chunks)


def _loop_chunks(
    hidden_MD: tf.Tensor, chunk_size: int | tf.Tensor, body: Callable, carried
) -> Sequence:
    """Return `carried` after `carried = body(*carried, index, start, stop)` for each chunk.

    A chunk has the vectors `start` to `stop` - 1; there is none if there are no vectors.
    """
    count = tf.shape(hidden_MD)[0]

    def chunk(index: tf.Tensor, *carried) -> Sequence:
        start = index * chunk_size
        return body(*carried, index, start, tf.minimum(start + chunk_size, count))

    return loop(-(-count // chunk_size), chunk, carried)


def _chunk_array(
    hidden_MD: tf.Tensor, chunk_size: int | tf.Tensor, dtype: tf.DType, shape
) -> tf.TensorArray:
    """Make an array with one place for the result (any number, *shape) of each chunk."""
    size = -(-tf.shape(hidden_MD)[0] // chunk_size)
    return tf.TensorArray(dtype, size, infer_shape=False, element_shape=[None, *shape])
