"""Metrics of predicted labels: accuracy, and precision, recall and F1 of each label.

If every text has one label, the most probable label is predicted. If some texts have several,
precision and recall at 1 judge the most probable label (P@1 and R@1 of fastText's `test`). The
other metrics then judge all labels with a probability of 0.5 or more; with a softmax, the most
probable label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def best_labels(
    chances_NC: np.ndarray, labels: Sequence[str], k: int, threshold: float
) -> Iterator[list[tuple[str, float]]]:
    """Yield for each text its k most probable labels of at least a probability, the best first."""
    order_NK = np.argsort(-chances_NC, axis=1, kind="stable")[:, :k].tolist()
    for chances_C, order_K in zip(chances_NC, order_NK, strict=True):
        yield [(labels[c], float(chances_C[c])) for c in order_K if chances_C[c] >= threshold]


class Scores(NamedTuple):
    """Precision, recall and F1, numbers or arrays (C,); 0 where undefined, as in scikit-learn.

    Attributes:
        precision: Correct predictions, as a share of the predictions.
        recall: Correct predictions, as a share of the actual labels.
        f1: Harmonic mean of both.
    """

    precision: Any
    recall: Any
    f1: Any


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
        totals = _scores(tally.right_C.sum(), tally.predicted_C.sum(), tally.labels)._asdict()
        scores |= {name: float(value) for name, value in totals.items()}
    present_C = tally.actual_C + tally.predicted_C > 0
    return scores | {
        f"macro_{name}": float(score_C[present_C].mean()) if present_C.any() else 0.0
        for name, score_C in score_labels(tally)._asdict().items()
    }


def score_labels(tally: Tally) -> Scores:
    """Return the precision, recall and F1 of each label, (C,) each, in the order of their ids."""
    return _scores(tally.right_C, tally.predicted_C, tally.actual_C)


def format_table(tally: Tally, labels: Sequence[str]) -> str:
    """Return a table of the scores of the first 50 labels, and the metrics of all texts."""
    rows: list[tuple[str, ...]] = [("label", *Scores._fields, "texts")]
    scored = [*zip(labels, tally.actual_C, *score_labels(tally), strict=True)]
    for label, count, *scores in scored[:_SHOWN]:
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
    columns = (part_C.tolist() for part_C in (*score_labels(tally), tally.actual_C))
    names = *Scores._fields, "texts"
    label_scores = {
        label: dict(zip(names, values, strict=True))
        for label, *values in zip(labels, *columns, strict=True)
    }
    return {"texts": tally.texts, **compute_metrics(tally), "labels": label_scores}


def _scores(right: Any, predicted: Any, actual: Any) -> Scores:
    """Return the scores for counts of correct predictions, all predictions and actual labels."""
    both = np.maximum(predicted + actual, 1)
    precision, recall = right / np.maximum(predicted, 1), right / np.maximum(actual, 1)
    return Scores(precision, recall, 2 * right / both)
