"""The vectors of a workdir: of its words, or of its items."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from app.errors import UsageError
from app.text import names, vocabulary
from app.training import checkpoint, growing
from app.training.stored import read_ids
from app.training.workdir import Workdir, read_flags
from app.types import WordVectors


def load(path: str | Path) -> WordVectors:
    """Return the rows of words, or of items that are recommended, in the newest checkpoint.

    Raises:
        UsageError: The folder holds no run.
        RunError: The run has no whole checkpoint yet, or it cannot be read.
    """
    workdir = Workdir(path)
    trained = workdir.trained  # tells first of a folder that cannot be read
    is_named = workdir.vocabulary.exists() or workdir.items.exists()
    if not is_named and not checkpoint.paths(trained):
        raise UsageError(f"--workdir={path}: no trained run there; train one with: make train")
    return checkpoint.of_newest(trained, lambda folder: _of_checkpoint(folder, workdir))


def _of_checkpoint(folder: Path, workdir: Workdir) -> WordVectors:
    if (folder / growing.NAME).is_dir():
        return growing.load(folder)
    if workdir.vocabulary.exists():
        known, table = vocabulary.load(str(workdir.vocabulary)), "input"
    else:
        known, table = names.load(workdir.items), "items"
    ids_N, rows_ND = read_ids(folder, table)
    if table == "items" and read_flags(workdir.flags).get("model") == "mf":
        rows_ND = rows_ND[:, :-1]  # without the bias, which is no direction
    named = np.searchsorted(ids_N, len(known.tokens))  # a classifier has n-grams after its words
    tokens = [known.tokens[number] for number in ids_N[:named]]
    return WordVectors(tokens, rows_ND[:named], known.counts[ids_N[:named]])
