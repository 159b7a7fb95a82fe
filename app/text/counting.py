"""Count the vocabulary of a corpus in one parallel pass."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf
from absl import logging

from ..config import CorpusConfig, VocabularyConfig
from ..errors import UsageError
from .blocks import block_dataset, raise_read_errors, split_documents, without_autograph
from .meter import show_progress
from .reading import BLOCK_BYTES, Progress
from .tokenize import drop_long_tokens, make_splitter, warn_about_long_tokens
from .vocabulary import EOS, UNK, Vocabulary


def count(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: VocabularyConfig,
    block_bytes: int = BLOCK_BYTES,
    readers: int = 4,
    close: bool = False,
    progress: Progress | None = None,
) -> Vocabulary:
    """Read the files, and return the tokens that are frequent enough, with their counts.

    At most `settings.max_vocab_size` tokens are returned, if that is not 0. Counts are exact unless
    there are more than `settings.vocab_memory_entries` unique tokens. Then the rarest tokens are
    dropped during the pass, as in word2vec.c and gensim. This is logged, and so are dropped long
    tokens and bytes that are not UTF-8.

    Args:
        sources: Paths of the files.
        corpus: How to read and split the text.
        settings: Limits of the vocabulary.
        block_bytes: Largest size of a block.
        readers: Number of sources to read at a time.
        close: Whether to add `<unk>`, for tokens without an id, and `<eos>`, counted once after
            each document that has a token. They are placed by their counts, at least 1, and are
            among the `settings.max_vocab_size` tokens. The same strings in the corpus are counted
            as these tokens.
        progress: State of the sources, by default a new one; updated during the pass.

    Returns:
        Tokens by descending count, then by code point. `total` counts all tokens of the corpus.

    Raises:
        UsageError: There is no token, or none that reaches `settings.min_count`.
        RunError: A source cannot be read.
    """
    tally, total = _count_tokens(sources, corpus, settings, block_bytes, readers, close, progress)
    return (_select_closed if close else _select)(tally, total, settings)


def recount(
    vocabulary: Vocabulary,
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: VocabularyConfig,
    block_bytes: int = BLOCK_BYTES,
    readers: int = 4,
    close: bool = False,
    progress: Progress | None = None,
) -> tuple[np.ndarray, int]:
    """Read other files; return the counts of a vocabulary's tokens there, and of all tokens.

    Args:
        vocabulary: The tokens; with `close` it has `<unk>` and `<eos>`.
        sources: Paths of the files.
        corpus: How to read and split the text.
        settings: Has the memory limit.
        block_bytes: Largest size of a block.
        readers: Number of sources to read at a time.
        close: Whether `<unk>` and `<eos>` are counted, as in `count`.
        progress: State of the sources, by default a new one; updated during the pass.

    Returns:
        Counts (V,) int64 in the order of the ids, which may be 0, and the number of all tokens.

    Raises:
        UsageError: No token of the vocabulary occurs (`<unk>` and `<eos>` aside, with `close`).
        RunError: A source cannot be read.
    """
    tally, total = _count_tokens(sources, corpus, settings, block_bytes, readers, close, progress)
    known_counts = {token: tally.get(token.encode(), 0) for token in vocabulary.tokens}
    special_tokens = (UNK, EOS) if close else ()
    if not any(count for token, count in known_counts.items() if token not in special_tokens):
        raise UsageError(
            f"--corpus={corpus.corpus}: none of its {total} tokens is in the vocabulary; "
            "give --vocab of such text, tokenized in the same way"
        )
    if close:
        known_counts[UNK] += total - sum(known_counts.values())
    return np.array([*known_counts.values()], np.int64), total


@without_autograph
def _count_tokens(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: VocabularyConfig,
    block_bytes: int,
    readers: int,
    close: bool,
    progress: Progress | None,
) -> tuple[dict[bytes, int], int]:
    """Return the count of every token, as far as memory allows, and the number of all tokens.

    With `close`, the end of each document that has a token counts as `<eos>` in both. Dropped
    tokens and invalid UTF-8 are logged.

    Raises:
        UsageError: There is no token.
        RunError: A source cannot be read.
    """
    split = make_splitter(corpus)

    def count_block(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        # Counted within a block, so that few strings cross to Python. Line ends are white space to
        # every tokenizer, so documents are split only if they are counted.
        texts = split_documents(text, corpus.documents) if close else text[tf.newaxis]
        words, dropped = drop_long_tokens(split(texts))
        tokens, _, counts = tf.unique_with_counts(words.flat_values)
        return tokens, counts, tf.math.count_nonzero(words.row_lengths()), dropped

    progress = progress or Progress.make(sources)
    dataset = block_dataset(
        sources, corpus.documents, corpus.invalid_utf8, progress, block_bytes, readers
    ).map(count_block, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    tally: dict[bytes, int] = {}
    end = EOS.encode()
    total = threshold = too_long = 0
    size = sum(map(os.path.getsize, sources))
    with raise_read_errors(progress), show_progress("counting words", size, "B") as show:
        for tokens, counts, documents, dropped in dataset.as_numpy_iterator():
            for token, occurrences in zip(tokens.tolist(), counts.tolist(), strict=True):
                tally[token] = tally.get(token, 0) + occurrences
            total += int(counts.sum())
            too_long += int(dropped)
            if close:
                tally[end] = tally.get(end, 0) + int(documents)
                total += int(documents)
            tally, threshold = drop_rare_tokens(tally, settings.vocab_memory_entries, threshold)
            show(sum(progress.positions))
    _warn_about_invalid_utf8(sources, progress)
    warn_about_long_tokens(too_long)
    if total == 0:
        raise UsageError(f"--corpus={corpus.corpus}: no token in it; name files that hold text")
    return tally, total


def drop_rare_tokens(
    tally: dict[bytes, int], limit: int, threshold: int
) -> tuple[dict[bytes, int], int]:
    """Drop the tokens with the lowest counts until at most `limit` are left, with warnings.

    The threshold rises by 1 until enough tokens are dropped, so fewer than `limit` may be left.

    Args:
        tally: Count of each token; not changed.
        limit: Largest number of tokens.
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


def _select(
    tally: dict[bytes, int], total: int, settings: VocabularyConfig, reserved: int = 0
) -> Vocabulary:
    """Return the tokens with `settings.min_count` or more, the most frequent first.

    Args:
        tally: Count of each token.
        total: Tokens of the corpus.
        settings: Limits of the vocabulary: the least count, and the most tokens or 0.
        reserved: By how many tokens the most tokens are lowered.

    Raises:
        UsageError: No token is frequent enough.
    """
    kept = [(-count, token) for token, count in tally.items() if count >= settings.min_count]
    if not kept:
        count, token = max(((count, token) for token, count in tally.items()), default=(0, b""))
        raise UsageError(
            f"--min_count={settings.min_count}: no token is seen that often; the most frequent, "
            f"{token.decode()!r}, is seen {count} times: lower --min_count or give more text"
        )
    kept.sort()
    if settings.max_vocab_size:
        del kept[settings.max_vocab_size - reserved :]
    tokens = [token.decode() for _, token in kept]
    return Vocabulary(tokens, np.array([-count for count, _ in kept], np.int64), total)


def _select_closed(tally: dict[bytes, int], total: int, settings: VocabularyConfig) -> Vocabulary:
    """Return the most frequent tokens with `<unk>` and `<eos>`, by count; pop both from `tally`.

    `<unk>` has the count of all tokens that have no id. Both counts are at least 1.
    """
    tally.pop(UNK.encode(), None)
    ends = tally.pop(EOS.encode(), 0)
    words = _select(tally, total, settings, reserved=2)
    special_tokens = [(-max(ends, 1), EOS), (-max(total - ends - int(words.counts.sum()), 1), UNK)]
    ranked = sorted([*zip((-words.counts).tolist(), words.tokens, strict=True), *special_tokens])
    return Vocabulary(
        [token for _, token in ranked], np.array([-count for count, _ in ranked], np.int64), total
    )


def _warn_about_invalid_utf8(sources: tuple[str, ...], progress: Progress) -> None:
    """Log a warning for each source in which sequences were replaced."""
    for path, replaced in zip(sources, progress.replaced, strict=True):
        if replaced:
            logging.warning("%s: %d sequences are not UTF-8; replaced by U+FFFD", path, replaced)
