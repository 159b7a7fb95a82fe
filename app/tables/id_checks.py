"""The check of ids that come from outside."""

from __future__ import annotations

import tensorflow as tf


def checked(ids: tf.Tensor, rows: int, name: str) -> tf.Tensor:
    """The ids, of any shape, int32 or int64, once all of them are known to be in 0 .. rows - 1.

    InvalidArgumentError otherwise, with the smallest and the largest id that is not, on every
    device: TensorFlow itself names one on a CPU, and on a GPU reads zeros for it. name: what to
    call the table.

    The check runs on the CPU, where ids come from, so that it waits for no device (10 microseconds
    for 2,560 ids). Ids computed on a GPU are copied there first. Code compiled by XLA runs no
    checks, so there an id out of range takes the nearest row.
    """
    with tf.device("CPU:0"):
        wide = tf.cast(ids, tf.int64)  # `rows` may be more than int32 holds
        outside = tf.logical_or(wide < 0, wide >= rows)
        check = tf.cond(tf.reduce_any(outside), lambda: _refuse(ids, outside, rows, name), tf.no_op)
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(ids)


def _refuse(ids: tf.Tensor, outside: tf.Tensor, rows: int, name: str):
    wrong = tf.boolean_mask(tf.reshape(ids, [-1]), tf.reshape(outside, [-1]))
    what = f"{name}: ids are to be from 0 to {rows - 1}; of those outside the smallest is"
    words = [what, tf.reduce_min(wrong), "and the largest", tf.reduce_max(wrong)]
    if tf.executing_eagerly():  # where Assert would write over several lines
        message = " ".join(str(word if isinstance(word, str) else int(word)) for word in words)
        raise tf.errors.InvalidArgumentError(None, None, message)
    return tf.debugging.Assert(False, words)
