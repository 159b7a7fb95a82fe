"""How a stream of token ids is written in one int32 each, boundaries and padding included.

An id is written as itself; the first token of a document as its bitwise complement, ~id, which is
negative; a place without a token as `PAD`. So a batch of ids is all that crosses to the device.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..types import HOST

PAD = 2**31 - 1


class Decoded(NamedTuple):
    """ids: int32, 0 where there is no token. real: bool, a token is there. document: int32, equal
    for tokens of one document within a row."""

    ids: tf.Tensor
    real: tf.Tensor
    document: tf.Tensor


def encode(ids: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Ids (N,) int32 and whether each is the first of its document, (N,) bool, as tokens (N,)."""
    return tf.where(first, ~ids, ids)


def decode(tokens_BL: tf.Tensor) -> Decoded:
    """Tokens (B, L) as ids, their presence and a number for their document."""
    with tf.device(HOST):
        first = tokens_BL < 0
        real = tokens_BL != PAD
        ids = tf.where(first, ~tokens_BL, tokens_BL)
        return Decoded(
            ids=tf.where(real, ids, 0),
            real=real,
            document=tf.cumsum(tf.cast(first, tf.int32), axis=1),
        )
