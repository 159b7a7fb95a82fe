"""Add the changes that several replicas made to the same rows, without moving the rows too far.

Replicas that train alone all move the rows along a few directions that the whole table shares, for
instance the mean of the output rows, until the loss is lowest along these. The sum of R such
changes goes R times as far. All other changes come from the examples of one replica: they have to
be added, as if one replica had trained on all examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

_TINY = 1e-20  # keeps a matrix of zeros invertible; far below the square of any change


def damped_sum(parts_RMD: Sequence[tf.Tensor], filter_DD: tf.Tensor) -> tf.Tensor:
    """Return the sum of the changes of each row, with what the replicas have in common damped.

    A row that only one replica has changed is not damped.

    Args:
        parts_RMD: The changes of the same rows by each replica, float32; 0 where a replica has not
            changed a row.
        filter_DD: The result of `damping` for these rows, or for a sample of them.

    Returns:
        The changes (M, D).
    """
    sums_MD = tf.add_n(parts_RMD)
    return tf.where(_is_shared(parts_RMD), tf.matmul(sums_MD, filter_DD), sums_MD)


def damping(parts_RMD: Sequence[tf.Tensor], steps: tf.Tensor) -> tf.Tensor:
    """Return the matrix to multiply the sums of changes with.

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
    the rows, in which the changes are independent. A row that only one replica has changed is not
    counted.

    Args:
        parts_RMD: The changes of the same rows by each replica, float32, as in `damped_sum`.
        steps: The number of steps since the last exchange, S, an int32 scalar, at least 1.

    Returns:
        The matrix (D, D). If any change is not finite, it is the identity matrix.
    """
    is_shared_M1 = _is_shared(parts_RMD)
    parts = [tf.where(is_shared_M1, part_MD, 0.0) for part_MD in parts_RMD]
    of_sums_DD = _square(tf.add_n(parts))
    of_parts_DD = tf.add_n([_square(part_MD) for part_MD in parts])
    identity_DD = tf.eye(of_sums_DD.shape[0])
    rows = tf.reduce_sum(tf.cast(is_shared_M1, tf.float32))
    prior_DD = (tf.linalg.trace(of_parts_DD) / tf.maximum(rows, 1.0) + _TINY) * identity_DD
    # The solver raises an error for a matrix that is not finite. Here, the sums show what is wrong.
    is_finite = tf.reduce_all(tf.math.is_finite(of_sums_DD + of_parts_DD))
    filter_DD = tf.linalg.solve(
        tf.where(is_finite, of_sums_DD + prior_DD, identity_DD),
        tf.where(is_finite, of_parts_DD + prior_DD, identity_DD),
    )
    share = 2.0 / (tf.cast(steps, tf.float32) + 1.0)
    return filter_DD + share * (identity_DD - filter_DD)


def has_changed(values_MD: tf.Tensor) -> tf.Tensor:
    """Return 1.0 for each row that has changed, and 0.0 for one that was only looked up, (M, 1)."""
    return tf.cast(tf.reduce_any(tf.not_equal(values_MD, 0.0), axis=1, keepdims=True), tf.float32)


def _is_shared(parts_RMD: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return whether several replicas have changed a row, (M, 1)."""
    return tf.add_n([has_changed(part_MD) for part_MD in parts_RMD]) > 1.0


def _square(values_MD: tf.Tensor) -> tf.Tensor:
    """Return the product with itself, (D, D)."""
    return tf.matmul(values_MD, values_MD, transpose_a=True)
