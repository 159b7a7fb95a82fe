"""Build the job of --task=words: word vectors from text."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...assembly import learning, memory_plan, placing
from ...assembly.learning import OutputSpec
from ...checkpoints.growth import Growth, RowMap
from ...checkpoints.workdir import Workdir
from ...models.cbow import Cbow
from ...models.skipgram import SkipGram
from ...models.subword_rows import SubwordRows
from ...models.word_model import WordModel
from ...settings import Config
from ...system import devices
from ...tables.dynamic.keys import STRING, KeyMap
from ...training.job import Evaluator, Job
from ...types import ALONE, NgramRule, Team
from .. import text_tasks
from . import growing_words, words_data
from .counted_text import Text
from .subword_vectors import make_rows, make_rule

_BATCH_UNIT = "words after subsampling"
MODELS = {"skipgram": SkipGram, "cbow": Cbow}


def make_job(config: Config, workdir: Workdir, finished: bool, team: Team = ALONE) -> Job:
    """Load the text and make the job that trains word vectors, with its tables.

    Args:
        config: The configuration of the run.
        workdir: The workdir of the run.
        finished: Whether the run of the workdir has completed all its epochs.
        team: The processes that train together.

    Raises:
        UsageError: The flags, the corpus or the vocabulary do not fit together.
        RunError: The corpus cannot be read.
    """
    text = words_data.load_text(config, workdir, finished, team=team)
    if config.table.is_dynamic:
        return _make_growing_job(config, text, workdir)
    rule, subwords, tokens = make_rule(config.model), None, text.vocabulary.tokens
    if rule is not None:
        grown = text.new_ids_V is not None
        subwords = make_rows(tokens, rule, workdir, len(text.new_ids_V if grown else tokens))
    model = make_model(config, text.vocabulary.counts, subwords)
    batches = words_data.make_batches(text, config, workdir)
    spec = text_tasks.micro_batch_spec(config, 2 * config.model.window)
    placed, lines = placing.place_tables(config, model, batches, spec, workdir), []
    if placed.device.startswith("GPU"):
        items, line = words_data.plan_input(text.words, config, placed)
        lines.append(("input", line))
        if items:
            batches = words_data.make_batches(text, config, workdir, placed.device)
            placed = dataclasses.replace(placed, memory=[*placed.memory, *items])
    data = text_tasks.make_data(text, config, workdir, batches, text.words, _BATCH_UNIT, spec)
    data = dataclasses.replace(data, summary=[*data.summary, *lines])
    evaluator = None
    if placed.tables:  # --plan_only makes none
        gather = functools.partial(model.gather_words, placed.tables["input"].gather)
        score = functools.partial(text_tasks.score_vectors, gather, model.dim, text.vocabulary)
        # No one benchmark says how good they are.
        evaluator = Evaluator(lambda _: score(), is_monitored=False)
    return placing.make_job(
        *(config, model, placed, data),
        evaluator=evaluator,
        growth=_growth(model, text, rule),
        finish=text_tasks.write_and_score,
    )


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
    old = SubwordRows([tokens[new_id] for new_id in new_ids_V], rule, subwords.has_all_buckets)
    new_rows_N = len(tokens) + np.searchsorted(subwords.buckets_N, old.buckets_N)
    return RowMap(np.concatenate([new_ids_V, new_rows_N]), len(tokens) + len(subwords.buckets_N))


def _make_growing_job(config: Config, text: Text, workdir: Workdir) -> Job:
    """Return the job for a vocabulary that grows while training (--table=dynamic).

    It has no evaluator. Raise UsageError if --table_gb or the memory is not enough.
    """
    # Words without a row are not drawn as negatives until `reweigh` gives them a weight.
    specs = make_model(config, np.ones(1, bool)).tables()
    slots = learning.make_optimizer(config.optimizer).slots
    rows = memory_plan.rows_for_words(specs, slots, config.table, config.vocabulary)
    min_count, pinned = config.vocabulary.min_count, growing_words.PINNED_STEPS
    key_map = KeyMap(rows, STRING, min_count, config.table.max_age, pinned)
    model = make_model(config, np.arange(key_map.capacity) == 0)
    spec = text_tasks.micro_batch_spec(config, 2 * config.model.window)
    placed = placing.place_tables(config, model, lambda *_: iter(()), spec, workdir, keys=key_map)
    stores, reweigh = list(placed.tables.values()), model.output.reweigh
    stream = growing_words.WordStream(
        text.sources, config, key_map, stores, reweigh, workdir.vocabulary
    )
    data = text_tasks.make_data(text, config, workdir, stream.batches, text.words, _BATCH_UNIT)
    state, finish = {growing_words.STREAM_FOLDER: stream}, text_tasks.write_and_score
    return placing.make_job(config, model, placed, data, extra_state=state, finish=finish)


def make_model(
    config: Config, counts_V: np.ndarray, subwords: SubwordRows | None = None
) -> WordModel:
    """Return the model of --model, without tables.

    Args:
        config: The configuration of the run.
        counts_V: The count of each word.
        subwords: The rows of each word; None if it has only one.
    """
    settings, device = config.model, devices.name(config.run)
    with tf.device(device):
        targets, seed = config.input.micro_tokens, config.run.seed
        output = learning.make_loss(settings, OutputSpec(counts_V, settings.dim, targets, seed))
        options = {}
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
