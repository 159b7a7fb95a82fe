"""Train several steps in each replica alone, then exchange the changes of rows (--sync_steps).

Local SGD (Stich 2019), for tables: a replica writes its own copy of the rows and marks them. Every
row has an owner, one of the replicas; these take turns by blocks of ids. At an exchange, every
replica sends the changes of its marked rows to their owners, the owners merge them, and send the
merged changes to all. So all copies are equal again. A replica sends a change once and receives it
once, however many replicas there are.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from ..system.loops import unroll
from ..system.xla import CompiledIfPossible, to_uint32
from ..tables.base import Ids, LocatedIds, Table
from ..tables.device import VariableRows
from ..training.gradients import UniqueRows
from ..training.job import Job
from ..training.step import TrainFunction, split_steps, steps_by_xla, train_step
from ..types import HOST
from . import row_changes
from .exchange import FLAGS, Exchange, Made, replica_number
from .row_changes import NO_ID, Layout

ALL_ROWS = 2**31 - 1  # the largest int32
# The rows of a block of ids, which has one owner. Blocks of neighbours are read faster: a row of
# 100 columns in 150 ns, in 185 where every second row has the same owner (AMD EPYC, Zen 3).
BLOCK_ROWS = 256
# The rows of the most frequent ids, how many times as often as all rows they are exchanged, and the
# least steps between two exchanges of them. As in Ji et al. 2016, section 4.2. For the choice see
# data/benchmarks/README.md.
FREQUENT_ROWS, FREQUENT_TIMES, FREQUENT_STEPS = 8192, 4, 64
# At the start rows move far, so frequent rows are exchanged sooner: when a sixth of the steps so
# far was made alone.
_PART = 6


class MarkedTable:
    """Reads and writes the rows of another table, and marks the ids of the rows it writes.

    The rows of slots are written with the rows of their table, so they have no marks of their own.

    Args:
        marks_V: A bool variable with a mark for each row, in host memory or on a GPU.
    """

    device = ""  # the device that is current in a trace

    def __init__(self, table: Table, marks_V: tf.Variable):
        self._table, self._marks_V = table, marks_V

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the other table."""
        return getattr(self._table, name)

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Mark the ids, then see `Table.assign`."""
        assert not isinstance(ids_U, LocatedIds)
        with tf.device(self._marks_V.device):
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._marks_V.handle,
                indices=ids_U,
                updates=tf.ones_like(ids_U, dtype=tf.bool),
            )
        self._table.assign(ids_U, rows_UD)


class LocalSteps:
    """The steps of the replicas of one process, and the exchange of their changes.

    Args:
        unique_rows: For each replica of this process, what finds the unique rows in a program;
            empty without XLA.
        is_half: Whether changes are sent as bfloat16.
    """

    def __init__(
        self,
        job: Job,
        tables: Mapping[str, Table],
        exchange: Exchange,
        unique_rows: Sequence[UniqueRows],
        is_half: bool,
    ):
        self._job, self._tables, self._exchange = job, tables, exchange
        self._layouts = {
            name: row_changes.make_layout(table, job.optimizer.slots, is_half, exchange.is_gpu)
            for name, table in tables.items()
        }
        self._unique_rows = unique_rows
        self._marks = []
        for device in exchange.devices:
            with tf.device(device if exchange.is_gpu else HOST):
                self._marks.append(
                    {
                        name: tf.Variable(tf.zeros([table.rows], tf.bool), trainable=False)
                        for name, table in tables.items()
                    }
                )
        self._keys = exchange.keys(2 * (1 + row_changes.operations(self._layouts)))
        self._before: dict[str, dict[str, VariableRows]] = {}

    def copy_tables(self, scope: Callable[[], AbstractContextManager]) -> None:
        """Keep a copy of all rows and slots as those of the last exchange, if there is none yet.

        Args:
            scope: The context in which variables are created.
        """
        if self._before:
            return
        for name, table in self._tables.items():
            self._before[name] = {}
            for block in self._layouts[name].blocks:
                stored = block.table(table)
                assert isinstance(stored, VariableRows), "--strategy allows no other kind"
                values = stored.values
                with scope(), tf.device(values.device):
                    copy = tf.Variable(tf.identity(values), trainable=False, name="before")
                self._before[name][block.slot] = VariableRows(copy)

    def _replica(self) -> int:
        """Return the number of the replica that is traced now, among those of this process."""
        return replica_number() % len(self._marks)

    def train_function(self, held: range, seed: int) -> Any:
        """Return a function that trains S steps in each replica alone, on a GPU as one program.

        Its arguments are the data of S steps, the number of steps before them, the learning rate,
        and the flags. It returns `Made` for each replica, with the sums of all replicas.

        Args:
            held: The indices of the micro-batches that the data has.
        """
        exchange = self._exchange
        (key,) = exchange.keys(1)

        def replica(
            is_by_xla: bool, data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor
        ) -> Made:
            """Train the steps of a call in one replica, on its share of the micro-batches."""
            make_steps = self._steps(is_by_xla, seed, held)
            loss, examples = make_steps(data_S, first, rate)
            # Nothing waits for this vector but the result, so it is sent during the other steps.
            own_N = tf.concat([tf.stack([loss, examples]), flags_F], axis=0)
            gathered = tf.reshape(exchange.gather(own_N, key), [exchange.replicas, 2 + FLAGS])
            sums_N = tf.reduce_sum(gathered, axis=0)
            numbers = (2 + FLAGS) / self._job.data.steps_per_batch
            return Made(sums_N[0], sums_N[1], sums_N[2:], tf.constant(numbers))

        without, by_xla = (
            exchange.in_replicas(functools.partial(replica, is_by_xla))
            for is_by_xla in (False, True)
        )
        return (
            CompiledIfPossible(by_xla, without, "steps of replicas") if exchange.is_gpu else without
        )

    def _steps(self, is_by_xla: bool, seed: int, held: range) -> TrainFunction:
        """Return a function that makes steps in the replica that is traced now."""
        job, replica = self._job, self._replica()
        marks, micro = self._marks[replica], job.placed.micro_batches
        mine = self._exchange.own(micro)
        tables = {name: MarkedTable(table, marks[name]) for name, table in self._tables.items()}
        step = functools.partial(train_step, job.model, tables, job.optimizer)

        def make_steps(
            data_S: Any, first: tf.Tensor, rate: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            """Make S steps; return the loss and examples of the first."""
            steps = split_steps(data_S, first, seed, micro, mine, held)
            return unroll(step, [(each, rate, first + n + 1) for n, each in enumerate(steps)])[0]

        if not is_by_xla:
            return make_steps
        by_xla = steps_by_xla(
            job.model, tables, job.optimizer, self._unique_rows[replica], seed, micro, mine, held
        )
        return lambda data_S, *numbers: by_xla(tf.nest.map_structure(to_uint32, data_S), *numbers)

    def exchange(self, most: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """Exchange the changes of all marked rows in the replica that is traced now.

        Args:
            most: Exchange only ids below this number, an int32 scalar, and only of tables that give
                lower ids to what is more frequent or have no more rows; `ALL_ROWS` for all rows.
            steps: The number of steps since the last exchange with this value of `most` or a higher
                one, an int32 scalar.

        Returns:
            The bytes that this replica sent to each other one, a float32 scalar.
        """
        keys, replicas, layouts = iter(self._keys), self._exchange.replicas, self._layouts
        # Every owner gets as many changes of a table.
        ids = self._marked_ids(most)
        counts = [tf.stack([tf.size(ids_U) for ids_U in by_owner]) for by_owner in ids.values()]
        sizes, to_owner = self._largest(counts, keys)
        changes = {}
        for (name, by_owner), size in zip(ids.items(), sizes, strict=True):
            ids_N = tf.concat([row_changes.fill(ids_U, size, NO_ID) for ids_U in by_owner], axis=0)
            changes[name] = row_changes.read(*self._stored(name), ids_N)
        received = row_changes.send(changes, layouts, self._exchange.distribute, keys, replicas)
        # Every replica sends as many merged changes of a table.
        places = [row_changes.find_places(part.ids_N, replicas) for part in received.values()]
        sizes, to_all = self._largest([tf.size(of_table.ids_M) for of_table in places], keys)
        merged = {}
        for (name, part), of_table, size in zip(received.items(), places, sizes, strict=True):
            merged[name] = row_changes.merge(
                part, row_changes.fill_places(of_table, size), layouts[name], steps
            )
        for name, part in row_changes.send(merged, layouts, self._exchange.gather, keys, 1).items():
            row_changes.write(*self._stored(name), part)
        return to_owner + to_all

    def _marked_ids(self, most: tf.Tensor) -> dict[str, list[tf.Tensor]]:
        """Return by table the marked ids (U,) int32 of each owner, and remove their marks.

        For `most` see `exchange`.
        """
        replicas, specs = self._exchange.replicas, self._job.model.tables()
        ids = {}
        with tf.device(HOST):
            for name, marks_V in self._marks[self._replica()].items():
                rows = self._tables[name].rows
                of_frequent = most if specs[name].by_frequency else 0
                rows = tf.where(rows > most, of_frequent, rows)
                with tf.device(marks_V.device):
                    marked_V = tf.identity(marks_V)
                ids_U = tf.cast(tf.reshape(tf.where(marked_V[:rows]), [-1]), tf.int32)
                ids[name] = tf.dynamic_partition(ids_U, ids_U // BLOCK_ROWS % replicas, replicas)
                with tf.control_dependencies([ids_U]), tf.device(marks_V.device):
                    marks_V.assign(tf.concat([tf.zeros([rows], tf.bool), marked_V[rows:]], axis=0))
        return ids

    def _largest(
        self, counts: Sequence[tf.Tensor], keys: Iterator[int]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return the largest number of rows of each table in any replica, and the bytes of these.

        It is at least 1, so that no operation has nothing to send. `counts` has one or several
        numbers for each table.
        """
        most = [tf.maximum(tf.reduce_max(of_table), 1) for of_table in counts]
        sizes = self._exchange.largest(most, next(keys))
        of_rows = zip(sizes, map(row_changes.row_bytes, self._layouts.values()), strict=True)
        return sizes, tf.add_n([tf.cast(size, tf.float32) * each for size, each in of_rows])

    def _stored(self, name: str) -> tuple[Table, dict[str, VariableRows], Layout]:
        """Return a table, its copy of the last exchange, and the layout of its changes."""
        return self._tables[name], self._before[name], self._layouts[name]


class Synchronizer:
    """Counts the steps of the replicas of one process, and exchanges their changes when due.

    `Replicas` calls `begin` before the first step, `count` after each call of steps, and
    `synchronize` at the end of an epoch.

    All processes count alike, so they exchange after the same call. Between two exchanges of all
    rows, the rows of the most frequent ids are exchanged alone, and with them all rows of smaller
    tables. There is at most one exchange after a call.

    Args:
        sync_steps: The steps between two exchanges of all rows.
    """

    def __init__(self, exchange: Exchange, local: LocalSteps, sync_steps: int):
        self._first, self._local, self._sync_steps = exchange.first, local, sync_steps
        # One function for both kinds, as it takes one to two seconds to trace and optimize it.
        self._function = exchange.in_replicas(local.exchange)
        self._period = max(sync_steps // FREQUENT_TIMES, FREQUENT_STEPS)
        self._waiting = {ALL_ROWS: 0, FREQUENT_ROWS: 0}  # steps since the last exchange
        self._sent, self._seconds, self._since = 0.0, 0.0, time.perf_counter()

    @property
    def waiting(self) -> int:
        """Return the steps since the last exchange of all rows."""
        return self._waiting[ALL_ROWS]

    def begin(self, scope: Callable[[], AbstractContextManager]) -> None:
        """Copy the tables before the first step, when they have been restored.

        Args:
            scope: The context in which variables are created.
        """
        self._local.copy_tables(scope)

    def count(self, steps: int, done: int) -> None:
        """Count the steps of a call, and exchange the changes of the rows that are due.

        Args:
            done: The steps of the whole run so far.
        """
        for rows in self._waiting:
            self._waiting[rows] += steps
        if self.waiting >= self._sync_steps:
            self._exchange(ALL_ROWS)
        elif self._waiting[FREQUENT_ROWS] >= min(self._period, done // _PART):
            self._exchange(FREQUENT_ROWS)

    def synchronize(self) -> None:
        """Exchange the changes since the last exchange, if there are any, and wait for the end."""
        if self.waiting:
            self._exchange(ALL_ROWS)

    def _exchange(self, most: int) -> None:
        """Exchange the rows with ids below a number, `ALL_ROWS` or `FREQUENT_ROWS`, and wait."""
        began = time.perf_counter()
        sent = self._function(tf.constant(most), tf.constant(self._waiting[most]))
        self._sent += float(self._first(sent))
        self._waiting |= {rows: 0 for rows in self._waiting if rows <= most}
        self._seconds += time.perf_counter() - began

    def values(self) -> tuple[float, float]:
        """Return the costs since the last call of this method.

        Returns:
            The bytes that a replica has sent to another one, and the share of the time that the
            exchanges took, the wait for other replicas included.
        """
        now = time.perf_counter()
        values = self._sent, self._seconds / max(now - self._since, 1e-9)
        self._sent, self._seconds, self._since = 0.0, 0.0, now
        return values
