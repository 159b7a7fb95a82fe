"""Add the changes that several replicas made to the same rows, without moving the rows too far.

Replicas that train alone all move the rows along a few directions that the whole table shares, for
instance the mean of the output rows, until the loss is lowest along these. The sum of R such
changes goes R times as far. All other changes come from the examples of one replica: they have to
be added, as if one replica had trained on all examples.
"""

from __future__ import annotations

import tensorflow as tf

_TINY = 1e-20  # keeps a matrix of zeros invertible; far below the square of any change
# The matrix is made of about this many rows for each column. With 100 columns, all rows of an
# exchange took twice as long. For the scores see data/benchmarks/README.md.
_SAMPLE = 40


def damped_sum(
    values_ND: tf.Tensor, inverse_N: tf.Tensor, count: tf.Tensor, steps: tf.Tensor
) -> tf.Tensor:
    """Return the sum of the changes of each row, with what the replicas have in common damped.

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
    the rows, in which the changes are independent. A row that only one replica has changed is
    neither damped nor counted.

    Args:
        values_ND: The changes of all replicas; a replica has at most one for a row.
        inverse_N: The index of the row of each change, below `count`.
        count: The number of rows, M.
        steps: The number of steps since the last exchange, S, an int32 scalar, at least 1.

    Returns:
        The changes (M, D). If any change is not finite, it is the plain sum.
    """
    sums_MD = tf.math.unsorted_segment_sum(values_ND, inverse_N, count)
    replicas_M1 = tf.math.unsorted_segment_sum(has_changed(values_ND), inverse_N, count)
    shared_S = tf.cast(tf.where(replicas_M1[:, 0] > 1.0)[:, 0], tf.int32)
    sample_S = shared_S[:: 1 + tf.size(shared_S) // (_SAMPLE * tf.shape(values_ND)[1])]
    is_sampled_M = tf.scatter_nd(sample_S[:, tf.newaxis], tf.ones_like(sample_S), [count]) > 0
    parts_ND = tf.boolean_mask(values_ND, tf.gather(is_sampled_M, inverse_N))
    filter_DD = _damping(tf.gather(sums_MD, sample_S), parts_ND)
    share = 2.0 / (tf.cast(steps, tf.float32) + 1.0)
    filter_DD += share * (tf.eye(tf.shape(values_ND)[1]) - filter_DD)
    damped_SD = tf.matmul(tf.gather(sums_MD, shared_S), filter_DD)
    return tf.tensor_scatter_nd_update(sums_MD, shared_S[:, tf.newaxis], damped_SD)


def _damping(sums_MD: tf.Tensor, parts_ND: tf.Tensor) -> tf.Tensor:
    """Return the matrix (D, D) to multiply sums with; see `damped_sum`.

    Args:
        sums_MD: The sum of the changes of each row.
        parts_ND: The changes of each replica, those of all replicas together.
    """
    of_sums_DD = tf.matmul(sums_MD, sums_MD, transpose_a=True)
    of_parts_DD = tf.matmul(parts_ND, parts_ND, transpose_a=True)
    identity_DD = tf.eye(tf.shape(parts_ND)[1])
    rows = tf.cast(tf.maximum(tf.shape(sums_MD)[0], 1), tf.float32)
    prior_DD = (tf.linalg.trace(of_parts_DD) / rows + _TINY) * identity_DD
    # The solver raises an error for a matrix that is not finite. Here, the sums show what is wrong.
    is_finite = tf.reduce_all(tf.math.is_finite(of_sums_DD + of_parts_DD))
    return tf.linalg.solve(
        tf.where(is_finite, of_sums_DD + prior_DD, identity_DD),
        tf.where(is_finite, of_parts_DD + prior_DD, identity_DD),
    )


def has_changed(values_ND: tf.Tensor) -> tf.Tensor:
    """Return 1.0 for each row that has changed, and 0.0 for one that was only looked up, (N, 1)."""
    return tf.cast(tf.reduce_any(tf.not_equal(values_ND, 0.0), axis=1, keepdims=True), tf.float32)
