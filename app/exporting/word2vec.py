"""Write the formats of word2vec.c (https://code.google.com/archive/p/word2vec/) and gensim.

The first line is `V D`. Each row has the UTF-8 bytes of a word, a space, and D numbers. In text the
numbers are decimals, and a newline ends the row. In binary they are little-endian float32;
word2vec.c writes a newline after each row, gensim does not. GloVe's text is the same without the
first line.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.files import opener, replacing
from ..types import WordVectors
from .decimals import format_rows

_ROWS_PER_WRITE = 512
# Readers end a word at the first of these characters.
_SPACES = re.compile(r"[ \t\n\v\f\r]")


def write(vectors: WordVectors, path: str | Path, binary: bool = False) -> None:
    """Write a word2vec file, which replaces an earlier one. Every float32 number is kept exactly.

    Args:
        vectors: Word vectors.
        path: The file. A name that ends in .gz, .bz2 or .xz is compressed.
        binary: Whether to write the binary format instead of text.

    Raises:
        UsageError: A word is empty or has white space. Nothing is written.
        RunError: The file cannot be written.
    """
    for row, token in enumerate(vectors.tokens):
        if not token or _SPACES.search(token):
            raise UsageError(
                f"--format=word2vec: word {token!r} of row {row} is empty or holds white space, "
                "which ends a word in this format; use --format=saved_model or rename the word"
            )
    matrix = np.asarray(vectors.matrix, "<f4")
    format_rows = _binary_rows if binary else _text_rows
    with replacing(path) as temporary, opener(path)(temporary, "wb") as file:
        file.write(b"%d %d\n" % matrix.shape)
        for low in range(0, len(vectors.tokens), _ROWS_PER_WRITE):
            rows = slice(low, low + _ROWS_PER_WRITE)
            file.write(format_rows(vectors.tokens[rows], matrix[rows]))


def _text_rows(tokens: list[str], matrix: np.ndarray) -> bytes:
    """Return lines of a word and its numbers, as UTF-8."""
    rows = zip(tokens, format_rows(matrix), strict=True)
    return b"".join(b"%b%b\n" % (token.encode("utf-8", "replace"), row) for token, row in rows)


def _binary_rows(tokens: list[str], matrix: np.ndarray) -> bytes:
    """Return rows of a word, a space, little-endian float32 numbers and a newline."""
    rows = zip(tokens, matrix, strict=True)
    return b"".join(b"%b %b\n" % (t.encode("utf-8", "replace"), row.tobytes()) for t, row in rows)
