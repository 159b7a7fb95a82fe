"""Count the tokens of a corpus in one parallel pass, choose a vocabulary, and find phrases."""

from __future__ import annotations

import collections
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import UsageError
from ..settings import CorpusConfig, VocabularyConfig
from ..system.console import show_progress
from ..text.phrase_table import Phrases, PhraseTable, make_joiner
from ..text.reading import Progress
from ..text.tokenize import LONGEST_TOKEN, make_tokenizer, warn_about_long_tokens
from ..text.vocabulary import EOS, JOINT, UNK, Vocabulary, rank
from ..types import ALONE, Team
from .blocks import (
    ALL,
    Share,
    TextFiles,
    check_blocks,
    map_in_order,
    raise_read_errors,
    share_dataset,
    share_of,
    split_documents,
)
from .pipeline import make_block_parser
from .token_cache import KeptTokens

_END = EOS.encode()
Counts = TypeVar("Counts", bound="TokenCounts")
_BUFFERED = 1 << 20  # pairs that are collected before they are merged with all others


def count_tokens(
    files: TextFiles,
    memory_entries: int,
    ends_documents: bool = False,
    progress: Progress | None = None,
    phrases: Phrases = (),
    team: Team = ALONE,
    kept: KeptTokens | None = None,
) -> tuple[dict[bytes, int], int]:
    """Read the files, and return the count of every token, and the number of all tokens.

    Counts are exact unless there are more than `memory_entries` unique tokens. Then the rarest
    tokens are dropped during the pass, as in word2vec.c and gensim. Dropped tokens and bytes that
    are not UTF-8 are logged. The number of all tokens has dropped rare ones, and no long ones.

    Each process of a team counts a share of the blocks, and all get the counts of one process. If
    tokens have to be dropped, each process counts all text, as which are dropped depends on the
    order of the text.

    Args:
        ends_documents: Whether the end of each document that has a token counts as a token `<eos>`.
        progress: State of the sources, by default a new one; updated during the pass.
        team: The processes that count the text together.
        kept: Gets the blocks that this process counts, and their tokens. It gives up if tokens are
            dropped from the counts.

    Raises:
        UsageError: There is no token, or no block of the text for a process of the team.
        RunError: A source cannot be read.
    """
    corpus, progress = files.corpus, progress or Progress.make(files.paths)
    # Counted within a block, so that few strings cross to Python.
    count_block = make_block_parser(corpus, phrases)

    def count_share(share: Share) -> TokenCounts:
        """Return the counts of a share of the text."""
        if kept is not None and not kept.covers(share):
            kept.give_up()
        found = TokenCounts(memory_entries)
        blocks = _read_blocks(files, progress, count_block, share, found, "counting words")
        _count_blocks(blocks, found, ends_documents, kept)
        return found

    merged = TokenCounts(sys.maxsize)
    counts = _count_together(count_share, merged, memory_entries, files, team)
    for path, replaced in zip(files.paths, counts.replaced.tolist(), strict=True):
        if replaced:
            logging.warning("%s: %d sequences are not UTF-8; replaced by U+FFFD", path, replaced)
    warn_about_long_tokens(counts.too_long)
    if counts.total == 0:
        raise UsageError(f"--corpus={corpus.corpus}: no token in it; name files that hold text")
    return counts.tally(), counts.total


def _count_blocks(
    blocks: Iterator[tuple[np.ndarray, ...]],
    counts: TokenCounts,
    ends_documents: bool,
    kept: KeptTokens | None,
) -> None:
    """Add the tokens of blocks, the results of `_read_blocks`, to `counts` and to `kept`."""
    for tokens_U, counts_U, tokens_M, splits_D, dropped in blocks:
        numbers_U = counts.add(tokens_U, counts_U)
        starts = splits_D[:-1][splits_D[:-1] < splits_D[1:]]
        counts.too_long += int(dropped)
        if ends_documents:
            counts.add(np.array([_END]), np.array([len(starts)]))
        if kept is not None:
            kept.add(numbers_U[tokens_M], starts)
        counts.prune()
        if kept is not None and counts.threshold:
            kept.give_up()
    if kept is not None:
        kept.finish([*counts.tally()])


def _read_blocks(
    files: TextFiles,
    progress: Progress,
    count_block: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    share: Share,
    counts: TokenCounts,
    what: str,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the result of `count_block` for each block of a share of the text, as arrays.

    The blocks and the replaced bytes are added to `counts`, and progress is shown as `what`.
    """
    blocks = share_dataset(files, progress, share)
    dataset = map_in_order(blocks, count_block, files.settings, "count")
    size = sum(map(os.path.getsize, files.paths))
    with raise_read_errors(progress), show_progress(what, size, "B") as show:
        for block in dataset.as_numpy_iterator():
            counts.blocks += 1
            yield block
            show(sum(progress.positions))
    counts.replaced = np.array(progress.replaced)


def _count_together(
    count_share: Callable[[Share], Counts],
    merged: Counts,
    memory_entries: int,
    files: TextFiles,
    team: Team,
) -> Counts:
    """Return the counts of all text, of which each process of a team counts a share.

    If the memory is not enough for the counts of all processes, each of them counts all text, with
    a warning. Raise UsageError if there is no block of the text for a process.

    Args:
        merged: Empty counts, to which those of the processes are added.
    """
    if team is ALONE:
        return count_share(ALL)
    parts = team.gather_arrays(lambda: count_share(share_of(team)).arrays())
    check_blocks([int(part["numbers"][1]) for part in parts], files, team)
    for part in parts:
        merged.merge(part)
    merged.prune()
    if not merged.threshold and merged.size <= memory_entries:
        return merged
    logging.warning(
        "--vocab_memory_entries=%d is not enough for the counts of all workers, so each worker "
        "now counts all text, for the vocabulary of one process; give a greater number",
        memory_entries,
    )
    return count_share(ALL)


class TokenCounts:
    """The counts of tokens, which have numbers in the order of their first appearance.

    If there are more than `limit` unique tokens, the rarest are dropped, as in word2vec.c and
    gensim. This is logged, and counts of rare tokens may then be too low.

    Attributes:
        total: Number of all tokens, including dropped ones.
        blocks: Number of blocks of text.
        too_long: Number of tokens that were left out as too long.
        threshold: Tokens with this count or less were dropped; 0 if none were.
        replaced: For each source, the number of sequences that were not UTF-8.
    """

    _WARNING = (
        "--vocab_memory_entries=%d exceeded: dropped %d tokens seen %d times or fewer so far; "
        "counts of rare tokens may be too low from now on"
    )

    def __init__(self, limit: int):
        self._limit = limit
        self.total = self.blocks = self.too_long = self.threshold = 0
        self.replaced = np.zeros((), np.int64)
        self._set({})

    def _set(self, tally: Mapping[bytes, int]) -> None:
        """Replace all tokens and their counts."""
        count = itertools.count(len(tally)).__next__
        numbers = dict(zip(tally, range(len(tally)), strict=True))
        self._numbers = collections.defaultdict(count, numbers)
        self._counts_N = np.fromiter(tally.values(), np.int64, len(tally))

    @property
    def size(self) -> int:
        """The number of different tokens."""
        return len(self._numbers)

    def tally(self) -> dict[bytes, int]:
        """Return the count of each token, in the order of their numbers."""
        return dict(zip(self._numbers, self._counts_N.tolist(), strict=False))

    def add(self, tokens_U: np.ndarray, counts_U: np.ndarray) -> np.ndarray:
        """Add the counts of some tokens, and return the number of each, (U,) int64.

        Args:
            tokens_U: Different tokens, as bytes.
            counts_U: The count of each, integers.
        """
        tokens = tokens_U.tolist()
        numbers_U = np.fromiter(map(self._numbers.__getitem__, tokens), np.int64, len(tokens))
        missing = len(self._numbers) - len(self._counts_N)
        if missing > 0:  # as many again, so that few calls copy all counts
            self._counts_N = np.pad(self._counts_N, (0, missing + len(self._counts_N)))
        self._counts_N[numbers_U] += counts_U
        self.total += int(counts_U.sum())
        return numbers_U

    def prune(self) -> None:
        """Drop the entries with the lowest counts until at most `limit` are left, with warnings.

        The threshold rises by 1 until enough are dropped, so fewer than `limit` may be left.
        """
        while (before := self.size) > self._limit:
            self.threshold += 1
            self._drop_rare()
            logging.warning(self._WARNING, self._limit, before - self.size, self.threshold)

    def _drop_rare(self) -> None:
        """Drop the tokens with counts up to the threshold; number the others anew, in order."""
        self._set({token: n for token, n in self.tally().items() if n > self.threshold})

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the counts for `merge`; without tokens if some were dropped, as of no use."""
        self.prune()
        tally = {} if self.threshold else self.tally()
        return {
            "tokens": np.frombuffer(b"\n".join(tally), np.uint8),  # none has a line end
            "counts": np.fromiter(tally.values(), np.int64, len(tally)),
            "numbers": np.array((self.total, self.blocks, self.too_long, self.threshold), np.int64),
            "replaced": self.replaced,
        }

    def merge(self, part: dict[str, np.ndarray]) -> np.ndarray:
        """Add the counts of another share of the text, and return the number of each token.

        Args:
            part: Its `arrays`.
        """
        total, blocks, too_long, threshold = part["numbers"].tolist()
        tokens = part["tokens"].tobytes().split(b"\n") if part["tokens"].size else []
        numbers_U = self.add(np.array(tokens, object), part["counts"])
        self.total += total - int(part["counts"].sum())
        self.blocks, self.too_long = self.blocks + blocks, self.too_long + too_long
        self.threshold = max(self.threshold, threshold)
        self.replaced = self.replaced + part["replaced"]
        return numbers_U


def select_tokens(
    tally: dict[bytes, int], total: int, settings: VocabularyConfig, ends_documents: bool = False
) -> Vocabulary:
    """Return the tokens with `settings.min_count` or more, at most `settings.max_vocab_size`.

    Args:
        tally: Count of each token.
        settings: Limits of the vocabulary: the least count, and the most tokens or 0.
        ends_documents: Whether to add `<unk>`, for tokens without an id, and `<eos>`, the end of a
            document. They are placed by their counts, at least 1, and are among the
            `max_vocab_size` tokens. The same strings in the corpus are counted as these tokens.

    Returns:
        Tokens by descending count, then by code point.

    Raises:
        UsageError: No token is frequent enough.
    """
    special = (UNK.encode(), _END) if ends_documents else ()
    words = [(count, token) for token, count in tally.items() if token not in special]
    frequent = [(token.decode(), count) for count, token in words if count >= settings.min_count]
    if not frequent:
        count, token = max(words, default=(0, b""))
        raise UsageError(
            f"--min_count={settings.min_count}: no token is seen that often; the most frequent, "
            f"{token.decode()!r}, has a count of {count}: lower --min_count or give more text"
        )
    most = settings.max_vocab_size - len(special) if settings.max_vocab_size else None
    ranked = rank(frequent, total, most)
    if not ends_documents:
        return ranked
    ends = tally.get(_END, 0)
    unknown = total - ends - int(ranked.counts.sum())
    counts = zip(ranked.tokens, ranked.counts.tolist(), strict=True)
    return rank([*counts, (EOS, max(ends, 1)), (UNK, max(unknown, 1))], total)


def look_up_counts(
    tally: dict[bytes, int],
    total: int,
    vocabulary: Vocabulary,
    corpus: CorpusConfig,
    ends_documents: bool = False,
) -> np.ndarray:
    """Return the count of each token of a given vocabulary, (V,) int64; a count may be 0.

    Args:
        tally: Count of each token.
        vocabulary: The tokens; with `ends_documents` it has `<unk>` and `<eos>`.
        ends_documents: Whether tokens without an id count as `<unk>`.

    Raises:
        UsageError: No token of the vocabulary occurs (but for `<unk>` and `<eos>`).
    """
    counts = {token: tally.get(token.encode(), 0) for token in vocabulary.tokens}
    special = (UNK, EOS) if ends_documents else ()
    if not any(count for token, count in counts.items() if token not in special):
        raise UsageError(
            f"--corpus={corpus.corpus}: none of its {total} tokens is in the vocabulary; "
            "give --vocab of such text, tokenized in the same way"
        )
    if ends_documents:
        counts[UNK] += total - sum(counts.values())
    return np.array([*counts.values()], np.int64)


# Phrases.


def find_phrases(files: TextFiles, vocabulary: VocabularyConfig, team: Team = ALONE) -> Phrases:
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
        counts = count_pairs(files, limit, phrases, team)
        table = select_phrases(counts, vocabulary)
        logging.info("pass %d of --phrases: %d phrases", number, len(table.pairs))
        if not table.pairs:
            break
        phrases = (*phrases, table)
    return phrases


def count_pairs(
    files: TextFiles, memory_entries: int, phrases: Phrases = (), team: Team = ALONE
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
    tokenize, join = make_tokenizer(files.corpus), make_joiner(phrases)

    def count_block(text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the unique tokens and pairs of the text of a block with their counts."""
        words = join(tokenize(split_documents(text, files.corpus.documents)))
        tokens_U, position_M, counts_U = tf.unique_with_counts(words.flat_values, out_idx=tf.int64)
        documents_M, size = words.value_rowids(), tf.size(tokens_U, tf.int64)
        is_near = documents_M[:-1] == documents_M[1:]
        keys = tf.boolean_mask(position_M[:-1] * size + position_M[1:], is_near)
        keys_P, _, counts_P = tf.unique_with_counts(keys, out_idx=tf.int64)
        size = tf.maximum(size, 1)  # a block may have no token
        pairs_P2 = tf.stack([keys_P // size, keys_P % size], axis=1)
        return tokens_U, counts_U, pairs_P2, counts_P

    def count_share(share: Share) -> PairCounts:
        """Return the counts of a share of the text."""
        found, progress = PairCounts(memory_entries), Progress.make(files.paths)
        blocks = _read_blocks(files, progress, count_block, share, found, "counting phrases")
        for tokens_U, counts_U, pairs_P2, counts_P in blocks:
            found.add_pairs(found.add(tokens_U, counts_U)[pairs_P2], counts_P)
        return found

    merged = PairCounts(sys.maxsize)
    return _count_together(count_share, merged, memory_entries, files, team)


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
        scores_P = np.log(counts_P / product_P * counts.total) / -np.log(counts_P / counts.total)
    else:
        scores_P = (counts_P - settings.phrase_min_count) / product_P * counts.total
    kept = [
        row
        for row in np.flatnonzero(scores_P > settings.score_threshold).tolist()
        if sum(map(len, pairs[row])) + len(JOINT) <= LONGEST_TOKEN
    ]
    kept.sort(key=lambda row: (-scores_P[row], pairs[row]))
    names = [(pairs[row][0].decode(), pairs[row][1].decode()) for row in kept]
    return PhraseTable(names, counts_P[kept], scores_P[kept])


class PairCounts(TokenCounts):
    """Counts of tokens and of pairs of tokens, within a limit of memory for both.

    The rarest are dropped as in word2phrase and gensim, and rare phrases may then be missing. A
    pair has the key `first << 32 | second` of the numbers of its tokens. A token occurs at least as
    often as a pair that it is part of, so it is never dropped before its pairs.

    Args:
        limit: The most unique tokens and pairs to hold; up to twice as many for a moment.
    """

    _WARNING = (
        "--vocab_memory_entries=%d exceeded while counting phrases: dropped %d tokens and pairs "
        "seen %d times or fewer so far; rare phrases may be missing"
    )

    def __init__(self, limit: int):
        super().__init__(limit)
        self._keys, self._pair_counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._new: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def size(self) -> int:
        """The number of unique tokens and pairs, without those that are not yet merged."""
        return len(self._numbers) + len(self._keys)

    def add_pairs(self, pairs_P2: np.ndarray, counts_P: np.ndarray) -> None:
        """Add the counts of some pairs.

        Args:
            pairs_P2: Different pairs of numbers of tokens, int64.
            counts_P: The count of each, int64.
        """
        self._new.append((pairs_P2[:, 0] << 32 | pairs_P2[:, 1], counts_P))
        if sum(len(keys) for keys, _ in self._new) > max(_BUFFERED, len(self._keys)):
            self.prune()

    def pairs(self, min_count: int) -> tuple[list[tuple[bytes, bytes]], np.ndarray, np.ndarray]:
        """Return the pairs that were seen at least `min_count` times.

        Returns:
            The P pairs, their counts (P,), and the counts of their tokens (P, 2), int64.
        """
        self.prune()
        frequent = self._pair_counts >= min_count
        pairs_P2 = _split_keys(self._keys[frequent])
        tokens = list(self._numbers)
        pairs = [(tokens[first], tokens[second]) for first, second in pairs_P2.tolist()]
        return pairs, self._pair_counts[frequent], self._counts_N[pairs_P2]

    def prune(self) -> None:
        """Merge the new pairs with all others; then drop the rarest if there are too many."""
        if self._new:
            parts = zip((self._keys, self._pair_counts), *self._new, strict=True)
            keys_N, counts_N = map(np.concatenate, parts)
            self._new = []
            order_N = np.argsort(keys_N, kind="stable")
            keys_N = keys_N[order_N]
            is_first_N = np.ones(len(keys_N), bool)
            is_first_N[1:] = keys_N[1:] != keys_N[:-1]
            self._keys = keys_N[is_first_N]
            self._pair_counts = np.add.reduceat(counts_N[order_N], np.flatnonzero(is_first_N))
            super().prune()

    def _drop_rare(self) -> None:
        """Drop tokens and pairs with counts up to the threshold; number the other tokens anew."""
        new_number_V = np.cumsum(self._counts_N[: len(self._numbers)] > self.threshold) - 1
        super()._drop_rare()
        frequent = self._pair_counts > self.threshold
        keys, self._pair_counts = self._keys[frequent], self._pair_counts[frequent]
        # The order of the tokens stays, and so does that of the keys.
        self._keys = new_number_V[keys >> 32] << 32 | new_number_V[keys & 0xFFFFFFFF]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the counts for `merge`; without tokens and pairs if some were dropped."""
        arrays = super().arrays()
        stop = 0 if self.threshold else None
        return {**arrays, "keys": self._keys[:stop], "pair_counts": self._pair_counts[:stop]}

    def merge(self, part: dict[str, np.ndarray]) -> np.ndarray:
        """Add the counts of another share of the text, see `TokenCounts.merge`."""
        numbers_U = super().merge(part)
        self.add_pairs(numbers_U[_split_keys(part["keys"])], part["pair_counts"])
        return numbers_U


def _split_keys(keys_P: np.ndarray) -> np.ndarray:
    """Return the numbers of the two tokens of each pair, (P, 2) int64."""
    return np.stack([keys_P >> 32, keys_P & 0xFFFFFFFF], axis=1)
