"""The word vectors of a workdir."""

from __future__ import annotations

from pathlib import Path

from app.errors import UsageError
from app.text import vocabulary
from app.training import checkpoint, growing
from app.training.workdir import Workdir
from app.types import WordVectors


def load(path: str | Path) -> WordVectors:
    """The rows of table `input` in the newest checkpoint, with their words.

    UsageError if the folder holds no run; RunError if the run has no whole checkpoint yet.
    """
    workdir = Workdir(path)
    if not workdir.vocabulary.exists():
        raise UsageError(f"--workdir={path}: no trained run there; train one with: make train")
    newest = checkpoint.paths(workdir.trained)[:1]
    if newest and (newest[0] / growing.NAME).is_dir():
        return checkpoint.of_newest(workdir.trained, growing.load)
    words = vocabulary.load(str(workdir.vocabulary))
    matrix_VD = checkpoint.read_rows(workdir.trained, "input")
    return WordVectors(words.tokens, matrix_VD, words.counts)
