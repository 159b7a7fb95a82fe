"""Tables of phrases, such as `new york`, and their file in a workdir (phrases.tsv)."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..system.checked_files import damaged, read_bytes
from ..system.files import replacing

# Between the tokens of a phrase, as in word2vec and gensim.
JOINT = "_"
_COLUMNS = "# pass\tfirst\tsecond\tcount\tscore\n"


class PhraseTable(NamedTuple):
    """The P pairs of tokens that one pass over the text joins, by descending score.

    A token may be a phrase of an earlier pass.

    Attributes:
        pairs: The P pairs of tokens.
        counts: How often the tokens of each pair follow each other, (P,) int64.
        scores: The score of each pair, (P,) float64.
    """

    pairs: list[tuple[str, str]]
    counts: np.ndarray
    scores: np.ndarray


# The tables of several passes. Each is applied to the result of the one before it.
Phrases = tuple[PhraseTable, ...]


def join_words(text: str) -> str:
    """Return the words of a text as the token of a phrase: `new_york` for `new york`.

    Args:
        text: Words with white space between them.
    """
    return JOINT.join(text.split())


def save(phrases: Phrases, path: Path) -> None:
    """Write a line `pass<TAB>first<TAB>second<TAB>count<TAB>score` for each phrase.

    Raises:
        RunError: The file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(_encode(phrases))


def compute_digest(phrases: Phrases) -> str:
    """Return the SHA-256 of the file that `save` writes."""
    return hashlib.sha256(_encode(phrases)).hexdigest()


def load(path: Path, digest: str) -> Phrases:
    """Read a file that `save` wrote.

    Args:
        digest: The value of `compute_digest` for the phrases of the run.

    Raises:
        DamagedError: The file is missing, or it is another one.
        RunError: The file cannot be read.
    """
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise damaged(path, "it is not the table of phrases that this run was made with")
    rows = [line.split("\t") for line in content.decode().split("\n")[1:-1]]
    tables = []
    for _, group in itertools.groupby(rows, key=lambda row: row[0]):
        _, first, second, counts, scores = zip(*group, strict=True)
        pairs = list(zip(first, second, strict=True))
        table = np.array(counts, np.int64), np.array(scores, np.float64)
        tables.append(PhraseTable(pairs, *table))
    return tuple(tables)


def _encode(phrases: Phrases) -> bytes:
    """Return the content of the file of phrases."""
    lines = [_COLUMNS]
    for number, (pairs, counts, scores) in enumerate(phrases, 1):
        for (first, second), count, score in zip(
            pairs, counts.tolist(), scores.tolist(), strict=True
        ):
            lines.append(f"{number}\t{first}\t{second}\t{count}\t{score!r}\n")
    return "".join(lines).encode()
