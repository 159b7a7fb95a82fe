"""The words' rows dealt over devices, whole classes at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...types import HOST
from ..base import Gather, Pairs, Part, WordBlock
from .levels import Entropy, Level


class Shards:
    """A level whose groups have their rows in a table of one of several devices.

    A device's table has the rows of its groups, by rising number; parts of different devices have
    nothing in common, so they are worked off side by side.

    level: the whole. devices: for each group its device, (G,) int32.
    """

    def __init__(self, level: Level, devices: np.ndarray):
        self._level = level
        sizes_G = np.diff(level.bounds)
        shift_G = np.zeros(level.groups, np.int64)  # from a row's number to that in its table
        self._shards: list[tuple[np.ndarray, np.ndarray, Level]] = []
        for device in range(int(devices.max()) + 1):
            numbers_N = np.flatnonzero(devices == device)
            bounds_N = np.concatenate([[0], np.cumsum(sizes_G[numbers_N])])
            shift_G[numbers_N] = bounds_N[:-1] - level.bounds[numbers_N]
            rows = np.repeat(-shift_G[numbers_N], sizes_G[numbers_N]) + np.arange(bounds_N[-1])
            shard = Level(f"{level.table}{device}", bounds_N, level.columns, level.tile)
            self._shards.append((numbers_N, rows.astype(np.int32), shard))
        with tf.device(HOST):  # with the ids
            self._devices = tf.Variable(devices, dtype=tf.int32, trainable=False)
            self._shift = tf.Variable(shift_G, dtype=tf.int32, trainable=False)

    def tables(self) -> dict[str, TableSpec]:
        """A table for each device."""
        return {shard.table: shard.spec(device) for device, (*_, shard) in enumerate(self._shards)}

    def dealt(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The values of the whole level's rows, (rows,), for the rows of each device's table."""
        whole_V = values[self._level.table]
        return {shard.table: whole_V[rows] for _, rows, shard in self._shards}

    def parts(self, pairs: Pairs, entropy: Entropy) -> list[Part]:
        """The part of each device; see `Level.part`."""
        with tf.device(HOST):
            group_P = self._level.group_of(pairs.targets_P)
            device_P = tf.gather(self._devices, group_P)
            moved = pairs._replace(targets_P=pairs.targets_P + tf.gather(self._shift, group_P))
            places = [tf.where(device_P == device)[:, 0] for device in range(len(self._shards))]
        return [
            shard.part(moved.select(there), entropy)
            for there, (*_, shard) in zip(places, self._shards, strict=True)
        ]

    def word_blocks(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: np.ndarray
    ) -> Iterator[WordBlock]:
        """The words of each group; see `Level.words`."""
        for numbers_N, rows, shard in self._shards:
            for block in shard.word_blocks(hidden_ND, gather, above_NG[:, numbers_N]):
                yield block._replace(ids_M=rows[block.ids_M])
