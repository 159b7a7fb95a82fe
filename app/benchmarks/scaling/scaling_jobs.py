"""What the programs of `scaling` have in common: the text and the model of a run that was made."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from ...build import updates
from ...checkpoints.workdir import Workdir, read_flags
from ...config import Config, settings
from ...input import token_rows
from ...models.base import Model
from ...system import devices
from ...tables.base import Table
from ...tables.device import DeviceTable
from ...tables.row_reads import unique
from ...tasks import text_tasks
from ...tasks.words import words_data
from ...tasks.words.words_data import Text
from ...tasks.words.words_job import MODELS
from ...training.job import Job
from ...training.step import split_steps

_NUMBER = 4  # bytes


def of_run(folder: str, batch_tokens: int, steps: int, micro_batches: int) -> Config:
    """The settings of the run in a workdir, but for the batches."""
    fields = settings.fields()
    flags = read_flags(Workdir(folder).flags)
    config = settings.from_names(
        {name: _typed(type(fields[name].default), value) for name, value in flags.items()}
    )
    changes = {"steps_per_call": steps, "micro_batches": micro_batches}
    changes |= {"batch_tokens": batch_tokens, "cache": "none"}
    return dataclasses.replace(config, input=dataclasses.replace(config.input, **changes))


def _typed(kind: type, text: str) -> Any:
    return text == "true" if kind is bool else kind(text)


def text_of(config: Config) -> Text:
    """The text of that run, with the vocabulary that it has counted."""
    return words_data.load_text(config, Workdir(config.run.workdir), finished=False)


def make_job(config: Config, text: Text, rows: int, columns: int) -> Job:
    """To train so many rows on this text, of which it has the first ones; the others never occur.

    The tables are made on the current device, or by the current strategy. Batches are as without
    micro-batches, into which a step then cuts them.
    """
    counts_V = np.zeros(rows, np.int64)
    counts_V[: len(text.vocabulary.counts)] = text.vocabulary.counts
    model = make_model(config, counts_V, columns)
    optimizer = updates.make_optimizer(config.optimizer)
    specs = model.tables()
    tables: dict[str, Table] = {
        name: DeviceTable(
            spec.rows, spec.columns, spec.initial, slots=optimizer.slots if spec.trained else {}
        )
        for name, spec in specs.items()
    }
    whole = dataclasses.replace(config, input=dataclasses.replace(config.input, micro_batches=1))
    return Job(
        model=model,
        tables=tables,
        optimizer=optimizer,
        learning_rate=updates.make_learning_rate(config.optimizer),
        batches=words_data.make_batches(text, whole, Workdir(config.run.workdir)),
        expected_batches=text.batches,
        words=text.words,
        steps_per_batch=config.input.steps_per_call,
        device=devices.name(config.run),
        micro_batches=config.input.micro_batches,
    )


def make_model(config: Config, counts_V: np.ndarray, columns: int) -> Model:
    """The model of that run, for words that occur so often."""
    return MODELS[config.model.model](
        size=len(counts_V),
        dim=columns,
        window=config.model.window,
        output=text_tasks.make_loss(config, counts_V, columns),
        seed=config.run.seed,
        dtype=devices.compute_dtype(config.model, devices.name(config.run)),
    )


def zipf_bytes(config: Config, size: int, columns: int, count: int) -> float:
    """What a micro-batch tells of its rows, of a text of so many words: ids and gradients, bytes.

    The n-th word occurs in proportion to 1 / n, the rarest ten times; frequent ones are dropped as
    in that run. The mean over `count` micro-batches.
    """
    settings = config.input
    counts_V = 10 * size // np.arange(1, size + 1)
    model = make_model(config, counts_V, columns)
    kept_V = np.cumsum(counts_V * token_rows.keep_probability(counts_V, settings.subsample))
    random = np.random.default_rng(config.run.seed)
    length = settings.row_tokens + 2 * config.model.window
    shape = (count, settings.micro_tokens // settings.row_tokens, length)
    tokens = np.searchsorted(kept_V, random.random(shape) * kept_V[-1], side="right")
    data_S = tf.constant(tokens, tf.int32)
    rows = [
        tf.size(unique(ids)[0]).numpy()
        for (batch,) in split_steps(data_S, tf.constant(0, tf.int64), config.run.seed, 1)
        for ids in model.lookups(batch).values()
    ]
    return _NUMBER * (1 + columns) * float(sum(rows)) / count


def calls(job: Job, count: int) -> list[tuple[Any, tf.Tensor]]:
    """The data and the first step of so many calls, or of those that an epoch has."""
    taken = itertools.islice(job.data.batches(range(1), 0), count)
    return [
        (data, tf.constant(number * job.data.steps_per_batch, tf.int64))
        for number, (_, data) in enumerate(taken)
    ]
