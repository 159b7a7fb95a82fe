"""Compare the corpus of a run with the corpus that its workdir was made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoints import workdir as files
from ..checkpoints.workdir import Workdir
from ..errors import UsageError
from ..settings import CorpusConfig
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
    return files.read_json(workdir.corpus, shape) if workdir.has(workdir.corpus) else {}


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
    may_change: bool,
) -> dict[str, Any] | None:
    """Return the fingerprint of a corpus with the recorded text; None for another text.

    It is None, too, if no text is recorded. See `corpus.recognize` for how much is read.

    Args:
        recorded: The fingerprint in the workdir; None or empty if there is none.
        settings: The settings of the corpus, for messages.
        may_change: Whether the run may go on with another text.

    Raises:
        UsageError: The text is another one, and may not change.
        RunError: A file cannot be read.
    """
    fingerprint = corpus.recognize(sources, recorded) if recorded else None
    if recorded and fingerprint is None and not may_change:
        raise UsageError(
            f"--corpus={settings.corpus} is not what --workdir={workdir.path} was made "
            "with; give that, or a new --workdir"
        )
    return fingerprint
