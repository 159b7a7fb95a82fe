"""Which pairs of a row of tokens are a centre and its context."""

from __future__ import annotations

import tensorflow as tf

from ..input.tokens import Decoded


def pairs(tokens: Decoded, window: int, seed: tf.Tensor) -> tf.Tensor:
    """Whether centre t of a row and token l of it are a pair: (B, T, L) float32 of 0 and 1.

    The row's L tokens are T centres with `window` tokens on both sides. A centre reaches 1 to
    `window` tokens to either side, drawn anew for each (word2vec.c), never itself, and never out
    of its document.

    seed: (2,) integers; the draw is a function of it.
    """
    batch, length = tokens.ids.shape
    centres = length - 2 * window
    reach_BT = tf.random.stateless_uniform((batch, centres), seed, 1, window + 1, tf.int32)
    return _pairs(tokens.real, tokens.document, reach_BT)


@tf.function(autograph=False, jit_compile=True)  # one pass over (B, T, L) instead of eight
def _pairs(real_BL: tf.Tensor, document_BL: tf.Tensor, reach_BT: tf.Tensor) -> tf.Tensor:
    length, centres = real_BL.shape[1], reach_BT.shape[1]
    window = (length - centres) // 2
    distance_TL = tf.abs(tf.range(length)[None, :] - tf.range(centres)[:, None] - window)
    near_BTL = (distance_TL > 0) & (distance_TL <= reach_BT[:, :, None])
    inside = slice(window, window + centres)
    together_BTL = document_BL[:, inside, None] == document_BL[:, None, :]
    real_BTL = real_BL[:, inside, None] & real_BL[:, None, :]
    return tf.cast(near_BTL & together_BTL & real_BTL, tf.float32)
