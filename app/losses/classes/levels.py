"""A level of classes: groups of rows in one table, with a softmax within each group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...tables.initial import Constant
from ...tables.variable import host_variable
from ...types import HOST
from .. import softmax
from ..base import Gather, GroupMembers, Part, VectorWordPairs, WordBlock
from ..softmax import Labels

_TILE = 8 << 20  # the most numbers of rows in memory at once: 32 MB
# The rows of a tile if only losses are computed. With 1,024 vectors at once (`softmax._SCORES`) the
# matrix product takes half of the time of 65,536 rows and 128 vectors.
_LOSS_TILE = 8192

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
        tile_rows = self._tile
        if entropy is softmax.vector_losses and np.diff(self.bounds).max() > _LOSS_TILE:
            tile_rows = min(self._tile or _LOSS_TILE, _LOSS_TILE)
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
            return tf.convert_to_tensor(-((first - end) // tile_rows))

        def block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, Labels]:
            """Return the rows of a tile, and the labels of the group's vectors in it."""
            first, end = interval(group)
            if tile_rows is not None:
                first += tile * tile_rows
                end = tf.minimum(end, first + tile_rows)
            labels = Labels(rows_P - first, weights_P, tile == 0)
            if order_P is not None:
                labels = labels.part(*members.span(group))
            return tf.range(first, end), labels

        part = Part(
            table=self.table,
            hidden_ND=pairs.hidden_ND,
            groups=1 if self.groups == 1 else tf.size(groups_G),
            members=members,
            tiles=tiles if tile_rows else None,
            block=block,
            loss=entropy,
            measure=softmax.log_sum_exp if tile_rows else None,
        )
        return [part]

    def word_blocks(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: np.ndarray
    ) -> Iterator[WordBlock]:
        """Yield the rows as words, in their order, a block for each group or tile.

        Rows are read when log-probabilities are asked for. Only a group of several tiles is also
        read when its first block is reached, for the normalizer.

        Args:
            hidden_ND: N hidden vectors, float32.
            gather: Reads rows of the table.
            above_NG: The log-probability of each group.
        """
        for group in range(self.groups):
            first, end = self.bounds[group : group + 2]
            step = self._tile or end - first
            starts = range(first, end, step)
            tiles = [np.arange(start, min(start + step, end), dtype=np.int32) for start in starts]
            bound_N = above_NG[:, group]
            normalizer_N = None
            if len(tiles) > 1:
                normalizer_N = tf.fill(bound_N.shape, -np.inf)
                for ids_M in tiles:
                    rows_MD = gather(self.table, tf.constant(ids_M))
                    normalizer_N = softmax.log_sum_exp(hidden_ND, rows_MD, normalizer_N)
            for ids_M in tiles:
                log_probability = functools.partial(
                    self._log_probability, hidden_ND, gather, ids_M, normalizer_N, bound_N
                )
                yield WordBlock(ids_M, bound_N, log_probability)

    def _log_probability(
        self,
        hidden_ND: tf.Tensor,
        gather: Gather,
        ids_M: np.ndarray,
        normalizer_N: tf.Tensor | None,
        above_N: np.ndarray,
    ) -> np.ndarray:
        """Return the log-probabilities of a block of words, (N, M) float32, `above_N` added.

        Without a normalizer the block has all words of its group.
        """
        rows_MD = gather(self.table, tf.constant(ids_M))
        scores_NM = tf.matmul(hidden_ND, rows_MD, transpose_b=True)
        if normalizer_N is None:
            normalizer_N = tf.reduce_logsumexp(scores_NM, axis=1)
        return (scores_NM - normalizer_N[:, tf.newaxis]).numpy() + above_N[:, np.newaxis]


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
