"""Steps of bags against loops over the same examples."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.input import bags
from app.input.bags import Bags, Packing
from app.input.features import Features, encode, find_buckets, select_rows
from app.settings import InputConfig
from app.text.fasttext.line_features import hash_words
from tests.input.example_texts import (
    BUCKETS,
    LABELS,
    WORDS,
    features_of,
    make_examples,
    shares_of,
    texts_of,
)


def make(examples, ngrams=2, all_labels=False, weights=None, seed=7, partitions=1, is_tight=False):
    features = Features(WORDS, ngrams, BUCKETS)
    settings = InputConfig(batch_tokens=30, steps_per_call=2)
    shape = bags.make_packing(examples, features, settings, all_labels)
    shape = shape._replace(features=30, bags=9, partitions=partitions)
    weights = np.ones(LABELS) if weights is None else weights
    texts = encode(examples, features, shape.features)
    return shape, bags.make_batches(examples, texts, shape, weights, settings, seed, is_tight)


def steps_of(batches, epochs, first=0):
    """Each step of each epoch as numpy."""
    for epoch, data in batches(epochs, first):
        for step in zip(*(part.numpy() for part in tf.nest.flatten(data)), strict=True):
            yield epoch, Bags(*step)


def bags_of(step):
    """The texts of a step, as (feature, share) pairs by feature, and (label, weight) pairs."""
    count, (uniques, sizes) = len(step.labels_BM), step.counts_P2.T
    assert not step.ids_N[sum(uniques) :].any() and not step.shares_N[sum(sizes) :].any()
    assert len({*step.ids_N[: sum(uniques)]}) == sum(uniques)
    owners, index = step.entries_N2[: sum(sizes)].T
    shares = step.shares_N[: sum(sizes)]
    assert (shares > 0).all()
    partitions, first, start = [], 0, 0
    for unique, size in zip(uniques, sizes, strict=True):
        partition = slice(start, start + size)
        ids = step.ids_N[first : first + unique]
        assert len(ids) and (np.diff(ids) > 0).all()
        assert (np.diff(owners[partition] * len(step.ids_N) + index[partition]) > 0).all()
        assert {*index[partition]} <= {*range(unique)}
        partitions.append(ids[index[partition]])
        first, start = first + unique, start + size
    ids = np.concatenate(partitions)
    for bag in range(count):
        inside = owners == bag
        if not inside.any():
            assert not step.weights_BM[bag].any() and not step.labels_BM[bag].any()
            continue
        real = step.weights_BM[bag] > 0
        labels = step.labels_BM[bag][real].tolist()
        weights = step.weights_BM[bag][real].tolist()
        features = zip(ids[inside].tolist(), shares[inside].round(5).tolist(), strict=True)
        yield sorted(features), [*zip(labels, weights, strict=True)]


@pytest.mark.parametrize("ngrams", [1, 2])
@pytest.mark.parametrize("partitions", [1, 2])
def test_every_example_comes_once_an_epoch(ngrams, partitions):
    examples, weights = make_examples(), np.arange(1, LABELS + 1) / 2
    shape, batches = make(examples, ngrams, all_labels=True, weights=weights, partitions=partitions)
    labels = [
        [(label, label / 2 + 0.5) for label in examples.labels_N[start:stop].tolist()]
        for start, stop in zip(examples.label_starts_E, examples.label_starts_E[1:], strict=False)
    ]
    expected = [
        (shares_of(features_of(text, ngrams)), some)
        for text, some in zip(texts_of(examples), labels, strict=True)
    ]
    found = collections.defaultdict(list)
    for epoch, step in steps_of(batches, range(2)):
        assert step.ids_N.shape == (30,)
        found[epoch] += bags_of(step)
    assert sorted(found[0]) == sorted(found[1]) == sorted(expected)
    assert found[0] != found[1]
    assert [part.shape for part in tf.nest.flatten(shape.spec())] == [
        part.shape for part in tf.nest.flatten(step)
    ]


def test_only_large_steps_have_two_partitions():
    examples, features = make_examples(count=20_000), Features(WORDS, 1, BUCKETS)
    for most, partitions in ((4096, 1), (16_384, 2)):
        shape = bags.make_packing(examples, features, InputConfig(batch_tokens=most), False)
        assert shape.partitions == partitions


def test_no_partition_is_empty():
    examples = make_examples(count=9)
    examples = dataclasses.replace(examples, tokens_M=np.full_like(examples.tokens_M, 7))
    _, batches = make(examples, ngrams=1, partitions=2)
    for _, step in steps_of(batches, range(1)):
        assert step.counts_P2.min(axis=0)[0] >= 1
        assert all(text == [(7, 1.0)] for text, _ in bags_of(step))


def test_a_label_is_drawn_where_there_are_several():
    examples = make_examples(WORDS, longest=2)
    examples = dataclasses.replace(examples, tokens_M=np.arange(WORDS, dtype=np.int32))
    _, batches = make(examples, 1)
    times = collections.Counter()
    for _, step in steps_of(batches, range(40)):
        times.update((ids[0][0], labels[0][0]) for ids, labels in bags_of(step))
    bounds = zip(examples.label_starts_E, examples.label_starts_E[1:], strict=False)
    for word, (start, stop) in enumerate(bounds):
        known = examples.labels_N[start:stop]
        counts = np.array([times[word, label] for label in known])
        assert counts.sum() == 40
        assert (abs(counts - 40 / len(known)) < 4.5 * np.sqrt(40 / len(known))).all()


def test_batches_go_on_where_they_stopped():
    _, batches = make(make_examples())
    whole = [*batches(range(3), 0)]
    rest = [*batches(range(1, 3), 2)]
    assert len(rest) > 3
    for (epoch, found), (other, expected) in zip(rest, whole[-len(rest) :], strict=True):
        assert epoch == other
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, two)


def test_ids_have_the_space_that_they_need():
    examples = make_examples()
    examples = dataclasses.replace(examples, tokens_M=examples.tokens_M // 4)
    (_, batches), (_, tight) = (make(examples, 1, is_tight=is_tight) for is_tight in (False, True))
    sizes = []
    for (_, one), (_, two) in zip(
        steps_of(batches, range(3)), steps_of(tight, range(3)), strict=True
    ):
        sizes.append(len(two.ids_N))
        assert two.counts_P2[:, 0].sum() <= sizes[-1]
        np.testing.assert_array_equal(two.ids_N, one.ids_N[: sizes[-1]])
        for same, other in zip(one[1:], two[1:], strict=True):
            np.testing.assert_array_equal(same, other)
    assert sizes == sorted(sizes) and sizes[-1] < 30 and len({*sizes}) <= 3
    resumed = next(iter(steps_of(tight, range(1, 3), first=1)))[1]
    assert len(resumed.ids_N) == sizes[0]  # whose program is stored


@pytest.mark.parametrize("all_labels", [False, True])
def test_weights_of_texts_and_labels(all_labels):
    examples = make_examples()
    draw = np.random.default_rng(3)
    examples = dataclasses.replace(
        examples,
        weights_E=draw.uniform(0.5, 2, size=len(examples)).astype(np.float32),
        shares_N=draw.uniform(0.1, 1, size=len(examples.labels_N)).astype(np.float32),
    )
    of_labels = np.arange(1, LABELS + 1, dtype=np.float32)
    shape, batches = make(examples, 1, all_labels, weights=of_labels)
    assert shape.has_shares == all_labels and shape.labels == 3
    owners_N = np.repeat(np.arange(len(examples)), examples.label_counts_E)
    shares_N = examples.weights_E[owners_N] * examples.shares_N
    expected = zip(examples.labels_N.tolist(), shares_N, strict=True)
    found, weights = [], []
    for _, step in steps_of(batches, range(1)):
        real_BM = step.weights_BM > 0
        assert real_BM[:, 0].sum() == real_BM.any(axis=1).sum()  # the first is of every text
        labels = step.labels_BM[real_BM]
        shares = step.weights_BM[real_BM] / of_labels[labels]
        found += [*zip(labels.tolist(), shares, strict=True)]
        if all_labels:
            np.testing.assert_allclose(step.shares_BM[real_BM], shares, rtol=1e-6)
            weights += step.text_weights_B[real_BM[:, 0]].tolist()
            assert not step.text_weights_B[~real_BM[:, 0]].any()
        else:
            assert step.shares_BM == step.text_weights_B == ()
    np.testing.assert_allclose(sorted(found), sorted(expected), rtol=1e-6)
    assert sorted(weights) == (sorted(examples.weights_E.tolist()) if all_labels else [])


@pytest.mark.slow
def test_few_examples_have_small_steps():
    features = Features(WORDS, 1, BUCKETS)
    # Older workdirs, with the former defaults of 4,096 and 8,192, have 50 and 25 steps, and resume
    # with as many.
    small = (60, 30, 8, 0), (60, 5, 5, 0), (2000, 4096, 200, 0), (2000, 30, 30, 0)
    large = (2000, 8192, 313, 32), (300_000, 8192, 8110, 176)
    larger = (2000, 16_384, 625, 16), (300_000, 16_384, 14_100, 96)
    for count, most, expected, steps in small + large + larger:
        examples, settings = make_examples(count), InputConfig(batch_tokens=most)
        shape = bags.make_packing(examples, features, settings, all_labels=False)
        sizes_E = features.sizes(examples.lengths_E, most)
        assert shape.features == pytest.approx(expected, rel=0.1)
        assert shape.bags < 1.25 * shape.features * count / sizes_E.sum() + 2
        made = (bags.plan_epoch(sizes_E, shape, 1, 0) >= 0).any(axis=2).sum()
        assert steps - 1 <= made <= (steps or made)


def test_long_texts_are_cut():
    examples = make_examples(longest=60)
    longest = Features(WORDS, 2, BUCKETS).longest(30)
    _, batches = make(examples)
    found = [ids for _, step in steps_of(batches, range(1)) for ids, _ in bags_of(step)]
    assert sorted(found) == sorted(
        shares_of(features_of(text, 2)) for text in texts_of(examples, longest)
    )


def test_steps_are_filled():
    sizes_E = np.random.default_rng(0).integers(1, 30, size=5000)
    shape = Packing(steps=4, features=1000, bags=90, labels=1)
    planned = bags.plan_epoch(sizes_E, shape, seed=1, epoch=0)
    flat = planned.reshape(-1, 90)
    assert sorted(flat[flat >= 0]) == [*range(5000)]
    of_steps = np.where(flat >= 0, sizes_E[flat], 0).sum(axis=1)
    assert (of_steps <= 1000).all() and of_steps[: sizes_E.sum() // 1000 - 2].mean() > 980
    # No room for so many texts of one word.
    planned = bags.plan_epoch(np.ones(500, int), shape, seed=1, epoch=0)
    assert (planned >= 0).sum(axis=2).max() == 90 and (planned >= 0).sum() == 500


def test_the_number_of_batches_is_about_as_expected():
    examples, features = make_examples(2000), Features(WORDS, 2, BUCKETS)
    for settings, off in (InputConfig(batch_tokens=300), 1), (InputConfig(batch_tokens=8192), 0):
        shape = bags.make_packing(examples, features, settings, all_labels=False)
        planned = bags.plan_epoch(features.sizes(examples.lengths_E, 300), shape, 1, 0)
        assert abs(len(planned) - bags.estimate_batches(examples, features, settings, shape)) <= off


def test_a_step_with_micro_batches_has_them_side_by_side():
    examples = make_examples()
    texts, found = encode(examples, Features(WORDS, 1, BUCKETS), 30), []
    for micro in (1, 2):
        shape = Packing(steps=4, features=30, bags=9, labels=1, micro=micro)
        batches = bags.make_batches(examples, texts, shape, np.ones(LABELS), InputConfig(), 7)
        found.append([data for _, data in batches(range(1), 0)])
    for one, two in zip(*found, strict=True):
        for whole, halves, spec in zip(
            tf.nest.flatten(one), tf.nest.flatten(two), tf.nest.flatten(shape.spec()), strict=True
        ):
            assert halves.shape == (2, 2 * spec.shape[0], *spec.shape[1:])
            np.testing.assert_array_equal(whole, np.reshape(halves, whole.shape))


# The features of texts against plain Python, and that long texts are cut.


def encoded(texts):
    """The (feature, share) pairs of each text."""
    return [
        [*zip(texts.ids_F[i:j].tolist(), texts.shares_F[i:j].round(5).tolist(), strict=True)]
        for i, j in zip(texts.starts_E, texts.starts_E[1:], strict=False)
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
