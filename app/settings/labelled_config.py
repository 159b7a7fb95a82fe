"""The settings of labelled text (`--task=classify`)."""

from __future__ import annotations

import dataclasses
import functools

from .setting import setting

_labelled = functools.partial(setting, fixed=True, only=("task", "classify"))


@dataclasses.dataclass(frozen=True)
class LabelledConfig:
    """The settings of labelled text: how labels are read, and which features a text has."""

    label_prefix: str = _labelled(
        "__label__", "How a label starts, in lines such as `__label__good a fine film`."
    )
    label_column: str = _labelled("", "The column of the labels, beside --text_column.")
    label_separator: str = _labelled(
        "",
        "The separator between several labels in one cell, such as `|`. Empty: a cell is one "
        "label.",
    )
    weight_column: str = _labelled(
        "",
        "The column of the weights of the texts, beside --text_column. The weight of a text "
        "multiplies its loss. Empty: all weights are 1.",
    )
    weight_prefix: str = _labelled(
        "__weight__",
        "How the weight of a text starts, in lines such as `__label__good __weight__0.5 a film`. "
        "Empty: there are no weights, and such a piece is a word.",
    )
    label_weights: bool = _labelled(
        False,
        "Whether a number from 0 to 1 after the last colon of a label is its weight, as in "
        "`__label__good:0.7 __label__bad:0.3`. A label without a colon has the weight 1.",
    )
    word_ngrams: int = _labelled(
        1, "The length in words of the longest n-gram that is a feature.", bounds=(1, 100)
    )
    buckets: int = _labelled(
        2_000_000,  # the default of fastText
        "The number of buckets that n-grams of two or more words are hashed to. In a new run, only "
        "buckets with an n-gram of the training texts have a row.",
        bounds=(1, 2**30),
    )
    fasttext_features: bool = _labelled(
        False,
        "Make the features of a text as fastText does: the word `</s>` ends each text, and an "
        "n-gram is hashed from the spelling of its words, also of unknown ones. Needed to export a "
        "classifier with n-grams for fastText, and to train one of fastText further.",
    )
    class_weights: str = _labelled(
        "none",
        "The weights of the labels in the loss: `none`, `balanced` (rare labels count more), or "
        "a list such as `good=1,bad=3`.",
    )
    pretrained_vectors: str = _labelled(
        "",
        "A file of word2vec (text or binary) or fastText (.bin) with the initial vectors of the "
        "words.",
        path=True,
    )
    initial_model: str = _labelled(
        "",
        "A classifier of fastText (.bin) to train further: its words and labels, and the initial "
        "values of their rows. It needs --fasttext_features.",
        path=True,
    )
