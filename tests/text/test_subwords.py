import random

import numpy as np
import pytest
import tensorflow as tf

from app.text import subwords
from app.text.fasttext.line_features import hash_word_ngrams, hash_words
from app.text.subwords import NgramRule, hash_strings

RULE = NgramRule(3, 6, 2_000_000)
WORDS = [
    "a",
    "the",
    "where",
    "naïve",
    "日本語",
    "aaaaaaa",
    "<>",
    "</s>",
    "𝄞🎼clef",
    "é",
    "x" * 10_000,
]


def reference(word: bytes, rule: NgramRule) -> list[int]:
    """Compute the buckets of a word as `Dictionary::computeSubwords` does, byte by byte."""
    if word == b"</s>":
        return []
    word, buckets = b"<" + word + b">", []
    for i in range(len(word)):
        if word[i] & 0xC0 == 0x80:
            continue
        j, n = i, 1
        while j < len(word) and n <= rule.longest:
            j += 1
            while j < len(word) and word[j] & 0xC0 == 0x80:
                j += 1
            if n >= rule.shortest and not (n == 1 and (i == 0 or j == len(word))):
                value = 2166136261
                for byte in word[i:j]:
                    signed = byte - 256 if byte > 127 else byte
                    value = (value ^ signed & 0xFFFFFFFF) * 16777619 & 0xFFFFFFFF
                buckets.append(value % rule.buckets)
            n += 1
    return buckets


def random_strings(count: int) -> list[str]:
    """Return strings of 0 to 12 characters of all planes, without surrogates and white space."""
    draw = random.Random(7)
    ranges = [(0x21, 0x7E), (0xA1, 0x24F), (0x400, 0x4FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F64F)]
    return [
        "".join(chr(draw.randint(*draw.choice(ranges))) for _ in range(draw.randint(0, 12)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "rule", [RULE, NgramRule(1, 1, 7), NgramRule(1, 4, 1000), NgramRule(5, 5, 97)]
)
def test_words_have_the_buckets_of_the_reference(rule):
    words = [*WORDS, *random_strings(1000)]
    result = subwords.hash_words(words, rule)
    assert result.buckets_N.dtype == np.int32
    for number, word in enumerate(words):
        mine = result.buckets_N[result.starts[number] : result.starts[number + 1]]
        assert mine.tolist() == reference(word.encode(), rule), word


@pytest.mark.parametrize("limits", [(3, 6), (1, 3), (2, 2)])
def test_words_have_the_buckets_of_fasttext(tmp_path, limits):
    fasttext = pytest.importorskip("fasttext")
    rule = NgramRule(*limits, 1009)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a b c\n" * 10)
    model = fasttext.train_unsupervised(
        str(corpus), minn=rule.shortest, maxn=rule.longest, bucket=rule.buckets, dim=1, minCount=1,
        epoch=1, thread=1, verbose=0,
    )  # fmt: skip
    words = [*WORDS, *random_strings(1000)]
    result = subwords.hash_words(words, rule)
    for word, mine in zip(words, np.split(result.buckets_N, result.starts[1:-1]), strict=True):
        rows = model.get_subwords(word)[1]
        expected = [row - len(model.words) for row in rows if row >= len(model.words)]
        assert mine.tolist() == expected, word


def test_any_bytes_have_the_buckets_of_the_reference():
    draw = np.random.default_rng(3)
    words = [draw.bytes(draw.integers(0, 20)) for _ in range(500)]
    result = subwords.hash_words(words, RULE)
    for word, mine in zip(words, np.split(result.buckets_N, result.starts[1:-1]), strict=True):
        assert mine.tolist() == reference(word, RULE)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [RULE, NgramRule(1, 3, 1000)])
def test_a_graph_hashes_raw_strings(rule):
    words = [*WORDS, *random_strings(1000)]
    graph = tf.function(lambda words_M: subwords.hash_ngrams(words_M, rule), autograph=False)
    found = graph.get_concrete_function(tf.TensorSpec([None], tf.string))(
        tf.constant([word.encode() for word in words])
    )
    expected = subwords.hash_words(words, rule)
    for mine, buckets in zip(
        found.to_list(), np.split(expected.buckets_N, expected.starts[1:-1]), strict=True
    ):
        assert sorted(mine) == sorted(buckets.tolist())


def test_no_words_and_an_unpaired_surrogate():
    nothing = subwords.hash_words([], RULE)
    assert nothing.buckets_N.size == 0
    assert nothing.starts.tolist() == [0]
    assert subwords.hash_ngrams(tf.zeros([0], tf.string), RULE).to_list() == []
    assert (
        len(subwords.hash_words(["ab\ud800c"], RULE).buckets_N) == 10
    )  # 6 characters with the marks


# fastText's hashes against its C++ source, as loops.


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
