"""Cross-entropy with a block of rows, whose scores are made some vectors at a time.

Where the rows are all that there are, their scores' normaliser (the logarithm of the sum of the
exponents) comes from themselves. Where they are a tile of more, it is measured over all tiles
first (`log_sum_exp`); each function then gives the tile's share of the loss, and the shares of all
tiles sum to the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# Scores held at once: 32 MB. Fewer make more products of matrices, more leave the caches anyway.
_SCORES = 8 << 20


class Labels(NamedTuple):
    """What the vectors of a block are to predict.

    places_M: int32, the place among the tile's rows; outside them if the row is in another tile.
    weights_M: float32. first: whether it is the first tile, a bool or a bool scalar.
    """

    places_M: tf.Tensor
    weights_M: tf.Tensor
    first: tf.Tensor | bool = True

    def part(self, start: tf.Tensor, stop: tf.Tensor) -> Labels:
        """Those of some vectors."""
        return Labels(self.places_M[start:stop], self.weights_M[start:stop], self.first)


def summed_loss(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor, normaliser_M: tf.Tensor | None
) -> tf.Tensor:
    """The weighted sum of -log P, a float32 scalar.

    hidden_MD: any float dtype, that of the products. rows_UD: float32. The gradient is made along
    with the loss, from the same scores; it is that of the whole loss, so that none flows to a
    normaliser.
    """
    most = _most(rows_UD)

    def piece(hidden_MD: tf.Tensor, labels: Labels, normaliser_M: tf.Tensor | None):
        block_UD = tf.cast(rows_UD, hidden_MD.dtype)
        scores_MU = tf.matmul(hidden_MD, block_UD, transpose_b=True)
        loss_M, error_MU = _loss_and_error(tf.cast(scores_MU, tf.float32), labels, normaliser_M)
        error_MU = tf.cast(error_MU, hidden_MD.dtype)
        # Weights go to the vectors, which are fewer than the scores.
        weights_M1 = tf.cast(labels.weights_M[:, tf.newaxis], hidden_MD.dtype)
        return (
            tf.reduce_sum(loss_M * labels.weights_M),
            tf.cast(tf.matmul(error_MU, weights_M1 * hidden_MD, transpose_a=True), tf.float32),
            weights_M1 * tf.matmul(error_MU, block_UD),
        )

    def pieces(hidden_MD: tf.Tensor):
        def body(value, by_rows, by_hidden, index, start, stop):
            given = None if normaliser_M is None else normaliser_M[start:stop]
            more = piece(hidden_MD[start:stop], labels.part(start, stop), given)
            return value + more[0], by_rows + more[1], by_hidden.write(index, more[2])

        array = _array(hidden_MD, most, hidden_MD.dtype, hidden_MD.shape[1:])
        value, by_rows, array = _chunks(
            hidden_MD, most, body, (tf.constant(0.0), tf.zeros_like(rows_UD), array)
        )
        return value, by_rows, array.concat()

    @tf.custom_gradient
    def loss(hidden_MD: tf.Tensor, rows_UD: tf.Tensor):
        value, by_rows, by_hidden = _one_or_more(
            hidden_MD,
            most,
            lambda: piece(hidden_MD, labels, normaliser_M),
            lambda: pieces(hidden_MD),
        )

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.cast(upstream, by_hidden.dtype) * by_hidden, upstream * by_rows

        return value, gradient

    return loss(hidden_MD, rows_UD)


def vector_losses(
    labels: Labels, hidden_MD: tf.Tensor, rows_UD: tf.Tensor, normaliser_M: tf.Tensor | None
) -> tf.Tensor:
    """The weighted -log P of each vector, (M,) float32; not to be differentiated."""

    def piece(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        scores_MU = tf.matmul(tf.cast(hidden_MD[start:stop], tf.float32), rows_UD, transpose_b=True)
        given = None if normaliser_M is None else normaliser_M[start:stop]
        some = labels.part(start, stop)
        return _loss_and_error(scores_MU, some, given)[0] * some.weights_M

    return _joined(hidden_MD, rows_UD, piece)


def log_sum_exp(hidden_MD: tf.Tensor, rows_UD: tf.Tensor, before_M: tf.Tensor) -> tf.Tensor:
    """The normaliser over the rows and those before, (M,) float32; before_M is -inf for none."""

    def piece(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        hidden_ND = hidden_MD[start:stop]
        scores_NU = tf.matmul(hidden_ND, tf.cast(rows_UD, hidden_ND.dtype), transpose_b=True)
        return _shares(tf.cast(scores_NU, tf.float32))[1]

    more_M = _joined(hidden_MD, rows_UD, piece)
    greater_M = tf.maximum(before_M, more_M)
    return greater_M + tf.math.log(tf.exp(before_M - greater_M) + tf.exp(more_M - greater_M))


def _loss_and_error(
    scores_MU: tf.Tensor, labels: Labels, normaliser_M: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The loss of each vector, and its gradient by the scores, (M, U)."""
    count, rows = tf.unstack(tf.shape(scores_MU))
    inside_M = (labels.places_M >= 0) & (labels.places_M < rows)
    # Any place will do for the others, whose score and error are 0. A GPU has this int32 in host
    # memory, where tf.where would have it on the device, and the step wait for it.
    places_M = tf.clip_by_value(labels.places_M, 0, rows - 1)
    where_M2 = tf.stack([tf.range(count), places_M], axis=1)
    score_M = tf.where(inside_M, tf.gather_nd(scores_MU, where_M2), 0.0)
    if normaliser_M is None:
        share_MU, normaliser_M = _shares(scores_MU)
    else:
        share_MU = tf.exp(scores_MU - normaliser_M[:, tf.newaxis])
    loss_M = tf.where(labels.first, normaliser_M, tf.zeros_like(normaliser_M)) - score_M
    with tf.control_dependencies([loss_M]):  # the last to read the shares, so none are copied
        error_MU = tf.tensor_scatter_nd_sub(share_MU, where_M2, tf.cast(inside_M, tf.float32))
    return loss_M, error_MU


def _shares(scores_MU: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The softmax of the scores, and their normaliser, (M,).

    TensorFlow's softmax takes 1 to 4 ns a score on a CPU, its sparse cross-entropy 13 to 22. The
    largest share is no less than 1 / U, so that its logarithm is safe where that of another is not.
    """
    share_MU = tf.nn.softmax(scores_MU)
    greatest_M = tf.reduce_max(scores_MU, axis=1)
    return share_MU, greatest_M - tf.math.log(tf.reduce_max(share_MU, axis=1))


def _joined(
    hidden_MD: tf.Tensor,
    rows_UD: tf.Tensor,
    piece: Callable[[tf.Tensor | None, tf.Tensor | None], tf.Tensor],
) -> tf.Tensor:
    """What `piece(start, stop)` gives for some vectors at a time, (M,) float32 for all of them."""
    most = _most(rows_UD)

    def pieces() -> tf.Tensor:
        def body(array, index, start, stop):
            return [array.write(index, piece(start, stop))]

        (array,) = _chunks(hidden_MD, most, body, [_array(hidden_MD, most, tf.float32, ())])
        return array.concat()

    return _one_or_more(hidden_MD, most, lambda: piece(None, None), pieces)


def _most(rows_UD: tf.Tensor) -> int | tf.Tensor:
    """How many vectors are scored against the rows at once."""
    if rows_UD.shape[0] is not None:
        return max(_SCORES // max(rows_UD.shape[0], 1), 1)
    return tf.maximum(_SCORES // tf.maximum(tf.shape(rows_UD)[0], 1), 1)


def _one_or_more(
    hidden_MD: tf.Tensor, most: int | tf.Tensor, one: Callable, more: Callable
) -> object:
    """All vectors at once if they are not too many."""
    if isinstance(most, int) and hidden_MD.shape[0] is not None:
        return one() if hidden_MD.shape[0] <= most else more()
    return tf.cond(tf.shape(hidden_MD)[0] <= most, one, more)


def _chunks(hidden_MD: tf.Tensor, most: int | tf.Tensor, body: Callable, carried) -> list:
    """`carried` after `body(*carried, index, start, stop)` for each `most` of the vectors."""
    count = tf.shape(hidden_MD)[0]
    _, *carried = tf.while_loop(
        lambda index, *_: index * most < count,
        lambda index, *carried: (
            index + 1,
            *body(*carried, index, index * most, tf.minimum((index + 1) * most, count)),
        ),
        (tf.constant(0), *carried),
        parallel_iterations=1,
    )
    return carried


def _array(hidden_MD: tf.Tensor, most: int | tf.Tensor, dtype: tf.DType, shape) -> tf.TensorArray:
    size = -(-tf.shape(hidden_MD)[0] // most)
    return tf.TensorArray(dtype, size, infer_shape=False, element_shape=[None, *shape])
