"""Lists of texts and of labels that a program gives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def as_texts(X: Iterable[str]) -> list[str]:
    """Return texts as a list.

    Raises:
        ValueError: X is one string or not iterable, or an item is no string.
    """
    if isinstance(X, str):
        raise ValueError("X is one string; give a list of texts")
    if not isinstance(X, Iterable):
        raise ValueError(f"X is {type(X).__name__}; give a list of texts")
    texts = np.asarray(X, object).tolist() if hasattr(X, "__array__") else list(X)
    wrong = next((place for place, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"X[{wrong}] is {type(texts[wrong]).__name__}, and not a text")
    return texts


def as_training_texts(X: Iterable[str]) -> list[str]:
    """Return texts to train on, as a list.

    Raises:
        ValueError: As for `as_texts`, or no text has a word.
    """
    texts = as_texts(X)
    if not any(map(str.strip, texts)):
        raise ValueError("X: no text has a word; give texts of words")
    return texts


def check_labels(y: Iterable) -> None:
    """Raise ValueError if a label is None or NaN.

    Args:
        y: The labels.
    """
    for place, label in enumerate(np.asarray(y, object).ravel()):
        if label is None or (isinstance(label, (float, np.floating)) and np.isnan(label)):
            raise ValueError(f"y[{place}] is no label, but None or NaN; give each text a label")


def as_bytes(X: Iterable[str]) -> list[bytes]:
    """Return texts in UTF-8.

    Raises:
        ValueError: As for `as_texts`.
    """
    return [text.encode("utf-8", "replace") for text in as_texts(X)]
