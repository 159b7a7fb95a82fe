"""Compare the corpus of a run with the corpus that its workdir was made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoints import workdir as files
from ..checkpoints.workdir import Workdir
from ..config import Config
from ..errors import UsageError
from ..text import corpus


def read(workdir: Workdir, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Read the corpus.json of a workdir; return an empty dictionary if there is none.

    Args:
        workdir: The workdir of the run.
        shape: The shape that the value must have (see `checked_files.fits`).

    Raises:
        DamagedError: The file is damaged, or missing beside a checkpoint.
        RunError: The file cannot be read.
    """
    return files.read_json(workdir.corpus, shape) if workdir.has(workdir.corpus) else {}


def recognize(
    sources: tuple[str, ...], recorded: dict[str, Any] | None, config: Config, may_change: bool
) -> dict[str, Any] | None:
    """Return the fingerprint of a corpus with the recorded text; None for another text.

    It is None, too, if no text is recorded. See `corpus.recognize` for how much is read.

    Args:
        sources: Paths of the files.
        recorded: The fingerprint in the workdir; None or empty if there is none.
        config: The configuration of the run, for messages.
        may_change: Whether the run may go on with another text.

    Raises:
        UsageError: The text is another one, and may not change.
        RunError: A file cannot be read.
    """
    fingerprint = corpus.recognize(sources, recorded) if recorded else None
    if recorded and fingerprint is None and not may_change:
        raise UsageError(
            f"--corpus={config.corpus.corpus} is not what --workdir={config.run.workdir} was made "
            "with; give that, or a new --workdir"
        )
    return fingerprint
