"""Make the text, the model and the batches of an earlier run, for the programs of `scaling`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...build import outputs, updates
from ...checkpoints.workdir import Workdir, read_flags
from ...config import Config, settings
from ...input import token_rows
from ...models.base import Model
from ...system import devices
from ...tables.base import Table
from ...tables.device import DeviceTable
from ...tables.row_reads import unique
from ...tasks.words import words_data
from ...tasks.words.words_data import Text
from ...tasks.words.words_job import MODELS
from ...training.job import Job, PlacedTables, TrainingData
from ...training.step import split_steps


def read_config(folder: str, batch_tokens: int, steps: int, micro_batches: int) -> Config:
    """Return the settings of a run, read from its flags file, with other batches and no cache.

    Args:
        folder: The workdir of the run.
        batch_tokens: Tokens of a step.
        steps: Steps of a call.
        micro_batches: Micro-batches of a step.
    """
    fields = settings.fields()
    flags = read_flags(Workdir(folder).flags)
    config = settings.from_names(
        {name: _typed(type(fields[name].default), value) for name, value in flags.items()}
    )
    changes = {"steps_per_call": steps, "micro_batches": micro_batches}
    changes |= {"batch_tokens": batch_tokens, "cache": "none"}
    return dataclasses.replace(config, input=dataclasses.replace(config.input, **changes))


def _typed(kind: type, text: str) -> Any:
    """Return the value of a flag from its text; a bool is True for `true` only."""
    return text == "true" if kind is bool else kind(text)


def load_text(config: Config) -> Text:
    """Return the text of a run with its vocabulary, as an unfinished run loads them.

    Args:
        config: The settings, with the workdir of the run.
    """
    return words_data.load_text(config, Workdir(config.run.workdir), finished=False)


def make_job(config: Config, text: Text, rows: int, columns: int) -> Job:
    """Make a job with new tables, on the current device or by the current strategy.

    Args:
        config: The settings. The batches are whole; each step divides them into micro-batches.
        text: The text.
        rows: The size of the model's vocabulary, at least that of the text. Ids that the text does
            not have never occur, not even as negative samples.
        columns: Columns of the tables.
    """
    counts_V = np.zeros(rows, np.int64)
    counts_V[: len(text.vocabulary.counts)] = text.vocabulary.counts
    model = _make_model(config, counts_V, columns)
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
        placed=PlacedTables(tables, devices.name(config.run), config.input.micro_batches),
        optimizer=optimizer,
        learning_rate=updates.make_learning_rate(config.optimizer),
        data=TrainingData(
            batches=words_data.make_batches(text, whole, Workdir(config.run.workdir)),
            expected_batches=text.batches,
            steps_per_batch=config.input.steps_per_call,
            epoch_size=text.words,
        ),
    )


def _make_model(config: Config, counts_V: np.ndarray, columns: int) -> Model:
    """Return the model of the settings for a vocabulary of these counts; no table is made."""
    return MODELS[config.model.model](
        size=len(counts_V),
        dim=columns,
        window=config.model.window,
        output=outputs.make_run_loss(config, counts_V, columns),
        seed=config.run.seed,
        dtype=devices.compute_dtype(config.model, devices.name(config.run)),
    )


def zipf_bytes(config: Config, size: int, columns: int, count: int) -> float:
    """Return the mean bytes of a micro-batch's ids and row gradients, for text by Zipf's law.

    The n-th word occurs in proportion to 1 / n, the rarest ten times. Frequent words are dropped as
    in the run. The text is drawn with the seed of the run.

    Args:
        config: The settings.
        size: Words of the vocabulary.
        columns: Columns of the tables.
        count: The number of micro-batches to draw.
    """
    settings = config.input
    counts_V = 10 * size // np.arange(1, size + 1)
    model = _make_model(config, counts_V, columns)
    kept_V = np.cumsum(counts_V * token_rows.keep_probability(counts_V, settings.subsample))
    random = np.random.default_rng(config.run.seed)
    length = settings.row_tokens + 2 * config.model.window
    shape = (count, settings.micro_tokens // settings.row_tokens, length)
    tokens = np.searchsorted(kept_V, random.random(shape) * kept_V[-1], side="right")
    rows = count_rows(model, [tf.constant(tokens, tf.int32)], config.run.seed)
    return 4 * (1 + columns) * rows  # ids and values of 4 bytes


def count_rows(model: Model, calls: Sequence[Any], seed: int) -> float:
    """Return the mean over steps of the number of unique rows, summed over the tables.

    Args:
        model: The model.
        calls: The data (S, ...) of each call of S steps, one micro-batch a step.
        seed: The seed of the random numbers of a step. Each call starts at step 0.
    """
    rows = [
        [tf.size(unique(ids)[0]).numpy() for ids in model.lookups(batch).values()]
        for data_S in calls
        for (batch,) in split_steps(data_S, tf.constant(0, tf.int64), seed, 1)
    ]
    return float(np.mean(np.sum(rows, axis=1)))


def first_calls(job: Job, count: int) -> list[tuple[Any, tf.Tensor]]:
    """Return the data and the number of the first step (int64) of the first calls of epoch 0.

    Args:
        job: The job.
        count: The most calls; fewer are returned if the epoch has fewer.
    """
    taken = itertools.islice(job.data.batches(range(1), 0), count)
    return [
        (data, tf.constant(number * job.data.steps_per_batch, tf.int64))
        for number, (_, data) in enumerate(taken)
    ]
