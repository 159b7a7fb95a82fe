"""Read word vectors from a file of any known format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..types import WordVectors
from . import word2vec_reader
from .fasttext import model_file, word_vectors


def needs_tensorflow(path: str | Path) -> bool:
    """Return whether `read` needs TensorFlow for a file: for one of fastText, to hash n-grams.

    Args:
        path: The file.
    """
    return model_file.is_fasttext(path)


def read(path: str | Path) -> WordVectors:
    """Read a file of word2vec (text or binary), GloVe, or fastText (`.bin`).

    Args:
        path: The file. Its first bytes show the format.

    Raises:
        UsageError: The file is missing, malformed or truncated, has a number that is not finite,
            or is a classifier of fastText.
    """
    is_fasttext = model_file.is_fasttext(path)
    return word_vectors.read(path) if is_fasttext else word2vec_reader.read(path)


def rows(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Yield each word of a file and its vector as little-endian float32 bytes, row by row.

    Only the vectors of a fastText file (`.bin`) are all in memory.

    Args:
        path: The file, see `read`.

    Raises:
        UsageError: See `read`.
    """
    if not model_file.is_fasttext(path):
        yield from word2vec_reader.rows(path)
        return
    vectors = word_vectors.read(path)
    for token, row in zip(vectors.tokens, vectors.matrix, strict=True):
        if token:
            yield token, row.astype("<f4").tobytes()
