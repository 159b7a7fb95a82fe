"""Train in step with several replicas of the tables.

Tables are variables of a `tf.distribute` strategy, with a copy on each replica's device. In a step
each replica computes the row gradients of its micro-batches, and packs ids and gradients into one
vector. The vectors of all replicas are gathered, merged by row, and applied to every copy. So the
result is equal to the result of one device with the same micro-batches. The number of exchanged
bytes does not depend on V.

On GPUs, XLA compiles a step of a replica to two programs, one on each side of the exchange, which
it cannot compile: CollectiveGatherV2 has no kernel there. Programs have fixed sizes, so a vector
has room for repeated ids, too; of skip-gram that is 1.8 times the bytes. Between processes, which a
slower network may connect, steps are not compiled, and no more is sent than is needed.

With --sync_steps above 1 each replica trains some steps alone instead; see `local_steps`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.numpy_dataset import SingleDevice  # no other way to have one copy

from ..losses.base import gather_from
from ..system.python_functions import table_errors
from ..system.xla import CompiledIfPossible, to_uint32, under_xla
from ..tables import sharded
from ..tables.base import Table
from ..tables.device import ON_HOST
from ..tables.row_reads import unique
from ..training.compiled_steps import Representatives
from ..training.gradients import (
    Lookups,
    RowGradients,
    StepGradients,
    UniqueRows,
    add_gradients,
    compute_gradients,
    make_lookups,
    unique_rows_of_any,
)
from ..training.job import Job
from ..training.runner import Runner
from ..training.step import apply_gradients, one_step, split_steps
from ..types import HOST
from .exchange import FLAGS, Exchange, Made, key_of_size, replica_number
from .local_steps import LocalSteps, Synchronizer

_FLOAT_BYTES = 4


class Replicas(Runner):
    """The runner for the replicas of one process.

    The micro-batches of a step are divided evenly: each replica has a range of them, in order.

    Args:
        sync_steps: The steps that each replica trains alone before an exchange of changes; 1 for an
            exchange of gradients in every step. A replica without others makes steps as with 1.
        sync_dtype: The dtype in which changes are exchanged, "float32" or "bfloat16".
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, sync_steps: int = 1, sync_dtype: str = "float32"
    ):
        self.replicas = strategy.num_replicas_in_sync
        self.strategy = strategy
        self.exchange = Exchange(strategy)
        self._exchanged: list[tf.Tensor] = []
        self._sync_steps, self._is_half = sync_steps, sync_dtype == "bfloat16"
        self._synchronizer: Synchronizer | None = None

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
        self._tables, self._steps_per_call = tables, job.data.steps_per_batch
        steps = job.data.expected_batches * job.data.steps_per_batch
        self._unit, self._step_units = job.data.unit, job.data.epoch_size / max(1, steps)
        if self._sync_steps > 1 and self.replicas > 1:
            unique_rows = self.unique_rows(tables) if self.exchange.is_gpu else []
            local = LocalSteps(job, tables, self.exchange, unique_rows, self._is_half)
            self._function = local.train_function(self.micro_batches(job), seed)
            self._synchronizer = Synchronizer(self.exchange, local, self._sync_steps)
            return
        self._function = _train_function(self, job, tables, seed)
        is_one_process = self.replicas == len(self.exchange.devices)
        if self.exchange.is_gpu and is_one_process:
            by_xla = _train_function_by_xla(self, job, tables, seed)
            self._function = CompiledIfPossible(by_xla, self._function, "the steps of replicas")

    def unique_rows(self, tables: Mapping[str, Table]) -> list[Representatives]:
        """Return what finds the unique rows in programs of XLA, for each replica of the process."""
        made = []
        for device in self.exchange.devices:
            with tf.device(device):
                made.append(Representatives())
                made[-1].prepare(tables)
        return made

    def micro_batches(self, job: Job) -> range:
        """Return the indices of the micro-batches of a step that this process reads: here all."""
        return range(job.placed.micro_batches)

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Made:
        """See `Runner`; the result is computed later."""
        if self._synchronizer is not None:
            self._synchronizer.begin(self.scope)
        inputs = data, first, rate, self.flags_F()
        with table_errors():
            self._trace_once(*inputs)
            results = self._function(*inputs)
        result = Made._make(map(self.exchange.first, results))
        self._exchanged.append(result.numbers)
        if self._synchronizer is not None:
            self._synchronizer.count(self._steps_per_call, int(first) + self._steps_per_call)
        return result

    def close(self) -> None:
        """See `Runner`; forget the copies of the tables, too."""
        super().close()
        self._synchronizer = None

    @property
    def is_program(self) -> bool:
        """See `Runner`; a call has programs in several devices."""
        return False

    @property
    def is_synchronized(self) -> bool:
        """See `Runner`; False between two exchanges of changes."""
        return self._synchronizer is None or not self._synchronizer.waiting

    def finish_epoch(self) -> None:
        """See `Runner`; exchange the changes since the last exchange."""
        if self._synchronizer is not None:
            self._synchronizer.synchronize()

    def is_stopping(self, asked: bool) -> bool:
        """See `Runner`; not between two exchanges of changes."""
        return asked and self.is_synchronized

    def flags_F(self) -> tf.Tensor:
        """Return what this process reports to the others with a call: `FLAGS` numbers, 0 or 1.

        In this class, all are 0.
        """
        return tf.zeros([FLAGS])

    def values(self) -> dict[str, float]:
        """Return what the exchange has cost since the last call of this method, by name.

        They are `exchanged_bytes`, the mean bytes that a replica sends to another in a step;
        `bytes_per_word` (or per other unit), the bytes that all replicas send for a word, by the
        expected number of steps of an epoch; and with --sync_steps above 1 `exchange_share`, the
        share of the time. Return {} if there was no call of `run_steps` since.
        """
        if not self._exchanged:
            return {}
        calls = len(self._exchanged)
        mean = _FLOAT_BYTES * float(tf.add_n(self._exchanged)) / calls
        self._exchanged.clear()
        share: dict[str, float] = {}
        if self._synchronizer is not None:
            sent, share["exchange_share"] = self._synchronizer.values()
            mean += sent / (calls * self._steps_per_call)
        sent_by_all = self.replicas * (self.replicas - 1) * mean
        each = f"bytes_per_{self._unit.removesuffix('s')}"
        return {"exchanged_bytes": round(mean), each: sent_by_all / self._step_units, **share}


def mirrored(sync_steps: int = 1, sync_dtype: str = "float32") -> Replicas:
    """Return a runner with a replica on each GPU, or on each logical CPU if there is no GPU."""
    devices = [name.rpartition("device:")[2] for name in sharded.local_devices()]
    return Replicas(tf.distribute.MirroredStrategy(devices), sync_steps, sync_dtype)


def _train_function(runner: Replicas, job: Job, tables: Mapping[str, Table], seed: int) -> Any:
    """Return a `tf.function` that trains S steps in all replicas; see `train_function`.

    Its arguments are the data of S steps, the number of steps before them, the learning rate, and
    the flags. It returns `Made` for each replica.

    Args:
        runner: The replicas of this process, with the micro-batches that it reads.
    """
    exchange, held, micro = runner.exchange, runner.micro_batches(job), job.placed.micro_batches
    model, gather = job.model, gather_from(tables)
    # The most operations of a call: the vectors of each step and their sizes.
    reserved = exchange.keys(2 * job.data.steps_per_batch)

    def replica(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor) -> Made:
        """Train the steps of a call in one replica, on its share of the micro-batches.

        The loss, examples and flags of the result are those of the first step, over all replicas.
        """
        steps = list(split_steps(data_S, first, seed, micro, exchange.own(micro), held))
        lookups = [[make_lookups(model, batch) for batch in batches] for batches in steps]
        keys = iter(reserved)
        sizes: list[tf.Tensor] = []
        made = []
        for index, batches in enumerate(steps):
            gradients = compute_gradients(model, gather, batches, lookups=lookups[index])
            if index:  # this loss is not used, so the graph leaves out its computation
                gradients = gradients._replace(loss=tf.zeros([]), examples=tf.zeros([]))
            if gradients.is_streamed:
                sizes += exchange.largest([_size_of(gradients)], next(keys))
            elif not sizes:  # the lookups of a call are known before its first step
                sizes = exchange.largest([_lookup_size(tables, one) for one in lookups], next(keys))
            size = sizes[index]
            vectors = exchange.gather(pack(gradients, flags_F, size), key_of_size(next(keys), size))
            merged, sums_F = unpack(vectors, exchange.replicas, gradients)
            apply_gradients(tables, job.optimizer, merged, rate, first + index + 1)
            made.append(Made(merged.loss, merged.examples, sums_F, tf.cast(size, tf.float32)))
        return made[0]._replace(numbers=tf.add_n([step.numbers for step in made]) / len(made))

    # The steps are unrolled: the draws and lookups of a step run during the exchange before it.
    return exchange.in_replicas(replica)


def _train_function_by_xla(
    runner: Replicas, job: Job, tables: Mapping[str, Table], seed: int
) -> Any:
    """Return the same as `_train_function`, of which XLA compiles all but the exchange."""
    exchange = runner.exchange
    keys, unique_rows = exchange.keys(job.data.steps_per_batch), runner.unique_rows(tables)

    def replica(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor) -> Made:
        """Train the steps of a call in one replica; see `_train_function`."""
        mine = exchange.own(job.placed.micro_batches)
        of_device = unique_rows[replica_number() % len(unique_rows)]
        made_for = job, tables, seed, mine, exchange.replicas, of_device
        differentiate, update = step_programs(*made_for)
        data_S = tf.nest.map_structure(to_uint32, data_S)
        made = []
        for index, key in enumerate(keys):
            data = tf.nest.map_structure(operator.itemgetter(index), data_S)
            vector = differentiate(data, first + index, flags_F)
            size = vector.shape[0]
            vectors = tf.ensure_shape(exchange.gather(vector, key), [size * exchange.replicas])
            made.append(update(vectors, first + index + 1, rate))
        loss, examples, sums_F = made[0]
        return Made(loss, examples, sums_F, tf.constant(float(size)))

    return exchange.in_replicas(replica)


def step_programs(
    job: Job,
    tables: Mapping[str, Table],
    seed: int,
    mine: range,
    replicas: int,
    unique_rows: UniqueRows,
) -> tuple[Any, Any]:
    """Return the two programs of a step of a replica, on each side of the exchange.

    Args:
        mine: The indices of the micro-batches of the replica.
        unique_rows: Finds the unique rows in the device of the replica.

    Returns:
        Two functions that XLA compiles. The first takes the data of a step, the number of steps
        before it and the flags, and returns the packed gradients. The second takes those of all
        replicas, the number of the step and the learning rate. It updates the rows, and returns the
        loss, the examples and the sums of the flags. The first must be traced before it.
    """
    micro_batches, gather = job.placed.micro_batches, gather_from(tables)
    like: list[StepGradients] = []

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(data: Any, number: tf.Tensor, flags_F: tf.Tensor) -> tf.Tensor:
        """Return the packed gradients of a step."""
        batches = one_step(data, number, seed, micro_batches, mine)
        gradients = compute_gradients(job.model, gather, batches, unique_rows=unique_rows)
        like[:] = [gradients]
        return pack(gradients, flags_F, _size_of(gradients))

    @tf.function(autograph=False, jit_compile=True)
    def update(vectors: tf.Tensor, number: tf.Tensor, rate: tf.Tensor) -> Sequence[tf.Tensor]:
        """Apply the gradients of all replicas."""
        merged, sums_F = unpack(vectors, replicas, like[0], unique_rows)
        apply_gradients(tables, job.optimizer, merged, rate, number)
        return merged.loss, merged.examples, sums_F

    return differentiate, update


def _lookup_size(tables: Mapping[str, Table], lookups: Sequence[Lookups]) -> tf.Tensor:
    """Return the length of the packed vector of a step; rows that batches share count once.

    Args:
        lookups: The lookups of each micro-batch of the step.
    """
    rows = {name: [of_batch[name].rows_U for of_batch in lookups] for name in lookups[0]}
    unique_rows = [
        rows_U[0] if len(rows_U) == 1 else unique(tf.concat(rows_U, axis=0))[0]
        for rows_U in rows.values()
    ]
    return packed_size([tables[name].columns for name in rows], list(map(tf.size, unique_rows)))


def packed_size(columns: Sequence[int], sizes: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the length of the vector of a step's gradients, an int32 scalar.

    Args:
        columns: The columns of each table.
        sizes: The number of rows of each table, int32 scalars.
    """
    rows = [size * (1 + width) for size, width in zip(sizes, columns, strict=True)]
    return tf.add_n(rows) + len(rows) + 2 + FLAGS


def pack(gradients: StepGradients, flags_F: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return step gradients and some flags as one float32 vector.

    It has the number of rows of each table; the loss, the examples and the flags; then the ids of
    each table and their values. Integers are stored by their bits.

    Args:
        gradients: The gradients of a replica. Ids must fit in int32; `rows` are not sent.
        flags_F: Numbers to send with them, float32.
        size: The length of the vector, which is filled up with zeros; at least `packed_size`.
    """
    tables = _tables_of(gradients)
    parts = [_as_floats(tf.stack([tf.size(rows.ids_U) for rows in tables]))]
    parts += [tf.stack([gradients.loss, gradients.examples]), flags_F]
    for ids_U, values_UD in tables:
        parts += [_as_floats(tf.cast(ids_U, tf.int32)), tf.reshape(values_UD, [-1])]
    return tf.concat([*parts, tf.zeros([size - _size_of(gradients)])], axis=0)


def unpack(
    vectors: tf.Tensor,
    count: int,
    like: StepGradients,
    unique_rows: UniqueRows = unique_rows_of_any,
) -> tuple[StepGradients, tf.Tensor]:
    """Return the sum of the gradients in several packed vectors, and the sums (F,) of their flags.

    Args:
        vectors: The vectors of all replicas, of one length, one after the other.
        count: The number of vectors.
        like: The gradients in one of them; gives the tables, their columns and the dtype of ids.
        unique_rows: Finds the unique rows of all vectors.
    """
    vectors_RN = tf.reshape(vectors, [count, -1])
    parts, flags = zip(*(_unpack_one(vectors_RN[r], like) for r in range(count)), strict=True)
    return add_gradients(parts, unique_rows), tf.add_n(flags)


def _unpack_one(vector_N: tf.Tensor, like: StepGradients) -> tuple[StepGradients, tf.Tensor]:
    """Return the gradients and flags in a vector."""
    tables = _tables_of(like)
    sizes = tf.unstack(tf.bitcast(vector_N[: len(tables)], tf.int32), num=len(tables))
    if under_xla():  # sizes are known, and have to be
        sizes = [rows.ids_U.shape[0] for rows in tables]
    lengths = [len(tables), 2, FLAGS]
    for rows, count in zip(tables, sizes, strict=True):
        lengths += [count, count * rows.values_UD.shape[1]]
    _, head, flags_F, *parts, _ = tf.split(vector_N, [*lengths, -1])
    unpacked = [
        RowGradients(
            tf.cast(tf.bitcast(ids_U, tf.int32), rows.ids_U.dtype),
            tf.reshape(values, [-1, rows.values_UD.shape[1]]),
        )
        for rows, ids_U, values in zip(tables, parts[::2], parts[1::2], strict=True)
    ]
    gradients = dict(zip(like.gradients, unpacked, strict=False))
    state = dict(zip(like.state, unpacked[len(gradients) :], strict=True))
    return StepGradients(head[0], head[1], gradients, state), flags_F


def _tables_of(gradients: StepGradients) -> list[RowGradients]:
    """Return the gradients of each trained table, then the new rows of each other one."""
    return [*gradients.gradients.values(), *gradients.state.values()]


def _as_floats(numbers_N: tf.Tensor) -> tf.Tensor:
    """Return the bits of int32 numbers as float32."""
    return tf.bitcast(numbers_N, tf.float32)


def _size_of(gradients: StepGradients) -> tf.Tensor:
    """Return the length of the vector of these gradients."""
    tables = _tables_of(gradients)
    columns = [rows.values_UD.shape[1] for rows in tables]
    return packed_size(columns, [tf.size(rows.ids_U) for rows in tables])
