"""Pairs of a held-out word and another one, with their similarity in the corpus.

As in the Rare Word data set (Luong et al. 2013), each pair has a word that a model has hardly seen;
here it has not seen it at all. No person judges the pairs. Their similarity is the cosine of the
contexts of both words in the whole corpus, by positive pointwise mutual information (PPMI, Levy
et al. 2015, with their smoothing of contexts by the power 0.75). The words are then taken out of
the text that all sides train on.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

# Held out: often enough for a similarity, too rare to change the vectors of other words much.
_LEAST, _MOST, _LETTERS, _HELD_OUT = 50, 500, 6, 500
# The words that pairs are made with, and the places of a pair's words among them by similarity.
_PARTNERS, _PLACES = 2000, (0, 9, 99, 999)
# Contexts: words within this distance, of these ranks by frequency.
_WINDOW, _CONTEXTS = 5, slice(50, 2050)
_SMOOTHING = 0.75


def hold_out(source: Path, text: Path, pairs: Path) -> int:
    """Write a text without some words, and pairs of these words with others.

    Args:
        source: The whole text, words with spaces between them.
        text: The file for the text without the words.
        pairs: The file for the pairs: two words and their similarity, with spaces between them.

    Returns:
        The number of words that were taken out, 0 if the text is too short for any.
    """
    tally = collections.Counter(itertools.chain.from_iterable(_lines(source))).most_common()
    rare, partners = _choose(tally)
    similarity_RP = _similarities(source, tally, rare, partners)
    with open(pairs, "w", encoding="utf-8") as file:
        for number, word in enumerate(rare):
            order = np.argsort(-similarity_RP[number], kind="stable")
            for other in (order[place] for place in _PLACES if place < len(order)):
                similarity = f"{similarity_RP[number, other]:.6f}"
                print(tally[word][0], tally[partners[other]][0], similarity, file=file)
    names = {tally[word][0] for word in rare}
    with open(text, "w", encoding="utf-8") as file:
        for words in _lines(source):
            file.write(" ".join(word for word in words if word not in names) + "\n")
    return len(rare)


def _lines(source: Path) -> Iterator[list[str]]:
    """Yield the words of each line of a text."""
    with open(source, encoding="utf-8", newline="\n") as file:
        yield from map(str.split, file)


def _choose(tally: Sequence[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the words to hold out and of the words to pair them with, rising.

    Both are evenly spaced by frequency, and have only letters.
    """
    words = list(enumerate(tally))
    frequent = [number for number, (word, n) in words if n >= _LEAST and word.isalpha()]
    rare = [
        number
        for number in frequent
        if tally[number][1] <= _MOST and len(tally[number][0]) >= _LETTERS
    ]
    held_out = _spaced(rare, min(_HELD_OUT, len(rare) // 2))
    return held_out, _spaced(sorted(set(frequent) - set(held_out.tolist())), _PARTNERS)


def _spaced(ids: Sequence[int], most: int) -> np.ndarray:
    """Return at most so many of some ids, evenly spaced."""
    count = min(most, len(ids))
    return np.array(ids, np.int64)[np.arange(count) * len(ids) // max(count, 1)]


def _similarities(
    source: Path,
    tally: Sequence[tuple[str, int]],
    rare: np.ndarray,
    partners: np.ndarray,
) -> np.ndarray:
    """Return the cosine of the contexts of each held-out word and each partner, (R, P)."""
    ids = {word: number for number, (word, _) in enumerate(tally)}
    size = len(tally) + 1  # the last id is that of the end of a line
    parts = [np.array([*map(ids.get, line), size - 1], np.int32) for line in _lines(source)]
    ids_N = np.concatenate(parts)
    row_of, column_of = np.full(size, -1), np.full(size, -1)
    row_of[np.concatenate([rare, partners])] = np.arange(len(rare) + len(partners))
    contexts = np.arange(size - 1)[_CONTEXTS]
    column_of[contexts] = np.arange(len(contexts))
    counts = np.zeros((len(rare) + len(partners), max(len(contexts), 1)))
    for distance in range(1, _WINDOW + 1):
        before, after = ids_N[:-distance], ids_N[distance:]
        for word, other in ((before, after), (after, before)):
            row, column = row_of[word], column_of[other]
            both = (row >= 0) & (column >= 0)
            cells = row[both] * counts.shape[1] + column[both]
            counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
    smoothed = counts.sum(axis=0) ** _SMOOTHING
    expected = counts.sum(axis=1, keepdims=True) * smoothed / max(smoothed.sum(), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ppmi = np.maximum(np.nan_to_num(np.log(counts / expected), nan=0, neginf=0), 0)
    ppmi /= np.maximum(np.linalg.norm(ppmi, axis=1, keepdims=True), 1e-12)
    return ppmi[: len(rare)] @ ppmi[len(rare) :].T
