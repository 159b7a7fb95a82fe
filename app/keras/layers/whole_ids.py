"""Ids as integers, whatever the dtype of numbers that a model has for them."""

from __future__ import annotations

import tensorflow as tf

from ...tables.id_checks import require

_MANTISSA_BITS = {tf.float64: 53, tf.float32: 24, tf.float16: 11, tf.bfloat16: 8}


def to_integers(inputs: tf.Tensor, rows: int, name: str) -> tf.Tensor:
    """Return ids as int32 or int64; floating-point ids as int64.

    Args:
        inputs: Ids of any shape and any dtype of real numbers.
        rows: The number of rows of the table, V.
        name: The name of the layer, for messages.

    Raises:
        ValueError: A floating-point dtype cannot represent every id of the table.
        tf.errors.InvalidArgumentError: An id is not whole; in a graph, when it runs.
    """
    if inputs.dtype in (tf.int32, tf.int64):
        return inputs
    if inputs.dtype == tf.uint64:  # ids that int64 does not hold would become negative
        inputs = tf.minimum(inputs, tf.constant(2**63 - 1, tf.uint64))
    short = inputs.dtype.is_integer and inputs.dtype.size < 4
    ids = tf.cast(inputs, tf.int32 if short else tf.int64)
    if not inputs.dtype.is_floating:
        return ids
    exact = 2 ** _MANTISSA_BITS[inputs.dtype]  # every integer up to it has a number
    if rows > exact:
        raise ValueError(
            f"{name}: the ids are {inputs.dtype.name}, which represents every integer only up to "
            f"{exact:,}, and the table has {rows:,} rows; pass integers, with "
            "keras.Input(..., dtype='int32')"
        )
    whole = tf.reduce_all(tf.equal(tf.cast(ids, inputs.dtype), inputs))
    return require(whole, f"{name}: ids must be whole numbers, and some are not", ids)
