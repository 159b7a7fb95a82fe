"""The checks of the settings of phrases and of a vocabulary that grows."""

from __future__ import annotations

from ..errors import UsageError
from . import Config


def check_vocabulary(config: Config) -> None:
    """Check the settings of phrases, and those with which a vocabulary can grow.

    Args:
        config: The settings of a run.

    Raises:
        UsageError: The threshold of phrases is above any score, or a table cannot grow.
    """
    words, table = config.vocabulary, config.table
    if words.phrases and words.phrase_score == "npmi" and words.score_threshold >= 1:
        raise UsageError(f"--phrase_threshold={words.phrase_threshold}: give less than 1 for npmi")
    if not words.grow_vocab:
        return
    remedy = "cannot grow by more text; give --nogrow_vocab, or train in a new workdir"
    if table.table_file:
        raise UsageError(f"--table_file={table.table_file}: a table in a file {remedy}")
    if table.is_dynamic:
        raise UsageError(f"--table={table.table}: a table that gets rows as keys come {remedy}")
    if config.run.strategy != "none":
        raise UsageError(f"--strategy={config.run.strategy}: tables of several processes {remedy}")
