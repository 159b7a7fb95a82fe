"""How well labels are predicted: accuracy, and precision, recall and F1 of each label.

Where every text has one label, the likeliest is predicted. Where some have several, precision and
recall at 1 are those of the likeliest label (P@1 and R@1 of fastText's `test`), and the rest is of
all labels with a probability of 0.5 or more, or, of a softmax, of the likeliest again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_LIKELY = 0.5
_SHOWN = 50  # labels in a table


class Tally(NamedTuple):
    """What was predicted of some texts; of several Tallies each field adds up.

    texts: their number. first: texts whose likeliest label is one of theirs. labels: of the texts,
    those that training never saw included. several: texts with more than one. right_C, predicted_C,
    actual_C: how often each label was predicted rightly, was predicted, and was there, (C,) int64.
    """

    texts: int
    first: int
    labels: int
    several: int
    right_C: np.ndarray
    predicted_C: np.ndarray
    actual_C: np.ndarray


class Scores(NamedTuple):
    """Of what was predicted, the share that is right; of what is there, the share that was found;
    and their harmonic mean. 0 where there is nothing to have a share of, as in scikit-learn.
    """

    precision: float
    recall: float
    f1: float


def count_predictions(
    probabilities_EC: np.ndarray, labels_N: np.ndarray, counts_E: np.ndarray, each: bool
) -> Tally:
    """Counts what is predicted of E texts.

    labels_N: the labels of one text after the other, -1 for one that training never saw. counts_E:
    labels of each text. each: whether all likely labels are predicted, or the likeliest alone.
    """
    texts, labels = probabilities_EC.shape
    first_E = probabilities_EC.argmax(axis=1)
    actual_EC = np.zeros((texts, labels + 1), bool)  # the last column is for labels that are -1
    actual_EC[np.repeat(np.arange(texts), counts_E), labels_N] = True
    actual_EC = actual_EC[:, :-1]
    predicted_EC = probabilities_EC >= _LIKELY
    if not each:
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


def compute_metrics(found: Tally) -> dict[str, float]:
    """The scores of all texts by name, the one to go by first.

    Macro scores are means over the labels that are there or were predicted.
    """
    at_1 = found.first / max(found.texts, 1)
    scores = {"accuracy": at_1}
    if found.several:
        scores = {"precision_at_1": at_1, "recall_at_1": found.first / max(found.labels, 1)}
        scores |= _scores(found.right_C.sum(), found.predicted_C.sum(), found.labels)._asdict()
    there_C = found.actual_C + found.predicted_C > 0
    macro = np.array([*score_labels(found)])[there_C].mean(axis=0) if there_C.any() else np.zeros(3)
    return scores | {
        f"macro_{name}": float(score) for name, score in zip(Scores._fields, macro, strict=True)
    }


def score_labels(found: Tally) -> list[Scores]:
    """The scores of each label."""
    counts = found.right_C, found.predicted_C, found.actual_C
    return [_scores(*of_label) for of_label in zip(*counts, strict=True)]


def format_table(found: Tally, labels: Sequence[str]) -> str:
    """The scores of all texts, and those of each of the first labels, for people."""
    rows = [("label", *Scores._fields, "texts")]
    each = zip(labels, score_labels(found), found.actual_C.tolist(), strict=True)
    for label, scores, count in list(each)[:_SHOWN]:
        rows.append((label, *(f"{score:.4f}" for score in scores), f"{count:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([label.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])
        for label, *cells in rows
    ]
    if len(labels) > _SHOWN:
        lines.append(f"({len(labels) - _SHOWN:,} labels more)")
    scores = (
        f"{name.replace('_', ' ')} {score:.4f}" for name, score in compute_metrics(found).items()
    )
    return "\n".join([*lines, f"{found.texts:,} texts: {', '.join(scores)}"])


def summary(found: Tally, labels: Sequence[str]) -> dict[str, Any]:
    """The same as plain values, for JSON."""
    each = zip(labels, score_labels(found), found.actual_C.tolist(), strict=True)
    of_labels = {label: {**scores._asdict(), "texts": count} for label, scores, count in each}
    return {"texts": found.texts, **compute_metrics(found), "labels": of_labels}


def _scores(right: int, predicted: int, actual: int) -> Scores:
    return Scores(
        float(right / max(predicted, 1)),
        float(right / max(actual, 1)),
        float(2 * right / max(predicted + actual, 1)),
    )
