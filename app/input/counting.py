"""Count the tokens of a corpus in one parallel pass, and choose a vocabulary by the counts."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import UsageError
from ..settings import CorpusConfig, InputConfig, VocabularyConfig
from ..text.meter import show_progress
from ..text.phrase_table import Phrases
from ..text.reading import Progress
from ..text.teamwork import gather_arrays, join_tokens, split_tokens
from ..text.tokenize import drop_long_tokens, make_splitter, warn_about_long_tokens
from ..text.vocabulary import EOS, UNK, Vocabulary
from ..types import ALONE, Team
from .blocks import (
    ALL,
    Share,
    check_blocks,
    raise_read_errors,
    share_dataset,
    share_of,
    split_documents,
    warn_about_whole_pass,
    without_autograph,
)
from .phrase_counts import make_joiner
from .token_cache import KeptTokens

_END = EOS.encode()


def count_tokens(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    memory_entries: int,
    close: bool = False,
    progress: Progress | None = None,
    phrases: Phrases = (),
    team: Team = ALONE,
    kept: KeptTokens | None = None,
) -> tuple[dict[bytes, int], int]:
    """Read the files, and return the count of every token, and the number of all tokens.

    Counts are exact unless there are more than `memory_entries` unique tokens. Then the rarest
    tokens are dropped during the pass, as in word2vec.c and gensim. This is logged, and so are
    dropped long tokens and bytes that are not UTF-8. Dropped rare tokens are in the number of all
    tokens, dropped long tokens are not. Progress is shown.

    Each process of a team counts a share of the blocks, and all get the counts of one process. If
    tokens have to be dropped, each process counts all text, as which are dropped depends on the
    order of the text.

    Args:
        close: Whether the end of each document that has a token counts as a token `<eos>`.
        progress: State of the sources, by default a new one; updated during the pass.
        team: The processes that count the text together.
        kept: Gets the blocks that this process counts, and their tokens. It gives up if tokens are
            dropped from the counts.

    Raises:
        UsageError: There is no token, or no block of the text for a process of the team.
        RunError: A source cannot be read.
    """
    progress = progress or Progress.make(sources)
    how = sources, corpus, settings, memory_entries, close, progress, phrases
    if team is ALONE:
        counts = _count_share(*how, ALL, kept)
    else:
        parts = _gather(lambda: _count_share(*how, share_of(team), kept), team)
        check_blocks([part.blocks for part in parts], corpus, settings, team)
        counts = _merge(parts)
        if counts.is_pruned or len(counts.tally) > memory_entries:
            warn_about_whole_pass(memory_entries)
            if kept is not None:
                kept.give_up()
            counts = _count_share(*how, ALL)
    for path, replaced in zip(sources, counts.replaced, strict=True):
        if replaced:
            logging.warning("%s: %d sequences are not UTF-8; replaced by U+FFFD", path, replaced)
    warn_about_long_tokens(counts.too_long)
    if counts.total == 0:
        raise UsageError(f"--corpus={corpus.corpus}: no token in it; name files that hold text")
    return counts.tally, counts.total


@without_autograph
def _count_share(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    memory_entries: int,
    close: bool,
    progress: Progress,
    phrases: Phrases,
    share: Share,
    kept: KeptTokens | None = None,
) -> TokenCounts:
    """Return the counts of a share of the text, see `count_tokens`; log what is pruned."""
    split, join = make_splitter(corpus), make_joiner(phrases)

    def count_block(text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return unique tokens, their counts, the index of each token, row splits, dropped tokens.

        A row is a document.
        """
        # Counted within a block, so that few strings cross to Python.
        words, dropped = drop_long_tokens(split(split_documents(text, corpus.documents)))
        words = join(words)
        tokens, indices, counts = tf.unique_with_counts(words.flat_values)
        return tokens, counts, indices, words.row_splits, dropped

    dataset = share_dataset(sources, corpus, settings, progress, share).map(
        count_block, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    tally = Tally({})
    total = threshold = too_long = blocks = 0
    size = sum(map(os.path.getsize, sources))
    with raise_read_errors(progress), show_progress("counting words", size, "B") as show:
        for tokens, counts, indices, splits, dropped in dataset.as_numpy_iterator():
            numbers = tally.add(tokens.tolist(), counts)
            starts = splits[:-1][splits[:-1] < splits[1:]]
            total += len(indices)
            too_long += int(dropped)
            blocks += 1
            if close:
                tally.add([_END], np.array([len(starts)]))
                total += len(starts)
            if kept is not None:
                kept.add(numbers[indices], starts)
            if len(tally) > memory_entries:
                left, threshold = drop_rare_tokens(tally.counts(), memory_entries, threshold)
                tally = Tally(left)
                if kept is not None:
                    kept.give_up()
            show(sum(progress.positions))
    replaced, counted = [*progress.replaced], tally.counts()
    if kept is not None:
        kept.finish([*counted])
    return TokenCounts(counted, total, blocks, too_long, replaced, threshold > 0)


def select_tokens(
    tally: dict[bytes, int], total: int, settings: VocabularyConfig, close: bool = False
) -> Vocabulary:
    """Return the tokens with `settings.min_count` or more, at most `settings.max_vocab_size`.

    Args:
        tally: Count of each token.
        settings: Limits of the vocabulary: the least count, and the most tokens or 0.
        close: Whether to add `<unk>`, for tokens without an id, and `<eos>`, the end of a document.
            They are placed by their counts, at least 1, and are among the `max_vocab_size` tokens.
            The same strings in the corpus are counted as these tokens.

    Returns:
        Tokens by descending count, then by code point.

    Raises:
        UsageError: No token is frequent enough.
    """
    special = (UNK.encode(), _END) if close else ()
    words = ((-count, token) for token, count in tally.items() if token not in special)
    ranked = sorted(word for word in words if -word[0] >= settings.min_count)
    if not ranked:
        rest = ((count, token) for token, count in tally.items() if token not in special)
        count, token = max(rest, default=(0, b""))
        raise UsageError(
            f"--min_count={settings.min_count}: no token is seen that often; the most frequent, "
            f"{token.decode()!r}, is seen {count} times: lower --min_count or give more text"
        )
    if settings.max_vocab_size:
        del ranked[settings.max_vocab_size - len(special) :]
    if close:
        ends = tally.get(_END, 0)
        unknown = total - ends + sum(count for count, _ in ranked)  # these counts are negative
        ranked = sorted([*ranked, (-max(ends, 1), _END), (-max(unknown, 1), UNK.encode())])
    tokens = [token.decode() for _, token in ranked]
    return Vocabulary(tokens, np.array([-count for count, _ in ranked], np.int64), total)


def look_up_counts(
    tally: dict[bytes, int],
    total: int,
    vocabulary: Vocabulary,
    corpus: CorpusConfig,
    close: bool = False,
) -> np.ndarray:
    """Return the count of each token of a given vocabulary, (V,) int64; a count may be 0.

    Args:
        tally: Count of each token.
        vocabulary: The tokens; with `close` it has `<unk>` and `<eos>`.
        close: Whether tokens without an id count as `<unk>`.

    Raises:
        UsageError: No token of the vocabulary occurs (`<unk>` and `<eos>` aside, with `close`).
    """
    counts = {token: tally.get(token.encode(), 0) for token in vocabulary.tokens}
    special = (UNK, EOS) if close else ()
    if not any(count for token, count in counts.items() if token not in special):
        raise UsageError(
            f"--corpus={corpus.corpus}: none of its {total} tokens is in the vocabulary; "
            "give --vocab of such text, tokenized in the same way"
        )
    if close:
        counts[UNK] += total - sum(counts.values())
    return np.array([*counts.values()], np.int64)


def drop_rare_tokens(
    tally: dict[bytes, int], limit: int, threshold: int
) -> tuple[dict[bytes, int], int]:
    """Drop the tokens with the lowest counts until at most `limit` are left, with warnings.

    The threshold rises by 1 until enough tokens are dropped, so fewer than `limit` may be left.

    Args:
        tally: Count of each token; not changed.
        threshold: Tokens with this count or less were dropped before.

    Returns:
        The counts that are left, and the new threshold.
    """
    while len(tally) > limit:
        threshold += 1
        before = len(tally)
        tally = {token: count for token, count in tally.items() if count > threshold}
        logging.warning(
            "--vocab_memory_entries=%d exceeded: dropped %d tokens seen %d times or fewer so far; "
            "counts of rare tokens may be too low from now on",
            limit,
            before - len(tally),
            threshold,
        )
    return tally, threshold


class Tally:
    """The counts of tokens, which have numbers in the order of their first appearance."""

    def __init__(self, counts: Mapping[bytes, int]):
        count = itertools.count(len(counts)).__next__
        numbers = dict(zip(counts, range(len(counts)), strict=True))
        self._numbers = collections.defaultdict(count, numbers)
        self._counts_N = np.fromiter(counts.values(), np.int64, len(counts))

    def __len__(self) -> int:
        """Return the number of different tokens."""
        return len(self._numbers)

    def add(self, tokens: Sequence[bytes], counts_U: np.ndarray) -> np.ndarray:
        """Add the counts of some tokens, and return the number of each, (U,) int64.

        Args:
            tokens: U different tokens.
            counts_U: The count of each.
        """
        numbers_U = np.fromiter(map(self._numbers.__getitem__, tokens), np.int64, len(tokens))
        missing = len(self._numbers) - len(self._counts_N)
        if missing > 0:  # as many again, so that few calls copy all counts
            self._counts_N = np.pad(self._counts_N, (0, missing + len(self._counts_N)))
        self._counts_N[numbers_U] += counts_U
        return numbers_U

    def counts(self) -> dict[bytes, int]:
        """Return the count of each token, in the order of their numbers."""
        return dict(zip(self._numbers, self._counts_N.tolist(), strict=False))


@dataclasses.dataclass
class TokenCounts:
    """The counts of the tokens of a text, or of a share of it.

    Attributes:
        tally: Count of each token.
        total: Number of all tokens.
        blocks: Number of blocks of the text.
        too_long: Number of tokens that were dropped as too long.
        replaced: For each source, the number of sequences that were not UTF-8.
        is_pruned: Whether rare tokens were dropped to save memory.
    """

    tally: dict[bytes, int]
    total: int
    blocks: int
    too_long: int
    replaced: list[int]
    is_pruned: bool


def _gather(count: Callable[[], TokenCounts], team: Team) -> list[TokenCounts]:
    """Return the counts of every process of a team; `count` counts the share of this one.

    The tokens of pruned counts are left out, as nobody can use them.
    """

    def make() -> dict[str, np.ndarray]:
        """Return the counts of this process as arrays."""
        counts = count()
        tally = {} if counts.is_pruned else counts.tally
        return {
            "tokens": join_tokens(tally),
            "tally": np.fromiter(tally.values(), np.int64, len(tally)),
            "numbers": np.array([counts.total, counts.blocks, counts.too_long, counts.is_pruned]),
            "replaced": np.array(counts.replaced),
        }

    found = []
    for part in gather_arrays(team, make):
        tally = dict(zip(split_tokens(part["tokens"]), part["tally"].tolist(), strict=True))
        total, blocks, too_long, is_pruned = part["numbers"].tolist()
        replaced = part["replaced"].tolist()
        found.append(TokenCounts(tally, total, blocks, too_long, replaced, bool(is_pruned)))
    return found


def _merge(parts: Sequence[TokenCounts]) -> TokenCounts:
    """Return the counts of a text from those of its shares; the first part is changed."""
    tally = parts[0].tally
    for part in parts[1:]:
        for token, count in part.tally.items():
            tally[token] = tally.get(token, 0) + count
    return TokenCounts(
        tally,
        sum(part.total for part in parts),
        sum(part.blocks for part in parts),
        sum(part.too_long for part in parts),
        [sum(counts) for counts in zip(*(part.replaced for part in parts), strict=True)],
        any(part.is_pruned for part in parts),
    )
