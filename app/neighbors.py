"""Nearest words: python -m app.neighbors --workdir=DIR WORD… (or --vectors=FILE)"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from .cli import flags
from .errors import UsageError
from .evaluation import nearest_words
from .evaluation.lexicon import lexicon


def main(words: Sequence[str]) -> None:
    """Prints the nearest words of each word, or of an analogy."""
    given = absl_flags.FLAGS
    if bool(words) == bool(given.analogy):
        raise UsageError('give words, as in: --workdir=DIR paris rome; or --analogy="a - b + c"')
    known = lexicon(flags.vectors(), given.case, given.restrict)
    if given.analogy:
        asked, found = [given.analogy], [nearest_words.solve(known, given.analogy, given.k)]
    else:
        asked, found = words, nearest_words.nearest(known, words, given.k)
    for word, nearest in zip(asked, found, strict=True):
        print(word)
        for neighbour in nearest:
            print(f"  {neighbour.cosine:.3f}  {neighbour.word}")


def define() -> None:
    """Defines the flags of this command."""
    flags.define_vectors()
    absl_flags.DEFINE(flags.count(1), "k", 10, "Words to show.")
    absl_flags.DEFINE(flags.Text(), "analogy", "", "Such as `paris - france + italy`.")


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
