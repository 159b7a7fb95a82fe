"""The rows of words sharded over devices, with all words of a class on one device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...tables.variable import host_variable
from ...types import HOST
from ..base import Gather, Pairs, Part, WordBlock
from .levels import Entropy, Level


class Shards:
    """A level whose groups are spread over the tables of several devices.

    The table of a device has the rows of its groups, in the order of the level. Parts of different
    devices share no rows, so the devices work at the same time.

    Args:
        level: The level as if it were on one device.
        devices: The device of each group, (G,) int32.
    """

    def __init__(self, level: Level, devices: np.ndarray):
        self._level = level
        sizes_G = np.diff(level.bounds)
        shift_G = np.zeros(level.groups, np.int64)  # from a row of the level to a row of its shard
        self._shards: list[tuple[np.ndarray, np.ndarray, Level]] = []
        for device in range(int(devices.max()) + 1):
            numbers_N = np.flatnonzero(devices == device)
            bounds_N = np.concatenate([[0], np.cumsum(sizes_G[numbers_N])])
            shift_G[numbers_N] = bounds_N[:-1] - level.bounds[numbers_N]
            rows = np.repeat(-shift_G[numbers_N], sizes_G[numbers_N]) + np.arange(bounds_N[-1])
            shard = Level(f"{level.table}{device}", bounds_N, level.columns, level.tile)
            self._shards.append((numbers_N, rows.astype(np.int32), shard))
        self._devices = host_variable(devices, tf.int32)
        self._shift = host_variable(shift_G, tf.int32)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of each device's table, all 0 at first, by name."""
        return {shard.table: shard.spec(device) for device, (*_, shard) in enumerate(self._shards)}

    def split(self, values_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of each shard's rows, by name of its table.

        Args:
            values_V: A value for each row of the level.
        """
        return {shard.table: values_V[rows] for _, rows, shard in self._shards}

    def parts(self, pairs: Pairs, entropy: Entropy) -> list[Part]:
        """Return a part for each device, not yet computed, with the pairs whose words it has.

        Args:
            pairs: Pairs whose targets are rows of the level.
            entropy: The loss of a block, `softmax.summed_loss` or `softmax.vector_losses`.
        """
        with tf.device(HOST):
            group_P = self._level.group_of(pairs.targets_P)
            device_P = tf.gather(self._devices, group_P)
            shifted = pairs._replace(targets_P=pairs.targets_P + tf.gather(self._shift, group_P))
            indices = [tf.where(device_P == device)[:, 0] for device in range(len(self._shards))]
        return [
            shard.part(shifted.select(indices_Q), entropy)
            for indices_Q, (*_, shard) in zip(indices, self._shards, strict=True)
        ]

    def word_blocks(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: np.ndarray
    ) -> Iterator[WordBlock]:
        """Yield the words of each group, device by device; see `Level.word_blocks`.

        Args:
            hidden_ND: N hidden vectors, float32.
            gather: Reads rows of the tables.
            above_NG: The log-probability of each group.
        """
        for numbers_N, rows, shard in self._shards:
            for block in shard.word_blocks(hidden_ND, gather, above_NG[:, numbers_N]):
                yield block._replace(ids_M=rows[block.ids_M])
