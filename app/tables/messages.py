"""Tensors of several dtypes in one message: TensorFlow sends each tensor by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Form(NamedTuple):
    """The shape and the dtype of a tensor in a message.

    Attributes:
        rows: The number of rows, an int32 scalar.
        columns: The number of columns; 0 for a vector of `rows` numbers.
        dtype: int32, float32, or a half precision dtype.
    """

    rows: tf.Tensor
    columns: int
    dtype: tf.DType


def pack(tensors: Sequence[tf.Tensor], word: tf.DType = tf.uint16) -> tf.Tensor:
    """Return the bits of tensors one after the other, as words (N,).

    Args:
        tensors: Tensors of dtypes of one or two words.
        word: The dtype of a word.
    """
    return tf.concat([tf.reshape(tf.bitcast(part, word), [-1]) for part in tensors], axis=0)


def unpack(message: tf.Tensor, forms: Sequence[Form]) -> list[tf.Tensor]:
    """Return the tensors of a message that `pack` made.

    Args:
        message: The words; some may follow the tensors.
        forms: The shape and the dtype of each tensor, in order.
    """
    words = [form.dtype.size // message.dtype.size for form in forms]
    sizes = [
        form.rows * (max(form.columns, 1) * count) for form, count in zip(forms, words, strict=True)
    ]
    tensors = []
    *parts, _ = tf.split(message, [*sizes, -1])
    for form, count, part in zip(forms, words, parts, strict=True):
        shape = [-1, *([form.columns] if form.columns else []), *([count] if count > 1 else [])]
        tensors.append(tf.bitcast(tf.reshape(part, shape), form.dtype))
    return tensors
