"""Add the changes that several replicas made to the same rows, without moving them too far.

Replicas that train alone all move the rows along a few directions that the whole table shares, such
as the mean of the output rows, until the loss is lowest along these. The sum of R such changes goes
R times as far, and diverges for R = 4. Changes in all other directions come from the examples of a
single replica. They have to be added, as in one replica that trains on all examples.
"""

from __future__ import annotations

import tensorflow as tf

_TINY = 1e-20  # keeps a matrix of zeros invertible; far below the square of any change


def damped_sum(values_ND: tf.Tensor, inverse_N: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return the sum of the changes of each row, damped in directions that replicas share.

    With D_r for the changes in replica r, one row for each row of the table, and Z for their sum,
    the result is Z (Z'Z)^-1 (sum of D_r'D_r). In a direction in which the changes of R replicas are
    equal, it is their mean; in one in which they are independent, so that the matrices are equal,
    it is their sum. This is the Wiener filter (Wiener 1949) for Z with the equal part as noise, or
    the Adasum of Maleki et al. 2021 with a matrix in place of the factor of a tensor. For what was
    measured, see data/benchmarks/README.md.

    A few rows show a direction badly. So each direction counts as one more row, with the mean
    square of the rows, in which the changes are independent. A row that only one replica has
    changed is neither damped nor counted.

    Args:
        values_ND: The changes of all replicas; a replica has at most one for a row.
        inverse_N: The index of the row of each change, below `count`.
        count: The number of rows, M.

    Returns:
        The changes (M, D). If any change is not finite, it is the plain sum.
    """
    sums_MD = tf.math.unsorted_segment_sum(values_ND, inverse_N, count)
    changed_N1 = has_changed(values_ND)
    replicas_M1 = tf.math.unsorted_segment_sum(changed_N1, inverse_N, count)
    is_shared_M1 = tf.cast(replicas_M1 > 1.0, tf.float32)
    of_shared_ND = values_ND * tf.gather(is_shared_M1, inverse_N)
    shared_MD = sums_MD * is_shared_M1
    of_parts_DD = tf.matmul(of_shared_ND, of_shared_ND, transpose_a=True)
    of_sums_DD = tf.matmul(shared_MD, shared_MD, transpose_a=True)

    rows = tf.maximum(tf.reduce_sum(is_shared_M1), 1.0)
    identity_DD = tf.eye(tf.shape(values_ND)[1])
    prior_DD = (tf.linalg.trace(of_parts_DD) / rows + _TINY) * identity_DD
    # A solver raises an error for a matrix that is not finite; the caller reports the loss.
    is_finite = tf.reduce_all(tf.math.is_finite(of_sums_DD + of_parts_DD))
    of_parts_DD = tf.where(is_finite, of_parts_DD + prior_DD, identity_DD)
    of_sums_DD = tf.where(is_finite, of_sums_DD + prior_DD, identity_DD)
    damped_MD = tf.matmul(shared_MD, tf.linalg.solve(of_sums_DD, of_parts_DD))
    return tf.where(is_shared_M1 > 0.0, damped_MD, sums_MD)


def has_changed(values_ND: tf.Tensor) -> tf.Tensor:
    """Return 1.0 for each row that has changed, and 0.0 for one that was only looked up, (N, 1)."""
    return tf.cast(tf.reduce_any(tf.not_equal(values_ND, 0.0), axis=1, keepdims=True), tf.float32)
