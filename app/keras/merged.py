"""Row-sparse gradients without repeated rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..tables.row_reads import sum_rows, unique


class Merged(tf.IndexedSlices):
    """A row-sparse gradient with each row once: float32 values (U, D) at U unique indices."""

    @classmethod
    def of(cls, gradient: Any, variable: Any) -> Any:
        """Return a row-sparse gradient as `Merged`, with the values of repeated rows added.

        Args:
            gradient: A gradient. A dense one, None or a `Merged` is returned unchanged.
            variable: Its variable. Rows of more than one axis are flattened to vectors.
        """
        if not isinstance(gradient, tf.IndexedSlices) or isinstance(gradient, Merged):
            return gradient
        # Not from the values: tf.distribute drops their static shape.
        columns = variable.shape[1:].num_elements()
        ids_U, inverse_N = unique(gradient.indices)
        values_ND = tf.reshape(gradient.values, (-1, columns))
        values_ND = tf.ensure_shape(values_ND, (gradient.values.shape[0], columns))
        values_UD = sum_rows(values_ND, inverse_N, tf.size(ids_U))
        return cls(values_UD, ids_U, gradient.dense_shape)

    def plain(self) -> tf.IndexedSlices:
        """Return the gradient as `tf.IndexedSlices`, the type that tf.distribute accepts."""
        return tf.IndexedSlices(self.values, self.indices, self.dense_shape)

    def __truediv__(self, divisor: Any) -> Merged:
        """Return the gradient divided by a number, as Keras does to undo its loss scale.

        Args:
            divisor: The number.
        """
        return Merged(self.values / divisor, self.indices, self.dense_shape)


def add_gradients(first: Any, second: Any) -> Any:
    """Return the sum of two gradients of a variable, row-sparse if both are.

    It is for a training loop of your own that adds the gradients of several batches. The rows of
    both are put one after the other; an optimizer of `lexrow.keras` adds those of a repeated row.

    Example:
        sums = [lexrow.keras.add_gradients(a, b) for a, b in zip(sums, gradients, strict=True)]

    Args:
        first: A dense gradient, `tf.IndexedSlices` or None.
        second: As `first`.

    Returns:
        The sum; if one of them is None, the other unchanged.
    """
    if first is None or second is None:
        return second if first is None else first
    if not isinstance(first, tf.IndexedSlices) or not isinstance(second, tf.IndexedSlices):
        return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)
    indices = [first.indices, second.indices]
    if first.indices.dtype != second.indices.dtype:  # int32 and int64
        indices = [tf.cast(each, tf.int64) for each in indices]
    return tf.IndexedSlices(
        tf.concat([first.values, second.values], axis=0),
        tf.concat(indices, axis=0),
        first.dense_shape,
    )
