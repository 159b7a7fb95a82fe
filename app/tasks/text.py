"""What the tasks on running text share: their corpus in the banner, and what a run ends with."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from app import outputs
from app.config import Config
from app.evaluation import closing
from app.exporting import projector
from app.losses.base import Loss
from app.text.vocabulary import UNK
from app.training import vectors, words
from app.training.words import GROWING, Text
from app.training.workdir import Workdir


def fields(text: Text, config: Config, workdir: Workdir) -> dict[str, Any]:
    """Fields of a `Job` that a corpus gives."""
    return {
        "expected_batches": text.batches,
        "about": _about(text, config),
        "record": lambda: words.record(text, workdir),
        "closing": close,
    }


def output(config: Config, counts_V: np.ndarray, columns: int) -> Loss:
    """The loss that --loss names, of words by their counts."""
    targets = config.input.micro_tokens
    return outputs.make(config.model, outputs.Wanted(counts_V, columns, targets, config.run.seed))


def close(workdir: Workdir) -> str:
    """Writes the vectors for TensorBoard's projector, and tells their scores."""
    trained = vectors.load(workdir.path)
    projector.write(trained, workdir.tensorboard)
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
