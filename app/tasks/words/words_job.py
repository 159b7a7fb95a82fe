"""--task=words: word vectors from text."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ...build import placing, storage, updates
from ...checkpoints.workdir import Workdir
from ...config import Config
from ...models.base import Model
from ...models.cbow import Cbow
from ...models.skipgram import SkipGram
from ...system import devices
from ...training.job import Job
from .. import text_tasks as texts
from . import growing_words, words_data

MODELS = {"skipgram": SkipGram, "cbow": Cbow}


def job(config: Config, workdir: Workdir, finished: bool) -> Job:
    """Everything to train word vectors with.

    finished: whether all epochs that the workdir was asked for are done.
    """
    text = words_data.text(config, workdir, finished)
    if config.table.table == "dynamic":
        return _growing(config, text, workdir)
    device = devices.name(config.run)
    optimizer = updates.optimizer(config.optimizer)
    model = _model(config, text.vocabulary.counts)
    batches = words_data.batches(text, config, workdir)
    stored = placing.place(model, batches, _rows(config), config, optimizer, workdir)

    def scores() -> dict[str, float]:
        return texts.scores(stored["tables"]["input"], text.vocabulary)

    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=updates.learning_rate(config.optimizer),
        batches=batches,
        words=text.words,
        empty=texts.empty(config, 2 * config.model.window),
        steps_per_batch=config.input.steps_per_call,
        device=device,
        # Elsewhere steps would wait for it.
        epoch_end=scores if config.run.strategy == "parameter_server" else None,
        **texts.fields(text, config, workdir),
        **stored,
    )


def _growing(config: Config, text: words_data.Text, workdir: Workdir) -> Job:
    """The same for words that get rows as they come."""
    optimizer = updates.optimizer(config.optimizer)
    # Words that have no row yet are not drawn, until `reweigh` says otherwise.
    rows = storage.rows_of_words(_model(config, np.ones(1, bool)), optimizer, config)
    placing.require_words(rows, config)
    keys = storage.key_map(rows, config, growing_words.PINNED)
    model = _model(config, np.arange(keys.capacity) == 0)
    stored = placing.place(
        model, lambda *_: iter(()), _rows(config), config, optimizer, workdir, keys=keys
    )
    stream = growing_words.Stream(
        text.sources,
        config,
        keys,
        list(stored["tables"].values()),
        model.output.reweigh,
        workdir.vocabulary,
    )
    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=updates.learning_rate(config.optimizer),
        batches=stream.batches,
        words=text.words,
        steps_per_batch=config.input.steps_per_call,
        device=devices.name(config.run),
        extra_state={growing_words.NAME: stream},
        **texts.fields(text, config, workdir),
        **stored,
    )


def _rows(config: Config) -> tf.TensorSpec:
    """A micro-batch."""
    settings = config.input
    count, length = settings.micro_tokens // settings.row_tokens, settings.row_tokens
    return tf.TensorSpec([count, length + 2 * config.model.window], tf.int32)


def _model(config: Config, counts_V: np.ndarray) -> Model:
    settings, device = config.model, devices.name(config.run)
    with tf.device(device):
        return MODELS[settings.model](
            size=len(counts_V),
            dim=settings.dim,
            window=settings.window,
            output=texts.output(config, counts_V, settings.dim),
            seed=config.run.seed,
            dtype=devices.compute_dtype(settings, device),
        )
