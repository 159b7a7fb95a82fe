"""Rows dealt over several devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..types import HOST
from .device import DeviceTable
from .initial import Constant, Initial, Uniform


@dataclasses.dataclass(frozen=True)
class Deal:
    """Which of `shards` parts each of V rows is in, and where there.

    rule: "mod" deals rows out in turn, which balances look-ups where ids are by falling frequency;
    "block" gives each part a run of them. Ids and rows of a part are tensors or arrays.
    """

    rows: int
    shards: int
    rule: str = "mod"

    def place(self, ids: Any) -> tuple[Any, Any]:
        """The part and the row there of every id, as the ids' type."""
        if self.rule == "mod":
            return ids % self.shards, ids // self.shards
        return ids // self._block, ids % self._block

    def ids(self, shard: int, rows: Any) -> Any:
        """The ids of rows of a part."""
        if self.rule == "mod":
            return rows * self.shards + shard
        return rows + shard * self._block

    def size(self, shard: int) -> int:
        """Rows of a part."""
        if self.rule == "mod":
            return len(range(shard, self.rows, self.shards))
        return len(range(self.rows)[shard * self._block :][: self._block])

    def imbalance(self, counts_V: np.ndarray) -> float:
        """Look-ups of the part that has most, over the mean, where ids occur as often as told."""
        shard_V, _ = self.place(np.arange(self.rows))
        lookups = np.bincount(shard_V, counts_V, self.shards)
        return float(lookups.max() / lookups.mean())

    @property
    def _block(self) -> int:
        return -(-self.rows // self.shards)


class ShardedTable(tf.Module):
    """A table (see `tables.base.Table`) whose rows are dealt over tables on several devices.

    Each is asked for its own rows only. The device of the first is where rows are read and written.
    Ids out of range are no rows of the part that they fall to either; see `VariableRows`.
    """

    def __init__(self, parts: Sequence[DeviceTable], deal: Deal):
        super().__init__()
        self.rows, self.columns = deal.rows, parts[0].columns
        self.device = parts[0].device
        self.deal = deal
        self.parts = list(parts)
        # Not tracked, as a checkpoint has the slots of the parts.
        object.__setattr__(self, "_slots", {})

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """The rows of the ids, (U, D) float32."""
        places, rows = self.dealt(ids_U)
        found = []
        for part, rows_M in zip(self.parts, rows, strict=True):
            with tf.device(part.device):
                found.append(part.gather(rows_M))
        return tf.dynamic_stitch(places, found)

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Adds to the rows of unique ids."""
        places, rows = self.dealt(ids_U)
        for part, places_M, rows_M in zip(self.parts, places, rows, strict=True):
            delta_MD = tf.gather(delta_UD, places_M)
            with tf.device(part.device):
                part.add(rows_M, delta_MD)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replaces the rows of unique ids."""
        places, rows = self.dealt(ids_U)
        for part, places_M, rows_M in zip(self.parts, places, rows, strict=True):
            rows_MD = tf.gather(rows_UD, places_M)
            with tf.device(part.device):
                part.assign(rows_M, rows_MD)

    def slot(self, name: str, columns: int, initial: float) -> ShardedTable:
        """A table of the same rows, dealt likewise; see `tables.base.Table.slot`."""
        if name not in self._slots:
            slots = [part.slot(name, columns, initial) for part in self.parts]
            self._slots[name] = ShardedTable(slots, self.deal)
        return self._slots[name]

    @property
    def slots(self) -> dict[str, ShardedTable]:
        """The slots made so far, by name."""
        return self._slots

    def bytes(self) -> int:
        """Bytes of the rows and of the slots made so far."""
        return sum(part.bytes() for part in self.parts)

    def is_finite(self) -> bool:
        """Whether every number of every row is finite."""
        return all(part.is_finite() for part in self.parts)

    def dealt(self, ids_U: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """For each part, the places among the ids of those that are there, and their rows."""
        # A step does this once: TensorFlow shares operations of the same kind on the same ids.
        with tf.device(HOST):
            shard_U, row_U = self.deal.place(ids_U)
            shard_U = tf.cast(shard_U, tf.int32)
            parts = len(self.parts)
            places = tf.dynamic_partition(tf.range(tf.size(ids_U)), shard_U, parts)
            return places, tf.dynamic_partition(row_U, shard_U, parts)


def local_devices() -> list[str]:
    """The devices that a table can be dealt over: all GPUs, or all CPUs where there is none."""
    gpus, cpus = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    return [device.name for device in gpus or cpus]


def make(
    rows: int,
    columns: int,
    initial: Initial,
    devices: Sequence[str],
    rule: str = "mod",
    seed: int = 0,
    **options: Any,
) -> ShardedTable:
    """A table over the devices, a part on each; a device may occur again.

    All rows start as those of a `DeviceTable`. rule: see `Deal`. seed, options: of the parts, as of
    a `DeviceTable`; the draws of each are its own, of a seed below 2^32.
    """
    deal, parts = Deal(rows, len(devices), rule), []
    for shard, device in enumerate(devices):
        start, draws = _share(initial, deal, shard), seed + (shard << 32)
        with tf.device(device):
            parts.append(DeviceTable(deal.size(shard), columns, start, seed=draws, **options))
    return ShardedTable(parts, deal)


def _share(initial: Initial, deal: Deal, shard: int) -> Initial:
    """The initial values of a part, made apart from the others' where they can be."""
    if initial is tf.zeros or isinstance(initial, Constant):
        return initial
    if hasattr(initial, "rows"):
        return _Share(initial, deal, shard)
    return lambda shape: tf.gather(
        initial((deal.rows, shape[1])), deal.ids(shard, tf.range(shape[0]))
    )


@dataclasses.dataclass(frozen=True)
class _Share:
    """What a part has of initial values that are made by id."""

    initial: Uniform
    deal: Deal
    shard: int

    def __call__(self, shape: tuple[int, int]) -> tf.Tensor:
        return self.rows(tf.range(shape[0], dtype=tf.int64), shape[1])

    def rows(self, rows_U: tf.Tensor, columns: int) -> tf.Tensor:
        return self.initial.rows(self.deal.ids(self.shard, rows_U), columns)
