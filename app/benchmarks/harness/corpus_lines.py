"""Write a corpus as one plain file of lines of bounded length, for every side the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...system.files import replacing
from ...text.reading import blocks

# Words of a line, as in word2vec.c (MAX_SENTENCE_LENGTH). gensim's `corpus_file` silently drops the
# words of a line after the first 10,000 (MAX_SENTENCE_LEN of gensim/models/word2vec_inner.pyx).
LINE_WORDS = 1000


def write(
    sources: Sequence[str], path: Path, longest: int = LINE_WORDS, most: float = math.inf
) -> int:
    """Write the words of a corpus in order, a block of text in memory at a time.

    Args:
        sources: The files to read.
        path: The file to write.
        longest: The most words of a line. A longer line becomes several.
        most: The number of words after which no further line is written.

    Returns:
        The number of words.

    Raises:
        UsageError: There is no word. `path` is unchanged after any error.
        UsageError: A source is truncated or corrupt.
        RunError: A source cannot be read, or the file cannot be written.
    """
    words = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for line in read(sources, longest):
            file.write(" ".join(line) + "\n")
            words += len(line)
            if words >= most:
                break
        if not words:
            raise UsageError(
                f"--corpus={','.join(sources)}: no word in these files; give files with text"
            )
    return words


def record(
    sources: Sequence[str], path: Path, words: int, longest: int = LINE_WORDS
) -> dict[str, Any]:
    """Return a description of a file of lines for JSON.

    Args:
        sources: The files whose words it has.
        path: The file.
        words: The number of its words.
        longest: The most words of a line.

    Returns:
        `files` (the names of the sources without folders), `words`, `bytes` (the size of the file)
        and `line_words` (`longest`).
    """
    names = [Path(source).name for source in sources]
    return {"files": names, "words": words, "bytes": path.stat().st_size, "line_words": longest}


def read(sources: Sequence[str], longest: int) -> Iterator[list[str]]:
    """Yield the words of each line, in order; a line without words is left out.

    Nothing is read before the first line is asked for.

    Args:
        sources: The files to read.
        longest: The most words of a line. A longer line becomes several.

    Raises:
        UsageError, RunError: While iterating, if a source cannot be read.
    """
    for source in sources:
        for block in blocks(source):
            for line in block.decode().split("\n"):
                words = line.split()
                for start in range(0, len(words), longest):
                    yield words[start : start + longest]
