"""Run one side of the benchmark `tables` in TensorFlow, as a program of its own.

A step of the trainer moves the vectors of its ids towards a target (squared error). Initial rows,
ids and target are the same for every side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from ...optimizers import adagrad, adam
from ...optimizers.base import Optimizer
from ...tables import sharded
from ...tables.base import Table, TableSpec
from ...tables.device import DeviceTable
from ...tables.disk.file import FileTable
from ...tables.disk.table_file import TableFile
from ...tables.dynamic.dynamic import DynamicTable
from ...tables.dynamic.keys import KeyMap
from ...tables.initial import Uniform
from ...tables.row_reads import take
from ...training import cache_size
from ...training.prefetch import InPlace, Prefetcher
from ...training.step import train_function
from ...types import Batch, Rows
from ..harness import programs
from . import tables_measure, tables_naive
from .tables_case import STEPS
from .tables_measure import LIMIT, RATE, Case, Side

_OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "lazy_adam": adam.lazy_adam,
    "rowwise_adagrad": adagrad.rowwise_adagrad,
}
_NAME = "table"


class _SquaredError(NamedTuple):
    """A model (`models.base.Model`): the squared error of the vectors of the ids."""

    case: Case

    def tables(self) -> dict[str, TableSpec]:
        rows, dim, initial = self.case.job.rows, self.case.job.dim, _initial(self.case)
        return {_NAME: TableSpec(rows, dim, initial, by_frequency=True)}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {_NAME: batch.data}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        return self.error(rows[_NAME]), tf.constant(1.0)

    def error(self, rows: Rows) -> tf.Tensor:
        """Return half the sum of squared differences from the target."""
        return tf.nn.l2_loss(take(rows, tf.float32) - self.case.target_D)


def _train(case: Case, table: Table, device: str, id_type: tf.DType = tf.int32) -> Side:
    """Return the side of the trainer's step on a table, with a cache on the device if `job.hot`.

    The cache has `job.hot` percent of the rows, or none if that is None. Nothing is trained before
    the first call.
    """
    model, optimizer, job = _SquaredError(case), _optimizer(case), case.job
    with tf.device("CPU:0"):
        batches = [(0, tf.constant(ids_SN, id_type)) for ids_SN in case.ids_CSN]
    staging: InPlace = InPlace({_NAME: table})
    if job.hot is not None:
        lookups = cache_size.first_lookups(
            model, batches, 0, device, cache_size.calls_per_chunk(job.stage_steps, STEPS)
        )
        size = cache_size.estimate_cache_size(
            model.tables()[_NAME], lookups[_NAME], job.hot * job.rows // 100
        )
        staging = Prefetcher(
            model,
            {_NAME: table},
            seed=0,
            device=device,
            cache_sizes={_NAME: size},
            stage_steps=job.stage_steps,
            steps_per_batch=STEPS,
        )

    def calls() -> Iterator[tf.Tensor]:
        """Train a call, and yield its loss without waiting for it; see `Side.calls`."""
        train = None
        for number, (_, ids_SN) in enumerate(staging.prefetch(batches, 0)):
            # Cached tables exist from the first batch on.
            train = train or train_function(model, staging.tables, optimizer, seed=0)
            with tf.device(device):
                first = tf.constant(number * STEPS, tf.int64)
                loss, _ = train(ids_SN, first, tf.constant(RATE))
            yield loss

    return Side(calls(), lambda: {**staging.values(), **_gpu_peak()})


def _optimizer(case: Case) -> Optimizer:
    return _OPTIMIZERS[case.job.optimizer]()


def _initial(case: Case) -> Uniform:
    return Uniform(LIMIT, case.seed)


def _gpu_peak() -> dict[str, float]:
    """Return `device_peak_bytes` of the first GPU, or no figure without a GPU."""
    if not tf.config.list_logical_devices("GPU"):
        return {}
    return {"device_peak_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"]}


def _device(case: Case, **options: Any) -> Side:
    """Return the side of a table on the first device; the options are those of `DeviceTable`."""
    device = sharded.local_devices()[0]
    with tf.device(device):
        table = DeviceTable(
            case.job.rows, case.job.dim, _initial(case), slots=_optimizer(case).slots, **options
        )
    return _train(case, table, device)


def _bfloat16(case: Case) -> Side:
    """Return the side of `_device` with rows and slots in bfloat16, rounded stochastically."""
    half = tf.bfloat16
    return _device(case, dtype=half, slot_dtype=half, rounding="stochastic", seed=1)


def _host(case: Case) -> Side:
    """Return the side of a table on the CPU, with a cache on the first device."""
    with tf.device("CPU:0"):
        slots = _optimizer(case).slots
        table = DeviceTable(case.job.rows, case.job.dim, _initial(case), slots=slots)
    return _train(case, table, sharded.local_devices()[0])


def _disk(case: Case) -> Side:
    """Return the side of a table in a new file of the case's folder, with a cache on the device."""
    file = TableFile(Path(case.folder) / "rows", owner=case.folder, resume=False)
    slots = _optimizer(case).slots
    table = FileTable(file, _NAME, case.job.rows, case.job.dim, _initial(case), slots=slots)
    return _train(case, table, sharded.local_devices()[0])


def _sharded(case: Case) -> Side:
    """Return the side of a table over all GPUs, or over two new logical devices of the CPU."""
    if not tf.config.list_physical_devices("GPU"):
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, halves)
    devices, slots = sharded.local_devices(), _optimizer(case).slots
    table = sharded.make(case.job.rows, case.job.dim, _initial(case), devices, slots=slots)
    return _train(case, table, devices[0])


def _dynamic(case: Case) -> Side:
    """Return the side of a table that makes a row for each id (int64) when it first occurs."""
    device, slots = sharded.local_devices()[0], _optimizer(case).slots
    with tf.device(device):
        table = DynamicTable(KeyMap(case.job.rows), case.job.dim, _initial(case), slots=slots)
    return _train(case, table, device, tf.int64)


def _naive(case: Case) -> Side:
    """Return the side of `tables_naive`, with the peak memory of a GPU in its figures."""
    optimizer, error = _optimizer(case), _SquaredError(case).error
    side = tables_naive.make_side(case, optimizer, _initial(case), error)
    return Side(side.calls, lambda: {**side.values(), **_gpu_peak()})


SIDES: dict[str, Callable[[Case], Side]] = {
    "device": _device,
    "host": _host,
    "disk": _disk,
    "sharded": _sharded,
    "dynamic": _dynamic,
    "bfloat16": _bfloat16,
    "naive": _naive,
}


if __name__ == "__main__":
    lacking = (tf.errors.ResourceExhaustedError,)
    programs.answer(lambda job: tables_measure.measure(SIDES, job), lacking)
