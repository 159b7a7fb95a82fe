"""Load the trained vectors of a workdir: of its words, or of its items."""

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
    """Return the vectors of words or of recommended items in the newest checkpoint.

    Args:
        path: The folder of a run.

    Raises:
        UsageError: The folder has no run.
        RunError: The run has no complete checkpoint yet, or it cannot be read.
    """
    workdir = Workdir(path)
    trained = workdir.trained  # raises first if the folder cannot be read
    if not checkpoint.list_checkpoints(trained) and not any(
        map(Path.exists, _name_files(workdir).values())
    ):
        raise UsageError(f"--workdir={path}: no trained run there; train one with: make train")
    return checkpoint.read_newest(trained, lambda folder: _load_checkpoint(folder, workdir))


def _name_files(workdir: Workdir) -> dict[str, Path]:
    """Return the file that names the rows of each table."""
    return {"input": workdir.vocabulary, "items": workdir.items}


def _load_checkpoint(folder: Path, workdir: Workdir) -> WordVectors:
    """Return the vectors in the folder of a checkpoint."""
    if (folder / growing_words.STREAM_FOLDER).is_dir():
        return growing_words.load(folder)
    table = "items" if read_flags(workdir.flags).get("task") == "recommend" else "input"
    path = _name_files(workdir)[table]
    workdir.has(path)  # raises if the file is missing beside a checkpoint
    named_rows = names.load(path) if table == "items" else vocabulary.load(str(path))
    ids_N, rows_ND = read_ids(folder, table)
    if table == "items" and read_flags(workdir.flags).get("model") == "mf":
        rows_ND = rows_ND[:, :-1]  # the last column is a bias, not part of the direction
    # The ids of a classifier's n-grams follow those of its words.
    count = np.searchsorted(ids_N, len(named_rows.tokens))
    tokens = [named_rows.tokens[number] for number in ids_N[:count]]
    return WordVectors(tokens, rows_ND[:count], named_rows.counts[ids_N[:count]])
