"""Load the text of a run: its words, phrases, size and fingerprint."""

from __future__ import annotations

import dataclasses
import functools
import os
import zlib
from typing import Any

import numpy as np
from absl import logging

from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import counting, pipeline, sequences, token_cache, token_rows
from ...input.blocks import TextFiles, check_blocks, find_blocks, share_of
from ...input.token_cache import KeptTokens
from ...settings import Config, InputConfig
from ...system.checked_files import COUNT
from ...text import corpus, phrase_table, vocabulary
from ...text.phrase_table import Phrases
from ...text.reading import Progress, is_cuttable
from ...text.tokenize import warn_about_columns, warn_about_missing_spaces
from ...text.vocabulary import EOS, UNK, Vocabulary
from ...types import ALONE, Team
from .. import recorded_corpus
from . import growing_words

# Stands for the vocabulary of --table=dynamic, which grows while training.
NO_VOCABULARY = Vocabulary([], np.zeros(0, np.int64), 0)


@dataclasses.dataclass(frozen=True)
class Text:
    """The corpus of a run.

    Attributes:
        files: Its files, and how they are read.
        vocabulary: Tokens with an id; `NO_VOCABULARY` for --table=dynamic.
        words: Tokens of the corpus, including unknown ones. For a language model the ends of
            documents count too.
        batches: Approximate number of batches of an epoch.
        fingerprint: The fingerprint of the files (see `corpus.fingerprint`).
        phrases: Phrases that are joined to a token (--phrases).
        new_ids_V: The new id of each word of the vocabulary before it grew (--grow_vocab); None if
            it has not grown.
        is_counted_here: Whether the vocabulary has the counts of this text, not of --vocab.
        kept: The tokens that this process counted, if they were kept in memory; else None.
    """

    files: TextFiles
    vocabulary: Vocabulary
    words: int
    batches: int
    fingerprint: dict[str, Any]
    phrases: Phrases = ()
    new_ids_V: np.ndarray | None = None
    is_counted_here: bool = True
    kept: KeptTokens | None = None

    @property
    def contents(self) -> list[str]:
        """The hashes of the files; they depend only on the names and the text of the files."""
        return [self.fingerprint[name] for name in ("sha256", "contents")]


def load_text(
    config: Config,
    workdir: Workdir,
    finished: bool,
    team: Team = ALONE,
    ends_documents: bool = False,
) -> Text:
    """Load the corpus of a run with its vocabulary, its size and its fingerprint.

    The vocabulary comes from the workdir, else from --vocab, else it is counted. A text is read
    whole if the workdir does not know it, or if its files have other modification times than
    recorded. Nothing is written to the workdir. With --table=dynamic the vocabulary is
    `NO_VOCABULARY`, and the size of an unknown text is estimated from samples.

    Args:
        finished: Whether the run has completed all its epochs. Only then may the corpus change; the
            vocabulary stays.
        team: The processes that train together and call this together; they count the text
            together.
        ends_documents: Whether each document ends with `<eos>`, as language models need it. The
            vocabulary then has `<unk>` and `<eos>`, and a --vocab without them is refused.

    Raises:
        UsageError: The corpus or the vocabulary cannot be used, or the corpus changed during a run.
        DamagedError: A file of the workdir is damaged, or missing beside a checkpoint.
        RunError: The corpus cannot be read, or a process of the team has another one.
    """
    shape = {"fingerprint": dict, "words": COUNT, "batches": COUNT, "phrases": (str, None)}
    split, rules = config.corpus, config.vocabulary
    is_dynamic = config.table.is_dynamic
    sources, known = recorded_corpus.open_corpus(split, workdir, shape, team)
    text_files = TextFiles(sources, split, config.input)
    _check_shares(text_files, team)
    count = functools.partial(_count_text, text_files, config, ends_documents, team)
    words, phrases, text = NO_VOCABULARY if is_dynamic else None, None, None
    if known and (is_dynamic or workdir.has(workdir.vocabulary)):
        words, digest = words or vocabulary.load(str(workdir.vocabulary)), known.get("phrases")
        phrases = () if digest is None else phrase_table.load(workdir.phrases, digest)
        recorded = known["fingerprint"]
        run = config.run if finished else None
        fingerprint = recorded_corpus.recognize(sources, recorded, split, workdir, run)
        if fingerprint is not None:
            size = known["words"], known["batches"]
            text = Text(text_files, words, *size, fingerprint, phrases)
        elif rules.grow_vocab:
            text = count(words, phrases, grows=True)
        elif not is_dynamic:
            logging.warning(
                "--corpus=%s: other text than before; the vocabulary of --workdir is kept",
                split.corpus,
            )
    elif rules.vocab and not is_dynamic:
        words = _load_given_vocabulary(rules.vocab, ends_documents)
    if text is None:
        warn_about_missing_spaces(sources, f"--corpus={split.corpus}")
        warn_about_columns(sources, split)
        if is_dynamic:
            size = growing_words.estimate_size(text_files, rules.min_count)
            return Text(text_files, words, *size, corpus.fingerprint(sources))
        text = count(words, phrases)
    return dataclasses.replace(text, is_counted_here=not rules.vocab)


def record(text: Text, workdir: Workdir) -> None:
    """Write corpus.json, the phrases if any and, unless --table=dynamic, the vocabulary."""
    if text.vocabulary is not NO_VOCABULARY:  # the checkpoints have the words of --table=dynamic
        vocabulary.save(text.vocabulary, str(workdir.vocabulary))
    known = {"fingerprint": text.fingerprint, "words": text.words, "batches": text.batches}
    if text.phrases:
        phrase_table.save(text.phrases, workdir.phrases)
        known["phrases"] = phrase_table.compute_digest(text.phrases)
    files.write_json(workdir.corpus, known)


def compute_digest(text: Text) -> int:
    """Return a 32-bit checksum of the corpus and of the ids of its words."""
    parts = [*text.contents, *text.vocabulary.tokens]
    parts += [phrase_table.compute_digest(text.phrases)] if text.phrases else []
    return zlib.crc32("\0".join(parts).encode())


def _count_text(
    text_files: TextFiles,
    config: Config,
    ends_documents: bool,
    team: Team,
    words: Vocabulary | None,
    phrases: Phrases | None = None,
    grows: bool = False,
) -> Text:
    """Read the whole text, and return it with its size, fingerprint and vocabulary.

    It is read once, and once more for each pass of --phrases that is left to make. The processes
    of a team count a share of it each, and all get the result of one process. Words and phrases
    that are None are counted; if `grows`, the counts and the new words of the text are added to
    the given words.
    """
    (sources, _, settings), rules = text_files, config.vocabulary
    sample, is_alone = corpus.sample_fingerprint(sources), team is ALONE
    progress = Progress.make(sources, hashed=is_alone)
    if phrases is None:
        phrases = counting.find_phrases(text_files, rules, team)
    kept = None
    # Unknown words are not kept, and a language model needs them.
    if not (config.run.plan_only or ends_documents):
        kept = token_cache.make_kept(settings.cache, share_of(team))
    limit = rules.vocab_memory_entries
    tally, total = counting.count_tokens(
        text_files, limit, ends_documents, progress, phrases, team, kept
    )
    words, counts, new_ids_V = _choose_words(tally, total, words, config, ends_documents, grows)
    if kept is not None and kept.is_complete:
        kept.identify(words)
    else:
        kept = None
    blocks = _count_blocks(sources, settings)
    if ends_documents:
        batches = sequences.estimate_batches(total, settings, blocks)
    else:
        keep_V = token_rows.keep_probability(words.counts, settings.subsample)
        batches = pipeline.estimate_batches(counts, keep_V, settings, blocks)
    contents = (
        corpus.hash_contents(progress.digests) if is_alone else corpus.read_contents(sources, team)
    )
    fingerprint = {**sample, "contents": contents}
    return Text(text_files, words, total, batches, fingerprint, phrases, new_ids_V, kept=kept)


def _choose_words(
    tally: dict[bytes, int],
    total: int,
    words: Vocabulary | None,
    config: Config,
    ends_documents: bool,
    grows: bool,
) -> tuple[Vocabulary, np.ndarray, np.ndarray | None]:
    """Return the vocabulary, the count of each of its words in the text, and new ids if it grew.

    For the arguments and the new ids see `_count_text` and `Text`. Raise UsageError if there is a
    single word, without `ends_documents`.
    """
    split, rules, new_ids_V = config.corpus, config.vocabulary, None
    if words is not None and grows:
        counted = {token.decode(): count for token, count in tally.items()}
        limits = rules.min_count, rules.max_vocab_size
        words, new_ids_V = vocabulary.grow(words, counted, total, *limits)
    if words is None:
        words = counting.select_tokens(tally, total, rules, ends_documents)
        counts = words.counts
    else:
        counts = counting.look_up_counts(tally, total, words, split, ends_documents)
    if len(words.tokens) == 1 and not ends_documents:
        lower = f"give more text, or lower --min_count={rules.min_count}"
        remedy = "raise --max_vocab_size=1" if rules.max_vocab_size == 1 else lower
        raise UsageError(
            f"--corpus={split.corpus}: the vocabulary has a single word, "
            f"{words.tokens[0]!r}, so no word has another one in its context, and there is nothing "
            f"to learn; {remedy}"
        )
    return words, counts, new_ids_V


def _load_given_vocabulary(path: str, ends_documents: bool) -> Vocabulary:
    """Load --vocab; raise UsageError if it cannot be used, or lacks `<unk>` and `<eos>`."""
    words = vocabulary.load(path)
    for token in (UNK, EOS):
        if ends_documents and token not in words.tokens:
            raise UsageError(
                f"--vocab={path}: has no {token}, which --task=language_model needs; take "
                "vocab.tsv of such a run, or add the token by its count"
            )
    return words


def _check_shares(text_files: TextFiles, team: Team) -> None:
    """Raise UsageError if files have too few blocks of text for the processes of a team.

    For files that are no plain text, this is known only when they are counted (see
    `counting.count_tokens`).
    """
    (sources, split, settings), workers = text_files, len(team.names)
    least = sum(-(-os.path.getsize(path) // settings.block_bytes) for path in sources)
    if least >= workers or not all(is_cuttable(path, split.text_column) for path in sources):
        return
    blocks = len(find_blocks(text_files))
    of_workers = [len(range(number, blocks, workers)) for number in range(workers)]
    check_blocks(of_workers, text_files, team)


def _count_blocks(sources: tuple[str, ...], settings: InputConfig) -> int:
    """Return the number of blocks of the files; warn if there are fewer than micro-batches."""
    blocks = sum(-(-os.path.getsize(path) // settings.block_bytes) for path in sources)
    if blocks < settings.micro_batches:
        logging.warning(
            "--block_bytes=%d: the text has %d blocks for %d micro-batches of a step, so some stay "
            "empty; lower it",
            *(settings.block_bytes, blocks, settings.micro_batches),
        )
    return blocks
