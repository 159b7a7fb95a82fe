"""Read the text of a run whole, to count its tokens, its phrases and its batches."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
from absl import logging

from ...errors import UsageError
from ...input import cache, pipeline, sequences, token_rows
from ...settings import Config
from ...text import corpus, counting, phrase_counts, same_text, shares, vocabulary
from ...text.columns import is_cuttable
from ...text.kept_tokens import KeptTokens
from ...text.phrase_table import Phrases
from ...text.reading import Progress
from ...text.vocabulary import EOS, UNK, Vocabulary
from ...types import ALONE, Team

# Stands for the vocabulary of --table=dynamic, which grows while training.
NO_VOCABULARY = Vocabulary([], np.zeros(0, np.int64), 0)


@dataclasses.dataclass(frozen=True)
class Text:
    """The corpus of a run.

    Attributes:
        sources: Paths of its files.
        vocabulary: Tokens with an id; `NO_VOCABULARY` for --table=dynamic.
        words: Tokens of the corpus, including unknown ones. For a language model the ends of
            documents count too.
        batches: Approximate number of batches of an epoch.
        fingerprint: The fingerprint of the files (see `corpus.fingerprint`).
        phrases: Phrases that are joined to a token (--phrases).
        new_ids_V: The new id of each word of the vocabulary before it grew (--grow_vocab); None if
            it has not grown.
        kept: The tokens that this process counted, if they were kept in memory; else None.
    """

    sources: tuple[str, ...]
    vocabulary: Vocabulary
    words: int
    batches: int
    fingerprint: dict[str, Any]
    phrases: Phrases = ()
    new_ids_V: np.ndarray | None = None
    kept: KeptTokens | None = None

    @property
    def contents(self) -> list[str]:
        """The hashes of the files; they depend only on the names and the text of the files."""
        return [self.fingerprint[name] for name in ("sha256", "contents")]


def count_text(
    sources: tuple[str, ...],
    words: Vocabulary | None,
    config: Config,
    ends_documents: bool,
    phrases: Phrases | None = None,
    grows: bool = False,
    team: Team = ALONE,
) -> Text:
    """Read the whole text, and return it with its size, fingerprint and vocabulary.

    It is read once, and once more for each pass of --phrases that is left to make. The processes
    of a team count a share of it each, and all get the result of one process.

    Args:
        sources: Paths of the files.
        words: The vocabulary, which is not changed unless `grows`; None to count it.
        config: The configuration of the run.
        ends_documents: Whether each document ends with `<eos>`.
        phrases: The phrases to join; None to count them.
        grows: Whether the counts and the new words of the text are added to the vocabulary.
        team: The processes that read the text together.

    Raises:
        UsageError: The vocabulary would be empty or, without `ends_documents`, a single word; no
            word of `words` is in the text; or there is no text for a process of the team.
        RunError: A file cannot be read.
    """
    sample, is_alone = corpus.sample_fingerprint(sources), team is ALONE
    progress = Progress.make(sources, hashed=is_alone)
    how = config.corpus, config.input
    if phrases is None:
        phrases = phrase_counts.find_phrases(sources, *how, config.vocabulary, team)
    limit = config.vocabulary.vocab_memory_entries
    kept = _make_kept(config, ends_documents, team)
    tally, total = counting.count_tokens(
        sources, *how, limit, ends_documents, progress, phrases, team, kept
    )
    words, counts, new_ids_V = _choose_words(tally, total, words, config, ends_documents, grows)
    if kept is not None and kept.is_complete:
        kept.identify(words)
    else:
        kept = None
    blocks = _count_blocks(sources, config)
    if ends_documents:
        batches = sequences.estimate_batches(total, config.input, blocks)
    else:
        keep_V = token_rows.keep_probability(words.counts, config.input.subsample)
        batches = pipeline.estimate_batches(counts, keep_V, config.input, blocks)
    contents = (
        corpus.hash_contents(progress) if is_alone else same_text.hash_contents(sources, team)
    )
    fingerprint = {**sample, "contents": contents}
    return Text(sources, words, total, batches, fingerprint, phrases, new_ids_V, kept)


def _make_kept(config: Config, ends_documents: bool, team: Team) -> KeptTokens | None:
    """Return where to keep the tokens of a text while it is counted, or None to keep none.

    None is kept for a language model, which needs unknown words, nor if nobody reads the text
    after this pass.
    """
    if config.run.plan_only or ends_documents:
        return None
    return cache.make_kept(config.input.cache, shares.share_of(team))


def _choose_words(
    tally: dict[bytes, int],
    total: int,
    words: Vocabulary | None,
    config: Config,
    ends_documents: bool,
    grows: bool,
) -> tuple[Vocabulary, np.ndarray, np.ndarray | None]:
    """Return the vocabulary, the count of each of its words in the text, and new ids if it grew.

    For the arguments, the new ids and the errors see `count_text` and `Text`.
    """
    new_ids_V = None
    if words is not None and grows:
        counted = {token.decode(): count for token, count in tally.items()}
        limits = config.vocabulary.min_count, config.vocabulary.max_vocab_size
        words, new_ids_V = vocabulary.grow(words, counted, total, *limits)
    if words is None:
        words = counting.select_tokens(tally, total, config.vocabulary, ends_documents)
        counts = words.counts
    else:
        counts = counting.look_up_counts(tally, total, words, config.corpus, ends_documents)
    if len(words.tokens) == 1 and not ends_documents:
        lower = f"give more text, or lower --min_count={config.vocabulary.min_count}"
        remedy = "raise --max_vocab_size=1" if config.vocabulary.max_vocab_size == 1 else lower
        raise UsageError(
            f"--corpus={config.corpus.corpus}: the vocabulary has a single word, "
            f"{words.tokens[0]!r}, so no word has another one in its context, and there is nothing "
            f"to learn; {remedy}"
        )
    return words, counts, new_ids_V


def load_given_vocabulary(config: Config, ends_documents: bool) -> Vocabulary:
    """Load --vocab.

    Args:
        config: The configuration of the run.
        ends_documents: Whether it needs `<unk>` and `<eos>`.

    Raises:
        UsageError: The file cannot be used, or lacks one of the two.
    """
    path = config.vocabulary.vocab
    words = vocabulary.load(path)
    for token in (UNK, EOS):
        if ends_documents and token not in words.tokens:
            raise UsageError(
                f"--vocab={path}: has no {token}, which --task={config.run.task} needs; take "
                "vocab.tsv of such a run, or add the token by its count"
            )
    return words


def check_shares(sources: tuple[str, ...], config: Config, team: Team) -> None:
    """Raise UsageError if files have too few blocks of text for the processes of a team.

    For files that are no plain text, this is known only when they are counted (see
    `counting.count_tokens`).

    Args:
        sources: Paths of the files.
        config: The configuration of the run.
        team: The processes that read a share of the blocks each.
    """
    workers = len(team.names)
    least = sum(-(-os.path.getsize(path) // config.input.block_bytes) for path in sources)
    column = config.corpus.text_column
    if least >= workers or not all(is_cuttable(path, column) for path in sources):
        return
    blocks = len(shares.find_blocks(sources, config.corpus.documents, config.input))
    of_workers = [len(range(number, blocks, workers)) for number in range(workers)]
    counting.check_blocks(of_workers, config.corpus, config.input, team)


def _count_blocks(sources: tuple[str, ...], config: Config) -> int:
    """Return the number of blocks of the files; warn if there are fewer than micro-batches."""
    blocks = sum(-(-os.path.getsize(path) // config.input.block_bytes) for path in sources)
    if blocks < config.input.micro_batches:
        logging.warning(
            "--block_bytes=%d: the text has %d blocks for %d micro-batches of a step, so some stay "
            "empty; lower it",
            *(config.input.block_bytes, blocks, config.input.micro_batches),
        )
    return blocks
