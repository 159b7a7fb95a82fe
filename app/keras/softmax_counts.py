"""How often each word of an output layer occurs, and its rank by that."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np


def checked(counts: Any, words: int, layer: str) -> np.ndarray:
    """The counts as (V,) int64; ValueError, which names the layer, if they are not such."""
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
    """Counts under Zipf's law for ids by descending frequency: id i in proportion to 1 / (i + 1).

    (V,) float64, the least of them 1.
    """
    return words / np.arange(1.0, words + 1.0)


def order(counts_V: np.ndarray) -> np.ndarray | None:
    """The ids by descending count, (V,) int32; None if they already are in that order."""
    if (counts_V[1:] <= counts_V[:-1]).all():
        return None
    return np.argsort(-counts_V, kind="stable").astype(np.int32)


def inverse(order_V: np.ndarray) -> np.ndarray:
    """The rank of each id, (V,) int32, where order_V holds the id of each rank."""
    rank_V = np.empty_like(order_V)
    rank_V[order_V] = np.arange(len(order_V), dtype=order_V.dtype)
    return rank_V


def packed(counts_V: np.ndarray) -> str:
    """The counts as text for a layer's config: ten million of a text's by rank take about 50 kB.

    Differences, as those of sorted counts are mostly 0; compressed by zlib; in base64.
    """
    steps_V = np.diff(counts_V, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(steps_V.tobytes())).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """The counts that `packed` was given."""
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8"))
