"""The check of ids from outside the package: of a Keras layer, or of a table in a file."""

from __future__ import annotations

import re

import tensorflow as tf

from ..system.python_functions import under_vectorized_map
from ..types import HOST


def check_ids(ids: tf.Tensor, rows: int, name: str) -> tf.Tensor:
    """Return the given ids, and raise an error if one of them is not in 0 .. rows - 1.

    Without this check TensorFlow raises on a CPU, but reads zeros on a GPU. The check runs on the
    CPU, where ids usually are, and then waits for no GPU (10 microseconds for 2,560 ids). Ids that
    were computed on a GPU are first copied to the CPU. In a graph the error is raised when the
    graph runs. XLA removes the check: code compiled by XLA takes the nearest row for an id out of
    range.

    Raises:
        tf.errors.InvalidArgumentError: An id is out of range. The message names the table, and the
            smallest and the largest id out of range.
    """
    with tf.device(HOST):
        wide = tf.cast(ids, tf.int64)  # `rows` may be more than int32 holds
        outside = tf.logical_or(wide < 0, wide >= rows)
        if under_vectorized_map():  # where both branches of a condition run
            check = _reject(ids, outside, rows, name)
        else:
            check = tf.cond(
                tf.reduce_any(outside), lambda: _reject(ids, outside, rows, name), tf.no_op
            )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(ids)


def require(condition: tf.Tensor, message: str, values: tf.Tensor) -> tf.Tensor:
    """Return the given values, and raise an error if a condition is false.

    In a graph the error is raised when the graph runs. XLA removes the check.
    """
    if tf.executing_eagerly():
        if not condition:  # tf.debugging.Assert would write over several lines
            raise tf.errors.InvalidArgumentError(None, None, message)
        return values
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(values)


def failed_check(error: tf.errors.InvalidArgumentError) -> str | None:
    """Return the message of the check that made a graph fail, or None if no check did.

    Args:
        error: The error of the graph, whose text has more than the message.
    """
    match = re.search(r"assertion failed: (\[.*\])", error.message)
    return match[1][1:-1].replace("] [", " ") if match else None


def _reject(ids: tf.Tensor, outside: tf.Tensor, rows: int, name: str):
    """Raise InvalidArgumentError in eager mode; in a graph return an operation that raises it.

    The operation does nothing if no id is outside.
    """
    # Not tf.boolean_mask: its tf.where has no form for tf.vectorized_map.
    smallest = tf.reduce_min(tf.where(outside, ids, ids.dtype.max))
    largest = tf.reduce_max(tf.where(outside, ids, ids.dtype.min))
    begin = f"{name}: ids must be from 0 to {rows - 1}; the smallest id out of range is"
    words = [begin, smallest, "and the largest", largest]
    if tf.executing_eagerly():  # where Assert would write over several lines
        message = " ".join(str(word if isinstance(word, str) else int(word)) for word in words)
        raise tf.errors.InvalidArgumentError(None, None, message)
    # tf.debugging.Assert would be a condition once more.
    return tf.raw_ops.Assert(condition=~tf.reduce_any(outside), data=words)
