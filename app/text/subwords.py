"""Character n-grams of words, hashed into buckets as fastText does.

Source: Bojanowski et al., "Enriching Word Vectors with Subword Information", TACL 2017, and
`Dictionary::computeSubwords` and `Dictionary::hash` of fastText 0.9.2. The functions are made of
TensorFlow operations only, so that an exported graph computes the n-grams of raw strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..types import HOST, NgramRule, NgramVectors

# The end of a line in a model of fastText; it has no n-grams.
END_OF_LINE = "</s>"

# FNV-1a with 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/
_OFFSET_BASIS, _PRIME = 2166136261, 16777619
# Words that are hashed in one call, so that a vocabulary takes little memory beside its result.
_CHUNK = 1 << 16


class WordNgrams(NamedTuple):
    """The buckets of the n-grams of V words, one word after the other.

    Attributes:
        buckets_N: The bucket of each n-gram, int32, in the order of fastText: by first character,
            then by length. A bucket may occur several times in a word.
        starts: Where the n-grams of each word begin in `buckets_N`, and the end, (V + 1,) int64.
    """

    buckets_N: np.ndarray
    starts: np.ndarray


def hash_words(words: Sequence[str | bytes], rule: NgramRule) -> WordNgrams:
    """Return the buckets of the n-grams of words.

    Args:
        words: Words without the marks `<` and `>`.
    """
    parts, starts = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for first in range(0, len(words), _CHUNK):
        encoded = [encode(word) for word in words[first : first + _CHUNK]]
        with tf.device(HOST):
            buckets_N, lengths_V = hash_strings(tf.constant(encoded), rule)
        parts.append(buckets_N.numpy())
        starts.append(starts[-1][-1] + np.cumsum(lengths_V.numpy()))
    return WordNgrams(np.concatenate(parts), np.concatenate(starts))


def compose_unseen(words: Sequence[str | bytes], ngrams: NgramVectors) -> np.ndarray:
    """Return the mean of the vectors of each word's n-grams, (N, D) float32; 0 without n-grams.

    Args:
        words: N words that have no row of their own.
    """
    found = hash_words(words, ngrams.rule)
    sums_ND = np.zeros((len(words), ngrams.rows_ND.shape[1]), np.float32)
    lengths_N = np.diff(found.starts)
    owners_M, rows_M = np.repeat(np.arange(len(words)), lengths_N), found.buckets_N
    if ngrams.buckets_N is not None:
        places_M = np.searchsorted(ngrams.buckets_N, found.buckets_N)
        has_row_M = np.append(ngrams.buckets_N, -1)[places_M] == found.buckets_N
        owners_M, rows_M = owners_M[has_row_M], places_M[has_row_M]
    np.add.at(sums_ND, owners_M, ngrams.rows_ND[rows_M])
    return sums_ND / np.maximum(lengths_N, 1)[:, np.newaxis].astype(np.float32)


def encode(word: str | bytes) -> bytes:
    """Return a word as bytes: UTF-8, in which an unpaired surrogate has three bytes of its own."""
    return word if isinstance(word, bytes) else word.encode("utf-8", "surrogatepass")


def hash_strings(words_M: tf.Tensor, rule: NgramRule) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the buckets of the n-grams of strings, as operations of a graph.

    As in fastText, a character is a byte and the continuation bytes (0b10xxxxxx) behind it, a byte
    counts as a signed number, and an n-gram of one character is left out if it is a mark.

    Args:
        words_M: Words without the marks `<` and `>`, strings. They need not be valid UTF-8.

    Returns:
        The buckets of all words, (N,) int32, as in `WordNgrams`, and the number of n-grams of each
        word, (M,) int64.
    """
    marked_M = tf.strings.join(["<", words_M, ">"])
    bytes_N = tf.io.decode_raw(tf.strings.reduce_join(marked_M), tf.uint8)
    starts_C = tf.where(tf.bitwise.bitwise_and(bytes_N, 0xC0) != 0x80)[:, 0]  # of each character
    ends_M = tf.cumsum(tf.cast(tf.strings.length(marked_M), tf.int64))
    words_C = tf.searchsorted(ends_M, starts_C, side="right", out_type=tf.int64)
    count = tf.shape(words_M, tf.int64)[0]
    lengths_M = tf.math.bincount(words_C, minlength=count, maxlength=count, dtype=tf.int64)
    ends_C = tf.gather(tf.cumsum(lengths_M), words_C)
    number_C = tf.range(tf.size(starts_C, tf.int64))
    left_C = ends_C - number_C  # the characters from this one to the end of its word
    is_first_C = left_C == tf.gather(lengths_M, words_C)
    has_ngrams_C = tf.gather(words_M != END_OF_LINE, words_C)
    hashes = _hash_ngrams(bytes_N, starts_C, rule)
    is_ngram = [
        has_ngrams_C & (left_C >= n) & ((n > 1) | ~(is_first_C | (left_C == 1)))
        for n in range(rule.shortest, rule.longest + 1)
    ]
    is_ngram_CN = tf.stack(is_ngram, axis=1)
    hashes_N = tf.boolean_mask(tf.stack(hashes, axis=1), is_ngram_CN)
    buckets_N = tf.cast(tf.math.floormod(hashes_N, rule.buckets), tf.int32)
    found_C = tf.reduce_sum(tf.cast(is_ngram_CN, tf.int64), axis=1)
    return buckets_N, tf.math.unsorted_segment_sum(found_C, words_C, count)


def _hash_ngrams(bytes_N: tf.Tensor, starts_C: tf.Tensor, rule: NgramRule) -> list[tf.Tensor]:
    """Return the hash of the n-gram at each character, (C,) int64 for each length n.

    An n-gram that passes the end of its word has an arbitrary hash.
    """
    widths_C = tf.concat([starts_C[1:], tf.size(bytes_N, tf.int64)[None]], axis=0) - starts_C
    padding = [[0, rule.longest]]
    widths, starts = tf.pad(widths_C, padding), tf.pad(starts_C, padding)
    # As int8 first, so that a byte is sign-extended; 64 bits hold a product of 32 and 25 bits.
    signed_N = tf.cast(tf.bitcast(bytes_N, tf.int8), tf.int64) & 0xFFFFFFFF
    last = tf.size(bytes_N, tf.int64) - 1
    size = tf.size(starts_C)
    hashes_C, hashes = tf.fill([size], tf.constant(_OFFSET_BASIS, tf.int64)), []

    def append_byte(hashes_C: tf.Tensor, byte: tf.Tensor, n: int) -> tf.Tensor:
        """Return the hashes with one more byte of the n-th character, where it has that byte."""
        here, is_byte = starts[n : n + size] + byte, widths[n : n + size] > byte
        bytes_C = tf.gather(signed_N, tf.minimum(here, last))
        product_C = tf.bitwise.bitwise_xor(hashes_C, bytes_C) * _PRIME & 0xFFFFFFFF
        return tf.where(is_byte, product_C, hashes_C)

    byte_numbers = tf.range(tf.reduce_max(widths))
    for n in range(rule.longest):
        hashes_C = tf.foldl(
            lambda so_far, byte, n=n: append_byte(so_far, byte, n), byte_numbers, hashes_C
        )
        hashes.append(hashes_C)
    return hashes[rule.shortest - 1 :]
