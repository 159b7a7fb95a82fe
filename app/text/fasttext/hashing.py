"""The hashes of fastText: of words, and of word n-grams (src/dictionary.cc)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# FNV-1a with 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/
OFFSET_BASIS, PRIME = 2_166_136_261, 16_777_619
# Dictionary::addWordNgrams multiplies by this, modulo 2 ** 64.
_FACTOR = 116_049_371


def hash_words(words: Sequence[bytes]) -> np.ndarray:
    """Return the hash of each word, (N,) int32, as Dictionary::hash does.

    A byte counts as a signed number. fastText computes in uint32, and takes the result as int32
    for word n-grams.

    Args:
        words: The words in UTF-8.
    """
    lengths_N = np.fromiter(map(len, words), np.int64, len(words))
    starts_N = np.cumsum(lengths_N) - lengths_N
    bytes_M = np.frombuffer(b"".join(words), np.int8).astype(np.int32).view(np.uint32)
    # The longest words first, so that those with a byte at some place are the first ones.
    order_N = np.argsort(-lengths_N, kind="stable")
    sorted_N = np.full(len(words), OFFSET_BASIS, np.uint32)
    for place in range(int(lengths_N.max(initial=0))):
        count = np.searchsorted(-lengths_N[order_N], -place, side="left")
        sorted_N[:count] ^= bytes_M[starts_N[order_N[:count]] + place]
        sorted_N[:count] *= np.uint32(PRIME)
    hashes_N = np.empty_like(sorted_N)
    hashes_N[order_N] = sorted_N
    return hashes_N.view(np.int32)


def hash_names(words: Sequence[str]) -> np.ndarray:
    """Return the hash of each word, (N,) int32; see `hash_words`.

    Args:
        words: The words.
    """
    return hash_words([word.encode("utf-8", "replace") for word in words])


def hash_word_ngrams(
    hashes_M: np.ndarray, owners_M: np.ndarray, longest: int, buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the buckets of the word n-grams of texts, and the text of each, (N,) int64.

    Args:
        hashes_M: The hashes of words, int32, one text after the other.
        owners_M: The number of the text of each word, not descending.
        longest: The words of the longest n-gram; 1 for none.
        buckets: The number of buckets.
    """
    words_M = hashes_M.astype(np.int64).view(np.uint64)  # sign-extended, as in C++
    sums_M = words_M
    found, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for shift in range(1, min(longest, len(hashes_M))):
        sums_M = sums_M[:-1] * np.uint64(_FACTOR) + words_M[shift:]
        in_text_M = owners_M[shift:] == owners_M[:-shift]
        found.append((sums_M[in_text_M] % np.uint64(buckets)).astype(np.int64))
        owners.append(owners_M[:-shift][in_text_M])
    return np.concatenate(found), np.concatenate(owners)
