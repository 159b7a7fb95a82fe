"""Train in step with several replicas of the tables.

Tables are variables of a `tf.distribute` strategy, with a copy on each replica's device. In a step
each replica computes the row gradients of its micro-batches, and packs ids and gradients into one
vector. The vectors of all replicas are gathered, merged by row, and applied to every copy. So the
result is equal to the result of one device with the same micro-batches. The number of exchanged
bytes does not depend on V.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.distribute.numpy_dataset import SingleDevice  # no other way to have one copy

from ..auditing.findings import Findings
from ..auditing.step_audit import audit
from ..losses.base import gather_from
from ..tables import sharded
from ..tables.base import Table
from ..tables.python_calls import table_errors
from ..tables.row_reads import unique
from ..tables.variable import ON_HOST
from ..training.gradients import Lookups, StepGradients, compute_gradients, make_lookups
from ..training.job import Job
from ..training.packing import pack, packed_size, unpack
from ..training.runner import Runner
from ..training.step import apply_gradients, split_steps
from ..types import HOST
from .exchange import Exchange, replica_number

_FLOAT_BYTES = 4
FLAGS = 2  # the number of flags of `distributed.multi_worker`


class Made(NamedTuple):
    """The result of a call: float32 tensors on the device, the same on every replica.

    Attributes:
        loss: The loss of the first step.
        examples: The examples of the first step.
        flags_F: For each flag, the number of replicas that had it set.
        numbers: The length of the vector that a replica sends in a step, the mean over the steps.
    """

    loss: tf.Tensor
    examples: tf.Tensor
    flags_F: tf.Tensor
    numbers: tf.Tensor


class Replicas(Runner):
    """The runner for the replicas of one process.

    The micro-batches of a step are divided evenly: each replica has a range of them, in order.

    Args:
        strategy: The strategy of the replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.replicas = strategy.num_replicas_in_sync
        self.strategy = strategy
        self.exchange = Exchange(strategy)
        self._exchanged: list[tf.Tensor] = []

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Return the context in which the job and its tables are created.

        A variable has a copy on each replica's device; one that is named `ON_HOST` is on the host.
        """

        def made(make: Any, **options: Any) -> tf.Variable:
            """Make a variable, on the host if its name is `ON_HOST`."""
            if options.get("name") == ON_HOST:
                options["colocate_with"] = SingleDevice(HOST)
            return make(**options)

        with self.strategy.scope(), tf.variable_creator_scope(made):
            yield

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`; the train function covers the replicas of this process."""
        self._tables = tables
        # The most collective operations of a call: the vectors of each step and their sizes.
        self._operations = 2 * job.data.steps_per_batch
        self._function = _train_function(self, job, tables, seed)

    def micro_batches(self, job: Job) -> range:
        """Return the indices of the micro-batches of a step that this process reads: here all.

        Args:
            job: What to train.
        """
        return range(job.placed.micro_batches)

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """See `Runner`; for all replicas of this process."""
        inputs = data, first, rate, self.flags_F(), tf.constant(0)
        return audit(self._function, self._tables, inputs)

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Made:
        """See `Runner`; the result is computed later."""
        with table_errors():
            key = self.exchange.keys(self._operations)
            results = self._function(data, first, rate, self.flags_F(), key)
        local = self.strategy.experimental_local_results
        result = Made._make([local(part)[0] for part in results])
        self._exchanged.append(result.numbers)
        return result

    def flags_F(self) -> tf.Tensor:
        """Return what this process reports to the others with a call: `FLAGS` numbers, 0 or 1.

        In this class, all are 0.
        """
        return tf.zeros([FLAGS])

    def values(self) -> dict[str, float]:
        """Return the mean bytes that a replica sends in a step, since the last call of this method.

        The field is `exchanged_bytes`. Return {} if there was no call of `run_steps` since.
        """
        if not self._exchanged:
            return {}
        mean = _FLOAT_BYTES * float(tf.add_n(self._exchanged)) / len(self._exchanged)
        self._exchanged.clear()
        return {"exchanged_bytes": round(mean)}


def mirrored() -> Replicas:
    """Return a runner with a replica on each GPU, or on each logical CPU if there is no GPU."""
    devices = [name.rpartition("device:")[2] for name in sharded.local_devices()]
    return Replicas(tf.distribute.MirroredStrategy(devices))


def _train_function(runner: Replicas, job: Job, tables: Mapping[str, Table], seed: int) -> Any:
    """Return a `tf.function` that trains S steps in all replicas; see `train_function`.

    Its arguments are the data of S steps, the number of steps before them, the learning rate, the
    flags, and the first of two keys for each step. It returns `Made` for each replica.

    Args:
        runner: The replicas of this process, with the micro-batches that it reads.
        job: What to train.
        tables: The tables by name.
        seed: The seed of the run.
    """
    strategy, exchange, held = runner.strategy, runner.exchange, runner.micro_batches(job)
    each = job.placed.micro_batches // exchange.replicas
    here = dict.fromkeys(tables, "")  # rows that are streamed come from the replica's own copy
    model, gather = job.model, gather_from(tables)

    def lookup_size(lookups: Sequence[Lookups]) -> tf.Tensor:
        """Return the length of the packed vector of a step; rows that batches share count once.

        `lookups` has those of each micro-batch of the step.
        """
        rows = {name: [of_batch[name].rows_U for of_batch in lookups] for name in lookups[0]}
        unique_rows = [
            rows_U[0] if len(rows_U) == 1 else unique(tf.concat(rows_U, axis=0))[0]
            for rows_U in rows.values()
        ]
        columns = [tables[name].columns for name in rows]
        return packed_size(columns, [tf.size(rows_U) for rows_U in unique_rows], FLAGS)

    def replica(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor, key) -> Made:
        """Train the steps of a call in one replica, on its share of the micro-batches.

        The loss, examples and flags of the result are those of the first step, over all replicas.
        """
        mine = range(replica_number() * each, (replica_number() + 1) * each)
        steps = list(split_steps(data_S, first, seed, job.placed.micro_batches, mine, held))
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
            vectors = exchange.gather(pack(gradients, flags_F, size), next(keys))
            merged, sums_F = unpack(vectors, exchange.replicas, gradients, FLAGS, size)
            apply_gradients(tables, job.optimizer, merged, rate, first + index + 1)
            made.append(Made(merged.loss, merged.examples, sums_F, tf.cast(size, tf.float32)))
        numbers = tf.add_n([step.numbers for step in made]) / len(made)
        return made[0]._replace(numbers=numbers)

    @tf.function(autograph=False)
    def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor, key) -> Made:
        """Run `replica` in each replica; return the fields of `Made` as per-replica values."""
        # The steps are unrolled: the draws and lookups of a step run during the exchange before it.
        return strategy.run(replica, args=(data_S, first, rate, flags_F, key))

    return train


def _size(gradients: StepGradients) -> tf.Tensor:
    """Return the length of the packed vector of these gradients."""
    every = [*gradients.gradients.values(), *gradients.state.values()]
    columns = [rows.values_UD.shape[1] for rows in every]
    return packed_size(columns, [tf.size(rows.ids_U) for rows in every], FLAGS)
