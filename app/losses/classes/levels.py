"""A level of classes: groups of rows in one table, with a softmax within each group."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...system.loops import loop
from ...tables.base import TableSpec
from ...tables.initial import Constant
from ...tables.variable import host_variable
from ...types import HOST
from .. import softmax
from ..base import Gather, GroupMembers, Part, VectorWordPairs, WordGroups
from ..softmax import Labels

_TILE = 8 << 20  # the most numbers of rows in memory at once: 32 MB


# The loss of a block, from labels, vectors, rows and the normalizer of the vectors' scores:
# `softmax.summed_loss` or `softmax.vector_losses`.
Entropy = Callable[[Labels, tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]


class Level:
    """Rows of one table in consecutive groups.

    Args:
        table: The name of the table.
        bounds: Where each group begins, and where the last one ends, (G + 1,) int.
        columns: The columns of the table, D. A group of more than 32 MB is split into tiles, and
            read twice, first for the normalizer of its scores.
        device: The index of the device that holds the table.
        by_frequency: Whether lower rows are needed more often than higher ones.
    """

    def __init__(
        self,
        table: str,
        bounds: np.ndarray,
        columns: int,
        device: int = 0,
        by_frequency: bool = True,
    ):
        self.table, self.columns, self._device = table, columns, device
        self.bounds = np.asarray(bounds, np.int64)
        self.groups, self.rows = len(bounds) - 1, int(bounds[-1])
        tile = max(_TILE // columns, 1)
        self._by_frequency = by_frequency
        self._tile = tile if np.diff(self.bounds).max() > tile else None
        self._bounds = host_variable(self.bounds, tf.int32)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of the table by its name, all 0 at first."""
        spec = TableSpec(
            self.rows,
            self.columns,
            Constant(0.0),
            by_frequency=self._by_frequency,
            device=self._device,
        )
        return {self.table: spec}

    def split(self, values_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values of each table's rows, by name of the table.

        Args:
            values_V: A value for each row of the level.
        """
        return {self.table: values_V}

    def group_of(self, rows_P: tf.Tensor) -> tf.Tensor:
        """Return the group of each row, (P,) int32."""
        with tf.device(HOST):
            return tf.searchsorted(self._bounds, rows_P, side="right") - 1

    def parts(self, pairs: VectorWordPairs, entropy: Entropy) -> list[Part]:
        """Return one part, not yet computed: each pair's softmax cross-entropy within its group.

        Only groups with a pair are in it; the single group of a level always is.

        Args:
            pairs: Pairs whose targets are rows of this level.
            entropy: The loss of a block, `softmax.summed_loss` or `softmax.vector_losses`.
        """
        rows_P, weights_P = pairs.targets_P, pairs.weights_P
        with tf.device(HOST):
            if self.groups == 1:
                members, order_P, groups_G = _one_group(pairs), None, tf.zeros(1, tf.int32)
            else:
                members, order_P, groups_G = _sort_by_group(pairs, self.group_of(pairs.targets_P))
                rows_P = tf.gather(rows_P, order_P)
        if order_P is not None:
            weights_P = tf.gather(weights_P, order_P)

        def interval(group: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Return the first row of a group of the part, and the row after its last."""
            if self.groups == 1:
                return 0, self.rows
            index = groups_G[group]
            return self._bounds[index], self._bounds[index + 1]

        def tiles(group: tf.Tensor) -> tf.Tensor:
            """Return the number of tiles of a group of the part."""
            first, end = interval(group)
            return tf.convert_to_tensor(-((first - end) // self._tile))

        def block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, Labels]:
            """Return the rows of a tile, and the labels of the group's vectors in it."""
            first, end = interval(group)
            if self._tile is not None:
                first += tile * self._tile
                end = tf.minimum(end, first + self._tile)
            labels = Labels(rows_P - first, weights_P, tile == 0)
            if order_P is not None:
                labels = labels.part(*members.span(group))
            return tf.range(first, end), labels

        part = Part(
            table=self.table,
            hidden_ND=pairs.hidden_ND,
            groups=1 if self.groups == 1 else tf.size(groups_G),
            members=members,
            tiles=tiles if self._tile else None,
            block=block,
            loss=entropy,
            measure=softmax.log_sum_exp if self._tile else None,
        )
        return [part]

    def log_probabilities(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: tf.Tensor
    ) -> tf.Tensor:
        """Return the log-probability of each row, (N, rows) float32; all rows are read at once.

        Args:
            hidden_ND: N hidden vectors, float32.
            gather: Reads rows of the table.
            above_NG: The log-probability of each group.
        """
        rows_RD = gather(self.table, tf.range(self.rows))
        scores_RN = tf.matmul(rows_RD, hidden_ND, transpose_b=True)
        group_R = self.group_of(tf.range(self.rows))
        greatest_GN = tf.math.unsorted_segment_max(scores_RN, group_R, self.groups)
        shares_RN = tf.exp(scores_RN - tf.gather(greatest_GN, group_R))
        sums_GN = tf.math.unsorted_segment_sum(shares_RN, group_R, self.groups)
        normalizer_GN = greatest_GN + tf.math.log(sums_GN) - tf.transpose(above_NG)
        return tf.transpose(scores_RN - tf.gather(normalizer_GN, group_R))

    def word_groups(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: tf.Tensor
    ) -> list[WordGroups]:
        """Return the rows as words, in their order, a block for each group or tile.

        Rows are read when log-probabilities are asked for. Only a group of several tiles is also
        read before, for the normalizer.

        Args:
            hidden_ND: N hidden vectors, float32.
            gather: Reads rows of the table.
            above_NG: The log-probability of each group.
        """

        def interval(group: int | tf.Tensor) -> tuple[Any, Any]:
            """Return the first row of a group, and the row after its last."""
            if isinstance(group, int):
                return int(self.bounds[group]), int(self.bounds[group + 1])
            return self._bounds[group], self._bounds[group + 1]

        def blocks(group: int | tf.Tensor) -> int | tf.Tensor:
            """Return the number of tiles of a group."""
            if self._tile is None:
                return 1
            first, end = interval(group)
            return -((first - end) // self._tile)

        def ids(group: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
            """Return the ids of a tile, (M,) int32."""
            first, end = interval(group)
            if self._tile is not None:
                first += block * self._tile
                end = tf.minimum(end, first + self._tile)
            return tf.range(first, end)

        def add_tile(group: tf.Tensor, block: tf.Tensor, carry_N: tf.Tensor) -> list[tf.Tensor]:
            """Return the log-sum-exp of the scores up to a tile, in a list."""
            rows_MD = gather(self.table, ids(group, block))
            sum_N = softmax.log_sum_exp(hidden_ND, rows_MD, carry_N)
            return [tf.ensure_shape(sum_N, carry_N.shape)]

        def measure(group: tf.Tensor) -> tf.Tensor | None:
            """Return the log-sum-exp of the scores of a group, not computed if it has one tile."""
            start_N = tf.fill(tf.shape(hidden_ND)[:1], -math.inf)
            if self._tile is None:
                return None
            count, tile = blocks(group), functools.partial(add_tile, group)
            return tf.cond(count > 1, lambda: loop(count, tile, [start_N])[0], lambda: start_N)

        def words(
            group: tf.Tensor, block: tf.Tensor, normalizer_N: tf.Tensor | None
        ) -> tuple[tf.Tensor, tf.Tensor]:
            """Return the ids and the log-probabilities of a tile."""
            ids_M = ids(group, block)
            scores_NM = tf.matmul(hidden_ND, gather(self.table, ids_M), transpose_b=True)
            own = functools.partial(tf.reduce_logsumexp, scores_NM, axis=1)
            if normalizer_N is None:
                normalizer_N = own()
            else:
                measured_N = normalizer_N
                normalizer_N = tf.cond(blocks(group) > 1, lambda: measured_N, own)
            above_N1 = tf.gather(above_NG, [group], axis=1)
            return ids_M, scores_NM - normalizer_N[:, tf.newaxis] + above_N1

        return [WordGroups(above_NG, blocks, measure, words)]


def _one_group(pairs: VectorWordPairs) -> GroupMembers | None:
    """Return the members of one group of all pairs, or None if pair p has vector p."""
    if pairs.owners_P is None:
        return None
    count = tf.shape(pairs.owners_P)
    return GroupMembers(pairs.owners_P, tf.zeros_like(count), count)


def _sort_by_group(
    pairs: VectorWordPairs, group_P: tf.Tensor
) -> tuple[GroupMembers, tf.Tensor, tf.Tensor]:
    """Sort pairs by group, and drop the groups without pairs.

    Returns:
        The members of each group, the indices of the pairs by ascending group (P,), and the groups
        (G,), ascending.
    """
    order_P = tf.argsort(group_P, stable=True)
    groups_G, _, counts_G = tf.unique_with_counts(tf.gather(group_P, order_P))
    owners_P = order_P if pairs.owners_P is None else tf.gather(pairs.owners_P, order_P)
    starts_G = tf.cumsum(counts_G, exclusive=True)
    return GroupMembers(owners_P, starts_G, counts_G), order_P, groups_G


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
