"""Drop the rows of repeated words."""

from __future__ import annotations

from absl import logging

from ..types import WordVectors


def drop_repeated(vectors: WordVectors) -> WordVectors:
    """Return the vectors with only the first row of each word, as gensim does.

    Args:
        vectors: Word vectors, in which a word may be repeated.

    Returns:
        Word vectors without repeated words, or the given ones if no word is repeated. A warning
        names the number of dropped rows.
    """
    rows: dict[str, int] = {}
    for row, token in enumerate(vectors.tokens):
        rows.setdefault(token, row)
    repeated = len(vectors.tokens) - len(rows)
    if not repeated:
        return vectors
    logging.warning("%d rows repeat an earlier word: left out", repeated)
    kept = list(rows.values())
    counts = None if vectors.counts is None else vectors.counts[kept]
    return WordVectors(list(rows), vectors.matrix[kept], counts)
