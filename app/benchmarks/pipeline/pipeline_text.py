"""Run one side of the text part of the benchmark `pipeline`, as a program of its own.

Every side reads the same file of lines, splits it into tokens by --tokenizer, looks them up and
drops unknown ones. A pass runs within tf.data, so that no side has a final step in Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ...config import CorpusConfig, InputConfig
from ...input import cache, pipeline
from ...text import vocabulary
from ...text.blocks import raise_read_errors
from ...text.reading import Progress
from ...text.tokenize import make_tokenizer
from ...text.vocabulary import Vocabulary, lookup_table
from ..harness import programs

# The number of passes is doubled until they take this time together.
_SECONDS = 2.0

Make = Callable[[CorpusConfig, Vocabulary, Progress], tf.data.Dataset]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measure passes of one side over the text, twice as many each time until they take 2 s.

    Args:
        job: `side`, `text` (a file of lines), `words` (their number), `tokenizer` and `vocabulary`
            (a vocab.tsv).

    Returns:
        `words_per_second` of `passes` that took `seconds`; `first_seconds` of a pass before them,
        which traces, and fills the cache if there is one; and `known`, the tokens of a pass that
        have an id.

    Raises:
        RunError: The text cannot be read.
    """
    corpus = CorpusConfig(corpus=job["text"], tokenizer=job["tokenizer"])
    progress = Progress.make((job["text"],))
    ids = SIDES[job["side"]](corpus, vocabulary.load(job["vocabulary"]), progress)
    first, known = timed(ids, 1, progress)
    passes, seconds = 0, 0.0
    while seconds < _SECONDS:
        passes = 2 * passes or 1
        seconds, count = timed(ids, passes, progress)
        assert count == passes * known, (count, passes, known)
    return {
        "words_per_second": passes * job["words"] / seconds,
        "first_seconds": first,
        "passes": passes,
        "seconds": seconds,
        "known": known,
    }


def timed(ids: tf.data.Dataset, passes: int, progress: Progress) -> tuple[float, int]:
    """Run some passes, and return their seconds and the number of their ids.

    All passes are in one pipeline, as epochs are in training. Building a pipeline takes from a
    tenth of a second to a second.

    Args:
        ids: The ids of a pass.
        passes: The number of passes.
        progress: The progress of the reader.

    Raises:
        RunError: The text cannot be read.
    """
    began = time.perf_counter()
    with raise_read_errors(progress):
        count = ids.repeat(passes).reduce(
            np.int64(0), lambda count, ids_M: count + tf.size(ids_M, tf.int64)
        )
    return time.perf_counter() - began, int(count)


def _generator(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of the ids of a line at a time, read and looked up in Python.

    As on every side, ids are int32 (M,), and unknown tokens are dropped.
    """
    split = _in_python(corpus)
    ids = {token: number for number, token in enumerate(known.tokens)}

    def lines() -> Iterator[list[int]]:
        """Yield the ids of each line of the file, without unknown tokens."""
        with open(corpus.corpus, encoding="utf-8") as file:
            for line in file:
                yield [ids[token] for token in split(line) if token in ids]

    return tf.data.Dataset.from_generator(lines, output_signature=tf.TensorSpec([None], tf.int32))


def _in_python(corpus: CorpusConfig) -> Callable[[str], list[str]]:
    """Return a function that splits a line by --tokenizer, which calls TensorFlow if it has to."""
    if corpus.tokenizer == "whitespace":
        return str.split
    tokenize = make_tokenizer(corpus)  # Python has no such tokenizer

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
    def tokens(line: tf.Tensor) -> tf.Tensor:
        """Return the tokens (M,) of a line, both as bytes."""
        return tokenize(line[tf.newaxis]).flat_values

    def split(line: str) -> list[str]:
        """Return the tokens of a line, whose line break is ignored."""
        return [token.decode() for token in tokens(tf.constant(line.rstrip("\n"))).numpy()]

    return split


def _map(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of the ids of a line at a time, by TensorFlow, not in parallel."""
    tokenize, table = make_tokenizer(corpus), lookup_table(known)

    def ids(line: tf.Tensor) -> tf.Tensor:
        """Return the ids (M,) int32 of a line, without unknown tokens."""
        ids_T = table.lookup(tokenize(line[tf.newaxis]).flat_values)
        return tf.boolean_mask(ids_T, ids_T >= 0)

    return tf.data.TextLineDataset(corpus.corpus).map(ids)


def _vectorised(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Return the trainer's dataset: ids of blocks of text, several of them in parallel."""
    tokenize = pipeline.make_block_tokenizer(corpus, known)
    return pipeline.map_blocks((corpus.corpus,), corpus, InputConfig(), progress, tokenize)


def _cached(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Return the dataset of `_vectorised`, whose first pass caches the ids in memory."""
    return cache.cache_in_memory(_vectorised(corpus, known, progress), progress)


SIDES: dict[str, Make] = {
    "vectorised": _vectorised,
    "cached": _cached,
    "map": _map,
    "generator": _generator,
}


if __name__ == "__main__":
    programs.answer(measure)
