"""The checks of the settings of subwords."""

from __future__ import annotations

from ..errors import NoEffectError, UsageError
from .learning_config import ModelConfig


def check_subwords(settings: ModelConfig) -> None:
    """Raise UsageError if no subword has an allowed length, or a setting has no effect.

    Args:
        settings: The settings of the model.

    Raises:
        UsageError: --min_ngram is above --max_ngram.
        NoEffectError: There are no subwords, but their settings are not the defaults.
    """
    shortest, longest = settings.min_ngram, settings.max_ngram
    if settings.has_subwords and shortest > longest:
        raise UsageError(
            f"--min_ngram={shortest} is above --max_ngram={longest}; exchange them, or give "
            "--max_ngram=0 for no subwords"
        )
    for name in ("min_ngram", "ngram_buckets"):
        value = getattr(settings, name)
        if not longest and value not in (0, getattr(ModelConfig(), name)):
            raise NoEffectError(
                name,
                "max_ngram",
                f"--{name}={value} means nothing without subwords; give --max_ngram=6, or leave "
                "it out",
            )
