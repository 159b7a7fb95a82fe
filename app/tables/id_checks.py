"""The check of ids that come from outside the package."""

from __future__ import annotations

import tensorflow as tf


def check_ids(ids: tf.Tensor, rows: int, name: str) -> tf.Tensor:
    """Return the ids after a check that all are in 0 .. rows - 1.

    Without it TensorFlow raises on a CPU only; a GPU reads zeros for an id out of range. The check
    runs on the CPU, where ids come from, so that it waits for no device (10 microseconds for 2,560
    ids). Ids computed on a GPU are copied first. XLA compiles no checks, so an id out of range
    takes the nearest row there.

    Args:
        ids: Ids of any shape, int32 or int64.
        rows: The number of rows of the table, V.
        name: The name of the table, for the message.

    Raises:
        tf.errors.InvalidArgumentError: An id is out of range. The message has the smallest and the
            largest such id.
    """
    with tf.device("CPU:0"):
        wide = tf.cast(ids, tf.int64)  # `rows` may be more than int32 holds
        outside = tf.logical_or(wide < 0, wide >= rows)
        check = tf.cond(tf.reduce_any(outside), lambda: _refuse(ids, outside, rows, name), tf.no_op)
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(ids)


def _refuse(ids: tf.Tensor, outside: tf.Tensor, rows: int, name: str):
    wrong = tf.boolean_mask(tf.reshape(ids, [-1]), tf.reshape(outside, [-1]))
    begin = f"{name}: ids must be from 0 to {rows - 1}; the smallest id out of range is"
    words = [begin, tf.reduce_min(wrong), "and the largest", tf.reduce_max(wrong)]
    if tf.executing_eagerly():  # where Assert would write over several lines
        message = " ".join(str(word if isinstance(word, str) else int(word)) for word in words)
        raise tf.errors.InvalidArgumentError(None, None, message)
    return tf.debugging.Assert(False, words)
