"""The counts of the words of an output layer, and their ranks by count."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np


def checked(counts: Any, words: int, layer: str) -> np.ndarray:
    """Return the counts as int64 (V,), after a check of their shape and values.

    Args:
        counts: The counts as the user gave them.
        words: The number of words V.
        layer: The name of the layer, for messages.

    Raises:
        ValueError: The shape is wrong, or a count is negative or not a whole number.
    """
    given_V = np.asarray(counts)
    if given_V.shape != (words,):
        raise ValueError(
            f"{layer}: counts are of shape {given_V.shape}; give one for each of the "
            f"{words:,} words of vocabulary_size, shape ({words},)"
        )
    counts_V = given_V.astype(np.int64)
    if (counts_V != given_V).any() or (counts_V < 0).any():
        wrong = given_V[(counts_V != given_V) | (counts_V < 0)][0]
        raise ValueError(f"{layer}: counts hold {wrong}; give numbers of occurrences, 0, 1, 2, …")
    return counts_V


def zipf(words: int) -> np.ndarray:
    """Return counts by Zipf's law, in proportion to 1 / (i + 1) for id i.

    Args:
        words: The number of words V.

    Returns:
        Float64 (V,), the smallest 1.
    """
    return words / np.arange(1.0, words + 1.0)


def order(counts_V: np.ndarray) -> np.ndarray | None:
    """Return the ids by descending count, int32 (V,), or None if they already have that order.

    Ids with the same count stay in ascending order.

    Args:
        counts_V: The count of each id.
    """
    if (counts_V[1:] <= counts_V[:-1]).all():
        return None
    return np.argsort(-counts_V, kind="stable").astype(np.int32)


def inverse(order_V: np.ndarray) -> np.ndarray:
    """Return the rank of each id, int32 (V,).

    Args:
        order_V: The id of each rank.
    """
    rank_V = np.empty_like(order_V)
    rank_V[order_V] = np.arange(len(order_V), dtype=order_V.dtype)
    return rank_V


def packed(counts_V: np.ndarray) -> str:
    """Return counts as text for the configuration of a layer.

    The text is base64 of the differences, compressed by zlib. Differences of sorted counts are
    mostly 0, so the counts of ten million words of a text take about 50 kB.

    Args:
        counts_V: The count of each id, int64.
    """
    steps_V = np.diff(counts_V, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(steps_V.tobytes())).decode("ascii")


def unpacked(text: str, words: int) -> np.ndarray:
    """Return the counts in a text made by `packed`, int64 (V,).

    Args:
        text: The text, which may come from anybody.
        words: The number of words V; nothing is unpacked beyond as many counts.

    Raises:
        ValueError: It is no such text, or has another number of counts.
    """
    size = 8 * words
    try:
        # A limit of 0 would be none.
        data = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except (TypeError, ValueError, OverflowError, zlib.error) as error:
        raise ValueError(f"the counts of a saved layer are damaged: {error}") from error
    if len(data) != size:
        raise ValueError(f"the counts of a saved layer are not those of its {words:,} words")
    return np.cumsum(np.frombuffer(data, "<i8"))
