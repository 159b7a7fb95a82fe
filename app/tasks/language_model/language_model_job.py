"""Build the job of --task=language_model, a recurrent network, and score a trained one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ...assembly import learning, placing
from ...assembly.learning import OutputSpec
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import sequences
from ...models.language_model import LanguageModel, gru, lstm
from ...settings import Config
from ...system import devices
from ...text import vocabulary
from ...text.vocabulary import Vocabulary
from ...training.job import Evaluator, Job
from ...types import ALONE, Team
from .. import text_tasks
from ..words import words_data
from . import language_model_data

CELLS = {"gru": gru, "lstm": lstm}


def make_job(config: Config, workdir: Workdir, finished: bool, team: Team = ALONE) -> Job:
    """Load the text and make the job that trains a language model, with its tables.

    Args:
        finished: Whether the run of the workdir has completed all its epochs.

    Raises:
        UsageError: The flags do not fit together, or the held-out text has nothing to score.
        RunError: The corpus cannot be read.
    """
    text = words_data.load_text(config, workdir, finished, team, ends_documents=True)
    heldout = language_model_data.make_heldout_pass(text)
    model = make_model(config, text.vocabulary)
    epochs = 0 if config.run.plan_only else config.run.epochs
    batches = language_model_data.make_batches(text, epochs)
    micro_batch = text_tasks.micro_batch_spec(config.input, 1)
    placed = placing.place_tables(config, model, batches, micro_batch, workdir)
    score = language_model_data.make_scorer(
        model, placed.tables, text.vocabulary, devices.name(config.run)
    )
    data = text_tasks.make_data(
        text,
        workdir,
        batches,
        epoch_size=round(text.words * (1 - sequences.heldout_share(config.input))),
        batch_unit="words that are not held out",
        micro_batch=micro_batch,
    )
    finish = functools.partial(text_tasks.write_and_score, has_benchmarks=False)
    others: dict[str, Any] = {"finish": finish}
    if heldout is not None:
        others["evaluator"] = Evaluator(
            lambda *check: language_model_data.heldout_metrics(score(heldout(), *check)),
            monitor=lambda scores: -scores["heldout_loss"],
        )
    if model.output.is_likelihood:
        others["loss_metrics"] = language_model_data.loss_metrics
    return placing.make_job(config, model, placed, data, **others)


def evaluate(config: Config, workdir: Workdir, heldout: str) -> tuple[str, dict[str, Any]]:
    """Return the perplexity of the trained model on files, as text and as values for JSON.

    Args:
        heldout: The files, named as by --corpus.

    Raises:
        UsageError: The workdir has no vocabulary, or the files have no word of it.
        RunError: There is no checkpoint that can be loaded, or the files cannot be read.
    """
    words = vocabulary.load(str(workdir.vocabulary))
    score, step = load_scorer(config, words, workdir)
    result = score(language_model_data.read_files(heldout, words, config.corpus, config.input))
    if not result.words:
        raise UsageError(language_model_data.explain_no_known_words(heldout))
    perplexity = language_model_data.loss_metrics(result.loss)["perplexity"]
    text = (
        f"perplexity {perplexity:,.2f}, {result.loss:.4f} nats a token, of step {step:,}: "
        f"{result.tokens:,} tokens, <eos> after each document included, "
        f"{1 - result.words / result.tokens:.1%} of them <eos> or <unk>; "
        f"a vocabulary of {len(words.tokens):,}"
    )
    return text, {"perplexity": perplexity, "step": step, **result._asdict()}


def load_scorer(
    config: Config, words: Vocabulary, workdir: Workdir
) -> tuple[Callable[[Iterator[tf.Tensor]], language_model_data.Score], int]:
    """Load the best or newest checkpoint; return its scorer (see `make_scorer`) and its step.

    Raises:
        RunError: There is no checkpoint that can be loaded.
    """
    model = make_model(config, words)
    tables, position = placing.load_tables(config, model, workdir)
    device = devices.name(config.run)
    return language_model_data.make_scorer(model, tables, words, device), position.step


def make_model(config: Config, words: Vocabulary) -> LanguageModel:
    """Return the model of the configuration, without tables.

    Args:
        words: A vocabulary with `<unk>` and `<eos>`.
    """
    settings, device = config.model, devices.name(config.run)
    hidden = settings.hidden or settings.dim
    with tf.device(device):
        spec = OutputSpec(words.counts, hidden + 1, config.input.micro_tokens, config.run.seed)
        output = learning.make_loss(settings, spec)
        return LanguageModel(
            size=len(words.tokens),
            dim=settings.dim,
            cell=CELLS[settings.cell](),
            hidden=hidden,
            streams=config.input.micro_tokens // config.input.row_tokens,
            output=output,
            priors=output.priors(words.counts),
            seed=config.run.seed,
            dtype=devices.compute_dtype(settings, device),
            micro_batches=config.input.micro_batches or 1,
            dropout=settings.dropout,
            is_tied=settings.tie_weights,
        )
