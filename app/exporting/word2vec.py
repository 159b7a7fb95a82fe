"""Write the formats of word2vec.c (https://code.google.com/archive/p/word2vec/) and gensim.

The first line is `V D`. Each row has the UTF-8 bytes of a word, a space, and D numbers. In text the
numbers are decimals, and a newline ends the row. In binary they are little-endian float32;
word2vec.c writes a newline after each row, gensim does not. GloVe's text is the same without the
first line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.files import opener, replacing
from ..text.vocabulary import WHITE_SPACE
from ..types import WordVectors

_ROWS_PER_WRITE = 512
# Nine significant digits keep every float32 exactly (IEEE 754-2019, 5.12.2).
_NUMBER = " %.9g"


def write(vectors: WordVectors, path: str | Path, binary: bool = False) -> None:
    """Write a word2vec file, which replaces an earlier one. Every float32 number is kept exactly.

    Args:
        path: The file. A name that ends in .gz, .bz2 or .xz is compressed.

    Raises:
        UsageError: A word is empty or has white space. Nothing is written.
        RunError: The file cannot be written.
    """
    for row, token in enumerate(vectors.tokens):
        if not token or WHITE_SPACE.search(token):
            raise UsageError(
                f"--format=word2vec: word {token!r} of row {row} is empty or holds white space, "
                "which ends a word in this format; use --format=saved_model or rename the word"
            )
    matrix = np.asarray(vectors.matrix, "<f4")
    make_rows = _binary_rows if binary else _text_rows
    with replacing(path) as temporary, opener(path)(temporary, "wb") as file:
        file.write(b"%d %d\n" % matrix.shape)
        for low in range(0, len(vectors.tokens), _ROWS_PER_WRITE):
            rows = slice(low, low + _ROWS_PER_WRITE)
            file.write(make_rows(vectors.tokens[rows], matrix[rows]))


def _text_rows(tokens: list[str], matrix: np.ndarray) -> bytes:
    """Return lines of a word and its numbers, as UTF-8."""
    line = "%s" + _NUMBER * matrix.shape[1] + "\n"
    rows = zip(tokens, matrix.tolist(), strict=True)
    return "".join(line % (token, *row) for token, row in rows).encode("utf-8", "replace")


def _binary_rows(tokens: list[str], matrix: np.ndarray) -> bytes:
    """Return rows of a word, a space, little-endian float32 numbers and a newline."""
    rows = zip(tokens, matrix, strict=True)
    return b"".join(b"%b %b\n" % (t.encode("utf-8", "replace"), row.tobytes()) for t, row in rows)
