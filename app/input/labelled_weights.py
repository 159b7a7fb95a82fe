"""Weights of labelled texts and of their labels: marks such as `__weight__0.5` and `good:0.7`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# No text counts for more than a million others.
MOST_WEIGHT = 1e6


def parse_weight(text: str, most: float = MOST_WEIGHT) -> float | None:
    """Return the number that a text is, from 0 to `most`, or None.

    Args:
        text: The text.
        most: The largest weight.
    """
    try:
        weight = float(text) if "_" not in text else math.nan  # Python reads 1_0 as 10
    except ValueError:
        return None
    return weight if 0 <= weight <= most else None


def parse_label(label: str) -> tuple[str, float | None]:
    """Return the name of a label `name:weight` and its weight, from 0 to 1; None if it is wrong.

    A label without a colon has the weight 1.

    Args:
        label: The label, without its prefix. The last colon counts.
    """
    name, colon, number = label.rpartition(":")
    if not colon:
        return label, 1.0
    return name, parse_weight(number, 1.0) if name else None


def fault(weights: Sequence[str], labels: Sequence[str]) -> tuple[str, bool] | None:
    """Return an error message for the first wrong weight of a text, and whether a label has it.

    Return None if no weight is wrong.

    Args:
        weights: The weights that are given for the text, at most one.
        labels: Its labels `name:weight`.
    """
    for weight in weights:
        if parse_weight(weight) is None:
            message = f"the weight {weight[:40]!r} is not a number from 0 to {MOST_WEIGHT:,.0f}"
            return message, False
    if len(weights) > 1:
        return f"has {len(weights)} weights", False
    for label in labels:
        if parse_label(label)[1] is None:
            message = f"the label {label[:40]!r} has no number from 0 to 1 after its last colon"
            return message, True
    return None


def text_weights(weights_K: np.ndarray, owners_K: np.ndarray, count: int) -> np.ndarray | None:
    """Return the weight of each text, (count,) float32, 1 where none is given; None for a fault.

    Args:
        weights_K: Weights as bytes.
        owners_K: The text number of each weight.
        count: The number of texts.
    """
    weights_E = np.ones(count, np.float32)
    for weight, owner in zip(weights_K.tolist(), owners_K.tolist(), strict=True):
        parsed = parse_weight(weight.decode())
        if parsed is None:
            return None
        weights_E[owner] = parsed
    return None if len(owners_K) > len(np.unique(owners_K)) else weights_E
