"""Settings of texts with labels."""

from __future__ import annotations

import dataclasses

from .setting import setting

_CLASSIFY = ("task", "classify")


@dataclasses.dataclass(frozen=True)
class LabelledConfig:
    """What is a label, and what a text is made of."""

    label_prefix: str = setting(
        "__label__",
        "How a label begins, in lines such as `__label__good a fine film`.",
        fixed=True,
        only=_CLASSIFY,
    )
    text_column: str = setting(
        "", "The column of texts in CSV or TSV files with a header.", fixed=True, only=_CLASSIFY
    )
    label_column: str = setting(
        "", "The column of labels in CSV or TSV files.", fixed=True, only=_CLASSIFY
    )
    label_separator: str = setting(
        "",
        "What is between the labels of a cell, such as `|`; empty where a cell is one label.",
        fixed=True,
        only=_CLASSIFY,
    )
    word_ngrams: int = setting(
        1,
        "Words of the longest n-gram that is a feature.",
        minimum=1,
        maximum=100,
        fixed=True,
        only=_CLASSIFY,
    )
    # As fastText's.
    buckets: int = setting(
        2_000_000,
        "Rows that n-grams of two words and more are hashed to.",
        minimum=1,
        maximum=2**30,
        fixed=True,
        only=_CLASSIFY,
    )
    class_weights: str = setting(
        "none",
        "Weights of the labels in the loss: `none`, `balanced` (rare labels count more), or such "
        "as `good=1,bad=3`.",
        fixed=True,
        only=_CLASSIFY,
    )
    pretrained_vectors: str = setting(
        "",
        "A word2vec file, text or binary, whose vectors words start from.",
        fixed=True,
        only=_CLASSIFY,
        path=True,
    )
