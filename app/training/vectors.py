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
    """The rows of words, or of items that are recommended, in the newest checkpoint.

    UsageError if the folder holds no run; RunError if the run has no whole checkpoint yet.
    """
    workdir = Workdir(path)
    newest = checkpoint.paths(workdir.trained)[:1]
    if newest and (newest[0] / growing.NAME).is_dir():
        return checkpoint.of_newest(workdir.trained, growing.load)
    is_of_items = read_flags(workdir.flags).get("task") == "recommend"
    if not workdir.has(workdir.items if is_of_items else workdir.vocabulary):
        raise UsageError(f"--workdir={path}: no trained run there; train one with: make train")
    if is_of_items:
        known, table = names.load(workdir.items), "items"
    else:
        known, table = vocabulary.load(str(workdir.vocabulary)), "input"
    ids_N, rows_ND = checkpoint.of_newest(workdir.trained, lambda path: read_ids(path, table))
    if table == "items" and read_flags(workdir.flags).get("model") == "mf":
        rows_ND = rows_ND[:, :-1]  # without the bias, which is no direction
    named = np.searchsorted(ids_N, len(known.tokens))  # a classifier has n-grams after its words
    tokens = [known.tokens[number] for number in ids_N[:named]]
    return WordVectors(tokens, rows_ND[:named], known.counts[ids_N[:named]])
