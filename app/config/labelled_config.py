"""The settings of labelled text (`--task=classify`)."""

from __future__ import annotations

import dataclasses

from .setting import setting

_CLASSIFY = ("task", "classify")


@dataclasses.dataclass(frozen=True)
class LabelledConfig:
    """The settings of labelled text: how labels are read, and which features a text has."""

    label_prefix: str = setting(
        "__label__",
        "How a label starts, in lines such as `__label__good a fine film`.",
        fixed=True,
        only=_CLASSIFY,
    )
    text_column: str = setting(
        "",
        "The column of the texts, in CSV or TSV files with a header line.",
        fixed=True,
        only=_CLASSIFY,
    )
    label_column: str = setting(
        "", "The column of the labels, in CSV or TSV files.", fixed=True, only=_CLASSIFY
    )
    label_separator: str = setting(
        "",
        "The separator between several labels in one cell, such as `|`. Empty: a cell is one "
        "label.",
        fixed=True,
        only=_CLASSIFY,
    )
    word_ngrams: int = setting(
        1,
        "The length in words of the longest n-gram that is a feature.",
        minimum=1,
        maximum=100,
        fixed=True,
        only=_CLASSIFY,
    )
    buckets: int = setting(
        2_000_000,  # the default of fastText
        "Rows for n-grams of two or more words, which are hashed to them.",
        minimum=1,
        maximum=2**30,
        fixed=True,
        only=_CLASSIFY,
    )
    class_weights: str = setting(
        "none",
        "The weights of the labels in the loss: `none`, `balanced` (rare labels count more), or "
        "a list such as `good=1,bad=3`.",
        fixed=True,
        only=_CLASSIFY,
    )
    pretrained_vectors: str = setting(
        "",
        "A word2vec file, text or binary, with the initial vectors of the words.",
        fixed=True,
        only=_CLASSIFY,
        path=True,
    )
