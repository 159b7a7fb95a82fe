"""Find the phrases of a text: pairs of tokens that follow each other more often than by chance."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ..settings import CorpusConfig, InputConfig, VocabularyConfig
from ..types import ALONE, Team
from . import pair_counts
from .blocks import (
    map_in_order,
    raise_read_errors,
    split_documents,
    without_autograph,
)
from .counting import check_blocks, warn_about_whole_pass
from .meter import show_progress
from .pair_counts import PairCounts
from .phrase_joiner import make_joiner
from .phrase_table import JOINT, Phrases, PhraseTable
from .reading import Progress
from .shares import ALL, Share, share_dataset, share_of
from .tokenize import LONGEST_TOKEN, make_tokenizer


class _Block(NamedTuple):
    """The counts of a block of text: see the arguments of `PairCounts.add`."""

    tokens_U: tf.Tensor
    counts_U: tf.Tensor
    pairs_P2: tf.Tensor
    counts_P: tf.Tensor


def find_phrases(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    vocabulary: VocabularyConfig,
    team: Team = ALONE,
) -> Phrases:
    """Read the files once for each pass of --phrases, and return the phrases of each pass.

    A pass counts the tokens that the passes before it have made, so phrases get longer. The last
    passes are left out if they find nothing; the number of phrases is logged. Progress is shown.

    Args:
        sources: Paths of the files.
        corpus: How to read and split the text.
        settings: Size of a block, and parallelism.
        vocabulary: The number of passes, the score and its limits.
        team: The processes that read the text together, and find the phrases of one process.

    Raises:
        UsageError: There is no block of the text for a process of the team.
        RunError: A source cannot be read.
    """
    phrases: Phrases = ()
    for number in range(1, vocabulary.phrases + 1):
        limit = vocabulary.vocab_memory_entries
        counts = count_pairs(sources, corpus, settings, limit, phrases, team)
        table = select_phrases(counts, vocabulary)
        logging.info("pass %d of --phrases: %d phrases", number, len(table.pairs))
        if not table.pairs:
            break
        phrases = (*phrases, table)
    return phrases


def count_pairs(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    memory_entries: int,
    phrases: Phrases = (),
    team: Team = ALONE,
) -> PairCounts:
    """Read the files, and return the counts of tokens and of pairs of adjacent tokens.

    No pair crosses the end of a document or of a block of text.

    Args:
        sources: Paths of the files.
        corpus: How to read and split the text.
        settings: Size of a block, and parallelism.
        memory_entries: The most unique tokens and pairs to hold.
        phrases: Phrases that are joined before.
        team: The processes that count the text together, see `counting.count_tokens`.

    Raises:
        UsageError: There is no block of the text for a process of the team.
        RunError: A source cannot be read.
    """
    how = sources, corpus, settings, memory_entries, phrases
    if team is ALONE:
        return _count_share(*how, ALL)
    blocks, counts = pair_counts.gather(lambda: _count_share(*how, share_of(team)), team)
    check_blocks(blocks, corpus, settings, team)
    if counts.is_pruned or counts.size > memory_entries:
        warn_about_whole_pass(memory_entries)
        return _count_share(*how, ALL)
    return counts


@without_autograph
def _count_share(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    memory_entries: int,
    phrases: Phrases,
    share: Share,
) -> PairCounts:
    """Return the counts of a share of the text, see `count_pairs`."""
    tokenize, join = make_tokenizer(corpus), make_joiner(phrases)

    def count_block(text: tf.Tensor) -> _Block:
        """Return the unique tokens and pairs of the text of a block with their counts."""
        words = join(tokenize(split_documents(text, corpus.documents)))
        tokens_U, position_M, counts_U = tf.unique_with_counts(words.flat_values, out_idx=tf.int64)
        documents_M, size = words.value_rowids(), tf.size(tokens_U, tf.int64)
        is_near = documents_M[:-1] == documents_M[1:]
        keys = tf.boolean_mask(position_M[:-1] * size + position_M[1:], is_near)
        keys_P, _, counts_P = tf.unique_with_counts(keys, out_idx=tf.int64)
        size = tf.maximum(size, 1)  # a block may have no token
        pairs_P2 = tf.stack([keys_P // size, keys_P % size], axis=1)
        return _Block(tokens_U, counts_U, pairs_P2, counts_P)

    progress, counts = Progress.make(sources), PairCounts(memory_entries)
    blocks = share_dataset(sources, corpus, settings, progress, share)
    dataset = map_in_order(blocks, count_block, settings, "count")
    size = sum(map(os.path.getsize, sources))
    with raise_read_errors(progress), show_progress("counting phrases", size, "B") as show:
        for block in dataset.as_numpy_iterator():
            counts.add(*block)
            show(sum(progress.positions))
    return counts


def select_phrases(counts: PairCounts, settings: VocabularyConfig) -> PhraseTable:
    """Return the pairs whose score is above the threshold, by descending score.

    For a pair seen n_ab times, of tokens seen n_a and n_b times in a text of N tokens, the score
    `word2phrase` is (n_ab - min_count) N / (n_a n_b) (Mikolov et al. 2013b, equation 6; the factor
    N is of word2phrase.c). The score `npmi` is ln(p_ab / (p_a p_b)) / -ln(p_ab), with p = n / N
    (Bouma 2009), for pairs seen at least min_count times.

    Args:
        counts: The counts of tokens and pairs.
        settings: The score, its threshold, and the least count of a pair.
    """
    pairs, counts_P, token_counts_P2 = counts.pairs(settings.phrase_min_count)
    product_P = token_counts_P2[:, 0].astype(np.float64) * token_counts_P2[:, 1]
    if settings.phrase_score == "npmi":
        share_P = counts_P / counts.total
        scores_P = np.log(counts_P / product_P * counts.total) / -np.log(share_P)
    else:
        scores_P = (counts_P - settings.phrase_min_count) / product_P * counts.total
    order_P = np.argsort(-scores_P, kind="stable")
    kept = [
        row
        for row in order_P[scores_P[order_P] > settings.score_threshold].tolist()
        if sum(map(len, pairs[row])) + len(JOINT) <= LONGEST_TOKEN
    ]
    names = [(pairs[row][0].decode(), pairs[row][1].decode()) for row in kept]
    return PhraseTable(names, counts_P[kept], scores_P[kept])
