"""Tables on parameter servers: rows are read from there, and changed there, by many workers.

Only rows that a step touches travel: ids to the servers and values back, then ids and gradients.
A server changes the rows of all tables of a step itself, under one lock, so that rules that read
what they write stay exact where workers race. All that goes to a server at a time is one tensor, as
each is a message.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from .device import DeviceTable
from .sharded import ShardedTable

# Changes rows of a part on the device where they are: called with the table's name, the part, ids
# (U,), gradients (U, D), the rate and the number of the update, int64 from 1.
Change = Callable[[str, DeviceTable, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], None]
_FLOAT = 4  # bytes


class Served:
    """Tables by name, all dealt over the same servers.

    change: what an update does to the rows of a part.
    """

    def __init__(self, tables: Mapping[str, ShardedTable], change: Change):
        self._tables = dict(tables)
        first = next(iter(self._tables.values()))
        self._servers = [
            Server(part.device, {n: table.parts[k] for n, table in self._tables.items()}, change)
            for k, part in enumerate(first.parts)
        ]

    @property
    def device(self) -> str:
        """That of the first server, for what is counted in one place."""
        return self._servers[0].device

    def start(self, updates: int) -> None:
        """Counts updates from this number on."""
        for server in self._servers:
            server.updates.assign(updates)

    def gather(self, wanted: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The rows of ids, (U, D) float32, by table; one message to each server, and one back."""
        dealt = {name: self._tables[name].dealt(ids_U) for name, ids_U in wanted.items()}
        found: dict[str, list[tf.Tensor]] = {name: [] for name in wanted}
        for number, server in enumerate(self._servers):
            rows = server.read({name: ids[number] for name, (_, ids) in dealt.items()})
            for name, rows_MD in rows.items():
                found[name].append(rows_MD)
        return {name: tf.dynamic_stitch(dealt[name][0], parts) for name, parts in found.items()}

    def update(
        self, touched: Mapping[str, tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor
    ) -> list[tf.Tensor]:
        """Changes rows by their gradients, each table's as (ids (U,), values (U, D)).

        Ids are unique. Gives the number of the update at each server.
        """
        dealt = {name: self._tables[name].dealt(ids_U) for name, (ids_U, _) in touched.items()}
        numbers = []
        for number, server in enumerate(self._servers):
            parts = {
                name: (ids[number], tf.gather(touched[name][1], places[number]))
                for name, (places, ids) in dealt.items()
            }
            numbers.append(server.write(parts, rate))
        return numbers


class Server:
    """What one server has of each table; what is said to it runs on its device."""

    def __init__(self, device: str, parts: Mapping[str, DeviceTable], change: Change):
        self.device, self._parts, self._change = device, dict(parts), change
        with tf.device(device):
            self.updates = tf.Variable(tf.zeros([], tf.int64), trainable=False)
            self._mutex = tf.raw_ops.MutexV2(container="", shared_name=f"lexrow-{uuid.uuid4()}")
        self._locked: dict[tuple[str, ...], tf.types.experimental.ConcreteFunction] = {}

    def read(self, ids: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The rows of ids of each part, (M, D) float32."""
        sizes = [tf.size(ids_M) for ids_M in ids.values()]
        asked = tf.concat([sizes, *(tf.cast(ids_M, tf.int32) for ids_M in ids.values())], axis=0)
        with tf.device(self.device):
            heard = tf.identity(asked)
            parts = tf.split(heard[len(ids) :], heard[: len(ids)], num=len(ids))
            rows = [self._parts[n].gather(part) for n, part in zip(ids, parts, strict=True)]
            answer = tf.concat([tf.reshape(rows_MD, [-1]) for rows_MD in rows], axis=0)
        return self._apart(tf.identity(answer), list(ids), sizes)

    def write(
        self, touched: Mapping[str, tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor
    ) -> tf.Tensor:
        """Changes rows of each part, by their ids and gradients; the number of the update."""
        sizes = [tf.size(ids_M) for ids_M, _ in touched.values()]
        ids = [tf.cast(ids_M, tf.int32) for ids_M, _ in touched.values()]
        bits = tf.bitcast(tf.concat([sizes, *ids], axis=0), tf.float32)
        values = [tf.reshape(values_MD, [-1]) for _, values_MD in touched.values()]
        told = tf.concat([bits, *values], axis=0)
        with tf.device(self.device):
            return self._under_lock(tuple(touched))(told, rate)

    def _under_lock(self, names: tuple[str, ...]) -> tf.types.experimental.ConcreteFunction:
        """The function that changes the rows of these tables while nobody else does.

        All that it needs is there before it takes the lock, so that no worker that is lost can
        keep it. A function of its own, as TensorFlow would else let go of the locks of several
        servers one after the other, in which two workers can wait for each other.
        """

        @tf.function(autograph=False)
        def changed(told: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
            with tf.device(self.device):
                number = self.updates.assign_add(1)
                for name, (ids_M, values_MD) in self._unpacked(told, names).items():
                    self._change(name, self._parts[name], ids_M, values_MD, rate, number)
                return tf.identity(number)

        @tf.function(autograph=False)
        def locked(told: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
            with tf.device(self.device):
                with tf.control_dependencies([told, rate]):
                    lock = tf.raw_ops.MutexLock(mutex=self._mutex)
                with tf.control_dependencies([lock]):
                    number = changed(told, rate)
                with tf.control_dependencies([number]):
                    tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
                return number

        if names not in self._locked:
            with tf.init_scope():
                self._locked[names] = locked.get_concrete_function(
                    tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)
                )
        return self._locked[names]

    def _unpacked(
        self, told: tf.Tensor, names: Sequence[str]
    ) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
        """The ids and values of `write`."""
        sizes = tf.unstack(tf.bitcast(told[: len(names)], tf.int32), num=len(names))
        stop = len(names) + tf.add_n(sizes)
        ids = tf.split(tf.bitcast(told[len(names) : stop], tf.int32), sizes, num=len(names))
        values = self._apart(told[stop:], names, sizes)
        return {n: (ids_M, values[n]) for n, ids_M in zip(names, ids, strict=True)}

    def _apart(
        self, numbers: tf.Tensor, names: Sequence[str], sizes: Sequence[tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Rows of the parts, of which there are so many, out of all their numbers."""
        columns = [self._parts[name].columns for name in names]
        lengths = [size * count for size, count in zip(sizes, columns, strict=True)]
        split = tf.split(numbers, lengths, num=len(names))
        return {
            name: tf.reshape(part, (-1, count))
            for name, part, count in zip(names, split, columns, strict=True)
        }


def travelling(touched: Mapping[str, tuple[tf.Tensor, tf.Tensor]], ways: int) -> tf.Tensor:
    """Bytes of so many rows with their ids that travel so many times, float32."""
    sizes = [
        ways * _FLOAT * tf.cast(tf.size(ids_U), tf.float32) * (1.0 + values_UD.shape[1])
        for ids_U, values_UD in touched.values()
    ]
    return tf.add_n(sizes)


def devices() -> list[str]:
    """The devices of the parameter servers that this process is connected to."""
    every = tf.config.list_logical_devices("CPU")
    return [device.name for device in every if "/job:ps/" in device.name]
