"""The vectors of words with subwords, from the rows of a trained table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import checkpoint
from ...checkpoints.workdir import Workdir
from ...errors import DamagedError
from ...settings import ModelConfig
from ...text.subwords import list_rows
from ...text.vocabulary import Vocabulary
from ...types import NgramRule, NgramVectors, WordVectors

if TYPE_CHECKING:
    from ...models.row_lists import SubwordRows

# Words that are composed in one call.
_WORDS_AT_ONCE = 1 << 12


def make_rule(settings: ModelConfig) -> NgramRule | None:
    """Return the n-grams of a word by the flags of subwords; None without subwords."""
    if not settings.has_subwords:
        return None
    return NgramRule(settings.min_ngram, settings.max_ngram, settings.ngram_buckets)


def make_rows(
    tokens: Sequence[str], rule: NgramRule, workdir: Workdir, stored_words: int
) -> SubwordRows:
    """Return the rows of the words of a run.

    Args:
        rule: The n-grams of a word.
        workdir: The workdir of the run. If its newest checkpoint is of an earlier version, which
            made a row for each bucket, the run keeps them all.
        stored_words: The number of words of that checkpoint.

    Raises:
        RunError: A checkpoint cannot be read.
    """
    from ...models.row_lists import SubwordRows  # it imports TensorFlow

    stored = checkpoint.count_newest_rows(workdir.checkpoints, "input")
    return SubwordRows(tokens, rule, stored == stored_words + rule.buckets)


def compose(vocabulary: Vocabulary, rows_ND: np.ndarray, rule: NgramRule) -> WordVectors:
    """Return the composed vectors of all words, and the vectors of the n-grams.

    Rows are added in the order of training (`SubwordRows.compose`): even ones, odd ones, then both.
    The last bits may differ from those of a step, as TensorFlow's products round differently by
    shape.

    Args:
        rows_ND: The rows of the words, then of the buckets (see `SubwordRows`), or of all buckets,
            float32. The result shares their memory.
        rule: The n-grams of a word.

    Raises:
        DamagedError: These are not the rows of these words.
    """
    count, columns = len(vocabulary.tokens), rows_ND.shape[1]
    matrix = np.empty((count, columns), np.float32)
    has_all_buckets = len(rows_ND) == count + rule.buckets
    rows_N, starts, buckets_B = list_rows(vocabulary.tokens, rule, has_all_buckets)
    if len(rows_ND) != count + len(buckets_B):
        raise DamagedError(f"{len(rows_ND):,} rows are not those of {count:,} words")
    for first in range(0, count, _WORDS_AT_ONCE):
        bounds = starts[first : first + _WORDS_AT_ONCE + 1]
        sizes_W = np.diff(bounds)
        shares_W1 = 1 / sizes_W[:, np.newaxis].astype(np.float32)
        sums_2WD = np.zeros((2, len(sizes_W), columns), np.float32)
        for place in range(sizes_W.max()):
            (longer_L,) = np.nonzero(sizes_W > place)
            rows_L = rows_N[bounds[longer_L] + place]
            sums_2WD[rows_L % 2, longer_L] += rows_ND[rows_L] * shares_W1[longer_L]
        np.add(*sums_2WD, out=matrix[first : first + _WORDS_AT_ONCE])
    ngrams = NgramVectors(rule, rows_ND[count:], buckets_B)
    return WordVectors(vocabulary.tokens, matrix, vocabulary.counts, ngrams)
