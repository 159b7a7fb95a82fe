"""Character n-grams of words, hashed into buckets as fastText does.

Source: Bojanowski et al., "Enriching Word Vectors with Subword Information", TACL 2017, and
`Dictionary::computeSubwords` and `Dictionary::hash` of fastText 0.9.2. numpy hashes words, as
TensorFlow takes seconds to start; `hash_ngrams` does the same in an exported graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..types import NgramRule, NgramVectors
from .fasttext.model_file import LINE_END  # which has no n-grams

if TYPE_CHECKING:
    import tensorflow as tf

# FNV-1a with 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/
OFFSET_BASIS, PRIME = 2_166_136_261, 16_777_619
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
        marked = [b"<" + encode(word) + b">" for word in words[first : first + _CHUNK]]
        buckets_N, lengths_V = _hash_marked(marked, rule)
        parts.append(buckets_N)
        starts.append(starts[-1][-1] + np.cumsum(lengths_V))
    return WordNgrams(np.concatenate(parts), np.concatenate(starts))


def _hash_marked(words: Sequence[bytes], rule: NgramRule) -> tuple[np.ndarray, np.ndarray]:
    """Return the buckets of the n-grams of words, and their number for each word.

    As in fastText, a character is a byte and the continuation bytes (0b10xxxxxx) behind it, a byte
    counts as a signed number, and an n-gram of one character is left out if it is a mark.

    Args:
        words: V words, at least one, with the marks `<` and `>`.
    """
    bytes_N = np.frombuffer(b"".join(words), np.uint8)
    signed_N = bytes_N.view(np.int8).astype(np.int32).view(np.uint32)
    starts_C = np.flatnonzero(bytes_N & 0xC0 != 0x80)  # of each character
    widths_C = np.diff(starts_C, append=len(bytes_N))
    ends_V = np.cumsum([len(word) for word in words])
    words_C = np.searchsorted(ends_V, starts_C, side="right")
    lengths_V = np.bincount(words_C, minlength=len(words))
    # The characters from this one to the end of its word.
    left_C = np.cumsum(lengths_V)[words_C] - np.arange(len(starts_C))
    has_ngrams_V = np.array([word[1:-1] != LINE_END.encode() for word in words])
    is_mark_C = (left_C == 1) | (left_C == lengths_V[words_C])
    left_C[~has_ngrams_V[words_C]] = 0
    hashes_C = np.full(len(starts_C), OFFSET_BASIS, np.uint32)
    lengths = range(rule.shortest, rule.longest + 1)
    buckets_CL = np.empty((len(starts_C), len(lengths)), np.int32)
    is_ngram_CL = left_C[:, np.newaxis] >= np.array(lengths)
    if rule.shortest == 1:
        is_ngram_CL[is_mark_C, 0] = False
    for n in range(rule.longest):
        here_K = np.flatnonzero(left_C > n)
        widths_K, bytes_K = widths_C[here_K + n], starts_C[here_K + n]
        for byte in range(widths_K.max(initial=0)):
            has_byte_K = widths_K > byte
            places_K = here_K[has_byte_K]
            hashes_C[places_K] ^= signed_N[bytes_K[has_byte_K] + byte]
            hashes_C[places_K] *= np.uint32(PRIME)
        if n + 1 in lengths:
            buckets_CL[:, n + 1 - rule.shortest] = hashes_C % np.uint32(rule.buckets)
    buckets_N = buckets_CL[is_ngram_CL]
    found_C = np.count_nonzero(is_ngram_CL, axis=1)
    return buckets_N, np.add.reduceat(found_C, np.cumsum(lengths_V) - lengths_V)


def list_rows(words: Sequence[str], rule: NgramRule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of V words in a table of their own rows, then of buckets of n-grams.

    Returns:
        The rows, one word after the other, (N,) int32; where the rows of each word begin, and the
        end, (V + 1,); and the buckets that a word has, which are those with a row, rising, int32.
    """
    ngrams = hash_words(words, rule)
    buckets_B, places_M = np.unique(ngrams.buckets_N, return_inverse=True)
    rows_M, own_V = places_M.astype(np.int32) + len(words), np.arange(len(words))
    rows_N = np.insert(rows_M, ngrams.starts[:-1], own_V)
    return rows_N, ngrams.starts + np.arange(len(words) + 1), buckets_B


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


def hash_strings(words_M: tf.Tensor) -> tf.Tensor:
    """Return the hash of each string, (M,) int32, as operations of a graph.

    It is that of `fasttext.line_features.hash_words`.

    Args:
        words_M: Strings in UTF-8.
    """
    import tensorflow as tf

    lengths_M = tf.strings.length(words_M)
    longest = tf.maximum(tf.reduce_max(lengths_M, axis=0) if words_M.shape[0] != 0 else 0, 1)
    # Bytes are sign-extended to 32 bits; 64 bits hold a product of 32 and 25 bits.
    bytes_ML = tf.cast(tf.io.decode_raw(words_M, tf.int8, fixed_length=longest), tf.int64)
    bytes_LM = tf.transpose(tf.bitwise.bitwise_and(bytes_ML, 0xFFFFFFFF))

    def append_byte(hashes_M: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """Return the hashes with one more byte, where a word has one at the place."""
        product_M = tf.bitwise.bitwise_xor(hashes_M, bytes_LM[place]) * PRIME
        return tf.where(place < lengths_M, tf.bitwise.bitwise_and(product_M, 0xFFFFFFFF), hashes_M)

    first_M = tf.fill(tf.shape(words_M), tf.constant(OFFSET_BASIS, tf.int64))
    return tf.cast(tf.foldl(append_byte, tf.range(longest), first_M), tf.int32)


def hash_ngrams(words_M: tf.Tensor, rule: NgramRule) -> tf.RaggedTensor:
    """Return the buckets of the n-grams of strings, (M, None) int32, as operations of a graph.

    They are those of `hash_words`, by rising length.

    Args:
        words_M: Words in UTF-8, without the marks `<` and `>`.
    """
    import tensorflow as tf

    letters = tf.strings.unicode_split(words_M, "UTF-8")
    begin_M1, end_M1 = (tf.fill([tf.size(words_M), 1], mark) for mark in "<>")
    marked = tf.concat([begin_M1, letters, end_M1], axis=1)
    ngrams = [
        tf.strings.ngrams(marked, n, separator="") if n > 1 else letters
        for n in range(rule.shortest, rule.longest + 1)
    ]
    found = tf.concat(ngrams, axis=1)
    has_ngrams_N = tf.gather(words_M != LINE_END, found.value_rowids())
    found = tf.ragged.boolean_mask(found, found.with_values(has_ngrams_N))
    hashes_N = tf.cast(hash_strings(found.values), tf.int64) & 0xFFFFFFFF
    return found.with_values(tf.cast(hashes_N % rule.buckets, tf.int32))
