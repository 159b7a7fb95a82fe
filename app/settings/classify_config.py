"""The settings of a classifier of texts (`--task=classify`)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..errors import UsageError
from .config import (
    PHRASES,
    RECURRENT,
    SKIPGRAM,
    Config,
    InputConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    VocabularyConfig,
)
from .setting import fixed_setting, setting

# The largest weight of a text: none counts for more than a million others.
MOST_WEIGHT = 1e6

# --label_separator of texts that a Python program gives as lists: a character that no label should
# have. Who gives it has named no column.
BETWEEN_LISTED = "\x1f"

# The settings that --tune_seconds can search.
TUNABLE = ("learning_rate", "epochs", "word_ngrams", "dim", "loss")


@dataclasses.dataclass(frozen=True)
class LabelledConfig:
    """The settings of labelled text: how labels are read, and which features a text has."""

    label_prefix: str = fixed_setting(
        "__label__", "How a label starts, in lines such as `__label__good a fine film`."
    )
    label_column: str = fixed_setting("", "The column of the labels, beside --text_column.")
    label_separator: str = fixed_setting("", "What separates labels in a cell, such as `|`.")
    weight_column: str = fixed_setting("", "The column of the weights of the texts in the loss.")
    weight_prefix: str = fixed_setting(
        "__weight__",
        "How the weight of a text starts, in lines such as `__label__good __weight__0.5 a film`. "
        "Empty: there are no weights, and such a piece is a word.",
    )
    label_weights: bool = fixed_setting(
        False, "Whether labels have weights, as in `__label__good:0.7 __label__bad:0.3`."
    )
    word_ngrams: int = fixed_setting(
        1, "The length in words of the longest n-gram that is a feature.", bounds=(1, 100)
    )
    buckets: int = fixed_setting(
        2_000_000,  # the default of fastText
        "The number of buckets that n-grams of two or more words are hashed to.",
        bounds=(1, 2**30),
    )
    fasttext_features: bool = fixed_setting(
        False,
        "Make the features of a text as fastText does, to export a classifier with n-grams for it, "
        "or to train one of its classifiers further.",
    )
    class_weights: str = fixed_setting(
        "none",
        "The weights of the labels in the loss: `none`, `balanced` (rare labels count more), or "
        "a list such as `good=1,bad=3`.",
    )
    pretrained_vectors: str = fixed_setting(
        "", "A file of word2vec or fastText with initial vectors of words.", path=True
    )
    initial_model: str = fixed_setting(
        "", "A classifier of fastText to train further (with --fasttext_features).", path=True
    )


@dataclasses.dataclass(frozen=True)
class TuningConfig:
    """The settings of the search for settings, before the training."""

    tune_seconds: float = setting(
        0.0,
        "Seconds to search for the settings with the best score on held-out texts. The training "
        "with them, on all texts, follows. 0: no search.",
        bounds=(0, 31_536_000),
    )
    tune: str = setting(
        "",
        "What --tune_seconds searches: some of learning_rate,epochs,word_ngrams,dim,loss. Empty: "
        "those that have their default.",
    )
    tune_bytes: int = setting(
        0,
        "The most bytes of the classifier as a file of `lexrow export "
        "--format=fasttext_quantized`, which --tune_seconds then scores. 0: any.",
        bounds=(0, 2**40),
    )

    @property
    def names(self) -> list[str]:
        """The settings that --tune lists."""
        return [name.strip() for name in self.tune.split(",") if name.strip()]


@dataclasses.dataclass(frozen=True)
class ClassifyConfig(Config):
    """The settings of a classifier of texts."""

    run: RunConfig = RunConfig(task="classify")
    vocabulary: VocabularyConfig = VocabularyConfig(min_count=1)
    input: InputConfig = InputConfig(batch_tokens=16384, steps_per_call=8, heldout_share=0.1)
    labelled: LabelledConfig = LabelledConfig()
    model: ModelConfig = ModelConfig(loss="softmax")
    optimizer: OptimizerConfig = OptimizerConfig(initial_accumulator=0.001)
    tuning: TuningConfig = TuningConfig()

    unused: ClassVar[frozenset[str]] = (
        SKIPGRAM
        | PHRASES
        | {"documents", "vocab_memory_entries", "row_tokens", "cache"}
        | RECURRENT
        | {"subsample", "shuffle"}
    )
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "loss": (
            *("softmax", "one_vs_all", "hierarchical_softmax"),
            *("class_softmax", "sampled_softmax"),
        )
    }

    def check(self) -> None:
        """Raise UsageError if the columns are not named together, or no label differs from a word.

        Neither column is fine: then each line has labels and text.
        """
        settings, text_column = self.labelled, self.corpus.text_column
        if bool(text_column) != bool(settings.label_column):
            raise UsageError(
                f"--text_column={text_column} --label_column={settings.label_column}: name "
                "both, or neither for lines of labels and text"
            )
        if settings.label_separator and not settings.label_column:
            raise UsageError(
                f"--label_separator={settings.label_separator} separates the labels in a cell of "
                "--label_column; name that column, or leave the separator out"
            )
        if settings.weight_column and not settings.label_column:
            raise UsageError(
                f"--weight_column={settings.weight_column}: name --text_column and --label_column, "
                "too, or write __weight__0.5 in the lines"
            )
        if not (settings.label_prefix or settings.label_column):
            raise UsageError(
                "--label_prefix= is empty, so no label differs from a word; give how one starts, "
                "such as __label__, or name --text_column and --label_column of CSV or TSV files"
            )
        if settings.weight_prefix and settings.label_prefix.startswith(settings.weight_prefix):
            raise UsageError(
                f"--weight_prefix={settings.weight_prefix}: --label_prefix={settings.label_prefix} "
                "begins alike; give another one, or an empty --weight_prefix"
            )
        self._check_tuning()

    def _check_tuning(self) -> None:
        """Raise UsageError if the settings cannot be searched as asked."""
        tuning, seconds = self.tuning, f"--tune_seconds={self.tuning.tune_seconds:g}"
        if not tuning.tune_seconds:
            for name in ("tune", "tune_bytes"):
                if value := getattr(tuning, name):
                    raise UsageError(f"--{name}={value} means nothing without --tune_seconds")
            return
        for name in tuning.names:
            if name not in TUNABLE:
                raise UsageError(f"--tune={name}: not one of {', '.join(TUNABLE)}")
        if self.run.strategy != "none" or self.table.table != "device":
            other = f"--strategy={self.run.strategy} or --table={self.table.table}"
            raise UsageError(f"{seconds} cannot search with {other}; leave these out")
        if self.run.patience:
            raise UsageError(
                f"{seconds} searches the number of epochs, and no text is held out then; leave out "
                f"--patience={self.run.patience}"
            )
