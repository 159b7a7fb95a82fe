"""Run one side of the benchmark `softmax`, as a program of its own.

A step predicts words, drawn by Zipf's law, from hidden vectors. The gradient by these vectors goes
to a shift, a vector that is added to all of them, as it would go to the layer below. Words and
hidden vectors are the same for every side. All sides but dense use row-wise Adagrad.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...build import outputs
from ...config import ModelConfig
from ...errors import RunError
from ...losses.base import Loss, Predictions
from ...models.base import Outcome
from ...optimizers.adagrad import rowwise_adagrad
from ...optimizers.row_updates import update_rows
from ...tables.base import Slot, Table, TableSpec
from ...tables.device import DeviceTable
from ...training.step import train_step
from ...types import Batch, Rows
from ..harness import programs
from ..harness.measured_steps import gpu_peak_bytes, make_tables
from . import softmax_by_hand, softmax_traffic

# The speed of no side depends on the rate.
RATE = 0.1

# The most steps and seconds to warm up, and to count the traffic.
_WARM = (5, 10.0)
_COUNTED = (5, 10.0)
# A slow side makes fewer steps, such that they take about this time.
_TIMED_SECONDS = 20.0

# Called with the tables, the targets, (N,) int32, and the number of the step, int64. Returns the
# loss.
Step = Callable[[Mapping[str, Table], tf.Tensor, tf.Tensor], tf.Tensor]


class Case(NamedTuple):
    """The data of all sides.

    Attributes:
        hidden_ND: The hidden vector of each target, float32.
        counts_V: The occurrences of each word, int64.
    """

    hidden_ND: tf.Variable
    counts_V: np.ndarray


class Side(NamedTuple):
    """A side.

    Attributes:
        tables: The tables by name; `shift` has the vector that is added to the hidden vectors.
        step: The step.
        traffic: The rows and bytes of a step, if the tables cannot count them.
    """

    tables: dict[str, DeviceTable]
    step: Step
    traffic: dict[str, float] | None = None


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train one side with new random targets in each step, and measure its time and traffic.

    Args:
        job: `side`, `settings` (of the loss of Lexrow), `compute_dtype`, `words`, `targets`, `dim`,
            `steps` (at most) and `seed`.

    Returns:
        `step_ms` (the median over steps), `steps_ms`, `rows` (written in a step, the mean),
        `read_bytes` and `written_bytes` (likewise, of tables and slots), `table_bytes` (of tables
        and slots) and `device_peak_bytes` (of a GPU, else None).

    Raises:
        RunError: The side did not train.
    """
    case = make_case(job["words"], job["targets"], job["dim"], job["seed"])
    settings = ModelConfig(**job["settings"], compute_dtype=job["compute_dtype"])
    side = SIDES[job["side"]](case, settings)
    batches = _batches(case, job["seed"])
    traffic = side.traffic or _count_traffic(side, batches)
    train = compiled(side.step, side.tables, job["targets"])
    _seconds(train, batches, *_WARM)
    seconds = _seconds(train, batches, job["steps"], _TIMED_SECONDS)
    _check(job, side)
    return {
        "step_ms": 1000 * statistics.median(seconds),
        "steps_ms": [1000 * value for value in seconds],
        **traffic,
        "table_bytes": sum(table.bytes() for table in side.tables.values()),
        "device_peak_bytes": gpu_peak_bytes(),
    }


def make_case(words: int, targets: int, dim: int, seed: int) -> Case:
    """Return hidden vectors of a length of about 1, and counts in proportion to 1 / rank.

    Args:
        words: The size of the vocabulary; the rarest word has the count 10.
        targets: Targets of a step.
        dim: Hidden units.
        seed: The seed of the hidden vectors.
    """
    hidden_ND = np.random.default_rng(seed).standard_normal((targets, dim), np.float32)
    return Case(
        tf.Variable(hidden_ND / math.sqrt(dim), trainable=False),
        10 * words // np.arange(1, words + 1),
    )


def _batches(case: Case, seed: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Yield targets drawn by `counts_V`, (N,) int32, and the number of the step, int64 from 1.

    It never ends.
    """
    random = np.random.default_rng([seed, 1])
    cumulative_V = np.cumsum(case.counts_V)
    number = 0
    while True:
        number += 1
        drawn_N = random.integers(0, cumulative_V[-1], case.hidden_ND.shape[0])
        targets_N = np.searchsorted(cumulative_V, drawn_N, side="right")
        yield tf.constant(targets_N, tf.int32), tf.constant(number, tf.int64)


def compiled(step: Step, tables: Mapping[str, Table], targets: int) -> Callable[..., tf.Tensor]:
    """Trace a step on the given tables; return a function of the targets and the step's number.

    Args:
        step: The step.
        tables: The tables by name.
        targets: The number of targets of a step.
    """
    specs = [tf.TensorSpec([targets], tf.int32), tf.TensorSpec([], tf.int64)]
    function = tf.function(lambda *batch: step(tables, *batch), autograph=False)
    return function.get_concrete_function(*specs)


def _seconds(train: Callable, batches: Iterator, steps: int, enough: float) -> list[float]:
    """Train up to `steps` steps, none after `enough` seconds in all; return the seconds of each."""
    seconds: list[float] = []
    while len(seconds) < steps and sum(seconds) < enough:
        batch = next(batches)
        start = time.perf_counter()
        train(*batch).numpy()  # waits for the device
        seconds.append(time.perf_counter() - start)
    return seconds


def _count_traffic(side: Side, batches: Iterator) -> dict[str, float]:
    """Train up to five steps on counting tables; return the mean traffic of a step.

    The result has `rows` (rows written), `read_bytes` and `written_bytes`. No step starts after ten
    seconds. The steps train the tables of the side. The first batch gives its shape only.
    """
    totals = softmax_traffic.totals()
    tables = {
        name: table if name == "shift" else softmax_traffic.Counting(table, totals)
        for name, table in side.tables.items()
    }
    targets_N, number = next(batches)
    train = compiled(side.step, tables, targets_N.shape[0])
    steps = len(_seconds(train, batches, *_COUNTED))
    return {name: int(total.numpy()) / steps for name, total in totals.items()}


def _check(job: dict[str, Any], side: Side) -> None:
    """Raise RunError unless training has changed the shift to finite numbers."""
    # The speed of a side that does not train means nothing.
    shift_1D = side.tables["shift"].gather(tf.constant([0])).numpy()
    if not (shift_1D.any() and np.isfinite(shift_1D).all()):
        raise RunError(
            f"{job['side']}: the hidden vectors got no finite gradient; so its speed means nothing"
        )


class _OutputLayer(NamedTuple):
    """A model (`models.base.Model`) whose hidden vectors are given, but for the shift."""

    hidden_ND: tf.Variable
    output: Loss
    dtype: tf.DType

    def tables(self) -> dict[str, TableSpec]:
        """Return the shift and the tables of the output layer."""
        return {"shift": _shift(self.hidden_ND), **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the id 0 of the shift, and the ids that the output layer needs."""
        vectors = self.hidden_ND.shape[0]
        lookups = self.output.lookups(batch.data, vectors, batch.seed)
        return {"shift": tf.constant([0]), **lookups}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss summed over the targets, its parts, and 1 as the number of examples."""
        hidden_ND = self.hidden_ND + rows["shift"].values_UD
        targets_N1 = batch.data
        weights_N11 = tf.ones((*targets_N1.shape, 1))
        hidden_N1D = tf.cast(hidden_ND, self.dtype)[:, tf.newaxis]
        predictions = Predictions(hidden_N1D, targets_N1, weights_N11)
        total, parts = self.output.loss(predictions, rows)
        return Outcome(tf.convert_to_tensor(total), tf.constant(1.0), parts)


def _ours(case: Case, settings: ModelConfig) -> Side:
    """Return the side of the trainer's step, with the loss and dtype of the settings."""
    targets, columns = case.hidden_ND.shape
    output = outputs.make_loss(
        settings, outputs.OutputSpec(case.counts_V, columns, targets, seed=0)
    )
    dtype = tf.as_dtype(settings.compute_dtype)
    model, rule = _OutputLayer(case.hidden_ND, output, dtype), rowwise_adagrad()
    tables = make_tables(model, rule)

    def train(tables, targets_N: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Make one step of the trainer, and return its loss; see `Step`."""
        seed = tf.stack([tf.constant(0, tf.int64), number])
        batch = Batch(targets_N[:, tf.newaxis], seed)
        return train_step(model, tables, rule, [batch], tf.constant(RATE), number)[0]

    return Side(tables, train)


def _dense(case: Case, settings: ModelConfig) -> Side:
    """Return the side of `softmax_by_hand.dense`, with computed traffic; no settings are used."""
    words, columns = len(case.counts_V), case.hidden_ND.shape[1]
    slots = {"accumulator": Slot(columns, 0.1)}  # TensorFlow's initial value
    tables = {"output": DeviceTable(words, columns, tf.zeros, slots=slots)}
    moved = 4.0 * words * columns
    # Reads: scores, gradient of the hidden vectors, and Adagrad with its accumulator.
    traffic = {"rows": float(words), "read_bytes": 4 * moved, "written_bytes": 2 * moved}
    return _peer(case, tables, softmax_by_hand.dense, traffic)


def _copies(case: Case, settings: ModelConfig) -> Side:
    """Return the side of `softmax_by_hand.copies`, with counted traffic; no settings are used."""
    words, columns, rule = len(case.counts_V), case.hidden_ND.shape[1], rowwise_adagrad()
    tables = softmax_by_hand.copies_tables(words, columns, rule.slots)
    run = functools.partial(softmax_by_hand.copies, words=words, optimizer=rule)
    return _peer(case, tables, run, None)


def _peer(case: Case, tables: dict[str, DeviceTable], run: Callable, traffic) -> Side:
    """Return a side whose step calls `run`, as `softmax_by_hand.dense`, and trains the shift."""
    spec, rule = _shift(case.hidden_ND), rowwise_adagrad()

    def train(tables, targets_N: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Call `run` once, train the shift, and return the loss; see `Step`."""
        rate, ids_1 = tf.constant(RATE), tf.constant([0])
        shift_1D = tables["shift"].gather(ids_1)
        loss, by_hidden = run(tables, case.hidden_ND + shift_1D, targets_N, rate, number)
        gradient_1D = tf.reduce_sum(by_hidden, axis=0, keepdims=True)
        update_rows(rule.rule, tables["shift"], ids_1, gradient_1D, rate, number, shift_1D)
        return loss

    shift = DeviceTable(spec.rows, spec.columns, spec.initial, slots=rule.slots)
    return Side({"shift": shift, **tables}, train, traffic)


def _shift(hidden_ND: tf.Variable) -> TableSpec:
    """Return the spec of the shift: one row, at first zero, as long as a hidden vector."""
    return TableSpec(1, hidden_ND.shape[1], tf.zeros)


SIDES = {"ours": _ours, "dense": _dense, "copies": _copies}


if __name__ == "__main__":
    programs.answer(measure, (tf.errors.ResourceExhaustedError,))
