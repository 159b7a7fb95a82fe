"""Run one way from text to ids of the benchmark `pipeline`: python -m MODULE JOB

Every way takes the same file of lines, splits it into tokens as --tokenizer says, looks them up and
drops the unknown ones. A pass is taken within tf.data, so that no way pays for Python at its end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
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

# Passes are doubled until they take so long together.
_SECONDS = 2.0

Make = Callable[[CorpusConfig, Vocabulary, Progress], tf.data.Dataset]


def main(job: dict[str, Any]) -> None:
    """Passes over the text, and writes what it measured.

    job: `side`, `text` (a file of lines), `words` (in it), `tokenizer`, `vocabulary` (a vocab.tsv),
    and `result` (JSON, to write): `words_per_second`, of `passes` that took `seconds`;
    `first_seconds`, of a pass before them, which traces, and fills the cache where there is one;
    and `known`, the tokens of a pass that have an id.
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
    values = {
        "words_per_second": passes * job["words"] / seconds,
        "first_seconds": first,
        "passes": passes,
        "seconds": seconds,
        "known": known,
    }
    Path(job["result"]).write_text(json.dumps(values), encoding="utf-8")


def timed(ids: tf.data.Dataset, passes: int, progress: Progress) -> tuple[float, int]:
    """The seconds of some passes, and how many ids they gave.

    One pass follows the other in the same pipeline, as epochs do in training: to build one takes
    from a tenth of a second to a second.
    """
    began = time.perf_counter()
    with raise_read_errors(progress):
        count = ids.repeat(passes).reduce(
            np.int64(0), lambda count, ids_M: count + tf.size(ids_M, tf.int64)
        )
    return time.perf_counter() - began, int(count)


def _generator(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Python reads, splits and looks up; a line an element."""
    split = _in_python(corpus)
    ids = {token: number for number, token in enumerate(known.tokens)}

    def lines() -> Iterator[list[int]]:
        with open(corpus.corpus, encoding="utf-8") as file:
            for line in file:
                yield [ids[token] for token in split(line) if token in ids]

    return tf.data.Dataset.from_generator(lines, output_signature=tf.TensorSpec([None], tf.int32))


def _in_python(corpus: CorpusConfig) -> Callable[[str], list[str]]:
    if corpus.tokenizer == "whitespace":
        return str.split
    tokenize = make_tokenizer(corpus)  # which Python has no counterpart of

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
    def tokens(line: tf.Tensor) -> tf.Tensor:
        return tokenize(line[tf.newaxis]).flat_values

    def split(line: str) -> list[str]:
        return [token.decode() for token in tokens(tf.constant(line.rstrip("\n"))).numpy()]

    return split


def _map(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """A line at a time."""
    tokenize, table = make_tokenizer(corpus), lookup_table(known)

    def ids(line: tf.Tensor) -> tf.Tensor:
        found = table.lookup(tokenize(line[tf.newaxis]).flat_values)
        return tf.boolean_mask(found, found >= 0)

    return tf.data.TextLineDataset(corpus.corpus).map(ids)


def _vectorised(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Ours: a block of text at a time, several blocks at once."""
    return pipeline.token_blocks((corpus.corpus,), known, corpus, InputConfig(), progress)


def _cached(corpus: CorpusConfig, known: Vocabulary, progress: Progress) -> tf.data.Dataset:
    """Ours, from the ids that the first pass has kept."""
    return cache.cache_in_memory(_vectorised(corpus, known, progress), progress)


SIDES: dict[str, Make] = {
    "vectorised": _vectorised,
    "cached": _cached,
    "map": _map,
    "generator": _generator,
}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
