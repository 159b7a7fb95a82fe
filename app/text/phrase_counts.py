"""Find the phrases of a text: pairs of tokens that follow each other more often than by chance."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ..config import CorpusConfig, InputConfig, VocabularyConfig
from .blocks import (
    block_dataset,
    map_in_order,
    raise_read_errors,
    split_documents,
    without_autograph,
)
from .meter import show_progress
from .phrase_joiner import make_joiner
from .phrase_table import JOINT, Phrases, PhraseTable
from .reading import Progress
from .tokenize import LONGEST_TOKEN, make_tokenizer

_BUFFERED = 1 << 20  # pairs that are collected before they are merged with all others


class PairCounts:
    """Counts of tokens and of pairs of tokens, within a limit of memory.

    If there are more than `limit` unique tokens and pairs, the rarest are dropped, as in
    word2phrase and gensim. This is logged, and counts of rare ones may then be too low.

    A pair has the key `first << 32 | second` of the ids of its tokens. A token occurs at least as
    often as a pair that it is part of, so it is never dropped before its pairs.

    Args:
        limit: The most unique tokens and pairs to hold; up to twice as many for a moment.
    """

    def __init__(self, limit: int):
        self.total = 0  # number of all tokens
        self._limit, self._threshold = limit, 0
        self._ids: dict[bytes, int] = {}
        self._token_counts = np.zeros(0, np.int64)
        self._keys, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._new: list[tuple[np.ndarray, np.ndarray]] = []

    def add(
        self,
        tokens_U: np.ndarray,
        counts_U: np.ndarray,
        pairs_P2: np.ndarray,
        counts_P: np.ndarray,
    ) -> None:
        """Add the counts of a block of text.

        Args:
            tokens_U: Its unique tokens, as bytes.
            counts_U: Their counts, integers.
            pairs_P2: Its unique pairs, as positions in `tokens_U`.
            counts_P: Their counts, integers.
        """
        ids = (self._ids.setdefault(token, len(self._ids)) for token in tokens_U.tolist())
        ids_U = np.fromiter(ids, np.int64, len(tokens_U))
        missing = len(self._ids) - len(self._token_counts)
        if missing:
            # Room for as many again, so that the array is seldom copied.
            room = np.zeros(missing + len(self._token_counts), np.int64)
            self._token_counts = np.concatenate([self._token_counts, room])
        self._token_counts[ids_U] += counts_U
        self.total += int(counts_U.sum())
        first_P, second_P = ids_U[pairs_P2].T
        self._new.append((first_P << 32 | second_P, counts_P.astype(np.int64)))
        if sum(len(keys) for keys, _ in self._new) > max(_BUFFERED, len(self._keys)):
            self._merge()

    def pairs(self, min_count: int) -> tuple[list[tuple[bytes, bytes]], np.ndarray, np.ndarray]:
        """Return the pairs that were seen at least `min_count` times, in the order of their keys.

        Args:
            min_count: The least count.

        Returns:
            The P pairs, their counts (P,), and the counts of their tokens (P, 2), int64.
        """
        self._merge()
        frequent = self._counts >= min_count
        keys_P, counts_P = self._keys[frequent], self._counts[frequent]
        ids_P2 = np.stack([keys_P >> 32, keys_P & 0xFFFFFFFF], axis=1)
        tokens = list(self._ids)
        pairs = [(tokens[first], tokens[second]) for first, second in ids_P2.tolist()]
        return pairs, counts_P, self._token_counts[ids_P2]

    def _merge(self) -> None:
        """Merge the new pairs with all others; then drop the rarest if there are too many."""
        parts = zip((self._keys, self._counts), *self._new, strict=True)
        keys_N, counts_N = map(np.concatenate, parts)
        self._new = []
        order_N = np.argsort(keys_N, kind="stable")
        keys_N = keys_N[order_N]
        is_first_N = np.ones(len(keys_N), bool)
        is_first_N[1:] = keys_N[1:] != keys_N[:-1]
        self._keys = keys_N[is_first_N]
        self._counts = np.add.reduceat(counts_N[order_N], np.flatnonzero(is_first_N))
        while (before := len(self._ids) + len(self._keys)) > self._limit:
            self._threshold += 1
            self._drop_rare()
            logging.warning(
                "--vocab_memory_entries=%d exceeded while counting phrases: dropped %d tokens and "
                "pairs seen %d times or fewer so far; rare phrases may be missing",
                *(self._limit, before - len(self._ids) - len(self._keys), self._threshold),
            )

    def _drop_rare(self) -> None:
        """Drop the tokens and the pairs with counts up to the threshold; number the tokens anew."""
        kept = self._token_counts[: len(self._ids)] > self._threshold
        new_id_V = np.cumsum(kept) - 1
        tokens = (token for token, keep in zip(self._ids, kept.tolist(), strict=True) if keep)
        self._token_counts = self._token_counts[: len(kept)][kept]
        self._ids = {token: number for number, token in enumerate(tokens)}
        frequent = self._counts > self._threshold
        keys, self._counts = self._keys[frequent], self._counts[frequent]
        # The order of the ids stays, and so does that of the keys.
        self._keys = new_id_V[keys >> 32] << 32 | new_id_V[keys & 0xFFFFFFFF]


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
) -> Phrases:
    """Read the files once for each pass of --phrases, and return the phrases of each pass.

    A pass counts the tokens that the passes before it have made, so phrases get longer. The last
    passes are left out if they find nothing; the number of phrases is logged. Progress is shown.

    Args:
        sources: Paths of the files.
        corpus: How to read and split the text.
        settings: Size of a block, and parallelism.
        vocabulary: The number of passes, the score and its limits.

    Raises:
        RunError: A source cannot be read.
    """
    phrases: Phrases = ()
    for number in range(1, vocabulary.phrases + 1):
        counts = count_pairs(sources, corpus, settings, vocabulary.vocab_memory_entries, phrases)
        table = select_phrases(counts, vocabulary)
        logging.info("pass %d of --phrases: %d phrases", number, len(table.pairs))
        if not table.pairs:
            break
        phrases = (*phrases, table)
    return phrases


@without_autograph
def count_pairs(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    memory_entries: int,
    phrases: Phrases = (),
) -> PairCounts:
    """Read the files, and return the counts of tokens and of pairs of adjacent tokens.

    No pair crosses the end of a document or of a block of text.

    Args:
        sources: Paths of the files.
        corpus: How to read and split the text.
        settings: Size of a block, and parallelism.
        memory_entries: The most unique tokens and pairs to hold.
        phrases: Phrases that are joined before.

    Raises:
        RunError: A source cannot be read.
    """
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
    blocks = block_dataset(sources, corpus, settings, progress)
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
