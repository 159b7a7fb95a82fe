"""Load the trained vectors of a workdir: of its words, or of its items."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..checkpoints import checkpoint
from ..checkpoints.stored import read_ids, read_layout
from ..checkpoints.workdir import Workdir, read_settings
from ..errors import DamagedError, RunError, UsageError
from ..settings import ClassifyConfig, Config, flag_values
from ..text import unicode_rules, vocabulary
from ..text.vocabulary import Vocabulary
from ..types import WordVectors
from .classify import classify_data
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
    config = flag_values.from_names(read_settings(path))
    vectors = checkpoint.read_newest(
        trained, lambda folder: _load_checkpoint(folder, workdir, config)
    )
    return vectors._replace(form=unicode_rules.normal_form(config.corpus))


def _name_files(workdir: Workdir) -> dict[str, Path]:
    """Return the path of the file that names the rows of each table, by table."""
    return {"input": workdir.vocabulary, "items": workdir.items}


def _load_checkpoint(folder: Path, workdir: Workdir, config: Config) -> WordVectors:
    """Load the vectors in the folder of a checkpoint, without a bias and without word n-grams.

    Of a dynamic table only words or items that have a row are returned. Names of ids are read from
    the workdir.
    """
    if (folder / growing_words.STREAM_FOLDER).is_dir():
        return growing_words.load(folder)
    table = "items" if config.run.task == "recommend" else "input"
    path = _name_files(workdir)[table]
    named_rows = _load_names(workdir, path)
    is_dynamic = read_layout(folder, table)["kind"] == "dynamic"
    ids_N, rows_ND = read_ids(folder, table)
    if table == "items" and config.model.model == "mf":
        rows_ND = rows_ND[:, :-1]  # the last column is a bias, not part of the direction
    rule = subword_vectors.make_rule(config.model)
    count = len(named_rows.tokens)
    if rule is not None:
        try:
            return subword_vectors.compose(named_rows, rows_ND, rule)
        except DamagedError as error:  # of the names, as the checkpoint could be read
            raise misfit(path, count, folder, len(rows_ND)) from error
    last = ids_N[-1] + 1 if len(ids_N) else 0
    expected = count + _count_ngram_rows(config, workdir)
    # A dynamic table may lack rows.
    if last > expected or (last < expected and not is_dynamic):
        raise misfit(path, count, folder, last)
    # The ids of a classifier's n-grams follow those of its words.
    stored = np.searchsorted(ids_N, count)
    tokens = [named_rows.tokens[number] for number in ids_N[:stored]]
    return WordVectors(tokens, rows_ND[:stored], named_rows.counts[ids_N[:stored]])


def misfit(path: Path, names: int, folder: Path, rows: int) -> RunError:
    """Return the error for a file of names that a checkpoint was not made with.

    Args:
        names: The number of its names.
        rows: The number of rows of the table, with those of n-grams.
    """
    return RunError(
        f"{path} has {names:,} names, which do not fit the {rows:,} rows of {folder}; put back a "
        "copy of the file, or train in a new workdir"
    )


def _count_ngram_rows(config: Config, workdir: Workdir) -> int:
    """Return the rows for n-grams of a classifier's table; 0 for other tasks.

    Raise RunError if the record of the workdir cannot be read.
    """
    if not isinstance(config, ClassifyConfig):
        return 0
    try:
        recorded = classify_data.count_ngram_rows(workdir)
    except DamagedError as error:  # which would mean that the checkpoint is damaged
        raise RunError(str(error)) from error
    if recorded is not None:
        return recorded
    return config.labelled.buckets if config.labelled.word_ngrams > 1 else 0


def _load_names(workdir: Workdir, path: Path) -> Vocabulary:
    """Load the names of the rows of a table from one of the `_name_files`.

    Raise RunError if the file is missing or damaged. A DamagedError would mean that the checkpoint
    is damaged.
    """
    try:
        workdir.has(path)  # raises if the file is missing beside a checkpoint
        return vocabulary.load_names(path) if path == workdir.items else vocabulary.load(str(path))
    except DamagedError as error:
        raise RunError(str(error)) from error
