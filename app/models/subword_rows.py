"""Words as means of rows: the row of the word and the rows of its character n-grams."""

from __future__ import annotations

from collections.abc import Sequence

from ..text.subwords import list_rows
from ..types import NgramRule
from .row_lists import RowLists


class SubwordRows(RowLists):
    """The rows of each word in a table of V words, then of buckets of n-grams, as in fastText.

    The vector of a word is the mean of its rows (`FastText::getWordVector` of fastText 0.9.2). A
    row that a word has twice counts twice.

    fastText makes a row for each bucket. Here a bucket that no word has is left out, because its
    row would never be trained: 67,371 words of Wikipedia have 293,080 of 2,000,000 buckets.

    Args:
        tokens: The V words.
        rule: The n-grams of a word.
        has_all_buckets: Whether the table has a row for each bucket nevertheless, as tables of
            fastText and of earlier versions.

    Attributes:
        buckets_N: The buckets that have a row, rising, (N,) int32. Row V + n is of `buckets_N[n]`.
    """

    def __init__(self, tokens: Sequence[str], rule: NgramRule, has_all_buckets: bool = False):
        self.has_all_buckets = has_all_buckets
        rows_N, starts, self.buckets_N = list_rows(tokens, rule, has_all_buckets)
        super().__init__(rows_N, starts, len(tokens) + len(self.buckets_N), is_mean=True)
