"""The features of texts against plain Python, and that long texts are cut."""

import numpy as np
import pytest
import tensorflow as tf

from app.input.features import Features, encode, find_buckets, select_rows
from app.text.fasttext.line_features import hash_words
from tests.input.example_texts import (
    BUCKETS,
    WORDS,
    features_of,
    make_examples,
    shares_of,
    texts_of,
)


def encoded(texts):
    """The (feature, share) pairs of each text."""
    bounds = zip(texts.starts_E, texts.starts_E[1:], strict=False)
    return [
        [*zip(texts.ids_F[i:j].tolist(), texts.shares_F[i:j].round(5).tolist(), strict=True)]
        for i, j in bounds
    ]


@pytest.mark.parametrize("ngrams", [1, 2, 4])
def test_features(ngrams):
    texts = texts_of(make_examples()) + [[], [3], []]
    expected = [features_of(text, ngrams) for text in texts]
    features = Features(WORDS, ngrams, BUCKETS)
    lengths = np.array([*map(len, texts)])
    owners = np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
    ids_N, owners_N = features.extract(tf.constant(sum(texts, []), tf.int32), tf.constant(owners))
    assert ids_N.numpy().tolist() == sum(expected, [])
    assert owners_N.numpy().tolist() == np.repeat(range(len(texts)), [*map(len, expected)]).tolist()
    assert features.sizes(lengths, 99).tolist() == [*map(len, expected)]
    assert features.rows == WORDS + (BUCKETS if ngrams > 1 else 0)
    none = tf.zeros([0], tf.int32)
    assert features.extract(none, none)[0].shape == (0,)


@pytest.mark.parametrize("ngrams", [2, 3])
def test_features_by_spelling(ngrams):
    """fastText's n-grams have unknown words, too; these have no row of their own."""
    examples, known = make_examples(), 25
    features = Features(known, ngrams, BUCKETS, by_spelling=True)
    hashes = hash_words([word.encode() for word in examples.words])
    expected = []
    for text in texts_of(examples):
        ids = [token for token in text if token < known]
        for place, token in enumerate(text):
            number = int(hashes[token]) % 2**64
            for other in text[place + 1 : place + ngrams]:
                number = (number * 116049371 + int(hashes[other])) % 2**64
                ids.append(known + number % BUCKETS)
        expected.append(ids)
    found = encode(examples, features, 99)
    assert encoded(found) == [*map(shares_of, expected)]
    assert found.sizes_E.tolist() == [*map(len, expected)]
    assert (found.sizes_E < features.sizes(examples.lengths_E, 99)).any()


def test_only_some_buckets_have_a_row():
    """Other n-grams have one id, and count in shares and sizes."""
    examples = make_examples()
    features = Features(WORDS, 3, BUCKETS)
    texts = encode(examples, features, 99)
    found = [features_of(text, 3) for text in texts_of(examples)]
    buckets = find_buckets(texts, features)
    assert buckets.dtype == np.int32
    assert buckets.tolist() == sorted({0} | {i - WORDS for i in sum(found, []) if i >= WORDS})
    for kept in (buckets, buckets[::2], buckets[:1]):
        fewer = features._replace(buckets_N=kept)
        row_of = {bucket + WORDS: WORDS + place for place, bucket in enumerate(kept.tolist())}
        row_of |= {word: word for word in range(WORDS)}
        selected = select_rows(texts, fewer)
        assert encoded(selected) == [
            [(row_of[id_], share) for id_, share in shares_of(text) if id_ in row_of]
            for text in found
        ]
        assert selected.sizes_E.tolist() == texts.sizes_E.tolist()
        assert selected.rows == fewer.rows == WORDS + len(kept)
        for one, two in zip(encode(examples, fewer, 99), selected, strict=True):
            np.testing.assert_array_equal(one, two)
        tokens = texts_of(examples)[0]
        ids_N, _ = fewer.extract(tf.constant(tokens), tf.zeros(len(tokens), tf.int32))
        assert ids_N.numpy().tolist() == [row_of.get(id_, fewer.rows) for id_ in found[0]]


def test_the_longest_text():
    for ngrams in (1, 2, 3):
        features = Features(WORDS, ngrams, BUCKETS)
        for most in range(3, 20):
            longest = features.longest(most)
            at, above = features.sizes(np.array([longest, longest + 1]), 99)
            assert at <= most < above


def test_features_are_encoded_once_in_blocks(monkeypatch):
    monkeypatch.setattr("app.input.features._WORDS_AT_ONCE", 50)
    examples = make_examples(longest=60)
    for ngrams in (1, 3):
        texts = encode(examples, features := Features(WORDS, ngrams, BUCKETS), 30)
        expected = [features_of(t, ngrams) for t in texts_of(examples, features.longest(30))]
        assert encoded(texts) == [*map(shares_of, expected)]
        assert texts.sizes_E.tolist() == [*map(len, expected)]
