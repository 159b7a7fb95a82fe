"""Labelled texts, split into files to train on and to predict, which every side reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...config import CorpusConfig
from ...errors import UsageError
from ...text import corpus
from . import corpus_lines
from .option_values import items

PREFIX = "__label__"  # fastText's
_HELDOUT = 10  # one text of this many is held out
_FEWEST = 2 * _HELDOUT


class Text(NamedTuple):
    """A text.

    Attributes:
        labels: Its labels, with their prefix.
        words: Its other words.
    """

    labels: list[str]
    words: list[str]


class Split(NamedTuple):
    """Texts to train on and to predict.

    Attributes:
        train: The file of `__label__` lines to train on.
        examples: The number of its lines.
        words: The number of its words without labels.
        test: The file of texts to predict, without labels.
        labels: The labels of each of these texts.
    """

    train: Path
    examples: int
    words: int
    test: Path
    labels: list[list[str]]


def read(files: str, labelled: str) -> list[Text]:
    """Return the texts of one of two flags, one for each line that is not empty, in order.

    Args:
        files: The value of --corpus, or empty. A label is a word that begins with `__label__`.
        labelled: The value of --labelled, LABEL:FILE,..., or empty. The only label of a text is
            `__label__LABEL`.

    Raises:
        UsageError: Both flags or none are given, a flag is no list of files, a line of --corpus
            has no label, or there are fewer than 20 texts.
        RunError: A file cannot be read.
    """
    if bool(files) == bool(labelled):
        raise UsageError("give either --corpus, of `__label__` lines, or --labelled=LABEL:FILE,...")
    if files:
        texts = [_parse(words) for words in _words("corpus", files)]
    else:
        texts = []
        for item in items(labelled):
            label, _, name = item.partition(":")
            if not (label and name):
                raise UsageError(f"--labelled={labelled}: {item} is no LABEL:FILE")
            texts += [Text([PREFIX + label], words) for words in _words("labelled", name)]
    if len(texts) < _FEWEST:
        raise UsageError(f"{len(texts)} texts are too few to hold some out; give {_FEWEST}")
    return texts


def split(texts: Sequence[Text], folder: Path, repeat: int) -> Split:
    """Write a tenth of the texts, drawn at random, and the others, as two files.

    The texts to train on are `__label__` lines, in random order. The tenth, rounded down, has no
    labels in its file.

    Args:
        texts: The texts.
        folder: The folder for the files, train-N.txt and test-N.txt for repeat N - 1.
        repeat: The number of the repeat, from 0. The seed of the draw is `repeat + 1`.

    Returns:
        The files, and the labels of the held-out texts.
    """
    order = np.random.default_rng(repeat + 1).permutation(len(texts))
    test, train = ([texts[i] for i in part] for part in np.split(order, [len(texts) // _HELDOUT]))
    paths = [folder / f"{name}-{repeat + 1}.txt" for name in ("train", "test")]
    written = [[*text.labels, *text.words] for text in train], [text.words for text in test]
    for path, of_lines in zip(paths, written, strict=True):
        path.write_text("".join(" ".join(words) + "\n" for words in of_lines), encoding="utf-8")
    words = sum(len(text.words) for text in train)
    return Split(paths[0], len(train), words, paths[1], [text.labels for text in test])


def _words(flag: str, files: str) -> list[list[str]]:
    """Return the words of each line, without empty lines; `files` has the form of --corpus."""
    sources = corpus.resolve(CorpusConfig(corpus=files), flag)
    return list(corpus_lines.read(sources, sys.maxsize))


def _parse(words: list[str]) -> Text:
    """Separate the labels of a line from its words; raise UsageError if it has no label."""
    labels = [word for word in words if word.startswith(PREFIX)]
    if not labels:
        raise UsageError(f"no label in `{' '.join(words)[:60]}`; begin a line with {PREFIX}LABEL")
    return Text(labels, [word for word in words if not word.startswith(PREFIX)])
