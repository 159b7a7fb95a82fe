"""Row-sparse gradients with every row once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..tables.row_reads import sum_rows, unique


class Merged(tf.IndexedSlices):
    """A row-sparse gradient whose rows are distinct: float32 values (U, D) at U indices."""

    @classmethod
    def of(cls, gradient: Any, variable: Any) -> Any:
        """The variable's gradient with those of one row summed; a dense one, or None, as it is.

        A variable of more than two axes has its rows flattened.
        """
        if not isinstance(gradient, tf.IndexedSlices) or isinstance(gradient, Merged):
            return gradient
        columns = variable.shape[1:].num_elements()  # tf.distribute leaves the values without
        ids_U, positions_N = unique(gradient.indices)
        values_ND = tf.reshape(gradient.values, (-1, columns))
        values_ND = tf.ensure_shape(values_ND, (gradient.values.shape[0], columns))
        values_UD = sum_rows(values_ND, positions_N, tf.size(ids_U))
        return cls(values_UD, ids_U, gradient.dense_shape)

    def plain(self) -> tf.IndexedSlices:
        """The same as TensorFlow's own type, which tf.distribute knows."""
        return tf.IndexedSlices(self.values, self.indices, self.dense_shape)

    def __truediv__(self, divisor: Any) -> Merged:
        """Divided by a number, as Keras undoes its loss scale."""
        return Merged(self.values / divisor, self.indices, self.dense_shape)
