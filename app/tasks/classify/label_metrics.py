"""Metrics of predicted labels: accuracy, and precision, recall and F1 of each label.

If every text has one label, the most probable label is predicted. If some texts have several,
precision and recall at 1 judge the most probable label (P@1 and R@1 of fastText's `test`). The
other metrics then judge all labels with a probability of 0.5 or more; with a softmax, the most
probable label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...system.console import aligned

_LIKELY = 0.5
_SHOWN = 50  # labels in a table


class Tally(NamedTuple):
    """Counts of predictions. The Tally of several parts is the sum of each field.

    Attributes:
        texts: Number of texts.
        first: Number of texts whose most probable label is one of their labels.
        labels: Number of labels of all texts, including labels that training never saw.
        several: Number of texts with more than one label.
        right_C: Correct predictions of each label, (C,) int64.
        predicted_C: Predictions of each label, (C,) int64.
        actual_C: Texts with each label, (C,) int64.
    """

    texts: int
    first: int
    labels: int
    several: int
    right_C: np.ndarray
    predicted_C: np.ndarray
    actual_C: np.ndarray


class Scores(NamedTuple):
    """Precision, recall and F1; 0 where undefined, as in scikit-learn.

    Attributes:
        precision: Correct predictions, as a share of the predictions.
        recall: Correct predictions, as a share of the actual labels.
        f1: Harmonic mean of both.
    """

    precision: float
    recall: float
    f1: float


def count_predictions(
    probabilities_EC: np.ndarray, labels_N: np.ndarray, counts_E: np.ndarray, multi_label: bool
) -> Tally:
    """Compare the predicted with the actual labels of E texts, and return the counts.

    Args:
        probabilities_EC: Probability of each label.
        labels_N: Label ids of one text after the other; -1 for labels that training never saw.
        counts_E: Number of labels of each text.
        multi_label: Whether to predict all labels of probability 0.5 or more, instead of the most
            probable.
    """
    texts, labels = probabilities_EC.shape
    first_E = probabilities_EC.argmax(axis=1)
    actual_EC = np.zeros((texts, labels + 1), bool)  # label -1 is the last column
    actual_EC[np.repeat(np.arange(texts), counts_E), labels_N] = True
    actual_EC = actual_EC[:, :-1]
    predicted_EC = probabilities_EC >= _LIKELY
    if not multi_label:
        predicted_EC = first_E[:, np.newaxis] == np.arange(labels)
    return Tally(
        texts,
        int(actual_EC[np.arange(texts), first_E].sum()),
        len(labels_N),
        int((counts_E > 1).sum()),
        (actual_EC & predicted_EC).sum(axis=0),
        predicted_EC.sum(axis=0),
        actual_EC.sum(axis=0),
    )


def compute_metrics(tally: Tally) -> dict[str, float]:
    """Return the metrics of all texts by name, the main one first.

    The main one is the accuracy; if a text has several labels, it is precision at 1, and recall at
    1, precision, recall and F1 follow. Macro scores are means over the labels that are present or
    were predicted. A metric of no text is 0.
    """
    at_1 = tally.first / max(tally.texts, 1)
    scores = {"accuracy": at_1}
    if tally.several:
        scores = {"precision_at_1": at_1, "recall_at_1": tally.first / max(tally.labels, 1)}
        scores |= _scores(tally.right_C.sum(), tally.predicted_C.sum(), tally.labels)._asdict()
    present_C = tally.actual_C + tally.predicted_C > 0
    macro = (
        np.array([*score_labels(tally)])[present_C].mean(axis=0) if present_C.any() else np.zeros(3)
    )
    return scores | {
        f"macro_{name}": float(score) for name, score in zip(Scores._fields, macro, strict=True)
    }


def score_labels(tally: Tally) -> list[Scores]:
    """Return the precision, recall and F1 of each label, in the order of the label ids."""
    counts = tally.right_C, tally.predicted_C, tally.actual_C
    return [_scores(*of_label) for of_label in zip(*counts, strict=True)]


def format_table(tally: Tally, labels: Sequence[str]) -> str:
    """Return a table of the scores of the first 50 labels, and the metrics of all texts."""
    rows: list[tuple[str, ...]] = [("label", *Scores._fields, "texts")]
    scored_labels = zip(labels, score_labels(tally), tally.actual_C.tolist(), strict=True)
    for label, scores, count in list(scored_labels)[:_SHOWN]:
        rows.append((label, *(f"{score:.4f}" for score in scores), f"{count:,}"))
    lines = aligned(rows, "<>>>>")
    if len(labels) > _SHOWN:
        lines.append(f"({len(labels) - _SHOWN:,} more labels)")
    metrics = (
        f"{name.replace('_', ' ')} {score:.4f}" for name, score in compute_metrics(tally).items()
    )
    return "\n".join([*lines, f"{tally.texts:,} texts: {', '.join(metrics)}"])


def summary(tally: Tally, labels: Sequence[str]) -> dict[str, Any]:
    """Return the metrics of all texts and of each label as values for JSON."""
    scored_labels = zip(labels, score_labels(tally), tally.actual_C.tolist(), strict=True)
    label_scores = {
        label: {**scores._asdict(), "texts": count} for label, scores, count in scored_labels
    }
    return {"texts": tally.texts, **compute_metrics(tally), "labels": label_scores}


def _scores(right: int, predicted: int, actual: int) -> Scores:
    """Return the scores for counts of correct predictions, all predictions and actual labels."""
    return Scores(
        float(right / max(predicted, 1)),
        float(right / max(actual, 1)),
        float(2 * right / max(predicted + actual, 1)),
    )
