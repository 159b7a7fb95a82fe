"""Texts of a classifier, which end with the word `</s>` if the features are those of fastText."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from ..settings import ClassifyConfig
from ..text.fasttext.parts import LINE_END
from ..types import ALONE, Team
from . import labelled_files
from .labelled import Examples


def read(sources: tuple[str, ...], config: ClassifyConfig, team: Team = ALONE) -> Examples:
    """Return the labelled texts of some files; see `labelled_files.read`.

    Args:
        sources: Paths of the files.
        config: The configuration of the run.
        team: The processes that read the files together.

    Raises:
        UsageError: The files cannot be used.
        RunError: A file cannot be read.
    """
    examples = labelled_files.read(sources, config, team)
    return examples.with_last_word(LINE_END) if config.labelled.fasttext_features else examples


def make_word_splitter(
    config: ClassifyConfig,
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Return a function from texts (E,) to words (M,) without labels, and their text numbers (M,).

    Args:
        config: The configuration of the run.
    """
    split = labelled_files.make_word_splitter(config)
    if not config.labelled.fasttext_features:
        return split

    def split_lines(texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the words of texts, with `</s>` after the last word of each, and their texts."""
        words_M, owners_M = split(texts_E)
        count = tf.size(texts_E, tf.int64)
        owners = tf.concat([owners_M, tf.range(count)], axis=0)
        words = tf.concat([words_M, tf.fill([count], LINE_END)], axis=0)
        order = tf.argsort(owners, stable=True)
        return tf.gather(words, order), tf.gather(owners, order)

    return split_lines
