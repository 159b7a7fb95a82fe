"""Gradients of the scores of groups of vectors with nodes, as loops that XLA compiles.

Shapes: G groups of N vectors and M words, V unique vectors, K nodes, D columns.
"""

from __future__ import annotations

import tensorflow as tf

from .huffman import Code


def upper_weights(
    code: Code, depth: int, cut_GM: tf.Tensor, index_GN: tf.Tensor, weights_GMN: tf.Tensor, count
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the weights with which vectors visit the nodes near the root, and go left there.

    Args:
        code: The code of the vocabulary.
        depth: The number of depths.
        cut_GM: The position of each word at this depth (see `GroupPaths`).
        index_GN: The unique vector of each vector, int32.
        weights_GMN: The weight of each pair, float32.
        count: The number of unique vectors, V.

    Returns:
        The weights at the nodes, by row, of both kinds, (K, V) float32 each.
    """
    inner, ends_E = int(code.inner_E[depth]), [int(end) for end in code.ends_E]
    cuts = inner + ends_E[depth]
    cell_GMN = cut_GM[:, :, tf.newaxis] * count + index_GN[:, tf.newaxis]
    cell_P1, weights_P = tf.reshape(cell_GMN, (-1, 1)), tf.reshape(weights_GMN, [-1])
    sums_N = tf.tensor_scatter_nd_add(tf.zeros([cuts * count]), cell_P1, weights_P)
    sums_CV = tf.reshape(sums_N, (cuts, count))
    # From the deepest nodes up: the weight at a node is the sum of the weights at its children.
    visits_IV, visits, lefts = sums_CV[:inner], [], []
    for above in reversed(range(depth)):
        words_MV = sums_CV[inner + ends_E[above] : inner + ends_E[above + 1]]
        children_IV = tf.concat([visits_IV, words_MV[::-1]], axis=0)
        lefts.append(children_IV[::2])
        visits_IV = lefts[-1] + children_IV[1::2]
        visits.append(visits_IV)
    return tf.concat(visits[::-1], axis=0), tf.concat(lefts[::-1], axis=0)


# Not one function with `upper_weights`: XLA would compute the weights again for each score.
@tf.function(autograph=False, jit_compile=True)
def upper_errors(
    scores_KV: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    """Return the gradient by the scores of unique vectors with nodes, (K, V), of their dtype.

    Args:
        scores_KV: The scores.
        visits_KV: The weights with which vectors visit nodes (see `upper_weights`).
        lefts_KV: The weights with which vectors go left.
        upstream: The gradient by the loss, a scalar.
    """
    chance_KV = tf.sigmoid(widen(scores_KV))
    return narrow(upstream * (visits_KV * chance_KV - lefts_KV), scores_KV.dtype)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of seven
def lower_errors(
    scores_GKN: tf.Tensor,
    weights_GMN: tf.Tensor,
    word_GK: tf.Tensor,
    left_GK: tf.Tensor,
    upstream: tf.Tensor,
) -> tf.Tensor:
    """Return the gradient by the scores of entries and vectors, (G, K, N), of their dtype.

    Args:
        scores_GKN: The scores.
        weights_GMN: The weight of each pair, float32.
        word_GK: The field of `Entries`.
        left_GK: The field of `Entries`.
        upstream: The gradient by the loss, a scalar.
    """
    weights_GKN = upstream * lower_weights(weights_GMN, word_GK)
    chance_GKN = tf.sigmoid(widen(scores_GKN))
    error_GKN = weights_GKN * (chance_GKN - tf.cast(left_GK, tf.float32)[:, :, tf.newaxis])
    return narrow(error_GKN, scores_GKN.dtype)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of eight
def lower_loss(
    scores_GKN: tf.Tensor, weights_GMN: tf.Tensor, word_GK: tf.Tensor, left_GK: tf.Tensor
) -> tf.Tensor:
    """Return the sum of the losses at the nodes of entries, a float32 scalar.

    Args:
        scores_GKN: The scores.
        weights_GMN: The weight of each pair, float32.
        word_GK: The field of `Entries`.
        left_GK: The field of `Entries`.
    """
    scores, is_left_GK1 = widen(scores_GKN), left_GK[:, :, tf.newaxis] > 0
    terms_GKN = tf.nn.softplus(tf.where(is_left_GK1, -scores, scores))
    return tf.reduce_sum(tf.reduce_sum(lower_weights(weights_GMN, word_GK) * terms_GKN, axis=2))


@tf.function(autograph=False, jit_compile=True)
def upper_loss(scores_KV: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor) -> tf.Tensor:
    """Return the sum of the losses at the nodes near the root, a float32 scalar.

    The arguments are those of `upper_errors`.
    """
    scores, rights_KV = widen(scores_KV), visits_KV - lefts_KV
    terms_KV = lefts_KV * tf.nn.softplus(-scores) + rights_KV * tf.nn.softplus(scores)
    return tf.reduce_sum(tf.reduce_sum(terms_KV, axis=1))


def lower_weights(weights_GMN: tf.Tensor, word_GK: tf.Tensor) -> tf.Tensor:
    """Return each vector's weight for the word of each entry, (G, K, N); 0 for padding entries."""
    padded_GMN = tf.pad(weights_GMN, [[0, 0], [0, 1], [0, 0]])
    return tf.gather(padded_GMN, word_GK, batch_dims=1)


@tf.function(autograph=False, jit_compile=True)
def sum_rows(first_KD: tf.Tensor, mask_U: tf.Tensor, *indices_and_values: tf.Tensor) -> tf.Tensor:
    """Return the sums of values by row, added in float32, (U, D).

    Args:
        first_KD: The first value of each of the first K rows; K may be below U.
        mask_U: Any values; only their number counts.
        *indices_and_values: The rows of further values, (G, N) int32 each; then these values,
            (G, M, D) each. Each group has one for each index, then padding.
    """
    columns = first_KD.shape[1]
    sums_UD = tf.pad(widen(first_KD), [[0, tf.shape(mask_U)[0] - tf.shape(first_KD)[0]], [0, 0]])
    half = len(indices_and_values) // 2
    indices, values = indices_and_values[:half], indices_and_values[half:]
    for index, value in zip(indices, values, strict=True):  # a loop each, in place
        value_PD = widen(tf.reshape(value[:, : index.shape[1]], (-1, columns)))
        sums_UD = tf.tensor_scatter_nd_add(sums_UD, tf.reshape(index, (-1, 1)), value_PD)
    return sums_UD


def widen(values: tf.Tensor) -> tf.Tensor:
    """Return values in float32. In a loop of XLA this takes half the time of tf.cast."""
    if values.dtype != tf.bfloat16:
        return tf.cast(values, tf.float32)
    bits = tf.cast(tf.bitcast(values, tf.uint16), tf.uint32)
    return tf.bitcast(tf.bitwise.left_shift(bits, tf.constant(16, tf.uint32)), tf.float32)


def narrow(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return finite float32 values in a dtype. In a loop of XLA this is faster than tf.cast."""
    if dtype != tf.bfloat16:
        return tf.cast(values, dtype)
    bits = tf.bitcast(values, tf.uint32) + tf.constant(1 << 15, tf.uint32)  # to the nearest
    bits = tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))
    return tf.bitcast(tf.cast(bits, tf.uint16), tf.bfloat16)
