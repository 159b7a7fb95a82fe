"""From settings to objects: the only place that knows which class a flag's value stands for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from app import outputs, storage
from app.config import Config, ModelConfig, OptimizerConfig, RunConfig
from app.errors import UsageError
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
_PRODUCTS = {"float32": tf.float32, "bfloat16": tf.bfloat16}

# What a processor that multiplies bfloat16 in hardware calls it (Linux, /proc/cpuinfo).
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}


def words_job(config: Config, text: words.Text, workdir: Workdir) -> Job:
    """Everything to train word vectors with: tables on the chosen device, batches from the text."""
    device = device_name(config.run)
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
    device = device_name(config.run)
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
    # Read into memory, wherever they were; no optimizer's state is needed.
    config = dataclasses.replace(config, table=dataclasses.replace(config.table, table="device"))
    devices = _devices(config)
    tables = storage.make(storage.Storage(model.tables(), [], {}), config, devices, workdir)
    position = Checkpoints(workdir.checkpoints, tables).read()
    device = device_name(config.run)
    return language_model.scorer(model, tables, vocabulary, device), position.step


def _language_model(config: Config, vocabulary: Vocabulary) -> LanguageModel:
    """The model that the settings ask for, over a vocabulary with `<unk>` and `<eos>`."""
    settings, device = config.model, device_name(config.run)
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
            dtype=_compute_dtype(settings, device),
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
    devices = _devices(config)
    size, length = config.input.batch_tokens // config.input.row_tokens, config.input.row_tokens
    tokens_BL = tf.TensorSpec([size, length + halo], tf.int32)
    decided = storage.decide(
        model, lambda: batches(range(1), 0), tokens_BL, config, devices, _optimizer
    )
    tables = {} if config.run.plan_only else storage.make(decided, config, devices, workdir, keys)
    staging = storage.staged(decided, model, tables, optimizer, config, devices)
    return {"tables": tables, "memory": decided.items, "staging": staging}


def device_name(settings: RunConfig) -> str:
    """The device to train on: --device, else the first GPU, else the CPU."""
    devices = [device.name.removeprefix("/physical_device:") for device in _physical_devices()]
    if not settings.device:
        return next((name for name in devices if name.startswith("GPU")), "CPU:0")
    name = settings.device.lstrip("/").removeprefix("device:").upper()
    name = name if ":" in name else f"{name}:0"
    if name not in devices:
        raise UsageError(f"--device={settings.device}: not here; choose from {', '.join(devices)}")
    return name


def use_machine(settings: RunConfig) -> None:
    """Sets TensorFlow's threads and memory; call it before anything else asks for a device.

    UsageError for a --device that is not there.
    """
    cores = os.cpu_count() or 1
    # The operations of a step take 0.1 ms: too little to share, so few cores do best with an
    # operation each (2 cores, 2,048 tokens a step: 1.4 ms against 2.0). Those of a language model
    # wait for one another, and are larger (4,096 tokens, 300 units, the cell alone: 99 ms, shared
    # 70).
    usual = cores if settings.task == "language_model" else max(1, cores // 4)
    threads = settings.intra_op_threads or usual
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError as error:
        raise AssertionError("use_machine must come before TensorFlow's first operation") from error
    device_name(settings)


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
        dtype=_compute_dtype(settings, device),
    )


def _output(config: Config, counts: np.ndarray, columns: int) -> Loss:
    targets = config.input.batch_tokens
    wanted = outputs.Wanted(counts, columns, targets, config.run.seed)
    return outputs.make(config.model, wanted)


def _compute_dtype(settings: ModelConfig, device: str) -> tf.DType:
    if settings.compute_dtype != "auto":
        return _PRODUCTS[settings.compute_dtype]
    if device.startswith("GPU"):
        gpu = tf.config.list_physical_devices("GPU")[int(device.partition(":")[2])]
        major, _ = tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        return tf.bfloat16 if major >= 8 else tf.float32  # from NVIDIA's Ampere on
    return tf.bfloat16 if _BFLOAT16_FLAGS & _processor_flags() else tf.float32


def _processor_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((set(line.split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return set()  # not Linux


def _devices(config: Config) -> list[str]:
    """The device of the steps, and those after it over which the classes of words are dealt."""
    first, count = device_name(config.run), config.model.class_devices
    kind, _, number = first.partition(":")
    names = [f"{kind}:{index}" for index in range(int(number), int(number) + count)]
    there = len(tf.config.list_logical_devices(kind)) - int(number)
    if count > there:
        raise UsageError(
            f"--class_devices={count}: from {first} on there are {there}; give at most that"
        )
    return names


def _physical_devices() -> list[tf.config.PhysicalDevice]:
    return tf.config.list_physical_devices("CPU") + tf.config.list_physical_devices("GPU")
