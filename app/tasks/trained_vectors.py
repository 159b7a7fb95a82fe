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
from .words import growing_words, subword_vectors


def load(path: str | Path) -> WordVectors:
    """Load the vectors of the words of a run, or of its items with --task=recommend.

    They are of the best epoch if --patience kept one, else of the newest checkpoint.

    Args:
        path: The workdir of the run.

    Raises:
        UsageError: The workdir has no run.
        RunError: No checkpoint can be read.
    """
    workdir = Workdir(path)
    trained = workdir.trained  # raises first if the folder cannot be read
    if not checkpoint.list_checkpoints(trained) and not any(
        map(Path.exists, _name_files(workdir).values())
    ):
        raise UsageError(f"--workdir={path}: no trained run there; name the folder of one")
    return checkpoint.read_newest(trained, lambda folder: _load_checkpoint(folder, workdir))


def _name_files(workdir: Workdir) -> dict[str, Path]:
    """Return the path of the file that names the rows of each table, by table."""
    return {"input": workdir.vocabulary, "items": workdir.items}


def _load_checkpoint(folder: Path, workdir: Workdir) -> WordVectors:
    """Load the vectors in the folder of a checkpoint, without a bias and without word n-grams.

    Of a dynamic table only words or items that have a row are returned. Names of ids are read from
    the workdir; DamagedError is raised if their file is missing.
    """
    if (folder / growing_words.STREAM_FOLDER).is_dir():
        return growing_words.load(folder)
    flags = read_flags(workdir.flags)
    table = "items" if flags.get("task") == "recommend" else "input"
    path = _name_files(workdir)[table]
    workdir.has(path)  # raises if the file is missing beside a checkpoint
    named_rows = names.load(path) if table == "items" else vocabulary.load(str(path))
    ids_N, rows_ND = read_ids(folder, table)
    if table == "items" and flags.get("model") == "mf":
        rows_ND = rows_ND[:, :-1]  # the last column is a bias, not part of the direction
    rule = subword_vectors.read_rule(flags)
    if rule is not None:
        return subword_vectors.compose(named_rows, rows_ND, rule)
    # The ids of a classifier's n-grams follow those of its words.
    count = np.searchsorted(ids_N, len(named_rows.tokens))
    tokens = [named_rows.tokens[number] for number in ids_N[:count]]
    return WordVectors(tokens, rows_ND[:count], named_rows.counts[ids_N[:count]])
