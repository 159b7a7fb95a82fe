"""Find the phrases of a text, pairs of tokens that are seldom together by chance, and join them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ..settings import CorpusConfig, InputConfig, VocabularyConfig
from ..text.meter import show_progress
from ..text.phrase_table import JOINT, Phrases, PhraseTable
from ..text.reading import Progress
from ..text.teamwork import gather_arrays, join_tokens, split_tokens
from ..text.tokenize import LONGEST_TOKEN, Tokenizer, make_splitter, make_tokenizer
from ..types import ALONE, Team
from .blocks import (
    ALL,
    Share,
    check_blocks,
    map_in_order,
    raise_read_errors,
    share_dataset,
    share_of,
    split_documents,
    warn_about_whole_pass,
    without_autograph,
)

Joiner = Callable[[tf.RaggedTensor], tf.RaggedTensor]

_BUFFERED = 1 << 20  # pairs that are collected before they are merged with all others


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
    blocks, counts = _gather(lambda: _count_share(*how, share_of(team)), team)
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
        self._ids_by_block: list[int] = []  # the number of ids after each block

    @property
    def blocks(self) -> int:
        """The number of blocks whose counts were added."""
        return len(self._ids_by_block)

    @property
    def size(self) -> int:
        """The number of unique tokens and pairs, after the counts of all blocks are merged."""
        return len(self._ids) + len(self._keys)

    @property
    def is_pruned(self) -> bool:
        """Whether rare tokens and pairs were dropped, after the counts of all blocks are merged."""
        self._merge()
        return self._threshold > 0

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
        self._ids_by_block.append(len(self._ids))
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

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the counts for `_gather`; without tokens and pairs if they are pruned."""
        is_pruned = self.is_pruned
        ids = {} if is_pruned else self._ids
        return {
            "numbers": np.array([self.blocks, self.total, is_pruned]),
            "tokens": join_tokens(ids),
            "counts": self._token_counts[: len(ids)],
            # The position in the share of the block in which each token is seen first.
            "blocks": np.searchsorted(self._ids_by_block, np.arange(len(ids)), side="right"),
            "keys": self._keys[:0] if is_pruned else self._keys,
            "pair_counts": self._counts[:0] if is_pruned else self._counts,
        }

    def _merge(self) -> None:
        """Merge the new pairs with all others; then drop the rarest if there are too many."""
        if not self._new:
            return
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


def _gather(count: Callable[[], PairCounts], team: Team) -> tuple[list[int], PairCounts]:
    """Return the number of blocks of each process, and the counts of all text.

    The counts, and the order of tokens and pairs, are those of one process that reads all blocks in
    turn, unless some process has dropped rare tokens and pairs: then they are of no use, and
    pruned. `count` counts the share of this process, which is every n-th block.
    """
    parts = gather_arrays(team, lambda: count().arrays())
    numbers = np.stack([part["numbers"] for part in parts])
    tokens_of = [split_tokens(part["tokens"]) for part in parts]
    merged = PairCounts(sys.maxsize)
    merged.total, merged._threshold = int(numbers[:, 1].sum()), int(numbers[:, 2].max())
    # Tokens are numbered as they appear: by block, and within a block as its share has them.
    blocks = [part["blocks"] * len(parts) + number for number, part in enumerate(parts)]
    ranks = [np.arange(len(tokens)) for tokens in tokens_of]
    tokens = [token for part in tokens_of for token in part]
    for row in np.lexsort((np.concatenate(ranks), np.concatenate(blocks))).tolist():
        merged._ids.setdefault(tokens[row], len(merged._ids))
    merged._token_counts = np.zeros(len(merged._ids), np.int64)
    for part, tokens in zip(parts, tokens_of, strict=True):
        ids_V = np.fromiter((merged._ids[token] for token in tokens), np.int64, len(tokens))
        merged._token_counts[ids_V] += part["counts"]
        keys_P = ids_V[part["keys"] >> 32] << 32 | ids_V[part["keys"] & 0xFFFFFFFF]
        merged._new.append((keys_P, part["pair_counts"]))
    merged._merge()
    return numbers[:, 0].tolist(), merged


def make_phrase_splitter(corpus: CorpusConfig, phrases: Phrases) -> Tokenizer:
    """Return the splitter of the text, followed by the joining of phrases.

    Without phrases it is `make_splitter(corpus)`. Otherwise tokens that are too long are dropped
    before phrases are joined, as when phrases are counted.

    Returns:
        Function from valid UTF-8 strings (N,) to their tokens (N, None).
    """
    if not phrases:
        return make_splitter(corpus)
    tokenize, join = make_tokenizer(corpus), make_joiner(phrases)
    return lambda texts: join(tokenize(texts))


def make_joiner(phrases: Phrases) -> Joiner:
    """Return a function that joins phrases in tokens (N, None), the tokens of N documents.

    Each pass goes from left to right, and a joined token is not joined again in the same pass, as
    in word2phrase and gensim. No phrase crosses the end of a document.

    Args:
        phrases: The phrases of each pass; without any, the tokens are returned as they are.
    """
    passes = [_make_pass(table) for table in phrases if table.pairs]

    def join(words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of the documents after all passes."""
        for join_pairs in passes:
            words = join_pairs(words)
        return words

    return join


def _make_pass(table: PhraseTable) -> Joiner:
    """Return the function that joins the pairs of one table."""
    parts = sorted({part for pair in table.pairs for part in pair})
    number_of = {part: number for number, part in enumerate(parts)}
    # A pair is one number, so that a binary search finds it.
    keys = [number_of[first] * len(parts) + number_of[second] for first, second in table.pairs]
    order = np.argsort(keys)
    keys_P = tf.constant(np.array(keys, np.int64)[order])
    joined_P = tf.constant([JOINT.join(table.pairs[row]) for row in order])
    numbers = tf.lookup.KeyValueTensorInitializer(
        tf.constant(parts), tf.range(len(parts), dtype=tf.int64)
    )
    part_numbers = tf.lookup.StaticHashTable(numbers, default_value=-1)

    def join_pairs(words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of the documents with the pairs joined."""
        words_M, documents_M = words.flat_values, words.value_rowids()
        numbers_M = part_numbers.lookup(words_M)
        first, second = numbers_M[:-1], numbers_M[1:]
        is_near = documents_M[:-1] == documents_M[1:]
        at_C = tf.where((first >= 0) & (second >= 0) & is_near)[:, 0]  # candidates
        key_C = tf.gather(first, at_C) * len(parts) + tf.gather(second, at_C)
        row_C = tf.searchsorted(keys_P, key_C, out_type=tf.int64)
        row_C = tf.minimum(row_C, len(table.pairs) - 1)
        is_pair_C = tf.gather(keys_P, row_C) == key_C
        at_Q, row_Q = tf.boolean_mask(at_C, is_pair_C), tf.boolean_mask(row_C, is_pair_C)
        taken_Q = _without_overlaps(at_Q)
        at_Q, row_Q = tf.boolean_mask(at_Q, taken_Q), tf.boolean_mask(row_Q, taken_Q)
        words_M = tf.tensor_scatter_nd_update(
            words_M, at_Q[:, tf.newaxis], tf.gather(joined_P, row_Q)
        )
        stays_M = tf.tensor_scatter_nd_update(
            tf.ones_like(words_M, tf.bool), at_Q[:, tf.newaxis] + 1, tf.zeros_like(at_Q, tf.bool)
        )
        before = tf.cumsum(tf.cast(stays_M, tf.int64))  # tokens that stay, up to each one
        splits = tf.gather(tf.concat([[0], before], axis=0), words.row_splits)
        kept = tf.boolean_mask(words_M, stays_M)
        return tf.RaggedTensor.from_row_splits(kept, splits, validate=False)

    return join_pairs


def _without_overlaps(at_Q: tf.Tensor) -> tf.Tensor:
    """Return which pairs to join, (Q,) bool: the first, third and so on of overlapping ones.

    Args:
        at_Q: The position of the first token of each pair, rising, int64.
    """
    goes_on = at_Q[1:] == at_Q[:-1] + 1
    begins_Q = tf.concat([tf.ones_like(at_Q[:1], tf.bool), ~goes_on], axis=0)
    run_Q = tf.cumsum(tf.cast(begins_Q, tf.int32)) - 1
    starts = tf.boolean_mask(at_Q, begins_Q)
    return (at_Q - tf.gather(starts, run_Q)) % 2 == 0
