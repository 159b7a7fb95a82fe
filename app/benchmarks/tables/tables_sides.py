"""Run one side of the benchmark `tables` in TensorFlow, as a program of its own.

A step of the trainer moves the vectors of its ids towards a target (squared error). Initial rows,
ids and target are the same for every side.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...build import storage
from ...build.updates import OPTIMIZERS
from ...checkpoints.workdir import Workdir
from ...config import OptimizerConfig, settings
from ...optimizers.base import Optimizer
from ...tables import sharded
from ...tables.base import TableSpec
from ...tables.initial import Uniform
from ...tables.row_reads import take
from ...training import cache_size
from ...training.step import train_function
from ...types import Batch, Rows
from ..harness import programs
from ..harness.measured_steps import gpu_peak_bytes, split_processor
from . import tables_measure
from .tables_case import STEPS
from .tables_measure import LIMIT, RATE, Case, Side

_NAME = "table"
_ROWS = ""  # in `_naive`: the name of the rows, beside the names of the slots


class _SquaredError(NamedTuple):
    """A model (`models.base.Model`): the squared error of the vectors of the ids."""

    case: Case

    def tables(self) -> dict[str, TableSpec]:
        """Return the only table, of the rows and columns of the job."""
        rows, dim, initial = self.case.job.rows, self.case.job.dim, _initial(self.case)
        return {_NAME: TableSpec(rows, dim, initial, by_frequency=True)}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the data of the batch, which are the ids (N,)."""
        return {_NAME: batch.data}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the `error` of the rows, with 1 for the number of examples."""
        return self.error(rows[_NAME]), tf.constant(1.0)

    def error(self, rows: Rows) -> tf.Tensor:
        """Return half the sum of squared differences of the vectors of the ids from the target."""
        return tf.nn.l2_loss(take(rows, tf.float32) - self.case.target_D)


def _train(case: Case, **flags: Any) -> Side:
    """Return the side of the trainer's steps on a table, made and placed as by its flags.

    A table on the host has a cache on the device for `job.hot` percent of its rows, and more for
    the rows of a chunk. Nothing is trained before the first call.

    Args:
        case: The data.
        **flags: Flags of lexrow.train by name, such as `table`.
    """
    model, optimizer, job = _SquaredError(case), _optimizer(case), case.job
    flags |= {"steps_per_call": STEPS, "stage_steps": job.stage_steps}
    config, device = settings.from_names(flags), sharded.local_devices()[0]
    specs, is_dynamic = model.tables(), config.table.is_dynamic
    with tf.device("CPU:0"):
        id_type = tf.int64 if is_dynamic else tf.int32
        batches = [(0, tf.constant(ids_SN, id_type)) for ids_SN in case.ids_CSN]
    workdir, maker = Workdir(case.folder), storage.id_table_maker({_NAME: job.rows})
    dynamic = maker if is_dynamic else None
    tables = storage.make_tables(specs, config, [device], workdir, dynamic, optimizer.slots)
    sizes = {}
    if job.hot is not None:
        calls_per_chunk = cache_size.calls_per_chunk(job.stage_steps, STEPS)
        lookups = cache_size.first_lookups(model, batches, 0, device, calls_per_chunk)[_NAME]
        hot_rows = job.hot * job.rows // 100
        sizes[_NAME] = cache_size.estimate_cache_size(specs[_NAME], lookups, hot_rows)
    staging = storage.make_staging(sizes, model, tables, config, device)

    def calls() -> Iterator[tf.Tensor]:
        """Train a call, and yield the loss of its first step without waiting; see `Side.calls`."""
        train = None
        for number, (_, ids_SN) in enumerate(staging.prefetch(batches, 0)):
            # Cached tables exist from the first batch on.
            train = train or train_function(model, staging.tables, optimizer, config.run.seed)
            with tf.device(device):
                first = tf.constant(number * STEPS, tf.int64)
                loss, _ = train(staging.locate(ids_SN, first), first, tf.constant(RATE))
            yield loss

    return Side(calls(), staging.values)


def _optimizer(case: Case) -> Optimizer:
    """Return the optimizer that the job names, with the default settings of lexrow.train."""
    return OPTIMIZERS[case.job.optimizer](OptimizerConfig())


def _initial(case: Case) -> Uniform:
    """Return the initializer of the rows, uniform between -LIMIT and LIMIT, by the case's seed."""
    return Uniform(LIMIT, case.seed)


def _sharded(case: Case) -> Side:
    """Return the side of a table over all GPUs, or over two new logical devices of the CPU."""
    split_processor()
    return _train(case, table="sharded")


def _naive(case: Case) -> Side:
    """Return the side of a table in numpy on the host, without a cache.

    Its steps send the rows and slots of their ids to the device and back, and every step waits for
    the device. Its figures count the copies as stall, and no hits.
    """
    optimizer, error = _optimizer(case), _SquaredError(case).error
    job = case.job
    whole = {_ROWS: _initial(case)((job.rows, job.dim)).numpy()}
    for name, slot in optimizer.slots.items():
        whole[name] = np.full((job.rows, slot.columns or job.dim), slot.initial, np.float32)
    row_bytes = sum(part[0].nbytes for part in whole.values())
    since = {"began": time.perf_counter(), "steps": 0, "bytes": 0, "waited": 0.0}

    @tf.function(autograph=False, reduce_retracing=True)
    def train(
        rows: dict[str, tf.Tensor], inverse_N: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Return the loss before the update, and the new rows and slots, on the device."""
        rows_UD, slots = rows[_ROWS], {name: part for name, part in rows.items() if name != _ROWS}
        with tf.GradientTape() as tape:
            tape.watch(rows_UD)
            loss = error(Rows(rows_UD, inverse_N))
        gradients_UD = tape.gradient(loss, rows_UD)
        rate = tf.constant(RATE)
        change_UD, slots = optimizer.rule(rows_UD, gradients_UD, slots, rate, number)
        return loss, {_ROWS: rows_UD + change_UD, **slots}

    def step(ids_N: np.ndarray, number: int) -> tf.Tensor:
        """Train the rows of the ids, write them back, and add to `since`; return the loss."""
        began = time.perf_counter()
        ids_U, inverse_N = np.unique(ids_N, return_inverse=True)
        rows = {name: tf.constant(part[ids_U]) for name, part in whole.items()}
        sent = time.perf_counter()
        loss, rows = train(rows, tf.constant(inverse_N, tf.int32), tf.constant(number, tf.int64))
        float(loss)  # waits for the device
        trained = time.perf_counter()
        for name, part in whole.items():
            part[ids_U] = rows[name].numpy()
        since["steps"] += 1
        since["waited"] += time.perf_counter() - trained + sent - began
        since["bytes"] += 2 * len(ids_U) * row_bytes
        return loss

    def calls() -> Iterator[tf.Tensor]:
        """Train a call, step by step, and yield the loss of its first step."""
        for call, ids_SN in enumerate(case.ids_CSN):
            first = call * len(ids_SN) + 1
            yield [step(ids_N, number) for number, ids_N in enumerate(ids_SN, first)][0]

    def values() -> dict[str, float]:
        """Return hits (0), bytes a step and stall since the last call; see `Side.values`."""
        now = time.perf_counter()
        figures = {
            "stage_hit_rate": 0.0,
            "staged_bytes": since["bytes"] / max(since["steps"], 1),
            "stage_stall": since["waited"] / (now - since["began"]),
        }
        since.update(began=now, steps=0, bytes=0, waited=0.0)
        return figures

    return Side(calls(), values)


SIDES: dict[str, Callable[[Case], Side]] = {
    "device": _train,
    "host": functools.partial(_train, table="host"),
    "disk": lambda case: _train(case, table="host", table_file=f"{case.folder}/rows"),
    "sharded": _sharded,
    "dynamic": functools.partial(_train, table="dynamic"),
    "bfloat16": functools.partial(_train, table_dtype="bfloat16", slot_dtype="bfloat16"),
    "naive": _naive,
}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train one side; return the figures of `tables_measure.measure`, and the peak of a GPU.

    Args:
        job: The fields of a `Job`, `seed` and `folder`.

    Raises:
        RunError: The last loss is not below the first.
    """
    values, peak = tables_measure.measure(SIDES, job), gpu_peak_bytes()
    return values if peak is None else {**values, "device_peak_bytes": peak}


if __name__ == "__main__":
    programs.answer(measure, (tf.errors.ResourceExhaustedError,))
