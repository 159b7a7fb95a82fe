"""fastText's hashes against its C++ source, as loops."""

import random

import numpy as np
import pytest
import tensorflow as tf

from app.text.fasttext.line_features import hash_strings, hash_word_ngrams, hash_words


def signed(number, bits):
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def hash_of(word):
    """Dictionary::hash."""
    found = 2166136261
    for byte in word:
        found = (found ^ (signed(byte, 8) % 2**32)) * 16777619 % 2**32
    return signed(found, 32)


def words(count=1000):
    draw = random.Random(1)
    return [draw.randbytes(draw.randrange(0, 30)).replace(b"\0", b"") for _ in range(count)]


def test_words():
    given = [*words(), b"", "\u00e9t\u00e9 \U0001f600".encode(), b"\xff" * 300]
    expected = [*map(hash_of, given)]
    assert hash_words(given).tolist() == expected
    assert hash_strings(tf.constant(given)).numpy().tolist() == expected
    assert hash_words([]).shape == hash_strings(tf.zeros([0], tf.string)).shape == (0,)


@pytest.mark.parametrize("longest", [1, 2, 4])
@pytest.mark.parametrize("buckets", [1, 7, 2_000_000])
def test_ngrams_of_words(longest, buckets):
    """Dictionary::addWordNgrams."""
    draw = random.Random(2)
    hashes = hash_words(words(200))
    owners = np.sort([draw.randrange(60) for _ in hashes])
    expected = []
    for place, first in enumerate(hashes.tolist()):
        number = first % 2**64
        for other in range(place + 1, min(place + longest, len(hashes))):
            if owners[other] == owners[place]:
                number = (number * 116049371 + int(hashes[other])) % 2**64
                expected.append((owners[place], number % buckets))
    found, found_owners = hash_word_ngrams(hashes, owners, longest, buckets)
    assert sorted(zip(found_owners.tolist(), found.tolist(), strict=True)) == sorted(expected)
    assert hash_word_ngrams(hashes[:0], owners[:0], longest, buckets)[0].shape == (0,)
