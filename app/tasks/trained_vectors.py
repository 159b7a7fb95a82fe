"""The vectors of a workdir: of its words, or of its items."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..checkpoints import checkpoint
from ..checkpoints.stored import read_ids
from ..checkpoints.workdir import Workdir, read_flags
from ..errors import UsageError
from ..text import names, vocabulary
from ..types import WordVectors
from .words import growing_words


def load(path: str | Path) -> WordVectors:
    """Return the rows of words, or of items that are recommended, in the newest checkpoint.

    Raises:
        UsageError: The folder holds no run.
        RunError: The run has no whole checkpoint yet, or it cannot be read.
    """
    workdir = Workdir(path)
    trained = workdir.trained  # tells first of a folder that cannot be read
    if not checkpoint.paths(trained) and not any(map(Path.exists, _names(workdir).values())):
        raise UsageError(f"--workdir={path}: no trained run there; train one with: make train")
    return checkpoint.of_newest(trained, lambda folder: _of_checkpoint(folder, workdir))


def _names(workdir: Workdir) -> dict[str, Path]:
    """Return the files that may name the rows of a run, by table."""
    return {"input": workdir.vocabulary, "items": workdir.items}


def _of_checkpoint(folder: Path, workdir: Workdir) -> WordVectors:
    if (folder / growing_words.STREAM_FOLDER).is_dir():
        return growing_words.load(folder)
    table = "items" if read_flags(workdir.flags).get("task") == "recommend" else "input"
    path = _names(workdir)[table]
    workdir.has(path)  # or it is told that the file is missing
    known = names.load(path) if table == "items" else vocabulary.load(str(path))
    ids_N, rows_ND = read_ids(folder, table)
    if table == "items" and read_flags(workdir.flags).get("model") == "mf":
        rows_ND = rows_ND[:, :-1]  # without the bias, which is no direction
    named = np.searchsorted(ids_N, len(known.tokens))  # a classifier has n-grams after its words
    tokens = [known.tokens[number] for number in ids_N[:named]]
    return WordVectors(tokens, rows_ND[:named], known.counts[ids_N[:named]])
