"""Add the words and the labels of more texts to those of a finished classifier (--grow_vocab)."""

from __future__ import annotations

import numpy as np

from ...errors import UsageError
from ...input.labelled import Examples
from ...settings import ClassifyConfig
from ...text import names as text_names
from ...text import vocabulary
from ...text.vocabulary import Vocabulary


def grow(
    words: Vocabulary, labels: Vocabulary, examples: Examples, config: ClassifyConfig
) -> tuple[Vocabulary, Vocabulary, tuple[np.ndarray, np.ndarray]]:
    """Add the words and the labels of more texts.

    Args:
        words: The words so far.
        labels: The labels so far.
        examples: The new texts.
        config: The configuration of the run.

    Returns:
        The words, the labels, and the new ids of the words and of the labels so far.

    Raises:
        UsageError: The run has n-grams, whose rows depend on the ids of words.
    """
    if config.labelled.word_ngrams > 1:
        raise UsageError(
            f"--word_ngrams={config.labelled.word_ngrams}: the rows of n-grams depend on the ids "
            "of words, which --grow_vocab changes; leave it out, or train in a new workdir"
        )
    settings = config.vocabulary
    new_words = text_names.count_names(examples.words, examples.tokens_M)
    new_labels = text_names.count_names(examples.labels, examples.labels_N)
    limits = settings.min_count, settings.max_vocab_size
    grown_words, word_ids = _add(words, new_words, *limits)
    grown_labels, label_ids = _add(labels, new_labels)
    return grown_words, grown_labels, (word_ids, label_ids)


def _add(
    old: Vocabulary, new: Vocabulary, min_count: int = 1, most: int = 0
) -> vocabulary.GrownVocabulary:
    """Return the old names with the counts and the names of the new ones added."""
    counts = dict(zip(new.tokens, new.counts.tolist(), strict=True))
    return vocabulary.grow(old, counts, new.total, min_count, most)
