"""One row a word, as tables from word to row need it."""

from __future__ import annotations

from absl import logging

from ..types import WordVectors


def unique(vectors: WordVectors) -> WordVectors:
    """The same vectors with only the first row of each word, as gensim keeps them."""
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
