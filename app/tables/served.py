"""Tables on parameter servers, whose rows many workers read and update.

Only the rows of a step travel: ids to the servers and rows back, then ids and gradients to the
servers. A server updates the rows of all tables of a step itself, under one lock. So an optimizer
that reads rows before it writes them stays exact when workers race. Each tensor is a message, so
all data for a server is packed into one tensor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from .device import DeviceTable
from .sharded import ShardedTable

# A function that updates rows of a shard on its own device. It takes the name of the table, the
# shard, unique ids (U,), gradients (U, D), the learning rate, and the number of the update, int64
# from 1.
UpdateRows = Callable[[str, DeviceTable, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], None]
_FLOAT_BYTES = 4


class ServedTables:
    """Tables that are all sharded over the same parameter servers.

    Args:
        tables: The tables by name. Shard k of each table is on server k.
        update_rows: The optimizer's update of the rows of a shard.
    """

    def __init__(self, tables: Mapping[str, ShardedTable], update_rows: UpdateRows):
        self._tables = dict(tables)
        first = next(iter(self._tables.values()))
        self._servers = [
            Server(
                shard.device,
                {name: table.parts[k] for name, table in self._tables.items()},
                update_rows,
            )
            for k, shard in enumerate(first.parts)
        ]

    @property
    def device(self) -> str:
        """The device of the first server, for variables that exist once."""
        return self._servers[0].device

    def start(self, updates: int) -> None:
        """Set the counter of updates on every server.

        Args:
            updates: The number of updates made so far.
        """
        for server in self._servers:
            server.updates.assign(updates)

    def gather(self, ids: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the rows of ids, with one message to each server and one back.

        Args:
            ids: Ids (U,) by the name of the table.

        Returns:
            Rows (U, D), float32, by the name of the table.
        """
        # A step splits its ids once: TensorFlow merges equal operations on the same ids.
        split = {name: self._tables[name].locate(ids_U).rows for name, ids_U in ids.items()}
        gathered: dict[str, list[tf.Tensor]] = {name: [] for name in ids}
        for number, server in enumerate(self._servers):
            rows = server.read({name: rows[number] for name, (_, rows) in split.items()})
            for name, rows_MD in rows.items():
                gathered[name].append(rows_MD)
        return {name: tf.dynamic_stitch(split[name][0], rows) for name, rows in gathered.items()}

    def update(
        self, gradients: Mapping[str, tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor
    ) -> list[tf.Tensor]:
        """Send gradients to all servers, which update their rows and count one update each.

        Each server gets one message, even without any of its rows.

        Args:
            gradients: Unique ids (U,) and gradients (U, D) by the name of the table.
            rate: The learning rate, a float32 scalar.

        Returns:
            The number of the update at each server, int64 scalars, in the order of the servers.
        """
        split = {
            name: self._tables[name].locate(ids_U).rows for name, (ids_U, _) in gradients.items()
        }
        numbers = []
        for number, server in enumerate(self._servers):
            shares = {
                name: (rows[number], tf.gather(gradients[name][1], positions[number]))
                for name, (positions, rows) in split.items()
            }
            numbers.append(server.write(shares, rate))
        return numbers


class Server:
    """The shards of all tables on one parameter server.

    Args:
        device: The device of the server.
        shards: The shards by the name of the table.
        update_rows: The optimizer's update of the rows of a shard.
    """

    def __init__(self, device: str, shards: Mapping[str, DeviceTable], update_rows: UpdateRows):
        self.device, self._shards, self._update_rows = device, dict(shards), update_rows
        with tf.device(device):
            self.updates = tf.Variable(tf.zeros([], tf.int64), trainable=False)
            self._mutex = tf.raw_ops.MutexV2(container="", shared_name=f"lexrow-{uuid.uuid4()}")
        self._locked: dict[tuple[str, ...], tf.types.experimental.ConcreteFunction] = {}

    def read(self, ids: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return rows of the shards, without the lock, with one message there and one back.

        Args:
            ids: Rows in the shard, (M,), by the name of the table.

        Returns:
            Rows (M, D), float32, by the name of the table.
        """
        sizes = [tf.size(ids_M) for ids_M in ids.values()]
        request = tf.concat([sizes, *(tf.cast(ids_M, tf.int32) for ids_M in ids.values())], axis=0)
        with tf.device(self.device):
            received = tf.identity(request)
            parts = tf.split(received[len(ids) :], received[: len(ids)], num=len(ids))
            rows = [self._shards[name].gather(part) for name, part in zip(ids, parts, strict=True)]
            answer = tf.concat([tf.reshape(rows_MD, [-1]) for rows_MD in rows], axis=0)
        return self._unpack_rows(tf.identity(answer), list(ids), sizes)

    def write(
        self, gradients: Mapping[str, tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor
    ) -> tf.Tensor:
        """Send gradients in one message; the server counts an update and updates the rows.

        It does so under its lock, so updates of several workers come one after the other.

        Args:
            gradients: Rows in the shard (M,) and gradients (M, D), float32, by the name of the
                table.
            rate: The learning rate, a float32 scalar.

        Returns:
            The number of the update, an int64 scalar from 1.
        """
        sizes = [tf.size(ids_M) for ids_M, _ in gradients.values()]
        ids = [tf.cast(ids_M, tf.int32) for ids_M, _ in gradients.values()]
        bits = tf.bitcast(tf.concat([sizes, *ids], axis=0), tf.float32)
        values = [tf.reshape(values_MD, [-1]) for _, values_MD in gradients.values()]
        message = tf.concat([bits, *values], axis=0)
        with tf.device(self.device):
            return self._update_under_lock(tuple(gradients))(message, rate)

    def _update_under_lock(self, names: tuple[str, ...]) -> tf.types.experimental.ConcreteFunction:
        """Return a function of (message, rate) that updates these tables under the server's lock.

        It returns the number of the update. It is traced once for each tuple of names. It has all
        its inputs before it takes the lock, so a worker that is lost cannot hold the lock. It is a
        function of its own because TensorFlow would otherwise release the locks of several servers
        one after the other, and two workers could wait for each other.
        """

        @tf.function(autograph=False)
        def update(message: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
            """Count an update, update the rows in the message, and return the number."""
            with tf.device(self.device):
                number = self.updates.assign_add(1)
                for name, (ids_M, values_MD) in self._unpack(message, names).items():
                    shard = self._shards[name]
                    self._update_rows(name, shard, ids_M, values_MD, rate, number)
                return tf.identity(number)

        @tf.function(autograph=False)
        def locked(message: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
            """Take the lock, call `update`, release the lock, and return the number."""
            with tf.device(self.device):
                with tf.control_dependencies([message, rate]):
                    lock = tf.raw_ops.MutexLock(mutex=self._mutex)
                with tf.control_dependencies([lock]):
                    number = update(message, rate)
                with tf.control_dependencies([number]):
                    tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
                return number

        if names not in self._locked:
            with tf.init_scope():
                self._locked[names] = locked.get_concrete_function(
                    tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)
                )
        return self._locked[names]

    def _unpack(
        self, message: tf.Tensor, names: Sequence[str]
    ) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
        """Return the rows in the shard (M,) and the gradients (M, D) in a message, by table."""
        sizes = tf.unstack(tf.bitcast(message[: len(names)], tf.int32), num=len(names))
        stop = len(names) + tf.add_n(sizes)
        ids = tf.split(tf.bitcast(message[len(names) : stop], tf.int32), sizes, num=len(names))
        values = self._unpack_rows(message[stop:], names, sizes)
        return {name: (ids_M, values[name]) for name, ids_M in zip(names, ids, strict=True)}

    def _unpack_rows(
        self, numbers: tf.Tensor, names: Sequence[str], sizes: Sequence[tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Split the numbers (any number,) of all tables into the rows (M, D) of each table.

        `sizes` are the numbers of rows of the tables, in the order of `names`.
        """
        columns = [self._shards[name].columns for name in names]
        lengths = [size * count for size, count in zip(sizes, columns, strict=True)]
        split = tf.split(numbers, lengths, num=len(names))
        return {
            name: tf.reshape(part, (-1, count))
            for name, part, count in zip(names, split, columns, strict=True)
        }


def exchanged_bytes(gradients: Mapping[str, tuple[tf.Tensor, tf.Tensor]], trips: int) -> tf.Tensor:
    """Return how many bytes of rows and ids processes exchange, 4 bytes for each number.

    Args:
        gradients: Unique ids (U,) and gradients (U, D) by the name of the table.
        trips: How many times each row is sent, each time with its id.

    Returns:
        A scalar, float32.
    """
    sizes = [
        trips * _FLOAT_BYTES * tf.cast(tf.size(ids_U), tf.float32) * (1.0 + values_UD.shape[1])
        for ids_U, values_UD in gradients.values()
    ]
    return tf.add_n(sizes)


def devices() -> list[str]:
    """Return the names of the CPUs of the parameter servers that this process is connected to."""
    cpus = tf.config.list_logical_devices("CPU")
    return [device.name for device in cpus if "/job:ps/" in device.name]
