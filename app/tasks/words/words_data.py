"""The text side of training: the vocabulary of a run, and the batches by epoch of words."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...config import Config, InputConfig
from ...errors import UsageError
from ...input import cache, pipeline, sequences, service
from ...input.pipeline import EpochRows, Share
from ...system.checked_files import COUNT
from ...text import corpus, counting, vocabulary
from ...text.blocks import raise_read_errors
from ...text.reading import Progress
from ...text.vocabulary import EOS, UNK, Vocabulary
from ...types import Batches
from . import growing_words

# That of --table=dynamic, which nobody knows before.
NO_VOCABULARY = Vocabulary([], np.zeros(0, np.int64), 0)


@dataclasses.dataclass(frozen=True)
class Text:
    """The corpus of a run.

    sources: its files. words: how many it has, unknown ones included; for a language model the ends
    of documents as well. batches: about how many an epoch has. fingerprint: see
    `corpus.fingerprint`.
    """

    sources: tuple[str, ...]
    vocabulary: Vocabulary
    words: int
    batches: int
    fingerprint: dict[str, Any]

    @property
    def contents(self) -> list[str]:
        """Values that differ with the names and the text of the files, and with nothing else."""
        return [self.fingerprint[name] for name in ("sha256", "contents")]


def load_text(config: Config, workdir: Workdir, finished: bool) -> Text:
    """The corpus with its vocabulary: that of the workdir, or of --vocab, or counted.

    The vocabulary of a language model has `<unk>` and `<eos>`. finished: whether all epochs asked
    for before are done; only then may another corpus follow, with the same vocabulary. UsageError
    where it is not, and for a corpus or a vocabulary that cannot be; RunError when the corpus
    cannot be read.
    """
    sources = corpus.resolve(config.corpus)
    if config.input.data_service:
        service.check_service(config.input.data_service, sources)
    shape = {"fingerprint": dict, "words": COUNT, "batches": COUNT}
    known = files.read_json(workdir.corpus, shape) if workdir.has(workdir.corpus) else None
    grows = config.table.table == "dynamic"
    if known and (grows or workdir.has(workdir.vocabulary)):
        words = NO_VOCABULARY if grows else vocabulary.load(str(workdir.vocabulary))
        same = corpus.recognize(sources, known["fingerprint"])
        if same is not None:
            return Text(sources, words, known["words"], known["batches"], same)
        if not finished:
            raise UsageError(
                f"--corpus={config.corpus.corpus} is not the text that --workdir="
                f"{config.run.workdir} is in the middle of; give that, or a new --workdir"
            )
        if not grows:
            logging.warning("--corpus is other text now; the vocabulary stays as it is")
    elif grows:
        words = NO_VOCABULARY
    else:
        words = _given(config) if config.vocabulary.vocab else None
    # The vocabulary does not tell how long this text is, on which the learning rate depends.
    if grows:
        expected = growing_words.estimate_size(sources, config, config.vocabulary.min_count)
        return Text(sources, NO_VOCABULARY, *expected, corpus.fingerprint(sources))
    found, progress = corpus.sample_fingerprint(sources), Progress.of(sources, hashed=True)
    if words is None:
        words = counting.count(sources, *_counted(config), progress)
        counts, total = words.counts, words.total
    else:
        counts, total = counting.recount(words, sources, *_counted(config), progress)
    batches = _expected(sources, words, counts, total, config)
    fingerprint = {**found, "contents": corpus.hash_contents(progress)}
    return Text(sources, words, total, batches, fingerprint)


def record(text: Text, workdir: Workdir) -> None:
    """Keeps the vocabulary and what the corpus was in the workdir."""
    if text.vocabulary is not NO_VOCABULARY:  # which is kept with the checkpoints
        vocabulary.save(text.vocabulary, str(workdir.vocabulary))
    known = {"fingerprint": text.fingerprint, "words": text.words, "batches": text.batches}
    files.write_json(workdir.corpus, known)


def compute_digest(text: Text) -> int:
    """A number that differs with the corpus and with the ids of its words."""
    return zlib.crc32("\0".join([*text.contents, *text.vocabulary.tokens]).encode())


def make_batches(text: Text, config: Config, workdir: Workdir) -> Batches:
    """The batches of a run, (S, B, L) int32 (see `input.pipeline.make_batches`).

    Iterating raises RunError when the corpus cannot be read.
    """
    keep_V = pipeline.keep_probability(text.vocabulary.counts, config.input.subsample)
    progress = Progress.of(text.sources)

    @functools.cache  # made by the first epoch
    def served() -> tuple[int, service.BlockRows]:
        return service.make_block_rows(text.sources, text.vocabulary, keep_V, config)

    def rows(share: Share) -> EpochRows:
        if config.input.data_service:
            return service.make_epoch_rows(config.input, *served(), progress, share)
        return _rows_made(text, keep_V, config, workdir, progress, share)

    return make_batches_from_rows(rows, progress, 2 * config.model.window, config.input)


def make_batches_from_rows(
    rows: Callable[[Share], EpochRows], progress: Progress, halo: int, settings: InputConfig
) -> Batches:
    """The batches of `input.pipeline.make_batches`, from a maker of the rows of a share of the text.

    progress: of whatever those read. Iterating raises RunError where that could not be read.
    """
    micro = settings.micro_batches or 1
    made = functools.cache(lambda number: rows(Share(number, micro)))  # by the first epoch

    def epoch_batches(
        epochs: range, first: int, mine: range | None = None
    ) -> Iterator[tuple[int, tf.Tensor]]:
        streams = [
            made(number) if mine is None or number in mine else None for number in range(micro)
        ]
        dataset = pipeline.make_batches(streams, epochs, first, halo, settings)
        with raise_read_errors(progress):
            for epoch, tokens in dataset:
                if progress.error is not None:  # the batch may be the last of a text that was cut
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
    """The blocks of a share of the text's tokens, (M,) int32, kept between epochs by --cache."""
    if config.run.plan_only:  # which writes nothing, and reads no epoch to its end
        return blocks
    if config.input.cache == "memory":
        return cache.cache_in_memory(blocks, progress)
    if config.input.cache == "disk":
        return cache.cache_on_disk(
            blocks, workdir.cache / f"{_key(text, config, share)}.int32", progress
        )
    return blocks


def _rows_made(
    text: Text,
    keep_V: np.ndarray,
    config: Config,
    workdir: Workdir,
    progress: Progress,
    share: Share,
) -> EpochRows:
    """The rows of an epoch, made in this process."""
    read, window = config.input, config.model.window
    words = text.vocabulary
    blocks = pipeline.token_blocks(text.sources, words, config.corpus, read, progress, share)
    blocks = cache_blocks(blocks, text, config, workdir, progress, share)
    return pipeline.make_epoch_rows(blocks, keep_V, window, read, config.run.seed, share)


def _given(config: Config) -> Vocabulary:
    """The vocabulary of --vocab."""
    path = config.vocabulary.vocab
    words = vocabulary.load(path)
    for token in (UNK, EOS):
        if config.run.task == "language_model" and token not in words.tokens:
            raise UsageError(
                f"--vocab={path}: has no {token}, which --task=language_model needs; take "
                "vocab.tsv of such a run, or add the token by its count"
            )
    return words


def _counted(config: Config) -> tuple:
    """What `text.counting` is to know of the configuration."""
    read, close = config.input, config.run.task == "language_model"
    return config.corpus, config.vocabulary, read.block_bytes, read.readers, close


def _expected(
    sources: tuple[str, ...], words: Vocabulary, counts: np.ndarray, total: int, config: Config
) -> int:
    """About how many batches an epoch of sources with these counts and tokens has."""
    blocks = sum(-(-os.path.getsize(path) // config.input.block_bytes) for path in sources)
    if blocks < config.input.micro_batches:
        logging.warning(
            "--block_bytes=%d: the text has %d blocks, and %d micro-batches a step are to share "
            "them; some will stay empty: lower it",
            *(config.input.block_bytes, blocks, config.input.micro_batches),
        )
    if config.run.task == "language_model":
        return sequences.estimate_batches(total, config.input, blocks)
    keep_V = pipeline.keep_probability(words.counts, config.input.subsample)
    return pipeline.estimate_batches(counts, keep_V, config.input, blocks)


def _key(text: Text, config: Config, share: Share) -> str:
    """A name that changes with whatever the token ids depend on."""
    parts = [
        text.contents,
        dataclasses.asdict(config.corpus),
        config.input.block_bytes,
        config.input.readers,
        text.vocabulary.tokens,
        *([] if share == pipeline.ALL else [share]),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
