"""--task=language_model: a recurrent network that predicts a text, and its score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ...build import outputs, placing, storage, updates
from ...checkpoints.workdir import Workdir
from ...config import Config
from ...errors import UsageError
from ...models import recurrent
from ...models.language_model import LanguageModel
from ...system import devices
from ...text import vocabulary
from ...text.vocabulary import Vocabulary
from ...training.job import Job
from .. import text_tasks as texts
from ..words import words_data
from . import language_model_data

CELLS = {"gru": recurrent.gru, "lstm": recurrent.lstm}


def job(config: Config, workdir: Workdir, finished: bool) -> Job:
    """Everything to train a language model with. UsageError if there is nothing to score it on.

    finished: whether all epochs that the workdir was asked for are done.
    """
    text = words_data.text(config, workdir, finished)
    device = devices.name(config.run)
    optimizer = updates.optimizer(config.optimizer)
    heldout = language_model_data.heldout(text, config)
    model = _model(config, text.vocabulary)
    batches = language_model_data.batches(text, config, workdir)
    rows = tf.TensorSpec([model.streams, config.input.row_tokens + 1], tf.int32)
    stored = placing.place(model, batches, rows, config, optimizer, workdir)
    score = language_model_data.scorer(model, stored["tables"], text.vocabulary, device)
    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=updates.learning_rate(config.optimizer),
        batches=batches,
        words=language_model_data.words(text, config),
        empty=texts.empty(config, 1),
        steps_per_batch=config.input.steps_per_call,
        device=device,
        of_loss=language_model_data.of_loss
        if config.model.loss in outputs.LIKELIHOODS
        else lambda loss: {},
        epoch_end=None if heldout is None else lambda: language_model_data.values(score(heldout())),
        monitor=lambda values: -values["heldout_loss"],
        **texts.fields(text, config, workdir),
        **stored,
    )


def evaluate(config: Config, workdir: Workdir, heldout: str) -> tuple[str, dict[str, Any]]:
    """The perplexity of the trained model on files, for people and for programs.

    UsageError for files without a word that is known; RunError if there is no whole checkpoint.
    """
    known = vocabulary.load(str(workdir.vocabulary))
    score, step = trained(config, known, workdir)
    found = score(language_model_data.of_files(heldout, known, config))
    if not found.words:
        raise UsageError(language_model_data.nothing_known(heldout))
    perplexity = language_model_data.of_loss(found.loss)["perplexity"]
    text = (
        f"perplexity {perplexity:,.2f}, {found.loss:.4f} nats a token, of step {step:,}: "
        f"{found.tokens:,} tokens, <eos> after each document included, "
        f"{1 - found.words / found.tokens:.1%} of them <eos> or <unk>; "
        f"a vocabulary of {len(known.tokens):,}"
    )
    return text, {"perplexity": perplexity, "step": step, **found._asdict()}


def trained(
    config: Config, known: Vocabulary, workdir: Workdir
) -> tuple[Callable[[Iterator[tf.Tensor]], language_model_data.Score], int]:
    """What scores text by the newest checkpoint, and the step that this is of.

    See `tasks.language_model.language_model_data.scorer`. RunError if there is no whole checkpoint.
    """
    model = _model(config, known)
    tables, position = storage.read(model.tables(), config, devices.several(config), workdir)
    device = devices.name(config.run)
    return language_model_data.scorer(model, tables, known, device), position.step


def _model(config: Config, known: Vocabulary) -> LanguageModel:
    """The model that the settings ask for, over a vocabulary with `<unk>` and `<eos>`."""
    settings, device = config.model, devices.name(config.run)
    hidden = settings.hidden or settings.dim
    with tf.device(device):
        output = texts.output(config, known.counts, hidden + 1)
        return LanguageModel(
            size=len(known.tokens),
            dim=settings.dim,
            cell=CELLS[settings.cell](),
            hidden=hidden,
            streams=config.input.micro_tokens // config.input.row_tokens,
            output=output,
            priors=output.priors(known.counts),
            seed=config.run.seed,
            dtype=devices.compute_dtype(settings, device),
            micro_batches=config.input.micro_batches or 1,
        )
