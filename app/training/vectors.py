"""The vectors of a workdir: of its words, or of its items."""

from __future__ import annotations

from pathlib import Path

from app.errors import UsageError
from app.text import vocabulary
from app.training import checkpoint, growing
from app.training.workdir import Workdir
from app.types import WordVectors


def load(path: str | Path) -> WordVectors:
    """The rows of words, or of items that are recommended, in the newest checkpoint.

    UsageError if the folder holds no run; RunError if the run has no whole checkpoint yet.
    """
    workdir = Workdir(path)
    tables = {workdir.vocabulary: "input", workdir.items: "items"}
    names = next((file for file in tables if file.exists()), None)
    if names is None:
        raise UsageError(f"--workdir={path}: no trained run there; train one with: make train")
    newest = checkpoint.paths(workdir.trained)[:1]
    if newest and (newest[0] / growing.NAME).is_dir():
        return checkpoint.of_newest(workdir.trained, growing.load)
    words = vocabulary.load(str(names))
    matrix_VD = checkpoint.read_rows(workdir.trained, tables[names])
    # A classifier has rows of n-grams after those of words.
    return WordVectors(words.tokens, matrix_VD[: len(words.tokens)], words.counts)
