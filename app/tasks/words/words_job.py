"""Build the job of --task=words: word vectors from text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...assembly import learning, memory_plan, placing
from ...assembly.learning import OutputSpec
from ...assembly.memory_plan import free_memory
from ...checkpoints.growth import Growth, RowMap
from ...checkpoints.workdir import Workdir
from ...evaluation import score_report
from ...input import device_batches, pipeline, token_cache, token_rows
from ...input.blocks import ALL, Share, raise_read_errors
from ...models.cbow import Cbow
from ...models.row_lists import SubwordRows
from ...models.skipgram import SkipGram
from ...models.word_model import WordModel
from ...settings import Config
from ...system import devices
from ...system.console import size_text
from ...tables import memory
from ...tables.base import Table
from ...tables.dynamic.keys import STRING, KeyMap
from ...tables.memory import Item
from ...text import unicode_rules
from ...text.reading import Progress
from ...text.subwords import hash_words
from ...training.job import Job, PlacedTables
from ...types import ALONE, Batches, NgramRule, NgramVectors, Team
from .. import text_tasks
from ..trained_vectors import ngram_rule
from . import growing_words, words_data
from .words_data import Text

# The most bytes that a device needs for each token of a block while it makes the rows, by XLA's
# report for an H100: 13.4 for temporary values and 5.9 for the rows, which are there twice.
_BLOCK_BYTES = 26
_BATCH_UNIT = "words after subsampling"
MODELS = {"skipgram": SkipGram, "cbow": Cbow}


def make_job(config: Config, workdir: Workdir, finished: bool, team: Team = ALONE) -> Job:
    """Load the text and make the job that trains word vectors, with its tables.

    Args:
        finished: Whether the run of the workdir has completed all its epochs.

    Raises:
        UsageError: The flags, the corpus or the vocabulary do not fit together.
        RunError: The corpus cannot be read.
    """
    text = words_data.load_text(config, workdir, finished, team)
    if config.table.is_dynamic:
        return _make_growing_job(config, text, workdir)
    rule, tokens = ngram_rule(config.model), text.vocabulary.tokens
    subwords = SubwordRows(tokens, rule) if rule else None
    model = make_model(config, text.vocabulary.counts, subwords)
    epochs = 0 if config.run.plan_only else config.run.epochs
    how = text, config.model.window, config.run.seed, epochs
    batches = make_batches(*how)
    spec = text_tasks.micro_batch_spec(config.input, 2 * config.model.window)
    placed, lines = placing.place_tables(config, model, batches, spec, workdir), []
    if placed.device.startswith("GPU"):
        items, line = _plan_input(text.words, config, placed)
        lines.append(("input", line))
        if items:
            batches = make_batches(*how, placed.device)
            placed = dataclasses.replace(placed, memory=[*placed.memory, *items])
    data = text_tasks.make_data(text, workdir, batches, text.words, _BATCH_UNIT, spec)
    data = dataclasses.replace(data, summary=[*data.summary, *lines])
    return placing.make_job(
        *(config, model, placed, data),
        watch=_make_watch(config, model, tokens, placed.tables, rule),
        growth=_growth(model, text, rule),
        finish=text_tasks.write_and_score,
    )


def _make_watch(
    config: Config,
    model: WordModel,
    tokens: Sequence[str],
    tables: Mapping[str, Table],
    rule: NgramRule | None,
) -> Callable[[], Callable[[], dict[str, float]]] | None:
    """Return what scores the words after each epoch (see `Job.watch`); None if nothing does.

    Only tables whose rows are there at once are read: those of one device.
    """
    is_on_device = config.table.table == "device" and config.run.strategy == "none"
    if not (config.run.score_epochs and is_on_device and tables):
        return None
    gather, subwords = tables["input"].gather, model.subwords

    def read(ids_N: np.ndarray) -> np.ndarray:
        """Return the vectors of words, (N, D) float32."""
        if subwords is None:
            return gather(tf.constant(ids_N)).numpy()
        return subwords.compose(tf.constant(ids_N), gather).numpy()

    def read_ngrams(words: Sequence[str]) -> NgramVectors:
        """Return the vectors of the n-grams of words."""
        buckets_N = np.intersect1d(hash_words(words, rule).buckets_N, subwords.buckets_N)
        rows_N = len(tokens) + np.searchsorted(subwords.buckets_N, buckets_N)
        return NgramVectors(rule, gather(tf.constant(rows_N, tf.int32)).numpy(), buckets_N)

    form = unicode_rules.normal_form(config.corpus)
    return score_report.make_epoch_scorer(tokens, form, read, read_ngrams if subwords else None)


def _growth(model: WordModel, text: Text, rule: NgramRule | None) -> Growth | None:
    """Return how the rows of all tables have grown, or None if the vocabulary has not."""
    if text.new_ids_V is None:
        return None
    tokens = text.vocabulary.tokens
    row_map = RowMap(text.new_ids_V, len(tokens))
    maps = dict.fromkeys(model.tables(), row_map)
    if rule is not None:
        maps["input"] = _grow_subwords(model.subwords, tokens, rule, text.new_ids_V)
    summary = f"{len(text.new_ids_V):,} words keep their rows, and {len(row_map.added()):,} are new"
    return Growth(maps, lambda workdir: words_data.record(text, workdir), summary)


def _grow_subwords(
    subwords: SubwordRows, tokens: Sequence[str], rule: NgramRule, new_ids_V: np.ndarray
) -> RowMap:
    """Return the new ids of the rows of words and of buckets, where more buckets have a row now."""
    old = SubwordRows([tokens[new_id] for new_id in new_ids_V], rule)
    new_rows_N = len(tokens) + np.searchsorted(subwords.buckets_N, old.buckets_N)
    return RowMap(np.concatenate([new_ids_V, new_rows_N]), len(tokens) + len(subwords.buckets_N))


def _make_growing_job(config: Config, text: Text, workdir: Workdir) -> Job:
    """Return the job for a vocabulary that grows while training (--table=dynamic).

    Raise UsageError if --table_gb or the memory is not enough.
    """
    # Words without a row are not drawn as negatives until `reweigh` gives them a weight.
    specs = make_model(config, np.ones(1, bool)).tables()
    slots = learning.make_optimizer(config.optimizer).slots
    rows = memory_plan.rows_for_words(specs, slots, config.table, config.vocabulary)
    min_count, pinned = config.vocabulary.min_count, growing_words.PINNED_STEPS
    key_map = KeyMap(rows, STRING, min_count, config.table.max_age, pinned)
    model = make_model(config, np.arange(key_map.capacity) == 0)
    spec = text_tasks.micro_batch_spec(config.input, 2 * config.model.window)
    placed = placing.place_tables(config, model, lambda *_: iter(()), spec, workdir, keys=key_map)
    stores, reweigh = list(placed.tables.values()), model.output.reweigh
    how = config.model.window, config.run.seed, key_map
    stream = growing_words.WordStream(text.files, *how, stores, reweigh, workdir.vocabulary)
    data = text_tasks.make_data(text, workdir, stream.batches, text.words, _BATCH_UNIT)
    state, finish = {growing_words.STREAM_FOLDER: stream}, text_tasks.write_and_score
    return placing.make_job(config, model, placed, data, extra_state=state, finish=finish)


def make_model(
    config: Config, counts_V: np.ndarray, subwords: SubwordRows | None = None
) -> WordModel:
    """Return the model of --model, without tables.

    Args:
        counts_V: The count of each word.
        subwords: The rows of each word; None if it has only one.
    """
    settings, device = config.model, devices.name(config.run)
    with tf.device(device):
        targets, seed = config.input.micro_tokens, config.run.seed
        output = learning.make_loss(settings, OutputSpec(counts_V, settings.dim, targets, seed))
        options: dict[str, Any] = {}
        if subwords is not None:
            kept_V = counts_V * token_rows.keep_probability(counts_V, config.input.subsample)
            options["chances_V"] = kept_V / kept_V.sum()
        if settings.model == "skipgram":
            options["draws_contexts"] = settings.contexts == "drawn" or output.lists_pairs
        return MODELS[settings.model](
            size=len(counts_V),
            dim=settings.dim,
            window=settings.window,
            output=output,
            seed=seed,
            dtype=devices.compute_dtype(settings, device),
            subwords=subwords,
            **options,
        )


def make_batches(text: Text, window: int, seed: int, epochs: int, device: str = "") -> Batches:
    """Return the function that yields the batches of a run, (S, B, L) int32 (see `types.Batches`).

    Usually the tokens were kept while words were counted, and the text is not read again. Nothing
    is read before it yields the first batch.

    Args:
        window: The most tokens on each side of a word.
        epochs: In how many epochs the text is read; 0 for --plan_only, which keeps no tokens.
        device: The device that keeps the token ids and makes the same batches, all micro-batches
            one; by default, tf.data makes them on the host.

    Raises:
        RunError: While iterating, if the corpus cannot be read.
    """
    settings = text.files.settings
    keep_V = token_rows.keep_probability(text.vocabulary.counts, settings.subsample)
    progress, how = Progress.make(text.files.paths), (keep_V, window, settings, seed)

    def blocks(share: Share) -> tf.data.Dataset:
        """Return the tokens of each block of a share of the text."""
        if text.kept is not None and text.kept.covers(share):
            return token_cache.read_kept(text.kept, share)
        tokenize = pipeline.make_block_tokenizer(text.files.corpus, text.vocabulary, text.phrases)
        found = pipeline.map_blocks(text.files, progress, tokenize, share)
        if device:  # it keeps them itself
            return found
        return text_tasks.cache_blocks(found, text, epochs)

    def read_blocks() -> Iterator[np.ndarray]:
        """Yield the tokens of each block of the text."""
        with raise_read_errors(progress):
            yield from blocks(ALL).as_numpy_iterator()

    if device:
        return device_batches.make_batches(read_blocks, *how, device)
    return text_tasks.make_batches_from_rows(
        lambda share: pipeline.make_epoch_rows(blocks(share), *how, share),
        *(progress, 2 * window, settings),
    )


def _plan_input(words: int, config: Config, placed: PlacedTables) -> tuple[list[Item], str]:
    """Plan whether the device keeps the token ids of a text and makes the batches.

    Returns:
        The memory that this takes, nothing if the ids stay on the host; and a line for the banner.
    """
    settings, place, size = config.input, placed.device, size_text(4 * words)
    most = min(words, settings.block_bytes // 2)  # tokens of a block, each with a space
    items = [
        Item("token ids", f"{words:,}", place, 4 * words),
        Item("rows of a block", f"{most:,} tokens", place, _BLOCK_BYTES * most),
    ]
    # Counting and one epoch are two uses of the text, so its tokens are kept for even one epoch.
    is_kept = token_cache.keeps(settings.cache, 2, words)
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
