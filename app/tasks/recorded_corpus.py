"""Compare the corpus of a run with the corpus that its workdir was made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoints.checkpoint import Position, newest_position
from ..checkpoints.workdir import Workdir
from ..errors import UsageError
from ..settings import CorpusConfig, RunConfig
from ..system.checked_files import COUNT, read_json
from ..text import corpus
from ..types import Team


def read(workdir: Workdir, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Read the corpus.json of a workdir; return an empty dictionary if there is none.

    Args:
        shape: The shape that the value must have (see `checked_files.fits`).

    Raises:
        DamagedError: The file is damaged, or missing beside a checkpoint.
        RunError: The file cannot be read.
    """
    return read_json(workdir.corpus, shape) if workdir.has(workdir.corpus) else {}


def count_ngram_rows(workdir: Workdir) -> int | None:
    """Return the number of buckets that the workdir lists; None if each bucket has a row.

    Raises:
        DamagedError: The file is damaged, or missing beside a checkpoint.
        RunError: The file cannot be read.
    """
    return read(workdir, {"ngram_rows": (None, COUNT)}).get("ngram_rows")


def open_corpus(
    settings: CorpusConfig, workdir: Workdir, shape: Mapping[str, Any], team: Team
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the paths of the files of a corpus, and the corpus.json of a workdir (see `read`).

    Raises:
        UsageError: --corpus names no files.
        DamagedError: The corpus.json is damaged, or missing beside a checkpoint.
        RunError: A file cannot be read, or a process of the team has other files.
    """
    sources = corpus.resolve(settings)
    known = read(workdir, shape)
    corpus.check_same(sources, known, team)
    return sources, known


def recognize(
    sources: tuple[str, ...],
    recorded: dict[str, Any] | None,
    settings: CorpusConfig,
    workdir: Workdir,
    run: RunConfig | None,
) -> dict[str, Any] | None:
    """Return the fingerprint of a corpus with the recorded text; None for another text.

    It is None, too, if no text is recorded. See `corpus.recognize` for how much is read.

    Args:
        recorded: The fingerprint in the workdir; None or empty if there is none.
        settings: The settings of the corpus, for messages.
        run: The settings of a run that may go on with another text, unless they leave nothing to
            train; None if it may not.

    Raises:
        UsageError: The text is another one, and may not change, or nothing is trained on it.
        RunError: A file cannot be read.
    """
    if not recorded:
        return None
    if fingerprint := corpus.recognize(sources, recorded):
        return fingerprint
    other = f"--corpus={settings.corpus} is not what --workdir={workdir.path} was made with"
    if run is None:
        raise UsageError(f"{other}; give that, or a new --workdir")
    position = newest_position(workdir.checkpoints)
    if position is None or not position.is_at_end(run.epochs, run.patience):
        return None
    current = corpus.fingerprint(sources)
    if current["contents"] != recorded.get("contents"):
        raise UsageError(f"{other}, and {_reason(position, run)}")
    return current  # the files have other names


def _reason(position: Position, run: RunConfig) -> str:
    """Return why a run at its end does not go on, and what lets it."""
    reasons, remedies = [], []
    if position.epoch >= run.epochs:
        reasons.append("its epochs are made")
        remedies.append(f"more than --epochs={position.epoch}")
    if 0 < run.patience <= position.since:
        reasons.append(f"none of its last {position.since} epochs was better")
        remedies.append(f"a --patience above {position.since}, or 0")
    return f"{' and '.join(reasons)}; to go on with this text, give {' and '.join(remedies)}"
