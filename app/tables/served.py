"""Tables on parameter servers, whose rows many workers read and update.

Only the rows of a step, or of the steps of a call, travel: ids to the servers and rows back, in the
dtype of their table; then ids and gradients, or changes, to the servers. A server updates the rows
of all tables itself, under one lock. So an optimizer that reads rows before it writes them stays
exact when workers race. Each tensor is a message, so all data for a server is packed into one
tensor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from .device import DeviceTable
from .messages import Form, pack, unpack
from .sharded import ShardedTable

# A function that updates rows of a shard on its own device. It takes the name of the table, the
# shard, unique ids (U,), gradients (U, D), the learning rate, and the number of the update, int64
# from 1.
UpdateRows = Callable[[str, DeviceTable, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], None]
# Rows (U, D) of the table, then those of each of its slots, in order.
State = Sequence[tf.Tensor]


class Server:
    """The shards of all tables on one parameter server.

    Args:
        update_rows: The optimizer's update of the rows of a shard.
    """

    def __init__(self, device: str, shards: Mapping[str, DeviceTable], update_rows: UpdateRows):
        self.device, self._shards, self._update_rows = device, dict(shards), update_rows
        with tf.device(device):
            self.updates = tf.Variable(tf.zeros([], tf.int64), trainable=False)
            self._mutex = tf.raw_ops.MutexV2(container="", shared_name=f"lexrow-{uuid.uuid4()}")
        self._locked: dict[
            tuple[tuple[str, ...], bool], tf.types.experimental.ConcreteFunction
        ] = {}
        self._sizes: list[tf.Tensor] = []

    def take_sizes(self) -> list[tf.Tensor]:
        """Return the bytes of each message since the last call of this method, int32 scalars."""
        sizes, self._sizes = self._sizes, []
        return sizes

    def read(self, ids: Mapping[str, tf.Tensor], has_slots: bool) -> dict[str, State]:
        """Return rows of the shards, without the lock, with one message there and one back.

        Args:
            ids: Rows in the shard, (M,), by the name of the table.
            has_slots: Whether to return the rows of all slots, too.

        Returns:
            Rows (M, D), float32, by the name of the table.
        """
        sizes = [tf.size(ids_M) for ids_M in ids.values()]
        request = tf.concat([sizes, *(tf.cast(ids_M, tf.int32) for ids_M in ids.values())], axis=0)
        parts = {name: self._parts(name, has_slots) for name in ids}
        with tf.device(self.device):
            received = tf.identity(request)
            rows = tf.split(received[len(ids) :], received[: len(ids)], num=len(ids))
            answer = pack(
                [
                    tf.cast(part.gather(rows_M), part.dtype)  # exact: it is stored so
                    for of_table, rows_M in zip(parts.values(), rows, strict=True)
                    for part in of_table
                ]
            )
        answer = tf.identity(answer)
        self._sizes += [4 * tf.size(request), 2 * tf.size(answer)]
        forms = [
            Form(size, part.columns, part.dtype)
            for of_table, size in zip(parts.values(), sizes, strict=True)
            for part in of_table
        ]
        tensors = iter(unpack(answer, forms))
        return {
            name: [tf.cast(next(tensors), tf.float32) for _ in of_table]
            for name, of_table in parts.items()
        }

    def change(
        self, values: Mapping[str, tuple[tf.Tensor, State]], rate: tf.Tensor, is_gradient: bool
    ) -> tf.Tensor:
        """Send gradients, or changes to add, in one message; the server applies them to its rows.

        It does so under its lock, so changes of several workers come one after the other.

        Args:
            values: By the name of the table, rows in the shard (M,), and the gradients of the rows,
                or the changes of the rows and of each slot, float32.
            is_gradient: Whether the values are gradients; they count as an update.

        Returns:
            The number of updates so far, an int64 scalar.
        """
        sizes = tf.stack([tf.size(rows_M) for rows_M, _ in values.values()])
        rows = [tf.cast(rows_M, tf.int32) for rows_M, _ in values.values()]
        sent = [
            tf.cast(part_MD, dtype)
            for name, (_, parts) in values.items()
            for part_MD, (_, dtype) in zip(parts, self._columns(name, is_gradient), strict=True)
        ]
        message = pack([sizes, *rows, *sent])
        self._sizes.append(2 * tf.size(message))
        with tf.device(self.device):
            return self._apply_under_lock(tuple(values), is_gradient)(message, rate)

    def _apply_under_lock(
        self, names: tuple[str, ...], is_gradient: bool
    ) -> tf.types.experimental.ConcreteFunction:
        """Return a function of (message, rate) that changes these tables under the server's lock.

        It returns the number of updates. It is traced once for each tuple of names. It has all
        its inputs before it takes the lock, so a worker that is lost cannot hold the lock. It is a
        function of its own because TensorFlow would otherwise release the locks of several servers
        one after the other, and two workers could wait for each other.
        """

        @tf.function(autograph=False)
        def change(message: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
            """Change the rows in the message, and return the number of updates."""
            with tf.device(self.device):
                return tf.identity(self._apply(message, names, rate, is_gradient))

        @tf.function(autograph=False)
        def locked(message: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
            """Take the lock, call `change`, release the lock, and return the number."""
            with tf.device(self.device):
                with tf.control_dependencies([message, rate]):
                    lock = tf.raw_ops.MutexLock(mutex=self._mutex)
                with tf.control_dependencies([lock]):
                    number = change(message, rate)
                with tf.control_dependencies([number]):
                    tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
                return number

        key = (names, is_gradient)
        if key not in self._locked:
            with tf.init_scope():
                self._locked[key] = locked.get_concrete_function(
                    tf.TensorSpec([None], tf.uint16), tf.TensorSpec([], tf.float32)
                )
        return self._locked[key]

    def _apply(
        self, message: tf.Tensor, names: Sequence[str], rate: tf.Tensor, is_gradient: bool
    ) -> tf.Tensor:
        """Update the rows in a message by their gradients, or add the changes in it."""
        number = self.updates.assign_add(1) if is_gradient else self.updates.read_value()
        columns = {name: self._columns(name, is_gradient) for name in names}
        for name, (rows_M, values) in _unpack(message, columns).items():
            if is_gradient:
                self._update_rows(name, self._shards[name], rows_M, values[0], rate, number)
                continue
            for part, change_MD in zip(self._parts(name, has_slots=True), values, strict=True):
                part.assign(rows_M, part.gather(rows_M) + tf.cast(change_MD, tf.float32))
        return number

    def _parts(self, name: str, has_slots: bool) -> list[DeviceTable]:
        """Return the shard of a table, and its slots if `has_slots`."""
        shard = self._shards[name]
        return [shard, *(shard.slots.values() if has_slots else ())]

    def _columns(self, name: str, is_gradient: bool) -> list[tuple[int, tf.DType]]:
        """Return the number of columns and the dtype of each tensor that is sent for a table."""
        if is_gradient:
            return [(self._shards[name].columns, tf.float32)]
        return [(part.columns, part.dtype) for part in self._parts(name, has_slots=True)]


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
        """Set the counter of updates on every server."""
        for server in self._servers:
            server.updates.assign(updates)

    def exchanged_bytes(self) -> tf.Tensor:
        """Return the bytes of all messages of this trace since the last call, a float32 scalar.

        Messages that read rows of a streamed loss within a loop are left out, because their sizes
        cannot be used outside of the loop.
        """
        graph = tf.compat.v1.get_default_graph()
        taken = [size for server in self._servers for size in server.take_sizes()]
        sizes = [size for size in taken if size.graph is graph]
        return tf.cast(tf.add_n(sizes), tf.float32)

    def gather(self, ids: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the rows (U, D) of ids, with one message to each server and one back."""
        return {name: state[0] for name, state in self._read(ids, has_slots=False).items()}

    def gather_state(self, ids: Mapping[str, tf.Tensor]) -> dict[str, State]:
        """Return the rows (U, D) of ids, then those of each slot; otherwise as `gather`."""
        return self._read(ids, has_slots=True)

    def update(
        self, gradients: Mapping[str, tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor
    ) -> list[tf.Tensor]:
        """Send gradients to all servers, and return the number of the update at each, int64.

        Each server gets one message, even without any of its rows. Gradients of zeros are not sent,
        as they leave a row and its slots as they are (see `optimizers.base`).

        Args:
            gradients: Unique ids (U,) and gradients (U, D) by the name of the table.
        """
        sent = {name: (ids_U, [by_row]) for name, (ids_U, by_row) in gradients.items()}
        return [server.change(share, rate, True) for server, share in self._split(sent)]

    def add(self, changes: Mapping[str, tuple[tf.Tensor, State]]) -> list[tf.Tensor]:
        """Send changes of rows and slots to all servers, which add them; no update is counted.

        Rows without a change are not sent. Changes travel in the dtype of their table or slot.

        Args:
            changes: Unique ids (U,), and the changes of rows and slots, by the name of the table.
        """
        return [server.change(share, tf.zeros([]), False) for server, share in self._split(changes)]

    def _read(self, ids: Mapping[str, tf.Tensor], has_slots: bool) -> dict[str, State]:
        """Return the rows of ids, and those of all slots if `has_slots`, by table."""
        # A step splits its ids once: TensorFlow merges equal operations on the same ids.
        split = {name: self._tables[name].locate(ids_U).rows for name, ids_U in ids.items()}
        shares = [
            server.read({name: rows[number] for name, (_, rows) in split.items()}, has_slots)
            for number, server in enumerate(self._servers)
        ]
        return {
            name: [
                tf.dynamic_stitch(positions, list(of_servers))
                for of_servers in zip(*(share[name] for share in shares), strict=True)
            ]
            for name, (positions, _) in split.items()
        }

    def _split(
        self, values: Mapping[str, tuple[tf.Tensor, State]]
    ) -> list[tuple[Server, dict[str, tuple[tf.Tensor, State]]]]:
        """Return each server with its share of values that are not all zero, by table."""
        shares: list[dict[str, tuple[tf.Tensor, State]]] = [{} for _ in self._servers]
        for name, (ids_U, parts) in values.items():
            changed = tf.where(_is_changed(parts))[:, 0]
            kept = [tf.gather(part, changed) for part in parts]
            positions, rows = self._tables[name].locate(tf.gather(ids_U, changed)).rows
            for share, positions_M, rows_M in zip(shares, positions, rows, strict=True):
                share[name] = rows_M, [tf.gather(part, positions_M) for part in kept]
        return list(zip(self._servers, shares, strict=True))


def _unpack(
    message: tf.Tensor, columns: Mapping[str, Sequence[tuple[int, tf.DType]]]
) -> dict[str, tuple[tf.Tensor, list[tf.Tensor]]]:
    """Return the rows (M,) and the values (M, D) in a message of `Server.change`, by table.

    `columns` has the number of columns and the dtype of each tensor of values of a table.
    """
    count = len(columns)
    head = 2 * count  # each size takes two words
    sizes = tf.unstack(tf.bitcast(tf.reshape(message[:head], [count, 2]), tf.int32), num=count)
    forms = [Form(size, 0, tf.int32) for size in sizes]
    for size, of_table in zip(sizes, columns.values(), strict=True):
        forms += [Form(size, *form) for form in of_table]
    tensors = iter(unpack(message[head:], forms))
    rows = {name: next(tensors) for name in columns}
    return {name: (rows[name], [next(tensors) for _ in columns[name]]) for name in columns}


def _is_changed(parts: State) -> tf.Tensor:
    """Return whether a row has a number that is not 0 in any part, (U,) bool."""
    changed = [tf.reduce_any(tf.not_equal(part, 0.0), axis=1) for part in parts]
    return tf.reduce_any(tf.stack(changed), axis=0)


def devices() -> list[str]:
    """Return the names of the CPUs of the parameter servers that this process is connected to."""
    cpus = tf.config.list_logical_devices("CPU")
    return [device.name for device in cpus if "/job:ps/" in device.name]
