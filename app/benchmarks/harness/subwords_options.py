"""The settings of the benchmark `subwords`."""

from __future__ import annotations

import dataclasses

from ...config.setting import setting
from .options import WordsOptions


@dataclasses.dataclass(frozen=True)
class SubwordsOptions(WordsOptions):
    """Word vectors with subwords, beside fastText, and beside those without subwords."""

    min_ngram: int = setting(3, "The fewest characters of a subword.", bounds=(1, 100))
    max_ngram: int = setting(6, "The most characters of a subword.", bounds=(1, 100))
    ngram_buckets: int = setting(
        2_000_000, "Rows that subwords are hashed into.", bounds=(1, 2**30)
    )
    peers: str = setting("fasttext", "Comma-separated peers to run beside Lexrow; empty runs none.")
