"""Parts that the tasks on running text share: fields of the job, loss, empty batch and scores."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import tensorflow as tf

from ..build import outputs, updates
from ..checkpoints.workdir import Workdir
from ..config import Config
from ..errors import RunError, UsageError
from ..evaluation import closing, score_report
from ..exporting import projector
from ..input.tokens import PAD
from ..losses.base import Loss
from ..system import devices
from ..tables.base import Table
from ..tables.row_reads import row_slices
from ..text.vocabulary import UNK, Vocabulary
from ..types import WordVectors
from . import trained_vectors
from .words import words_data
from .words.words_data import NO_VOCABULARY, Text


def job_fields(text: Text, config: Config, workdir: Workdir) -> dict[str, Any]:
    """Return the fields of a `Job` that all tasks on running text fill alike.

    Args:
        text: The corpus.
        config: The configuration of the run.
        workdir: The folder of the run.
    """
    return {
        "learning_rate": updates.make_learning_rate(config.optimizer),
        "steps_per_batch": config.input.steps_per_call,
        "device": devices.name(config.run),
        "expected_batches": text.batches,
        "digest": words_data.compute_digest(text),
        "summary": _about(text, config),
        "record": lambda: words_data.record(text, workdir),
        "finish": write_and_score,
    }


def make_loss(config: Config, counts_V: np.ndarray, columns: int) -> Loss:
    """Return the loss of --loss.

    Args:
        config: The configuration of the run.
        counts_V: Occurrences of each word, (V,).
        columns: Length of the vectors that are scored against words.
    """
    targets = config.input.micro_tokens
    return outputs.make_loss(
        config.model, outputs.OutputSpec(counts_V, columns, targets, config.run.seed)
    )


def make_empty_batch(config: Config, halo: int) -> tf.Tensor:
    """Return a micro-batch (S, B, L) int32 of a process that has no text left, all `PAD`.

    Args:
        config: The configuration of the run.
        halo: L - T.
    """
    settings = config.input
    rows, length = settings.micro_tokens // settings.row_tokens, settings.row_tokens + halo
    return tf.fill((settings.steps_per_call, rows, length), PAD)


def score_vectors(table: Table, vocabulary: Vocabulary) -> dict[str, float]:
    """Return scores of the current word vectors by benchmark name; undefined ones are left out.

    While the table is being trained, its rows are read at different moments.

    Args:
        table: The word vectors, (V, D).
        vocabulary: The vocabulary of its rows.
    """
    row_ranges = row_slices(table.rows, table.columns)
    blocks = [table.gather(tf.range(part.start, part.stop)).numpy() for part in row_ranges]
    trained = WordVectors(vocabulary.tokens, np.concatenate(blocks), vocabulary.counts)
    scored = score_report.run(trained)
    return {score.name: score.value for score in scored if score.value is not None}


def write_and_score(workdir: Workdir) -> str:
    """Write the vectors for TensorBoard's projector, and return their scores as text.

    Args:
        workdir: The folder of a finished run.

    Raises:
        RunError: The vectors cannot be written.
    """
    trained = trained_vectors.load(workdir.path)
    try:
        projector.write(trained, workdir.tensorboard)
    except UsageError as error:  # training is done, so this is a failure, not a refusal
        raise RunError(str(error)) from error
    return closing.closing(trained, shlex.quote(str(workdir.path)))


def _about(text: Text, config: Config) -> list[tuple[str, str]]:
    size = f"{len(text.vocabulary.tokens):,} words"
    if text.vocabulary is NO_VOCABULARY:
        size = "grows with the text"
    elif not config.vocabulary.vocab:  # a given vocabulary counts other text
        size += f", {_count_known_words(text) / text.words:.1%} of it"
    return [
        ("corpus", f"{text.words:,} words in {len(text.sources)} file(s)"),
        ("vocabulary", size),
    ]


def _count_known_words(text: Text) -> int:
    """Return the number of words of the corpus that have an id of their own."""
    tokens, counts = text.vocabulary.tokens, text.vocabulary.counts
    return int(counts.sum()) - (int(counts[tokens.index(UNK)]) if UNK in tokens else 0)
