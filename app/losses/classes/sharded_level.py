"""The rows of words sharded over devices, with all words of a class on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...tables.variable import host_variable
from ...types import HOST
from ..base import Gather, Part, VectorWordPairs, WordGroups
from .levels import Entropy, Level


class ShardedLevel(Level):
    """A level whose groups are spread over the tables of several devices.

    The table of a device has the rows of its groups, in the order of the level. Parts of different
    devices share no rows, so the devices work at the same time.

    Args:
        table: The beginning of the names of the tables; the index of a device follows.
        bounds: As for `Level`.
        columns: As for `Level`.
        devices: The device of each group, (G,) int32.
    """

    def __init__(self, table: str, bounds: np.ndarray, columns: int, devices: np.ndarray):
        super().__init__(table, bounds, columns)
        sizes_G = np.diff(self.bounds)
        shift_G = np.zeros(self.groups, np.int64)  # from a row of the level to a row of its shard
        self._shards: list[tuple[np.ndarray, np.ndarray, Level]] = []
        for device in range(int(devices.max()) + 1):
            numbers_N = np.flatnonzero(devices == device)
            bounds_N = np.concatenate([[0], np.cumsum(sizes_G[numbers_N])])
            shift_G[numbers_N] = bounds_N[:-1] - self.bounds[numbers_N]
            rows = np.repeat(-shift_G[numbers_N], sizes_G[numbers_N]) + np.arange(bounds_N[-1])
            shard = Level(f"{table}{device}", bounds_N, columns, device)
            self._shards.append((numbers_N, rows.astype(np.int32), shard))
        self._devices = host_variable(devices, tf.int32)
        self._shift = host_variable(shift_G, tf.int32)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of each device's table, all 0 at first, by name."""
        return {name: spec for *_, shard in self._shards for name, spec in shard.tables().items()}

    def split(self, values_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of each shard's rows, by name of its table; see `Level.split`."""
        return {shard.table: values_V[rows] for _, rows, shard in self._shards}

    def parts(self, pairs: VectorWordPairs, entropy: Entropy) -> list[Part]:
        """Return a part for each device, with the pairs whose words it has; see `Level.parts`."""
        with tf.device(HOST):
            group_P = self.group_of(pairs.targets_P)
            device_P = tf.gather(self._devices, group_P)
            shifted = pairs._replace(targets_P=pairs.targets_P + tf.gather(self._shift, group_P))
            indices = [tf.where(device_P == device)[:, 0] for device in range(len(self._shards))]
        return [
            part
            for indices_Q, (*_, shard) in zip(indices, self._shards, strict=True)
            for part in shard.parts(shifted.select(indices_Q), entropy)
        ]

    def word_groups(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: tf.Tensor
    ) -> list[WordGroups]:
        """Return the words of each group, device by device; see `Level.word_groups`."""

        def renumbered(groups: WordGroups, rows: np.ndarray) -> WordGroups:
            """Return groups of a shard with the rows of the level as ids."""

            def words(*block: Any) -> tuple[tf.Tensor, tf.Tensor]:
                ids_M, log_p_NM = groups.words(*block)
                return tf.gather(rows, ids_M), log_p_NM

            return groups._replace(words=words)

        return [
            renumbered(groups, rows)
            for numbers_N, rows, shard in self._shards
            for groups in shard.word_groups(
                hidden_ND, gather, tf.gather(above_NG, numbers_N, axis=1)
            )
        ]
