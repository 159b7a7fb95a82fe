"""The context of each centre in rows of tokens."""

from __future__ import annotations

import tensorflow as tf

from ..input.tokens import Decoded


def draw_contexts(tokens: Decoded, window: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw the reach of each centre, and return a mask of the tokens of its context.

    The reach of each centre is drawn from 1 to `window` tokens to either side, as in word2vec.c.
    A context never holds the centre itself, padding, or tokens of another document.

    Args:
        tokens: Rows of L tokens: T centres in the middle, with `window` more tokens on both sides.
        window: The largest reach, in tokens.
        seed: (2,) integers; the draw is a function of it.

    Returns:
        (B, T, L) float32: 1 where token l of a row is in the context of centre t, else 0.
    """
    batch, length = tokens.ids.shape
    centres = length - 2 * window
    reach_BT = tf.random.stateless_uniform((batch, centres), seed, 1, window + 1, tf.int32)
    return _context_mask(tokens.real, tokens.document, reach_BT)


@tf.function(autograph=False, jit_compile=True)  # one pass over (B, T, L) instead of eight
def _context_mask(real_BL: tf.Tensor, document_BL: tf.Tensor, reach_BT: tf.Tensor) -> tf.Tensor:
    """Return 1 for each token of a centre's context, else 0, (B, T, L) float32.

    The T centres are the middle of the L tokens. A centre and a token of its context are different
    tokens of one document, neither of them padding, at most the reach of the centre apart.

    Args:
        real_BL: Whether each position has a token, bool.
        document_BL: The number of each token's document within its row.
        reach_BT: The largest distance of each centre to a token of its context, int32.
    """
    length, centres = real_BL.shape[1], reach_BT.shape[1]
    window = (length - centres) // 2
    distance_TL = tf.abs(tf.range(length)[None, :] - tf.range(centres)[:, None] - window)
    near_BTL = (distance_TL > 0) & (distance_TL <= reach_BT[:, :, None])
    inside = slice(window, window + centres)
    same_document_BTL = document_BL[:, inside, None] == document_BL[:, None, :]
    real_BTL = real_BL[:, inside, None] & real_BL[:, None, :]
    return tf.cast(near_BTL & same_document_BTL & real_BTL, tf.float32)
