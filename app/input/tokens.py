"""Encode token ids, document starts and padding in one int32 each.

A batch needs no other tensor, so only 4 bytes per token cross to the device. An id is stored as
itself. The first token of a document is stored as `~id`, the bitwise complement, which is negative.
A position without a token is stored as `PAD`.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..types import HOST

PAD = 2**31 - 1


class Decoded(NamedTuple):
    """Token ids of a batch, with masks.

    Attributes:
        ids: Token ids (B, L) int32; 0 where there is no token.
        real: Bool (B, L), true where there is a token.
        document: Number of the document within its row (B, L) int32; 0 if it begins before the row.
    """

    ids: tf.Tensor
    real: tf.Tensor
    document: tf.Tensor


def encode(ids: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Return tokens for ids: `~id` for the first token of a document, else the id.

    Args:
        ids: Token ids (N,) int32.
        first: Bool (N,), true for the first token of a document.

    Returns:
        Tokens (N,) int32.
    """
    return tf.where(first, ~ids, ids)


def decode(tokens_BL: tf.Tensor) -> Decoded:
    """Return ids, mask and document numbers of encoded tokens, computed on the CPU.

    Args:
        tokens_BL: Tokens (B, L) int32.
    """
    with tf.device(HOST):
        first = tokens_BL < 0
        real = tokens_BL != PAD
        ids = tf.where(first, ~tokens_BL, tokens_BL)
        return Decoded(
            ids=tf.where(real, ids, 0),
            real=real,
            document=tf.cumsum(tf.cast(first, tf.int32), axis=1),
        )
