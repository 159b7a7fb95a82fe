"""What the tasks on running text share: their corpus in the banner, and what a run ends with."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import tensorflow as tf

from ..build import outputs
from ..checkpoints.workdir import Workdir
from ..config import Config
from ..errors import RunError, UsageError
from ..evaluation import closing, score_report
from ..exporting import projector
from ..input.tokens import PAD
from ..losses.base import Loss
from ..tables.base import Table
from ..tables.row_reads import parts
from ..text.vocabulary import UNK, Vocabulary
from ..types import WordVectors
from . import trained_vectors
from .words import words_data
from .words.words_data import GROWING, Text


def fields(text: Text, config: Config, workdir: Workdir) -> dict[str, Any]:
    """Fields of a `Job` that a corpus gives."""
    return {
        "expected_batches": text.batches,
        "digest": words_data.digest(text),
        "summary": _about(text, config),
        "record": lambda: words_data.record(text, workdir),
        "finish": close,
    }


def output(config: Config, counts_V: np.ndarray, columns: int) -> Loss:
    """The loss that --loss names, of words by their counts."""
    targets = config.input.micro_tokens
    return outputs.make(config.model, outputs.Wanted(counts_V, columns, targets, config.run.seed))


def empty(config: Config, halo: int) -> tf.Tensor:
    """What a call takes that has no text: (S, B, L) int32, L - T of which are `halo`."""
    settings = config.input
    rows, length = settings.batch_tokens // settings.row_tokens, settings.row_tokens + halo
    return tf.fill((settings.steps_per_call, rows, length), PAD)


def scores(table: Table, known: Vocabulary) -> dict[str, float]:
    """The scores of word vectors as they are now, by the name of the benchmark; see `evaluation`.

    Of a table that is being trained each row is of some moment. Undefined ones are left out.
    """
    every = parts(table.rows, table.columns)
    found = [table.gather(tf.range(part.start, part.stop)).numpy() for part in every]
    trained = WordVectors(known.tokens, np.concatenate(found), known.counts)
    scored = score_report.run(trained)
    return {score.name: score.value for score in scored if score.value is not None}


def close(workdir: Workdir) -> str:
    """Write the vectors for TensorBoard's projector, and return their scores as text.

    Raises:
        RunError: The vectors cannot be written.
    """
    trained = trained_vectors.load(workdir.path)
    try:
        projector.write(trained, workdir.tensorboard)
    except UsageError as error:  # the run is done, so this is no refusal
        raise RunError(str(error)) from error
    return closing.closing(trained, shlex.quote(str(workdir.path)))


def _about(text: Text, config: Config) -> list[tuple[str, str]]:
    known = f"{len(text.vocabulary.tokens):,} words"
    if text.vocabulary is GROWING:
        known = "grows with the text"
    elif not config.vocabulary.vocab:  # which counts other text
        known += f", {_known(text) / text.words:.1%} of it"
    return [
        ("corpus", f"{text.words:,} words in {len(text.sources)} file(s)"),
        ("vocabulary", known),
    ]


def _known(text: Text) -> int:
    """Words of the corpus that have an id of their own."""
    tokens, counts = text.vocabulary.tokens, text.vocabulary.counts
    return int(counts.sum()) - (int(counts[tokens.index(UNK)]) if UNK in tokens else 0)
