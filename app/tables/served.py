"""Tables on parameter servers, whose rows many workers read and update.

Only the rows of a step, or of the steps of a call, travel: ids to the servers and rows back, in the
dtype of their table; then ids and gradients, or changes, to the servers. A server updates the rows
of all tables itself, under one lock. So an optimizer that reads rows before it writes them stays
exact when workers race. Each tensor is a message, so all data for a server is packed into one
tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from .sharded import ShardedTable
from .table_server import Server, State, UpdateRows


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
        """Return the rows of ids, with one message to each server and one back.

        Args:
            ids: Ids (U,) by the name of the table.

        Returns:
            Rows (U, D), float32, by the name of the table.
        """
        return {name: state[0] for name, state in self._read(ids, has_slots=False).items()}

    def gather_state(self, ids: Mapping[str, tf.Tensor]) -> dict[str, State]:
        """Return the rows of ids and of their slots, with one message to each server and one back.

        Args:
            ids: Ids (U,) by the name of the table.

        Returns:
            By the name of the table, its rows (U, D) and those of each slot, float32.
        """
        return self._read(ids, has_slots=True)

    def update(
        self, gradients: Mapping[str, tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor
    ) -> list[tf.Tensor]:
        """Send gradients to all servers, which update their rows and count one update each.

        Each server gets one message, even without any of its rows. Gradients of zeros are not sent,
        as they leave a row and its slots as they are (see `optimizers.base`).

        Args:
            gradients: Unique ids (U,) and gradients (U, D) by the name of the table.
            rate: The learning rate, a float32 scalar.

        Returns:
            The number of the update at each server, int64 scalars, in the order of the servers.
        """
        sent = {name: (ids_U, [by_row]) for name, (ids_U, by_row) in gradients.items()}
        return [server.write(share, rate) for server, share in self._split(sent)]

    def add(self, changes: Mapping[str, tuple[tf.Tensor, State]]) -> list[tf.Tensor]:
        """Send changes of rows and slots to all servers, which add them; no update is counted.

        Rows without a change are not sent. Changes travel in the dtype of their table or slot.

        Args:
            changes: Unique ids (U,), and the changes of rows and slots, by the name of the table.

        Returns:
            The number of updates at each server, int64 scalars, in the order of the servers.
        """
        return [server.add(share) for server, share in self._split(changes)]

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


def _is_changed(parts: State) -> tf.Tensor:
    """Return whether a row has a number that is not 0 in any part, (U,) bool."""
    changed = [tf.reduce_any(tf.not_equal(part, 0.0), axis=1) for part in parts]
    return tf.reduce_any(tf.stack(changed), axis=0)


def devices() -> list[str]:
    """Return the names of the CPUs of the parameter servers that this process is connected to."""
    cpus = tf.config.list_logical_devices("CPU")
    return [device.name for device in cpus if "/job:ps/" in device.name]
