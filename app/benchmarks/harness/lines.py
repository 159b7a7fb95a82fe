"""A corpus as one plain file of lines of bounded length, the same for every side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...system.files import replacing
from ...text.reading import blocks

# gensim's `corpus_file` drops without a word what a line has beyond 10,000 words (MAX_SENTENCE_LEN
# of gensim/models/word2vec_inner.pyx); lines of 1,000 are what word2vec.c itself cuts text into
# (MAX_SENTENCE_LENGTH of word2vec.c).
LINE_WORDS = 1000


def write(sources: Sequence[str], path: Path, longest: int = LINE_WORDS) -> int:
    """Writes the words of the sources to `path` in order, and returns how many there are.

    A line stays a line, without its white space; one of more than `longest` words becomes several.
    Memory is bounded by a block of text. RunError when a source cannot be read or `path` written.
    """
    words = 0
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        for line in read(sources, longest):
            file.write(" ".join(line) + "\n")
            words += len(line)
    return words


def read(sources: Sequence[str], longest: int) -> Iterator[list[str]]:
    """The words of each line, in order; a line of more than `longest` words becomes several."""
    for source in sources:
        for block in blocks(source):
            for line in block.decode().split("\n"):
                words = line.split()
                for start in range(0, len(words), longest):
                    yield words[start : start + longest]
