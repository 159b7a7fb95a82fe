"""The vocabulary of a corpus, counted in one parallel pass."""

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
    """The tokens of the sources that are frequent enough, and how often each occurs.

    close: whether every token is to have an id, that of `<unk>` if none of its own, and `<eos>` is
    to follow every document that has a token, as one more token of the corpus. Both are placed by
    their counts, at least 1, and are among the `settings.max_vocab_size` tokens. Where the corpus
    has such tokens itself, they are taken for what they stand for. progress: of the sources, is
    kept up to date.

    Counts are exact unless more than `settings.vocab_memory_entries` distinct tokens turn up: the
    rarest are then dropped as the pass goes on, as word2vec.c and gensim do, and this is logged.

    Raises UsageError when there is no token, or none that reaches `settings.min_count`; RunError
    when a source cannot be read.
    """
    held, total = _tally(sources, corpus, settings, block_bytes, readers, close, progress)
    return (_closed if close else _select)(held, total, settings)


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
    """How often each token of a vocabulary occurs in other sources, and how many tokens those have.

    The counts are (V,) int64. close, progress: as of `count`; with close, the vocabulary has
    `<unk>` and `<eos>`.
    Raises UsageError when no token occurs, else as `count` does.
    """
    held, total = _tally(sources, corpus, settings, block_bytes, readers, close, progress)
    found = {token: held.get(token.encode(), 0) for token in vocabulary.tokens}
    marks = (UNK, EOS) if close else ()
    if not any(count for token, count in found.items() if token not in marks):
        raise UsageError(
            f"--corpus={corpus.corpus}: none of its {total} tokens is in the vocabulary; "
            "give --vocab of such text, tokenised in the same way"
        )
    if close:
        found[UNK] += total - sum(found.values())
    return np.array([*found.values()], np.int64), total


@without_autograph
def _tally(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: VocabularyConfig,
    block_bytes: int,
    readers: int,
    close: bool,
    progress: Progress | None,
) -> tuple[dict[bytes, int], int]:
    """The count of every token, as far as memory allows, and how many there are in all.

    close: whether the end of a document that has a token is a token as well.
    """
    split = make_splitter(corpus)

    def distinct(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        # Within a block, so that few strings cross to Python. Line ends are white space to every
        # tokenizer, so documents need splitting only where they are counted.
        texts = split_documents(text, corpus.documents) if close else text[tf.newaxis]
        words, dropped = drop_long_tokens(split(texts))
        tokens, _, counts = tf.unique_with_counts(words.flat_values)
        return tokens, counts, tf.math.count_nonzero(words.row_lengths()), dropped

    progress = progress or Progress.of(sources)
    dataset = block_dataset(
        sources, corpus.documents, corpus.invalid_utf8, progress, block_bytes, readers
    ).map(distinct, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    held: dict[bytes, int] = {}
    end = EOS.encode()
    total = threshold = too_long = 0
    size = sum(map(os.path.getsize, sources))
    with raise_read_errors(progress), show_progress("counting words", size, "B") as show:
        for tokens, counts, documents, dropped in dataset.as_numpy_iterator():
            for token, occurrences in zip(tokens.tolist(), counts.tolist(), strict=True):
                held[token] = held.get(token, 0) + occurrences
            total += int(counts.sum())
            too_long += int(dropped)
            if close:
                held[end] = held.get(end, 0) + int(documents)
                total += int(documents)
            held, threshold = drop_rare_tokens(held, settings.vocab_memory_entries, threshold)
            show(sum(progress.positions))
    _tell_replaced(sources, progress)
    warn_about_long_tokens(too_long)
    if total == 0:
        raise UsageError(f"--corpus={corpus.corpus}: no token in it; name files that hold text")
    return held, total


def drop_rare_tokens(
    held: dict[bytes, int], limit: int, threshold: int
) -> tuple[dict[bytes, int], int]:
    """Raises the threshold by one, dropping tokens with that count, until `limit` are held.

    Returns what is left and the last threshold.
    """
    while len(held) > limit:
        threshold += 1
        before = len(held)
        held = {token: count for token, count in held.items() if count > threshold}
        logging.warning(
            "--vocab_memory_entries=%d exceeded: dropped %d tokens seen %d times or fewer so far; "
            "counts of rare tokens are now lower bounds",
            limit,
            before - len(held),
            threshold,
        )
    return held, threshold


def _select(
    held: dict[bytes, int], total: int, settings: VocabularyConfig, others: int = 0
) -> Vocabulary:
    """The most frequent tokens, where `others` of the greatest number are taken already."""
    kept = [(-count, token) for token, count in held.items() if count >= settings.min_count]
    if not kept:
        count, token = max(((count, token) for token, count in held.items()), default=(0, b""))
        raise UsageError(
            f"--min_count={settings.min_count}: no token is seen that often; the most frequent, "
            f"{token.decode()!r}, is seen {count} times: lower --min_count or give more text"
        )
    kept.sort()
    if settings.max_vocab_size:
        del kept[settings.max_vocab_size - others :]
    tokens = [token.decode() for _, token in kept]
    return Vocabulary(tokens, np.array([-count for count, _ in kept], np.int64), total)


def _closed(held: dict[bytes, int], total: int, settings: VocabularyConfig) -> Vocabulary:
    """The most frequent tokens, with `<unk>` and `<eos>` among them; it takes these out of held."""
    held.pop(UNK.encode(), None)
    ends = held.pop(EOS.encode(), 0)
    words = _select(held, total, settings, others=2)
    marks = [(-max(ends, 1), EOS), (-max(total - ends - int(words.counts.sum()), 1), UNK)]
    ranked = sorted([*zip((-words.counts).tolist(), words.tokens, strict=True), *marks])
    return Vocabulary(
        [token for _, token in ranked], np.array([-count for count, _ in ranked], np.int64), total
    )


def _tell_replaced(sources: tuple[str, ...], progress: Progress) -> None:
    for path, replaced in zip(sources, progress.replaced, strict=True):
        if replaced:
            logging.warning("%s: %d sequences are not UTF-8; replaced by U+FFFD", path, replaced)
