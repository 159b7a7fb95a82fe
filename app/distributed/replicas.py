"""Replicas in step with one another: each differentiates a share of the batch, all change rows
alike.

Tables are variables of a `tf.distribute` strategy, with a copy on each replica's device. In a step
a replica packs the rows that its micro-batches touch, and their gradients, into one vector; the
vectors of all replicas are gathered, merged by row and applied to every copy. So a step is that of
one device with as many micro-batches, and what is exchanged does not depend on V.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import tensorflow as tf

from ..auditing.findings import Findings
from ..auditing.step_audit import audit
from ..checkpoints.workdir import Workdir
from ..tables import sharded
from ..tables.base import Table
from ..tables.row_reads import distinct
from ..training.gradients import Lookups, StepGradients, compute_gradients, make_lookups
from ..training.job import Job
from ..training.packing import pack, packed_size, unpack
from ..training.runner import table_errors
from ..training.step import apply_gradients, split_steps
from .exchange import Exchange, number

_FLOAT = 4  # bytes of a number of a vector
FLAGS = 2  # those of `distributed.multi_worker`


class Made(NamedTuple):
    """What a call gives, on the device, the same on every replica.

    loss, examples: of its first step. flags_F: how many replicas had each of the flags. numbers:
    those that each replica sent in a step, the mean. All are float32.
    """

    loss: tf.Tensor
    examples: tf.Tensor
    flags_F: tf.Tensor
    numbers: tf.Tensor


class Replicas:
    """The replicas of one process; see `training.runner.Runner`.

    A step's micro-batches are dealt evenly: replica r of R has the r-th run of them.
    """

    chief, is_asynchronous = True, False

    def __init__(self, strategy: tf.distribute.Strategy):
        self.replicas = strategy.num_replicas_in_sync
        self.strategy = strategy
        self._exchange = Exchange(strategy)
        self._exchanged: list[tf.Tensor] = []

    def error_context(self) -> AbstractContextManager:
        """See `Runner`; an exchange that fails is told where it is made."""
        return nullcontext()

    def scope(self) -> AbstractContextManager:
        """Variables made within it have a copy on every replica's device."""
        return self.strategy.scope()

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`."""
        self._tables = tables
        self._operations = _operations(job)
        self._function = _train_function(self.strategy, self._exchange, job, tables, seed)

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """All of them."""
        return job.batches(epochs, first)

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """See `Runner`; of all replicas of this process."""
        inputs = data, first, rate, self.flags_F(), tf.constant(0)
        return audit(self._function, self._tables, inputs)

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Made:
        """See `Runner`."""
        with table_errors():
            key = self._exchange.keys(self._operations)
            found = self._function(data, first, rate, self.flags_F(), key)
        made = Made(*(self.strategy.experimental_local_results(part)[0] for part in found))
        self._exchanged.append(made.numbers)
        return made

    def flags_F(self) -> tf.Tensor:
        """What this process tells the others with a call: `FLAGS` numbers, float32, 0 or 1."""
        return tf.zeros([FLAGS])

    def totals(self, calls: Sequence[Made]) -> tuple[float, float]:
        """See `Runner`."""
        loss, examples, *_ = zip(*calls, strict=True)
        return float(tf.add_n(loss)), float(tf.add_n(examples))

    def synchronize(self) -> None:
        """Calls are made one after the other."""

    def is_stopping(self, asked: bool) -> bool:
        """Whether this process was asked to."""
        return asked

    def broadcast(self, number: float) -> float:
        """Return the number: this process is the chief."""
        return number

    def values(self) -> dict[str, float]:
        """The bytes that a replica sends in a step."""
        if not self._exchanged:
            return {}
        mean = _FLOAT * float(tf.add_n(self._exchanged)) / len(self._exchanged)
        self._exchanged.clear()
        return {"exchanged_bytes": round(mean)}

    def close(self) -> None:
        """Nothing to end."""

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Nobody is waited for."""


def mirrored() -> Replicas:
    """One on each GPU of this machine, or on each of its logical processors if there is none."""
    devices = [name.rpartition("device:")[2] for name in sharded.local_devices()]
    return Replicas(tf.distribute.MirroredStrategy(devices))


def _train_function(
    strategy: tf.distribute.Strategy,
    exchange: Exchange,
    job: Job,
    tables: Mapping[str, Table],
    seed: int,
) -> Any:
    """A compiled function that makes one step for each of the S batches that it is given.

    Called as (data of S steps, first step, rate, flags, the first of `_operations` keys); see
    `training.step.train_function` and `Made`.
    """
    each = job.micro_batches // exchange.replicas
    here = dict.fromkeys(tables, "")  # rows that are streamed come from the replica's own copy
    model = job.model

    def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
        return tables[name].gather(ids_U)

    def lookup_size(lookups: Sequence[Lookups]) -> tf.Tensor:
        """Return the length of the packed vector of a step, from the lookups of its batches."""
        rows = {name: [of_batch[name].rows_U for of_batch in lookups] for name in lookups[0]}
        unique_rows = [
            rows_U[0] if len(rows_U) == 1 else distinct(tf.concat(rows_U, axis=0))[0]
            for rows_U in rows.values()
        ]
        columns = [tables[name].columns for name in rows]
        return packed_size(columns, [tf.size(rows_U) for rows_U in unique_rows], FLAGS)

    def replica(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor, key) -> Made:
        mine = range(number() * each, (number() + 1) * each)
        steps = list(split_steps(data_S, first, seed, job.micro_batches, mine))
        lookups = [[make_lookups(model, batch) for batch in batches] for batches in steps]
        keys = (key + index for index in itertools.count())
        sizes: list[tf.Tensor] = []
        made = []
        for index, batches in enumerate(steps):
            gradients = compute_gradients(model, gather, batches, here, lookups=lookups[index])
            if index:  # whose loss nobody looks at: a graph leaves out what computes it
                gradients = gradients._replace(loss=tf.zeros([]), examples=tf.zeros([]))
            if gradients.is_streamed:
                sizes += exchange.largest([_size(gradients)], keys)
            elif not sizes:  # what a call looks up is known before its first step
                sizes = exchange.largest([lookup_size(of_step) for of_step in lookups], keys)
            size = sizes[index]
            vectors = exchange.gathered(pack(gradients, flags_F, size), next(keys))
            merged, sums_F = unpack(vectors, exchange.replicas, gradients, FLAGS, size)
            apply_gradients(tables, job.optimizer, merged, rate, first + index + 1)
            made.append(Made(merged.loss, merged.examples, sums_F, tf.cast(size, tf.float32)))
        numbers = tf.add_n([step.numbers for step in made]) / len(made)
        return made[0]._replace(numbers=numbers)

    @tf.function(autograph=False)
    def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor, key) -> Made:
        # Unrolled, so that a step's draws and lookups run beside the exchange of the one before.
        return strategy.run(replica, args=(data_S, first, rate, flags_F, key))

    return train


def _operations(job: Job) -> int:
    """The most collective operations of a call: each step's vectors, and their sizes."""
    return 2 * job.steps_per_batch


def _size(gradients: StepGradients) -> tf.Tensor:
    """Return the length of the packed vector of these gradients."""
    every = [*gradients.gradients.values(), *gradients.state.values()]
    columns = [rows.values_UD.shape[1] for rows in every]
    return packed_size(columns, [tf.size(rows.ids_U) for rows in every], FLAGS)
