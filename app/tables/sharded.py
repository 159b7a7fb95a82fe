"""A table whose rows are spread over several devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..types import HOST
from .base import Ids, Layout, LocatedIds, Slot
from .device import DeviceTable
from .initial import Constant, Initial, Unwritten, compiled_rows


class ShardedTable(tf.Module):
    """A `tables.base.Table` whose rows are spread over tables on several devices.

    Row i is in shard i % S of S shards, which balances look-ups where ids are by falling frequency.
    Each shard is asked for its own rows only. Rows arrive on the device of the first shard. An id
    out of range is out of range in its shard, too (see `VariableRows`).

    A run trains on a cache of the rows of some steps, on one device (see `cached`).

    Args:
        parts: The shards with their slots.
    """

    def __init__(self, parts: Sequence[DeviceTable]):
        super().__init__()
        self.rows, self.columns = sum(part.rows for part in parts), parts[0].columns
        self.device = parts[0].device
        self.parts = list(parts)
        self.dtype, self.rounding, self.seed = parts[0].dtype, parts[0].rounding, parts[0].seed
        self.is_stochastic = parts[0].is_stochastic
        self._gather_slots()

    @property
    def writes(self) -> tf.Variable:
        """The number of writes with stochastic rounding, kept in the first shard."""
        return self.parts[0].writes

    def locate(self, ids_U: Ids) -> LocatedIds:
        """Split ids by shard, on the host; see `Table.locate`.

        Returns:
            The ids, with two lists that have a tensor for each shard: the indices of its ids among
            the given ids, (M,) int32, and the rows there of these ids, (M,).
        """
        if isinstance(ids_U, LocatedIds):
            return ids_U
        with tf.device(HOST):
            shards = len(self.parts)
            shard_U = tf.cast(ids_U % shards, tf.int32)
            positions = tf.dynamic_partition(tf.range(tf.size(ids_U)), shard_U, shards)
            rows = tf.dynamic_partition(ids_U // shards, shard_U, shards)
        return LocatedIds(ids_U, (positions, rows))

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return the rows of the given ids; see `Table.gather`."""
        positions, rows = self.locate(ids_U).rows
        gathered = []
        for shard, rows_M in zip(self.parts, rows, strict=True):
            with tf.device(shard.device):
                gathered.append(shard.gather(rows_M))
        with tf.device(self.device):
            return tf.dynamic_stitch(positions, gathered)

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids; see `Table.assign`."""
        for shard, rows_M, rows_MD in self._split(ids_U, rows_UD):
            with tf.device(shard.device):
                shard.assign(rows_M, rows_MD)

    def assign_exact(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace rows without a random draw; see `RoundedTable`."""
        for shard, rows_M, rows_MD in self._split(ids_U, rows_UD):
            with tf.device(shard.device):
                shard.assign_exact(rows_M, rows_MD)

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make the optimizer state of each row in its shard; see `RoundedTable.add_slots`."""
        for shard in self.parts:
            shard.add_slots(slots)
        self._gather_slots()

    def bytes(self) -> int:
        """Return the size in bytes of the rows and of all slots."""
        return sum(shard.bytes() for shard in self.parts)

    def is_finite(self) -> bool:
        """Return whether every number of every row is finite; slots are not read."""
        return all(shard.is_finite() for shard in self.parts)

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: in one folder for each shard."""
        return {"kind": "sharded", "shards": len(self.parts), "rule": "mod"}

    def _split(
        self, ids_U: Ids, rows_UD: tf.Tensor
    ) -> Iterator[tuple[DeviceTable, tf.Tensor, tf.Tensor]]:
        """Yield each shard, its rows of the given ids, and their values."""
        positions, rows = self.locate(ids_U).rows
        for shard, positions_M, rows_M in zip(self.parts, positions, rows, strict=True):
            with tf.device(self.device):
                rows_MD = tf.gather(rows_UD, positions_M)
            yield shard, rows_M, rows_MD

    def snapshot(self, folder: Path) -> None:
        """Write the rows and slots of all shards; see `Checkpointable.snapshot`."""
        for number, shard in enumerate(self.parts):
            (folder / str(number)).mkdir()
            shard.snapshot(folder / str(number))

    def commit(self, folders: Sequence[Path]) -> None:
        """Do nothing: a snapshot is complete in itself."""

    def restore(self, folder: Path) -> None:
        """Read the files that `snapshot` wrote."""
        for number, shard in enumerate(self.parts):
            shard.restore(folder / str(number))

    def _gather_slots(self) -> None:
        """Replace `slots` by sharded tables, one for each slot that all shards have."""
        slots = {
            name: ShardedTable([shard.slots[name] for shard in self.parts])
            for name in self.parts[0].slots
        }
        # TensorFlow must not track these: their variables are those of the shards.
        object.__setattr__(self, "slots", slots)


def local_devices() -> list[str]:
    """Return the names of all GPUs of this process, or of all its CPUs if there is no GPU.

    These are the devices for the shards of a table. TensorFlow initializes its devices when they
    are listed.
    """
    with tf.init_scope():
        process = tf.zeros([]).device.rpartition("/device:")[0]
    listed = [d.name for kind in ("GPU", "CPU") for d in tf.config.list_logical_devices(kind)]
    # In a cluster, the devices of all processes are listed.
    local = [name for name in listed if name.startswith(("/device:", f"{process}/device:"))]
    return [name for name in local if "GPU" in name] or local


def make(
    rows: int, columns: int, initial: Initial, devices: Sequence[str], seed: int = 0, **options: Any
) -> ShardedTable:
    """Make a table with one shard on each device.

    Its rows start with the same values as the rows of a `DeviceTable` with the same `initial`.

    Args:
        devices: The devices of the shards. A device may occur more than once.
        seed: The seed of the draws of stochastic rounding, below 2^32. Each shard has its own.
    """
    parts = []
    for shard, device in enumerate(devices):
        ids = range(shard, rows, len(devices))
        values = _shard_values(initial, ids, rows, options.get("dtype", tf.float32))
        options["seed"] = seed + (shard << 32)
        with tf.device(device):
            parts.append(DeviceTable(len(ids), columns, values, **options))
    return ShardedTable(parts)


def _shard_values(initial: Initial, ids: range, rows: int, dtype: tf.DType) -> Initial:
    """Return a function for `DeviceTable` that makes the initial values of one shard.

    Values without a method `rows` are made for the whole table. XLA must not compile that, because
    it draws other random numbers.
    """
    if isinstance(initial, Constant | Unwritten):
        return initial

    def make_values(shape: tuple[int, int]) -> tf.Tensor:
        """Return the values of the shard, by their ids."""
        ids_U = ids.start + ids.step * tf.range(shape[0], dtype=tf.int64)
        if hasattr(initial, "rows"):
            return compiled_rows(initial, ids_U, shape[1], dtype)
        return tf.gather(initial((rows, shape[1])), ids_U)

    return make_values
