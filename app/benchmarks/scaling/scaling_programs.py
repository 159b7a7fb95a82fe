"""Measure two parts of `scaling` on the text and the settings of an earlier run, as a program.

`exchange`: the bytes that replicas exchange as the vocabulary grows. Two replicas on logical
devices of this process train on the same batches of text for every size V of the vocabulary: the
words of the text keep their ids, and the other rows never occur.

`model`: the costs of a step of one process, for `scaling_model`.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...build import threads, updates
from ...checkpoints.workdir import Workdir
from ...config import Config, checks, settings
from ...distributed.replicas import Replicas
from ...errors import RunError, UsageError
from ...input import token_rows
from ...losses.base import gather_from
from ...models.base import Model
from ...system import devices
from ...tables.base import Table
from ...tables.row_reads import unique
from ...tasks.words import words_data, words_job
from ...training.gradients import compute_gradients
from ...training.job import Job, PlacedTables, TrainingData
from ...training.step import split_steps, train_function
from ..harness import programs, trainer
from ..harness.measured_steps import make_tables

_RATE = 0.01  # neither the bytes nor the costs depend on the rate
# Of the exchange: the replicas, batches of a text by Zipf's law, and calls that compile, and use
# memory for the first time.
_REPLICAS, _DRAWN, _WARM = 2, 16, 2
# Of the costs: steps of a call; calls to use in turn; timed calls.
_STEPS, _POOL, _ROUNDS = 4, 4, 20


def read_config(folder: str, batch_tokens: int, steps: int, micro_batches: int) -> Config:
    """Return the settings of a run, read from its flagfile, with other batches and --cache=none.

    A flag that the file lacks has its default, and without a file all have.

    Args:
        folder: The workdir of the run.
        batch_tokens: Tokens of a step.
        steps: Steps of a call.
        micro_batches: Micro-batches of a step.

    Raises:
        UsageError: The file cannot be read.
        KeyError: The file has an unknown flag.
        ValueError: The text of a flag is no number, and the flag needs one.
    """
    changes = {"steps_per_call": steps, "micro_batches": micro_batches}
    return trainer.read_config(folder, batch_tokens=batch_tokens, cache="none", **changes)


def make_job(config: Config, columns: int, rows: int = 0) -> Job:
    """Make a job with the text of a run and new tables, on the current device or strategy.

    Args:
        config: The settings, with the workdir of the run. The batches are whole; each step divides
            them into micro-batches.
        columns: Columns of the tables.
        rows: The size of the model's vocabulary, at least that of the text; 0 for that of the text.
            Ids that the text does not have never occur, not even as negative samples.

    Raises:
        UsageError, DamagedError, RunError: The text cannot be used, see `words_data.load_text`.
    """
    place = Workdir(config.run.workdir)
    text = words_data.load_text(config, place, finished=False)
    counts_V = np.zeros(rows or len(text.vocabulary.counts), np.int64)
    counts_V[: len(text.vocabulary.counts)] = text.vocabulary.counts
    model = _make_model(config, counts_V, columns)
    optimizer = updates.make_optimizer(config.optimizer)
    tables: dict[str, Table] = {**make_tables(model, optimizer)}
    whole = settings.from_names(settings.by_name(config) | {"micro_batches": 1})
    return Job(
        model=model,
        placed=PlacedTables(tables, devices.name(config.run), config.input.micro_batches),
        optimizer=optimizer,
        learning_rate=updates.make_learning_rate(config.optimizer),
        data=TrainingData(
            batches=words_data.make_batches(text, whole, place),
            expected_batches=text.batches,
            steps_per_batch=config.input.steps_per_call,
            epoch_size=text.words,
        ),
    )


def _make_model(config: Config, counts_V: np.ndarray, columns: int) -> Model:
    """Return the model of the settings for a vocabulary of these counts; no table is made."""
    sized = settings.from_names(settings.by_name(config) | {"dim": columns})
    return words_job.make_model(sized, counts_V)


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
    inputs = config.input
    counts_V = 10 * size // np.arange(1, size + 1)
    model = _make_model(config, counts_V, columns)
    kept_V = np.cumsum(counts_V * token_rows.keep_probability(counts_V, inputs.subsample))
    random = np.random.default_rng(config.run.seed)
    length = inputs.row_tokens + 2 * config.model.window
    shape = (count, inputs.micro_tokens // inputs.row_tokens, length)
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


def measure_exchange(job: dict[str, Any]) -> dict[str, Any]:
    """Train two replicas with V rows in each table, and measure what they exchange.

    It divides the CPU of this process into two logical devices, so that it can run only once.

    Args:
        job: `workdir` (of an earlier run, whose flags and text are used), `rows` (V), `columns`,
            `batch_tokens`, `steps` (in each call) and `calls` (at most so many are timed, after
            calls to warm up).

    Returns:
        `exchanged_bytes` (that a replica sends in a step), `step_ms` (the median over calls),
        `table_bytes` (of the tables and slots of one replica) and `zipf_bytes` (of a text in which
        all V words occur, see `zipf_bytes`).

    Raises:
        RunError: The loss is not positive, or the text has too few calls to time one.
    """
    config = read_config(job["workdir"], job["batch_tokens"], job["steps"], _REPLICAS)
    threads.use_machine(config.run)
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * _REPLICAS
    tf.config.set_logical_device_configuration(cpu, logical)
    runner = Replicas(tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(_REPLICAS)]))
    with runner.scope():
        made = make_job(config, job["columns"], job["rows"])
    runner.open(made, made.placed.tables, config.run.seed)
    seconds = []
    for number, call in enumerate(first_calls(made, _WARM + job["calls"])):
        if number == _WARM:
            runner.values()
        start = time.perf_counter()
        loss, _ = runner.totals([runner.run_steps(*call, tf.constant(_RATE))])  # waits for the call
        seconds.append(time.perf_counter() - start)
        if not loss > 0:
            raise RunError(f"the replicas have a loss of {loss}, so their bytes mean nothing")
    if len(seconds) <= _WARM:
        raise RunError(f"the text has only {len(seconds)} calls; give more text as --corpus")
    return {
        "exchanged_bytes": runner.values()["exchanged_bytes"],
        "step_ms": 1000 * statistics.median(seconds[_WARM:]) / job["steps"],
        "table_bytes": sum(table.bytes() for table in made.placed.tables.values()),
        "zipf_bytes": zipf_bytes(config, job["rows"], job["columns"], _DRAWN),
    }


def measure_costs(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the costs of a step of one process: its time, and the rows of a share of its batch.

    It trains new tables; the workdir is only read.

    Args:
        job: `workdir` (of a run), `batch_tokens`, `columns` and `workers` (numbers above 1).

    Returns:
        `step_seconds`, `gradient_seconds` (both of one step), and two lists of pairs of a number of
        workers and a value: `rows`, for 1 and each of `workers`, the mean number of unique rows of
        all tables in one worker's share of a batch, None if the batch cannot be divided; and
        `left_out`, the reason for each None.

    Raises:
        RunError: The text has less than one call.
    """
    config = read_config(job["workdir"], job["batch_tokens"], _STEPS, 1)
    threads.use_machine(config.run)
    made = make_job(config, job["columns"])
    calls = first_calls(made, _POOL)
    if not calls:
        raise RunError("the text has no whole call; give more text as --corpus")
    train = train_function(made.model, made.placed.tables, made.optimizer, config.run.seed)
    devices_of = {name: table.device for name, table in made.placed.tables.items()}
    gather = gather_from(made.placed.tables)

    @tf.function(autograph=False)
    def gradients(data_S: Any, first: tf.Tensor) -> list[Any]:
        """Return the gradients of each step of a call, without an update."""
        return [
            compute_gradients(made.model, gather, batches, devices_of).gradients
            for batches in split_steps(data_S, first, config.run.seed, 1)
        ]

    left_out: list[tuple[int, str]] = []

    def share_rows(count: int) -> float | None:
        """Return the rows of one share of `count`; or None, with the reason in `left_out`."""
        parts = read_config(job["workdir"], job["batch_tokens"], _STEPS, count)
        try:
            checks.check_micro_batches(parts)
        except UsageError as error:
            left_out.append((count, str(error)))
            return None
        data = [tf.split(data, count, axis=1)[0] for data, _ in calls]
        return count_rows(made.model, data, config.run.seed)

    return {
        "step_seconds": _seconds(lambda data, first: train(data, first, tf.constant(_RATE)), calls),
        "gradient_seconds": _seconds(gradients, calls),
        "rows": [(count, share_rows(count)) for count in [1, *job["workers"]]],
        "left_out": left_out,
    }


def _seconds(run: Callable[..., Any], calls: Sequence) -> float:
    """Return the median seconds of a step; the first `_POOL` calls do not count.

    Each call waits for the first tensor of the result. `calls` are used in turn.
    """
    seconds = []
    for number in range(_POOL + _ROUNDS):  # the first compile, and use memory for the first time
        start = time.perf_counter()
        tf.nest.flatten(run(*calls[number % len(calls)]))[0].numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[_POOL:]) / _STEPS


MEASURES = {"exchange": measure_exchange, "model": measure_costs}


if __name__ == "__main__":
    programs.answer(lambda job: MEASURES[job["part"]](job))
