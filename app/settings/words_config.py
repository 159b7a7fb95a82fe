"""The settings of the tasks on running text: word vectors, and a language model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ..errors import NoEffectError, UsageError
from .config import (
    HELDOUT,
    PHRASES,
    RECURRENT,
    SKIPGRAM,
    Config,
    InputConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
)

# The losses that predict a word out of a whole vocabulary, by all of its rows or by samples.
_WORD_LOSSES = (
    *("class_softmax", "sampled_softmax", "nce"),
    *("hierarchical_softmax", "adaptive_softmax", "softmax"),
)


@dataclasses.dataclass(frozen=True)
class WordsConfig(Config):
    """The settings of word vectors."""

    run: RunConfig = RunConfig(task="words")

    unused: ClassVar[frozenset[str]] = HELDOUT | RECURRENT
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"loss": ("negative_sampling", *_WORD_LOSSES)}

    def check(self) -> None:
        """Raise UsageError if values of subwords, phrases or the table do not fit."""
        _check_subwords(self.model)
        words = self.vocabulary
        if words.phrases and words.phrase_score == "npmi" and words.score_threshold >= 1:
            raise UsageError(
                f"--phrase_threshold={words.phrase_threshold}: give less than 1 for npmi"
            )
        if self.table.is_dynamic:
            _check_dynamic(self)


def _check_subwords(settings: ModelConfig) -> None:
    """Raise UsageError if no subword has an allowed length."""
    shortest, longest = settings.min_ngram, settings.max_ngram
    if settings.has_subwords and shortest > longest:
        raise UsageError(
            f"--min_ngram={shortest} is above --max_ngram={longest}; exchange them, or give "
            "--max_ngram=0 for no subwords"
        )


def _check_dynamic(config: Config) -> None:
    """Raise UsageError for a flag that needs a counted vocabulary, or a --min_count above 255."""
    allowed = (
        ("loss", config.model.loss, ("negative_sampling",)),
        ("max_ngram", config.model.max_ngram, (0,)),
        ("vocab", config.vocabulary.vocab, ("",)),
        ("cache", config.input.cache, ("none", "auto")),
        ("phrases", config.vocabulary.phrases, (0,)),
    )
    for name, value, possible in allowed:
        if value in possible:
            continue
        message = (
            f"--{name}={value} needs a vocabulary, and --table=dynamic has none; give "
            f"--{name}={possible[0]}, or another --table"
        )
        if name in ("loss", "max_ngram"):  # without it, a flagfile would describe another model
            raise UsageError(message)
        raise NoEffectError(name, message)
    if config.vocabulary.min_count > 255:
        raise UsageError(
            f"--min_count={config.vocabulary.min_count}: --table=dynamic counts words without a "
            "row up to 255; give at most 255"
        )


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig(Config):
    """The settings of a language model."""

    run: RunConfig = RunConfig(task="language_model")
    input: InputConfig = InputConfig(batch_tokens=1024, steps_per_call=4)
    model: ModelConfig = ModelConfig(loss="auto")
    optimizer: OptimizerConfig = OptimizerConfig(optimizer="lazy_adam")

    unused: ClassVar[frozenset[str]] = SKIPGRAM | PHRASES | {"grow_vocab", "subsample", "shuffle"}
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"loss": ("auto", *_WORD_LOSSES)}

    def check(self) -> None:
        """Raise UsageError if the vocabulary has no room for a word, or none is counted."""
        if self.vocabulary.max_vocab_size in (1, 2):
            raise UsageError(
                f"--max_vocab_size={self.vocabulary.max_vocab_size}: a language model has <unk> "
                "and <eos> among them; give at least 3"
            )
        model = self.model
        if model.tie_weights and model.hidden not in (0, model.dim):
            raise UsageError(
                f"--hidden={model.hidden}: --tie_weights needs as many units as --dim={model.dim} "
                "has columns; leave out one of them"
            )
        if self.table.is_dynamic:
            raise UsageError(
                "--task=language_model needs a vocabulary, and --table=dynamic has none; give "
                "--task=words, or another --table"
            )

    @classmethod
    def learning_rate(cls, values: Mapping[str, Any]) -> float:
        """Return the default of --learning_rate: 0.004 for lazy Adam, else as for other tasks."""
        return 0.004 if values["optimizer"] == "lazy_adam" else super().learning_rate(values)
