"""From settings to objects: the only place that knows which class a flag's value stands for."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from app import devices, outputs, placing, storage
from app.config import Config, OptimizerConfig
from app.losses.base import Loss
from app.models import recurrent
from app.models.base import Model
from app.models.cbow import Cbow
from app.models.language_model import LanguageModel
from app.models.skipgram import SkipGram
from app.optimizers import adagrad, adam, clipping, ftrl, schedules, sgd
from app.optimizers.base import Gradients, Optimizer
from app.tables.keys import KeyMap
from app.text.vocabulary import Vocabulary
from app.training import growing, language_model, words
from app.training.checkpoint import Checkpoints
from app.training.loop import Job
from app.training.workdir import Workdir
from app.types import Batches

MODELS = {"skipgram": SkipGram, "cbow": Cbow}
OPTIMIZERS: dict[str, Callable[[OptimizerConfig], Optimizer]] = {
    "sgd": lambda settings: sgd.sgd(),
    "momentum": lambda settings: sgd.momentum(settings.momentum, settings.nesterov),
    "adagrad": lambda settings: adagrad.adagrad(settings.initial_accumulator),
    "rowwise_adagrad": lambda settings: adagrad.rowwise_adagrad(settings.initial_accumulator),
    "ftrl": lambda settings: ftrl.ftrl(
        settings.l1, settings.l2, initial=settings.initial_accumulator
    ),
    "lazy_adam": lambda settings: adam.lazy_adam(**_adam(settings)),
    "lazy_adamw": lambda settings: adam.lazy_adamw(
        **_adam(settings), weight_decay=settings.weight_decay
    ),
}
CELLS = {"gru": recurrent.gru, "lstm": recurrent.lstm}


def words_job(config: Config, text: words.Text, workdir: Workdir) -> Job:
    """Everything to train word vectors with: tables on the chosen device, batches from the text."""
    device = devices.name(config.run)
    optimizer = _optimizer(config.optimizer)
    if config.table.table == "dynamic":
        return _growing_job(config, text, workdir, device, optimizer)
    with tf.device(device):
        model = _model(config, text.vocabulary.counts, device)
    batches = words.batches(text, config, workdir)
    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=_schedule(config.optimizer, optimizer),
        batches=batches,
        expected_batches=text.batches,
        words=text.words,
        steps_per_batch=config.input.steps_per_call,
        device=device,
        **_stored(model, config, optimizer, batches, 2 * config.model.window, workdir),
    )


def _growing_job(
    config: Config, text: words.Text, workdir: Workdir, device: str, optimizer: Optimizer
) -> Job:
    """Everything to train vectors of words that get rows as they come."""

    def model_of(rows: int) -> Model:
        with tf.device(device):
            # Words that have no row yet are not drawn, until `reweigh` says otherwise.
            return _model(config, np.arange(rows) == 0, device)

    halo = 2 * config.model.window
    keys = storage.key_map(model_of(1), optimizer, config)
    model = model_of(keys.capacity)
    stored = _stored(model, config, optimizer, lambda *_: iter(()), halo, workdir, keys)
    stream = growing.Stream(
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
        learning_rate=_schedule(config.optimizer, optimizer),
        batches=stream.batches,
        expected_batches=text.batches,
        words=text.words,
        steps_per_batch=config.input.steps_per_call,
        device=device,
        **stored,
        kept={growing.NAME: stream},
    )


def language_model_job(config: Config, text: words.Text, workdir: Workdir) -> Job:
    """Everything to train a language model with. UsageError if there is nothing to score it on."""
    device = devices.name(config.run)
    optimizer = _optimizer(config.optimizer)
    heldout = language_model.heldout(text, config)
    model = _language_model(config, text.vocabulary)
    batches = language_model.batches(text, config, workdir)
    stored = _stored(model, config, optimizer, batches, 1, workdir)
    score = language_model.scorer(model, stored["tables"], text.vocabulary, device)
    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=_schedule(config.optimizer, optimizer),
        batches=batches,
        expected_batches=text.batches,
        words=language_model.words(text, config),
        steps_per_batch=config.input.steps_per_call,
        device=device,
        **stored,
        of_loss=language_model.of_loss
        if config.model.loss in outputs.LIKELIHOODS
        else lambda loss: {},
        epoch_end=None if heldout is None else lambda: language_model.values(score(heldout())),
    )


def trained_language_model(
    config: Config, vocabulary: Vocabulary, workdir: Workdir
) -> tuple[Callable[[Iterator[tf.Tensor]], language_model.Score], int]:
    """What scores text by the newest checkpoint (see `scorer`), and the step that this is of.

    RunError if there is no whole checkpoint.
    """
    model = _language_model(config, vocabulary)
    # Read into memory, wherever they were; no optimizer's state is needed, nor a file to be made.
    settings = dataclasses.replace(config.table, table="device", table_file="")
    config = dataclasses.replace(config, table=settings)
    places = devices.several(config)
    tables = storage.make(model.tables(), config, places, workdir)
    position = Checkpoints(workdir.checkpoints, tables).read()
    device = devices.name(config.run)
    return language_model.scorer(model, tables, vocabulary, device), position.step


def _language_model(config: Config, vocabulary: Vocabulary) -> LanguageModel:
    """The model that the settings ask for, over a vocabulary with `<unk>` and `<eos>`."""
    settings, device = config.model, devices.name(config.run)
    hidden = settings.hidden or settings.dim
    with tf.device(device):
        output = _output(config, vocabulary.counts, hidden + 1)
        return LanguageModel(
            size=len(vocabulary.tokens),
            dim=settings.dim,
            cell=CELLS[settings.cell](),
            hidden=hidden,
            streams=config.input.batch_tokens // config.input.row_tokens,
            output=output,
            priors=output.priors(vocabulary.counts),
            seed=config.run.seed,
            dtype=devices.compute_dtype(settings, device),
        )


JOBS: dict[str, Callable[[Config, words.Text, Workdir], Job]] = {
    "words": words_job,
    "language_model": language_model_job,
}


def _stored(
    model: Model,
    config: Config,
    optimizer: Optimizer,
    batches: Batches,
    halo: int,
    workdir: Workdir,
    keys: KeyMap | None = None,
) -> dict[str, Any]:
    """Where the tables of a job live, and what brings them to its steps: fields of a `Job`.

    halo: tokens of a row of a batch beside --row_tokens.

    UsageError, before any table is made, if they do not fit. Nothing is made for --plan_only.
    """
    places = devices.several(config)
    size, length = config.input.batch_tokens // config.input.row_tokens, config.input.row_tokens
    tokens_BL = tf.TensorSpec([size, length + halo], tf.int32)
    first = functools.partial(batches, range(1), 0)
    planned = placing.decide(model, first, tokens_BL, config, places, _optimizer)
    tables = {}
    if not config.run.plan_only:
        tables = storage.make(model.tables(), config, places, workdir, keys)
    staging = storage.staged(planned.rooms, model, tables, optimizer, config, places)
    return {"tables": tables, "memory": planned.items, "staging": staging}


def _optimizer(settings: OptimizerConfig) -> Optimizer:
    def clip(gradients: Gradients) -> Gradients:
        if settings.clip_row_norm:
            gradients = clipping.by_row_norm(gradients, settings.clip_row_norm)
        if settings.clip_global_norm:
            gradients = clipping.by_global_norm(gradients, settings.clip_global_norm)
        return gradients

    return dataclasses.replace(OPTIMIZERS[settings.optimizer](settings), clip=clip)


def _adam(settings: OptimizerConfig) -> dict[str, float]:
    names = ("beta_1", "beta_2", "epsilon", "correct_skipped")
    return {name: getattr(settings, name) for name in names}


def _schedule(settings: OptimizerConfig, optimizer: Optimizer) -> Callable[[float], float]:
    greatest = settings.learning_rate or optimizer.learning_rate
    return lambda done: greatest * schedules.factor(settings.schedule, settings.warmup, done)


def _model(config: Config, counts: np.ndarray, device: str) -> Model:
    settings = config.model
    return MODELS[settings.model](
        size=len(counts),
        dim=settings.dim,
        window=settings.window,
        output=_output(config, counts, settings.dim),
        seed=config.run.seed,
        dtype=devices.compute_dtype(settings, device),
    )


def _output(config: Config, counts: np.ndarray, columns: int) -> Loss:
    targets = config.input.batch_tokens
    wanted = outputs.Wanted(counts, columns, targets, config.run.seed)
    return outputs.make(config.model, wanted)
