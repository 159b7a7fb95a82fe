"""Print the nearest words.

    lexrow neighbors --workdir=DIR WORD… (or --vectors=FILE)

A word that begins with `-` comes after `--`. If some words are unknown, the others are answered,
and the exit code is 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from .cli import flags
from .errors import UsageError
from .evaluation import lexicon
from .settings.setting import MOST_ROWS

_SHOWN = 5  # of the words that are not known


def main(words: Sequence[str]) -> None:
    """Print the nearest words of each given word, or of --analogy, with their cosines.

    Args:
        words: The words; none with --analogy.

    Raises:
        UsageError: Not exactly one of words and --analogy is given, the vectors cannot be used, or
            at the end: some words are unknown.
        RunError: The workdir has no checkpoint that can be read.
    """
    values = absl_flags.FLAGS
    if values.analogy and words:
        raise UsageError(f"give words ({words[0]} …) or --analogy, and not both")
    if not (values.analogy or words):
        raise UsageError('give words, as in: --workdir=DIR paris rome; or --analogy="a - b + c"')
    found = lexicon.make_lexicon(flags.vectors(), values.case, values.restrict)
    unknown = lexicon.find_unknown(found, words)
    if values.analogy:
        words, lists = [values.analogy], [lexicon.solve(found, values.analogy, values.k)]
    else:
        words = [word for word in words if word not in unknown]
        lists = lexicon.nearest(found, words, values.k)
    for word, neighbors in zip(words, lists, strict=True):
        print(word)
        for near, cosine in neighbors:
            print(f"  {cosine:.3f}  {near if near.strip() else repr(near)}")
    if unknown:
        reasons = [lexicon.explain_unknown(found, word) for word in unknown[:_SHOWN]]
        more = f"; {len(unknown) - _SHOWN:,} more have none" * (len(unknown) > _SHOWN)
        raise UsageError("; ".join(reasons) + more)


def define() -> None:
    """Define the flags of this command."""
    flags.define_vectors()
    text = "The number of words to print for each word."
    flags.define("k", 10, text, bounds=(1, MOST_ROWS))
    text = "An analogy to solve instead, such as `paris - france + italy`."
    flags.define("analogy", "", text)


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
