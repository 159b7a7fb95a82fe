"""Scores of labels against loops over the texts."""

import numpy as np
import pytest

from app.tasks.classify import label_metrics
from app.tasks.classify.label_metrics import Tally

LABELS = 4
NAMES = ["a", "b", "c", "d"]


def make(several, count=200, seed=0):
    """Probabilities, and the labels of each text; some have one that training never saw."""
    draw = np.random.default_rng(seed)
    chances_EC = draw.uniform(size=(count, LABELS)) * [1, 1, 1, 0.1]
    labels = [
        draw.permutation(np.arange(-1, LABELS - 1))[: draw.integers(1, 3) if several else 1]
        for _ in range(count)
    ]
    return chances_EC, labels


def tallied(chances_EC, labels, each):
    flat, counts = np.concatenate(labels), np.array([*map(len, labels)])
    return label_metrics.count_predictions(chances_EC, flat, counts, each)


def by_hand(chances_EC, labels, each):
    """(right, predicted, actual) of each label."""
    counts = np.zeros((LABELS, 3), int)
    for chances, some in zip(chances_EC, labels, strict=True):
        predicted = set(np.flatnonzero(chances >= 0.5)) if each else {int(np.argmax(chances))}
        for label in range(LABELS):
            hits = label in predicted and label in some, label in predicted, label in some
            counts[label] += hits
    return counts


@pytest.mark.parametrize(("several", "each"), [(False, False), (True, False), (True, True)])
def test_scores(several, each):
    chances_EC, labels = make(several)
    found, counts = tallied(chances_EC, labels, each), by_hand(chances_EC, labels, each)
    np.testing.assert_array_equal([found.right_C, found.predicted_C, found.actual_C], counts.T)
    right, (predicted, actual) = counts[:, 0], np.maximum(counts.T[1:], 1e-9)
    precision, recall = right / predicted, right / actual
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
    scores = label_metrics.score_labels(found)
    np.testing.assert_allclose(scores, [precision, recall, f1], atol=1e-6)
    values = label_metrics.compute_metrics(found)
    hits = np.mean([np.argmax(c) in some for c, some in zip(chances_EC, labels, strict=True)])
    assert values[next(iter(values))] == pytest.approx(hits)
    # Of a label that is neither there nor predicted, nothing is to be said.
    there = (counts[:, 1] + counts[:, 2]) > 0
    assert values["macro_f1"] == pytest.approx(f1[there].mean(), abs=1e-6)
    if several:
        total = sum(map(len, labels))  # those that training never saw count as missed
        assert values["recall_at_1"] == pytest.approx(hits * 200 / total)
        assert values["recall"] == pytest.approx(counts[:, 0].sum() / total)
        assert values["precision"] == pytest.approx(counts[:, 0].sum() / counts[:, 1].sum())
    else:
        assert set(values) == {"accuracy", "macro_precision", "macro_recall", "macro_f1"}


def test_parts_add_up():
    chances_EC, labels = make(several=True)
    parts = [tallied(chances_EC[part], labels[part], True) for part in (slice(70), slice(70, 200))]
    whole = tallied(chances_EC, labels, True)
    for one, two in zip(Tally(*map(sum, zip(*parts, strict=True))), whole, strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_is_told():
    chances_EC = np.array([[0.9, 0.1, 0, 0], [0.8, 0.2, 0, 0], [0.3, 0.7, 0, 0]])
    found = tallied(chances_EC, [[0], [1], [-1]], each=False)
    assert label_metrics.format_table(found, NAMES).splitlines() == [
        "label  precision  recall      f1  texts",
        "a         0.5000  1.0000  0.6667      1",
        "b         0.0000  0.0000  0.0000      1",
        "c         0.0000  0.0000  0.0000      0",
        "d         0.0000  0.0000  0.0000      0",
        "3 texts: accuracy 0.3333, macro precision 0.2500, macro recall 0.5000, macro f1 0.3333",
    ]
    summary = label_metrics.summary(found, NAMES)
    assert summary["accuracy"] == pytest.approx(1 / 3)
    assert summary["labels"]["a"] == {"precision": 0.5, "recall": 1, "f1": 2 / 3, "texts": 1}


def test_many_labels_are_not_all_shown():
    found = tallied(np.eye(99), [[label] for label in range(99)], each=False)
    lines = label_metrics.format_table(found, [f"l{number}" for number in range(99)]).splitlines()
    assert len(lines) == 53 and lines[-2] == "(49 more labels)"
