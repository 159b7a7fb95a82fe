"""Read word vectors from a file of any known format."""

from __future__ import annotations

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
        UsageError: The file is missing, malformed or truncated, or a classifier of fastText.
    """
    is_fasttext = model_file.is_fasttext(path)
    return word_vectors.read(path) if is_fasttext else word2vec_reader.read(path)
