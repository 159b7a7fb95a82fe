"""Trains replicas on four logical CPU devices with --sync_steps, as a process of its own.

python -m tests.distributed.local_replicas FILE CASE... writes the rows and slots of every replica
to an .npz file, with keys CASE/REPLICA/TABLE, and prints the metrics of each case as JSON.
"""

import json
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from app.distributed import local_steps, row_changes
from app.distributed.replicas import Replicas
from app.models.base import Outcome
from app.optimizers import adagrad, adam, sgd
from app.system.xla import under_xla
from app.tables.base import TableSpec
from app.tables.device import DeviceTable
from app.tables.row_reads import take
from app.training.job import Job, PlacedTables, TrainingData

ROWS, COLUMNS, RATE = 13, 3, 0.1
BLOCK_ROWS = 2  # rows with one owner
PART_BYTES = 40  # of rows that are read, merged or written at a time: one row or two
FIRST = 100  # steps of the run before these; at its start replicas exchange sooner
OPTIMIZERS = {
    "sgd": sgd.sgd,
    "rowwise_adagrad": adagrad.rowwise_adagrad,
    "adam": lambda: adam.lazy_adam(correct_skipped=True),
}


class Case(NamedTuple):
    """A run of `len(ids)` steps, one a call, with an exchange every `sync_steps` and at the end."""

    replicas: int = 2
    optimizer: str = "rowwise_adagrad"
    sync_steps: int = 2
    sync_dtype: str = "float32"
    dtype: str = "float32"
    rounding: str = "nearest"
    frequent: int = 0  # rows that are exchanged after every step
    is_gpu: bool = False  # whether XLA compiles steps, and all rows are merged at a time
    is_refused: bool = False  # whether XLA refuses the program when it is called


CASES = {
    **{name: Case(optimizer=name) for name in OPTIMIZERS},
    "four": Case(replicas=4, sync_steps=8, frequent=6),
    "half": Case(sync_dtype="bfloat16", is_gpu=True),
    "half_adam": Case(optimizer="adam", sync_dtype="bfloat16"),
    "rounded": Case(dtype="bfloat16", rounding="stochastic"),
    "in_step": Case(replicas=3, sync_steps=1, is_gpu=True),
    # After a refusal in the middle of a step, all replicas can exchange.
    "refused": Case(is_gpu=True, is_refused=True),
    "refused_in_step": Case(sync_steps=1, is_gpu=True, is_refused=True),
    "rounded_in_step": Case(sync_steps=1, is_gpu=True, dtype="bfloat16", rounding="stochastic"),
}


def ids_of(case: Case) -> np.ndarray:
    """Return the ids of each step and replica, (5, R, 4).

    In every step each replica has an id twice, and one that all have. Row 12 is idle. In the third
    step the last replica has nothing but row 0.
    """
    draw = np.random.default_rng(1)
    ids = draw.integers(1, ROWS - 1, (5, case.replicas, 4))
    ids[:, :, 1] = ids[:, :, 0]
    ids[:, :, 2] = 5
    ids[2, -1] = 0
    return ids.astype(np.int32)


class Rows:
    """A model whose loss draws each row towards a number of its own for each place in a batch."""

    dtype = tf.float32

    def tables(self):
        return {"rows": TableSpec(ROWS, COLUMNS, tf.zeros, by_frequency=True)}

    def lookups(self, batch):
        return {"rows": batch.data}

    def loss(self, batch, rows):
        taken_ND = take(rows["rows"], tf.float32)
        goal_N = tf.range(1.0, 1.0 + taken_ND.shape[0])[:, None] * [[1.0, -0.5, 2.0]]
        return Outcome(tf.reduce_sum((taken_ND - goal_N) ** 2), tf.constant(4.0))


class RefusedRows(Rows):
    """The same, with an operation in programs that XLA does not have."""

    def loss(self, batch, rows):
        outcome = super().loss(batch, rows)
        if not under_xla():
            return outcome
        one = tf.ensure_shape(tf.numpy_function(lambda: np.float32(1), [], tf.float32), [])
        return outcome._replace(total=outcome.total * one)


def first_rows(shape, dtype=tf.float32):
    """Return rows that bfloat16 can hold."""
    return tf.cast(tf.reshape(tf.range(shape[0] * shape[1]) % 8, shape), dtype) / 8.0


def make_table(case: Case) -> DeviceTable:
    """Return the table of a case with its slots."""
    options = {"dtype": tf.as_dtype(case.dtype), "rounding": case.rounding, "seed": 3}
    slots = OPTIMIZERS[case.optimizer]().slots
    return DeviceTable(ROWS, COLUMNS, first_rows, slots=slots, **options)


def make_job(case: Case, tables) -> Job:
    """Return the job of a case."""
    return Job(
        model=RefusedRows() if case.is_refused else Rows(),
        placed=PlacedTables(tables, "CPU:0", micro_batches=case.replicas),
        optimizer=OPTIMIZERS[case.optimizer](),
        learning_rate=lambda done: RATE,
        data=TrainingData(lambda epochs, first: iter(()), 5, 1, 100),
    )


def variables(table: DeviceTable) -> dict[str, tf.Variable]:
    """Return the rows and the slots of a table, by name."""
    return {"rows": table.values, **{name: slot.values for name, slot in table.slots.items()}}


def main() -> None:
    """Train the cases that are named."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    local_steps.FREQUENT_TIMES, local_steps.FREQUENT_STEPS = 8, 1
    local_steps.BLOCK_ROWS, row_changes.PART_BYTES = BLOCK_ROWS, PART_BYTES
    arrays, metrics = {}, {}
    for name in sys.argv[2:]:
        case = CASES[name]
        strategy = tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(case.replicas)])
        local_steps.FREQUENT_ROWS = case.frequent
        runner = Replicas(strategy, case.sync_steps, case.sync_dtype)
        runner.exchange.is_gpu = case.is_gpu
        with runner.scope():
            tables = {"rows": make_table(case)}
        runner.open(make_job(case, tables), tables, seed=1)
        ready, losses = [], []
        for step, ids_RN in enumerate(ids_of(case), FIRST):
            data = tf.constant(ids_RN.reshape(1, -1))
            made = runner.run_steps(data, tf.constant(step, tf.int64), tf.constant(RATE))
            losses.append([float(made.loss), float(made.examples)])
            ready.append(runner.is_synchronized)
        runner.finish_epoch()
        runner.finish_epoch()  # nothing is left to exchange
        assert not case.is_gpu or runner._function.is_by_xla != case.is_refused
        metrics[name] = {"ready": ready, "losses": losses, **runner.values()}
        for part, variable in variables(tables["rows"]).items():
            for number, copy in enumerate(strategy.experimental_local_results(variable)):
                arrays[f"{name}/{number}/{part}"] = tf.cast(copy, tf.float32).numpy()
    np.savez(sys.argv[1], **arrays)
    print(json.dumps(metrics))


if __name__ == "__main__":
    main()
