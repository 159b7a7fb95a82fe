"""The mean of a bag's rows against numpy, and that padding moves nothing."""

import numpy as np
import pytest
import tensorflow as tf

from app.input.bags import Bags
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.one_vs_all import OneVsAll
from app.models.bag import Bag
from app.optimizers.adam import lazy_adam
from app.optimizers.sgd import sgd
from app.training.step import train_function
from tests.reference.tables import random_tables

WORDS, DIM, LABELS, RATE = 12, 6, 3, 0.1
TEXTS = [([1, 2, 2], 0), ([3], 2), ([1, 5, 2, 9], 1)]


def make_bags(texts, size=12, count=5, partitions=1):
    """A call of one step; the rest of it is padding."""
    ids, entries, shares = np.zeros(size), np.zeros((size, 2)), np.zeros(size)
    labels, weights = np.zeros((count, 1)), np.zeros((count, 1))
    unique = sorted({word for text, _ in texts for word in text} or range(partitions))
    by_partition = [unique[partition::partitions] for partition in range(partitions)]
    ids[: len(unique)] = sum(by_partition, [])
    counts, place = np.zeros((partitions, 2)), 0
    for partition, of_partition in enumerate(by_partition):
        counts[partition, 0] = len(of_partition)
        for bag, (text, _) in enumerate(texts):
            for word in sorted({*text} & {*of_partition}):
                entries[place] = bag, of_partition.index(word)
                shares[place] = text.count(word) / len(text)
                counts[partition, 1] += 1
                place += 1
    for bag, (_, label) in enumerate(texts):
        labels[bag], weights[bag] = label, 1
    parts = ids, counts, entries, shares, labels, weights
    dtypes = np.int32, np.int32, np.int32, np.float32, np.int32, np.float32
    return Bags(*(tf.constant(x.astype(d))[None] for x, d in zip(parts, dtypes, strict=True)))


def trained(output, data, optimizer, steps=1, micro_batches=1, by_xla=False):
    """The loss and the number of texts of the first step, and the tables before and after."""
    model = Bag(WORDS, DIM, output, seed=3)
    tables = random_tables(model.tables(), optimizer.slots, seed=1)
    before = {name: table.gather(tf.range(table.rows)).numpy() for name, table in tables.items()}
    function = train_function(model, tables, optimizer, 1, micro_batches, by_xla)
    for step in range(steps):
        total, examples = function(data, tf.constant(step, tf.int64), tf.constant(RATE))
    assert not by_xla or function.is_by_xla
    after = {name: table.gather(tf.range(table.rows)).numpy() for name, table in tables.items()}
    return float(total), float(examples), before, after


def expected(before, activation):
    """The loss and its gradients."""
    rows, outputs = before["input"], before["output"]
    by_rows, by_outputs, loss = np.zeros_like(rows), np.zeros_like(outputs), 0.0
    for text, label in TEXTS:
        hidden = rows[text].mean(axis=0)
        scores, there = outputs @ hidden, np.eye(LABELS)[label]
        if activation == "softmax":
            chances = np.exp(scores) / np.exp(scores).sum()
            loss -= np.log(chances[label])
        else:
            chances = 1 / (1 + np.exp(-scores))
            loss -= (there * np.log(chances) + (1 - there) * np.log(1 - chances)).sum()
        by_outputs += np.outer(chances - there, hidden)
        np.add.at(by_rows, text, (chances - there) @ outputs / len(text))
    return loss, by_rows, by_outputs


SOFTMAX, ONE_VS_ALL = (ClassSoftmax(LABELS, DIM), "softmax"), (OneVsAll(LABELS, DIM), "sigmoid")


@pytest.mark.parametrize(
    ("output", "activation", "by_xla", "partitions"),
    [
        *((*SOFTMAX, False, 1), (*ONE_VS_ALL, False, 2), (*ONE_VS_ALL, True, 1)),
        pytest.param(*ONE_VS_ALL, True, 2, marks=pytest.mark.slow),
    ],
    ids=["softmax-1", "one_vs_all-2", "one_vs_all_by_xla-1", "one_vs_all_by_xla-2"],
)
def test_a_step(output, activation, by_xla, partitions):
    bags = make_bags(TEXTS, partitions=partitions)
    loss, texts, before, after = trained(output, bags, sgd(), by_xla=by_xla)
    assert texts == len(TEXTS)
    value, by_rows, by_outputs = expected(before, activation)
    np.testing.assert_allclose(loss, value, rtol=1e-5)
    for name, gradient in (("input", by_rows), ("output", by_outputs)):
        change = after[name] - before[name]
        np.testing.assert_allclose(change, -RATE * gradient, rtol=1e-3, atol=1e-6)
    idle = np.setdiff1d(np.arange(WORDS), sum((text for text, _ in TEXTS), []))
    assert 0 in idle  # which padding looks up
    np.testing.assert_array_equal(after["input"][idle], before["input"][idle])


# Weights of the labels of three texts, and the weights of the texts.
TARGETS = np.array([[0.7, 0.3, 0], [0, 0, 1], [0, 0.25, 0.5]], np.float32)
TEXT_WEIGHTS = np.array([2, 0.5, 1], np.float32)


def make_weighted(texts, targets, text_weights, all_labels, of_labels=(1, 1, 1)):
    """A call of one step of texts with weights, as `_Packer` makes it."""
    plain = make_bags([(text, 0) for text, _ in texts])
    labels, weights, shares = (np.zeros((1, 5, 2), np.float32) for _ in range(3))
    by_text = np.zeros((1, 5), np.float32)
    for bag, (row, weight) in enumerate(zip(targets, text_weights, strict=True)):
        for place, label in enumerate(np.flatnonzero(row)):
            labels[0, bag, place] = label
            shares[0, bag, place] = weight * row[label]
            weights[0, bag, place] = of_labels[label] * shares[0, bag, place]
        by_text[0, bag] = weight
    bags = plain._replace(
        labels_BM=tf.constant(labels.astype(np.int32)), weights_BM=tf.constant(weights)
    )
    if not all_labels:
        return bags
    return bags._replace(text_weights_B=tf.constant(by_text), shares_BM=tf.constant(shares))


@pytest.mark.parametrize("of_labels", [(1, 1, 1), (3, 0.5, 2)])
@pytest.mark.parametrize("name", ["softmax", "one_vs_all"])
def test_weights_of_texts_and_labels(name, of_labels):
    is_softmax, of_labels = name == "softmax", np.array(of_labels, np.float32)
    output = ClassSoftmax(LABELS, DIM) if is_softmax else OneVsAll(LABELS, DIM)
    data = make_weighted(TEXTS, TARGETS, TEXT_WEIGHTS, not is_softmax, of_labels)
    loss, texts, before, after = trained(output, data, sgd())
    rows, outputs = before["input"], before["output"]
    by_rows, by_outputs, value = np.zeros_like(rows), np.zeros_like(outputs), 0.0
    for (text, _), target, weight in zip(TEXTS, TARGETS, TEXT_WEIGHTS, strict=True):
        hidden = rows[text].mean(axis=0)
        scores, there = outputs @ hidden, weight * of_labels * target
        if is_softmax:
            chances = np.exp(scores) / np.exp(scores).sum()
            value -= (there * np.log(chances)).sum()
            error = there.sum() * chances - there
        else:
            chances, absent = 1 / (1 + np.exp(-scores)), weight * (1 - target)
            value -= (there * np.log(chances) + absent * np.log(1 - chances)).sum()
            error = absent * chances - there * (1 - chances)
        by_outputs += np.outer(error, hidden)
        np.add.at(by_rows, text, error @ outputs / len(text))
    assert texts == len(TEXTS)
    np.testing.assert_allclose(loss, value, rtol=1e-5)
    for table, gradient in (("input", by_rows), ("output", by_outputs)):
        change = after[table] - before[table]
        np.testing.assert_allclose(change, -RATE * gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_micro_batches_of_two_partitions():
    halves = [make_bags(texts, partitions=2) for texts in (TEXTS[:2], TEXTS[2:])]
    both = Bags(
        *(
            tf.concat(parts, axis=1)
            for parts in zip(*halves, strict=True)
            if not isinstance(parts[0], tuple)
        )
    )
    output = ClassSoftmax(LABELS, DIM)
    _, texts, _, parted = trained(output, both, sgd(), micro_batches=2)
    assert texts == len(TEXTS)
    *_, whole = trained(output, make_bags(TEXTS), sgd())
    for name in whole:
        np.testing.assert_allclose(parted[name], whole[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_step_of_padding_moves_nothing(partitions):
    output, data = OneVsAll(LABELS, DIM), make_bags([], partitions=partitions)
    loss, texts, before, after = trained(output, data, lazy_adam(), steps=2)
    assert loss == texts == 0
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
