"""Load the corpus and vocabulary of a text task, and make its batches."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from ...assembly.memory_plan import free_memory
from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...input import cache, device_batches, pipeline, token_rows
from ...input.pipeline import EpochRows
from ...settings import Config, InputConfig
from ...system.checked_files import COUNT
from ...tables import memory
from ...tables.memory import Item
from ...text import corpus, phrase_table, same_text, shares, vocabulary
from ...text.blocks import raise_read_errors
from ...text.phrase_table import Phrases
from ...text.reading import Progress
from ...text.shares import Share
from ...text.tokenize import warn_about_missing_spaces
from ...training.job import PlacedTables
from ...types import ALONE, Batches, Team
from .. import recorded_corpus
from . import counted_text, growing_words
from .counted_text import NO_VOCABULARY, Text

# The most bytes that a device needs for each token of a block while it makes the rows, by XLA's
# report for an H100: 13.4 for temporary values and 5.9 for the rows, which are there twice.
_BLOCK_BYTES = 26


def load_text(
    config: Config,
    workdir: Workdir,
    finished: bool,
    ends_documents: bool = False,
    team: Team = ALONE,
) -> Text:
    """Load the corpus of a run with its vocabulary, its size and its fingerprint.

    The vocabulary comes from the workdir, else from --vocab, else it is counted. With
    --table=dynamic it is `NO_VOCABULARY` and --vocab is not read; the size of a text that the
    workdir does not know is then estimated from samples. A text is read whole if the workdir does
    not know it, or if its files have other modification times than recorded. Nothing is written to
    the workdir.

    Args:
        config: The configuration of the run.
        workdir: The workdir of the run.
        finished: Whether the run has completed all its epochs. Only then may the corpus change; the
            vocabulary stays.
        ends_documents: Whether each document ends with `<eos>`, as language models need it. The
            vocabulary then has `<unk>` and `<eos>`, and a --vocab without them is refused. It has
            no effect with --table=dynamic.
        team: The processes that train together and call this together; they count the text
            together.

    Raises:
        UsageError: The corpus or the vocabulary cannot be used, or the corpus changed during a run.
        DamagedError: A file of the workdir is damaged, or missing beside a checkpoint.
        RunError: The corpus cannot be read, or a process of the team has another one.
    """
    sources = corpus.resolve(config.corpus)
    shape = {"fingerprint": dict, "words": COUNT, "batches": COUNT, "phrases": (str, None)}
    known = recorded_corpus.read(workdir, shape)
    same_text.check(sources, known, team)
    counted_text.check_shares(sources, config, team)
    grows = config.table.is_dynamic
    words, phrases = NO_VOCABULARY if grows else None, None
    if known and (grows or workdir.has(workdir.vocabulary)):
        words = words or vocabulary.load(str(workdir.vocabulary))
        phrases = _load_phrases(workdir, known.get("phrases"))
        recorded_corpus.warn_about_old_words(workdir, words.tokens, config)
        fingerprint = recorded_corpus.recognize(sources, known["fingerprint"], config, finished)
        if fingerprint is not None:
            return Text(sources, words, known["words"], known["batches"], fingerprint, phrases)
        if config.vocabulary.grow_vocab:
            return counted_text.count_text(
                sources, words, config, ends_documents, phrases, grows=True, team=team
            )
        if not grows:
            logging.warning(
                "--corpus=%s: other text than before; the vocabulary of --workdir is kept",
                config.corpus.corpus,
            )
    elif config.vocabulary.vocab and not grows:
        words = counted_text.load_given_vocabulary(config, ends_documents)
    warn_about_missing_spaces(sources, f"--corpus={config.corpus.corpus}")
    if grows:
        size = growing_words.estimate_size(sources, config, config.vocabulary.min_count)
        return Text(sources, words, *size, corpus.fingerprint(sources))
    return counted_text.count_text(sources, words, config, ends_documents, phrases, team=team)


def record(text: Text, workdir: Workdir) -> None:
    """Write corpus.json, the phrases if there are any and, unless --table=dynamic, the vocabulary.

    Args:
        text: The corpus.
        workdir: The workdir of the run.
    """
    if text.vocabulary is not NO_VOCABULARY:  # the checkpoints have the words of --table=dynamic
        vocabulary.save(text.vocabulary, str(workdir.vocabulary))
    known = {"fingerprint": text.fingerprint, "words": text.words, "batches": text.batches}
    known |= recorded_corpus.word_rules(workdir)
    if text.phrases:
        phrase_table.save(text.phrases, workdir.phrases)
        known["phrases"] = phrase_table.compute_digest(text.phrases)
    files.write_json(workdir.corpus, known)


def compute_digest(text: Text) -> int:
    """Return a 32-bit checksum of the corpus and of the ids of its words.

    Args:
        text: The corpus.
    """
    parts = [*text.contents, *text.vocabulary.tokens]
    parts += [phrase_table.compute_digest(text.phrases)] if text.phrases else []
    return zlib.crc32("\0".join(parts).encode())


def make_batches(text: Text, config: Config, workdir: Workdir, device: str = "") -> Batches:
    """Return the function that yields the batches of a run, (S, B, L) int32 (see `types.Batches`).

    Nothing is read before it yields the first batch.

    Args:
        text: The corpus.
        config: The configuration of the run.
        workdir: The workdir of the run, which has the cache of --cache=disk.
        device: The device that keeps the token ids and makes the same batches, all micro-batches
            one; by default, tf.data makes them on the host.

    Raises:
        RunError: While iterating, if the corpus cannot be read.
    """
    settings, window = config.input, config.model.window
    keep_V = token_rows.keep_probability(text.vocabulary.counts, settings.subsample)
    progress = Progress.make(text.sources)

    def blocks(share: Share, is_cached: bool = True) -> tf.data.Dataset:
        """Return the tokens of each block of a share; keep them for later epochs if `is_cached`."""
        if text.kept is not None and text.kept.covers(share):
            return cache.read_kept(text.kept, share)
        tokenize = pipeline.make_block_tokenizer(config.corpus, text.vocabulary, text.phrases)
        source = text.sources, config.corpus, settings
        found = pipeline.map_blocks(*source, progress, tokenize, share)
        return cache_blocks(found, text, config, workdir, progress, share) if is_cached else found

    def rows(share: Share) -> EpochRows:
        """Return a function from an epoch to the rows of a share."""
        how = keep_V, window, settings, config.run.seed
        return pipeline.make_epoch_rows(blocks(share), *how, share)

    def read_blocks() -> Iterator[np.ndarray]:
        """Yield the tokens of each block of the text."""
        with raise_read_errors(progress):
            yield from blocks(shares.ALL, is_cached=False).as_numpy_iterator()

    if device:
        how = keep_V, window, settings, config.run.seed
        return device_batches.make_batches(read_blocks, *how, device)
    return make_batches_from_rows(rows, progress, 2 * window, settings)


def plan_input(words: int, config: Config, placed: PlacedTables) -> tuple[list[Item], str]:
    """Plan whether the device keeps the token ids of a text and makes the batches.

    Args:
        words: The number of words of the text.
        config: The configuration of the run.
        placed: The tables, with the memory that is planned without the ids.

    Returns:
        The memory that this takes, nothing if the ids stay on the host; and a line for the banner.
    """
    settings, place, size = config.input, placed.device, memory.shown(4 * words)
    most = min(words, settings.block_bytes // 2)  # tokens of a block, each with a space
    items = [
        Item("token ids", f"{words:,}", place, 4 * words),
        Item("rows of a block", f"{most:,} tokens", place, _BLOCK_BYTES * most),
    ]
    # The text is read twice: to count its words, and to train on them.
    is_kept = cache.choose(settings.cache, 2, words) == "memory"
    reasons = {
        f"--strategy={config.run.strategy}": config.run.strategy != "none",
        f"--table={config.table.table}": config.table.table != "device",
        f"--micro_batches={settings.micro_batches}": settings.micro_batches > 1,
        f"they take {size}, and --cache={settings.cache} does not keep them": not is_kept,
        f"they take {size}, which {place} does not have beside the tables": (
            place in memory.too_much([*placed.memory, *items], free_memory(config.table, [place]))
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            return [], f"token ids stay on the host: {reason}"
    return items, f"token ids: {size} on {place}, which makes the batches"


def make_batches_from_rows(
    make_rows: Callable[[Share], EpochRows], progress: Progress, halo: int, settings: InputConfig
) -> Batches:
    """Return the function that yields batches of rows (see `types.Batches`); it reads nothing yet.

    Args:
        make_rows: Function from a share of the text to its rows in each epoch; called once a share.
        progress: The progress in the files that the rows are read from.
        halo: The number of tokens of a row beside its T tokens, L - T.
        settings: Batch size and the number of micro-batches.

    Raises:
        RunError: While iterating, if a file cannot be read.
    """
    micro = settings.micro_batches or 1
    # Cached, so that all epochs share the rows and nothing is read before the first epoch.
    share_rows = functools.cache(lambda number: make_rows(Share(number, micro)))

    def epoch_batches(
        epochs: range, first: int, mine: range | None = None
    ) -> Iterator[tuple[int, tf.Tensor]]:
        """Yield (epoch, batch) as in `types.Batches`; `mine` are its `parts`, None for all."""
        streams = [share_rows(number) for number in mine or range(micro)]
        dataset = pipeline.make_batches(streams, epochs, first, halo, settings)
        with raise_read_errors(progress):
            for epoch, tokens in dataset:
                if progress.error is not None:  # rows may be missing from this batch
                    break
                yield int(epoch), tokens

    return epoch_batches


def cache_blocks(
    blocks: tf.data.Dataset,
    text: Text,
    config: Config,
    workdir: Workdir,
    progress: Progress,
    share: Share,
) -> tf.data.Dataset:
    """Return the blocks of tokens with the cache of --cache, which keeps them between epochs.

    With --cache=none or --plan_only they are returned as they are.

    Args:
        blocks: Dataset of tokens (M,) int32, a share of the text.
        text: The corpus.
        config: The configuration of the run.
        workdir: The workdir of the run.
        progress: The progress in the files that are read.
        share: The share of the corpus that the blocks have.
    """
    if config.run.plan_only:  # writes nothing and reads no whole epoch
        return blocks
    kind = cache.choose(config.input.cache, config.run.epochs, text.words)
    return cache.CACHES[kind](
        blocks, progress, lambda: workdir.cache / f"{_cache_key(text, config, share)}.int32"
    )


def _load_phrases(workdir: Workdir, digest: str | None) -> Phrases:
    """Load the phrases of a run, whose digest is recorded; None is recorded for a run without any.

    Raise DamagedError if the file is missing or another one.
    """
    return () if digest is None else phrase_table.load(workdir.phrases, digest)


def _cache_key(text: Text, config: Config, share: Share) -> str:
    """Return a name of 16 hex digits that changes with everything the token ids depend on."""
    parts = [
        text.contents,
        dataclasses.asdict(config.corpus),
        config.input.block_bytes,
        config.input.readers,
        text.vocabulary.tokens,
        *([] if share == shares.ALL else [share]),
        *([phrase_table.compute_digest(text.phrases)] if text.phrases else []),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
