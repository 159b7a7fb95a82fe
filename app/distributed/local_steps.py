"""Train several steps in each replica alone, then exchange the changes of rows (--sync_steps).

Local SGD (Stich 2019), for tables: a replica writes its own copy of the rows and marks them. At an
exchange each row that any replica has marked has an owner, the replica of number id modulo R. Every
replica sends the changes of its marked rows to their owners, the owners merge them, and send the
merged changes to all. So all copies are equal again. A replica sends a change once and receives it
once, however many replicas there are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from ..system.unrolled import unroll
from ..tables.base import Table
from ..tables.marked import MarkedTable
from ..tables.variable import VariableRows
from ..training.job import Job
from ..training.step import split_steps, train_step
from ..types import HOST, Batch
from . import row_changes
from .calls import FLAGS, Made
from .exchange import Exchange, replica_number
from .row_changes import Changes

OPERATIONS = 4  # the collective operations of an exchange
ALL_ROWS = 2**31 - 1  # the largest int32


class LocalSteps:
    """The steps of the replicas of one process, and the exchange of their changes.

    Args:
        job: The job to train.
        tables: The tables by name.
        exchange: The collective operations.
        replicas: The number of replicas of this process.
        is_half: Whether changes are sent as bfloat16.
    """

    def __init__(
        self,
        job: Job,
        tables: Mapping[str, Table],
        exchange: Exchange,
        replicas: int,
        is_half: bool,
    ):
        self._job, self._tables, self._exchange = job, tables, exchange
        self._layouts = {
            name: row_changes.blocks(table, job.optimizer.slots, is_half)
            for name, table in tables.items()
        }
        with tf.device(HOST):
            self._marks = [
                {
                    name: tf.Variable(tf.zeros([table.rows], tf.bool), trainable=False)
                    for name, table in tables.items()
                }
                for _ in range(replicas)
            ]
        self._before: dict[str, dict[str, VariableRows]] = {}

    @property
    def has_copies(self) -> bool:
        """Return whether `copy_tables` was called."""
        return bool(self._before)

    def copy_tables(self, scope: Callable[[], AbstractContextManager]) -> None:
        """Keep a copy of all rows and slots as those of the last exchange.

        Args:
            scope: The context in which variables are created.
        """
        for name, table in self._tables.items():
            self._before[name] = {}
            for block in self._layouts[name]:
                stored = block.table(table)
                assert isinstance(stored, VariableRows), "--strategy allows no other kind"
                values = stored.values
                with scope(), tf.device(values.device):
                    copy = tf.Variable(tf.identity(values), trainable=False, name="before")
                self._before[name][block.slot] = VariableRows(copy)

    def _local_marks(self) -> dict[str, tf.Variable]:
        """Return the marks of the replica that is traced now."""
        return self._marks[replica_number() % len(self._marks)]

    def train_function(self, strategy: tf.distribute.Strategy, held: range, seed: int) -> Any:
        """Return a `tf.function` that trains S steps in each replica alone.

        Its arguments are the data of S steps, the number of steps before them, the learning rate,
        the flags, and a key. It returns `Made` for each replica, with the sums of all replicas.

        Args:
            strategy: The strategy of the replicas.
            held: The indices of the micro-batches that the data has.
            seed: The seed of the run.
        """
        micro, replicas = self._job.placed.micro_batches, self._exchange.replicas
        each = micro // replicas

        def replica(
            data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor, key
        ) -> Made:
            """Train the steps of a call in one replica, on its share of the micro-batches."""
            mine = range(replica_number() * each, (replica_number() + 1) * each)
            steps = list(split_steps(data_S, first, seed, micro, mine, held))
            loss, examples = self._train(steps, first, rate)
            # Nothing waits for this vector but the result, so it is sent during the other steps.
            own_N = tf.concat([tf.stack([loss, examples]), flags_F], axis=0)
            gathered = tf.reshape(self._exchange.gather(own_N, key), [replicas, 2 + FLAGS])
            sums_N = tf.reduce_sum(gathered, axis=0)
            return Made(sums_N[0], sums_N[1], sums_N[2:], tf.constant((2 + FLAGS) / len(steps)))

        @tf.function(autograph=False)
        def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor, flags_F: tf.Tensor, key) -> Made:
            """Run `replica` in each replica; return the fields of `Made` as per-replica values."""
            return strategy.run(replica, args=(data_S, first, rate, flags_F, key))

        return train

    def _train(
        self, steps: Sequence[Sequence[Batch]], first: tf.Tensor, rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Make steps in the replica that is traced now; return loss and examples of the first."""
        marks = self._local_marks()
        tables = {n: MarkedTable(table, marks[n], "") for n, table in self._tables.items()}
        model, optimizer = self._job.model, self._job.optimizer
        calls = [(batches, rate, first + index + 1) for index, batches in enumerate(steps)]
        return unroll(functools.partial(train_step, model, tables, optimizer), calls)[0]

    def exchange(self, key: tf.Tensor, most: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        """Exchange the changes of all marked rows in the replica that is traced now.

        Args:
            key: The first of `OPERATIONS` keys.
            most: Exchange only ids below this number, an int32 scalar, and only of tables that give
                lower ids to what is more frequent or have no more rows; `ALL_ROWS` for all rows.
            steps: The number of steps since the last exchange with this value of `most` or a higher
                one, an int32 scalar.

        Returns:
            The float32 numbers that this replica sent to each other one, an int32 scalar.
        """
        exchange, keys = self._exchange, (key + index for index in itertools.count())
        ids = self._marked_ids(most)
        sizes = [row_changes.packed_size(of_owner, self._layouts) for of_owner in ids]
        (size,) = exchange.largest([tf.reduce_max(sizes)], keys)
        vectors = [row_changes.pack(self._read(of_owner), self._layouts, size) for of_owner in ids]
        received = tf.reshape(exchange.distribute(tf.stack(vectors), next(keys)), [-1])
        merged = self._merge(received, size, steps)

        owned = {name: part.ids_U for name, part in merged.items()}
        (merged_size,) = exchange.largest([row_changes.packed_size(owned, self._layouts)], keys)
        vector = row_changes.pack(merged, self._layouts, merged_size)
        gathered = exchange.gather(vector, next(keys))
        for number in range(exchange.replicas):
            changes = row_changes.unpack(gathered, number * merged_size, self._layouts)
            for name, table in self._tables.items():
                of_table = self._before[name], self._layouts[name], changes[name]
                row_changes.write(table, *of_table)
        return size + merged_size

    def _marked_ids(self, most: tf.Tensor) -> list[dict[str, tf.Tensor]]:
        """Return for each owner the marked ids (U,) int32 by table, and remove their marks.

        For `most` see `exchange`.
        """
        replicas, specs = self._exchange.replicas, self._job.model.tables()
        by_owner: list[dict[str, tf.Tensor]] = [{} for _ in range(replicas)]
        with tf.device(HOST):
            for name, marks_V in self._local_marks().items():
                rows = self._tables[name].rows
                of_frequent = most if specs[name].by_frequency else 0
                rows = tf.where(rows > most, of_frequent, rows)
                marked_V = tf.identity(marks_V)
                ids_U = tf.cast(tf.reshape(tf.where(marked_V[:rows]), [-1]), tf.int32)
                parts = tf.dynamic_partition(ids_U, ids_U % replicas, replicas)
                for of_owner, part_U in zip(by_owner, parts, strict=True):
                    of_owner[name] = part_U
                with tf.control_dependencies([ids_U]):
                    marks_V.assign(tf.concat([tf.zeros([rows], tf.bool), marked_V[rows:]], axis=0))
        return by_owner

    def _read(self, ids: Mapping[str, tf.Tensor]) -> dict[str, Changes]:
        """Return the changes of the rows of the given ids, by table."""
        return {
            name: row_changes.read(
                self._tables[name], self._before[name], self._layouts[name], ids_U
            )
            for name, ids_U in ids.items()
        }

    def _merge(self, received: tf.Tensor, size: tf.Tensor, steps: tf.Tensor) -> dict[str, Changes]:
        """Return the merged changes of the rows that this replica owns, by table.

        `received` has the vectors of all replicas, each of length `size`, after `steps` steps.
        """
        parts = [
            row_changes.unpack(received, number * size, self._layouts)
            for number in range(self._exchange.replicas)
        ]
        return {
            name: row_changes.merge([part[name] for part in parts], layout, steps)
            for name, layout in self._layouts.items()
        }
