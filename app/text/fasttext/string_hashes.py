"""The hashes of words as operations of a graph, so that an exported model takes raw strings."""

from __future__ import annotations

import tensorflow as tf

from .hashing import OFFSET_BASIS, PRIME


def hash_strings(words_M: tf.Tensor) -> tf.Tensor:
    """Return the hash of each word, (M,) int32; `hashing.hash_words` describes it.

    Args:
        words_M: Strings in UTF-8.
    """
    lengths_M = tf.strings.length(words_M)
    longest = tf.maximum(tf.reduce_max(lengths_M, axis=0) if words_M.shape[0] != 0 else 0, 1)
    # Bytes are sign-extended to 32 bits; 64 bits hold a product of 32 and 25 bits.
    bytes_ML = tf.cast(tf.io.decode_raw(words_M, tf.int8, fixed_length=longest), tf.int64)
    bytes_LM = tf.transpose(tf.bitwise.bitwise_and(bytes_ML, 0xFFFFFFFF))

    def append_byte(hashes_M: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Return the hashes with one more byte, where a word has one at the place."""
        product_M = tf.bitwise.bitwise_xor(hashes_M, bytes_LM[place]) * PRIME
        next_M = tf.bitwise.bitwise_and(product_M, 0xFFFFFFFF)
        return tf.where(place < lengths_M, next_M, hashes_M)

    first_M = tf.fill(tf.shape(words_M), tf.constant(OFFSET_BASIS, tf.int64))
    return tf.cast(tf.foldl(append_byte, tf.range(longest), first_M), tf.int32)
