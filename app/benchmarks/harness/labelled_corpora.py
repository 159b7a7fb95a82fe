"""Labelled texts, and those of them to train on and to predict, as files that every side reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...config import CorpusConfig
from ...errors import UsageError
from ...text import corpus
from . import lines
from .options import items

PREFIX = "__label__"  # fastText's
_HELDOUT = 10  # one text in so many
_FEWEST = 2 * _HELDOUT


class Text(NamedTuple):
    """labels: with their prefix. words: all others of the line."""

    labels: list[str]
    words: list[str]


class Split(NamedTuple):
    """train: `__label__` lines, with so many examples and words. test: texts, and their labels."""

    train: Path
    examples: int
    words: int
    test: Path
    labels: list[list[str]]


def texts(files: str, labelled: str) -> list[Text]:
    """The texts of --corpus, or of --labelled=LABEL:FILE,..., in order; no empty lines.

    UsageError for values that cannot be, and for a line without a label.
    """
    if bool(files) == bool(labelled):
        raise UsageError("give either --corpus, of `__label__` lines, or --labelled=LABEL:FILE,...")
    if files:
        found = [_of_line(words) for words in _words("corpus", files)]
    else:
        found = []
        for item in items(labelled):
            label, _, name = item.partition(":")
            if not (label and name):
                raise UsageError(f"--labelled={labelled}: {item} is no LABEL:FILE")
            found += [Text([PREFIX + label], words) for words in _words("labelled", name)]
    if len(found) < _FEWEST:
        raise UsageError(f"{len(found)} texts are too few to hold some out; give {_FEWEST}")
    return found


def split(texts: Sequence[Text], folder: Path, repeat: int) -> Split:
    """Writes a tenth of the texts, drawn by the number of the repeat, and the others."""
    order = np.random.default_rng(repeat + 1).permutation(len(texts))
    test, train = ([texts[i] for i in part] for part in np.split(order, [len(texts) // _HELDOUT]))
    paths = [folder / f"{name}-{repeat + 1}.txt" for name in ("train", "test")]
    written = [[*text.labels, *text.words] for text in train], [text.words for text in test]
    for path, of_lines in zip(paths, written, strict=True):
        path.write_text("".join(" ".join(words) + "\n" for words in of_lines), encoding="utf-8")
    words = sum(len(text.words) for text in train)
    return Split(paths[0], len(train), words, paths[1], [text.labels for text in test])


def _words(flag: str, files: str) -> list[list[str]]:
    sources = corpus.resolve(CorpusConfig(corpus=files), flag)
    return [words for words in lines.read(sources, sys.maxsize) if words]


def _of_line(words: list[str]) -> Text:
    labels = [word for word in words if word.startswith(PREFIX)]
    if not labels:
        raise UsageError(f"no label in `{' '.join(words)[:60]}`; begin a line with {PREFIX}LABEL")
    return Text(labels, [word for word in words if not word.startswith(PREFIX)])
