"""The softmax over all words, or over classes and over the words of each class."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...system.loops import loop
from ...system.xla import under_xla
from ...tables.base import TableSpec
from ...tables.device import host_variable
from ...tables.initial import Constant
from ...types import HOST, Rows
from .. import softmax
from ..base import (
    Gather,
    NormalizedLoss,
    Part,
    Predictions,
    SegmentMembers,
    VectorWordPairs,
    WordBlock,
    WordSegments,
)
from ..sampling import count_at_most
from ..softmax import Labels
from . import classes
from .padded import PaddedSegments

_TILE = 8 << 20  # the most numbers of rows in memory at once: 32 MB, 64 MB if they are narrow


class Level:
    """Rows of one table in consecutive segments.

    Args:
        bounds: Where each segment begins, and where the last one ends, (G + 1,) int.
        columns: The columns of the table, D. A segment of more than 32 MB, or 64 MB if it is narrow
            (see `softmax`), is split into tiles, and read twice, first for the normalizer.
        by_frequency: Whether lower rows are needed more often than higher ones.
    """

    def __init__(self, table: str, bounds: np.ndarray, columns: int, by_frequency: bool = True):
        self.table, self.columns = table, columns
        self.bounds = np.asarray(bounds, np.int64)
        self.segments, self.rows = len(bounds) - 1, int(bounds[-1])
        tile = max(_TILE // columns, 1) * (2 if columns <= softmax.NARROW else 1)
        self._by_frequency = by_frequency
        self._tile = tile if np.diff(self.bounds).max() > tile else None
        self._bounds = host_variable(self.bounds, tf.int32)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of the table by its name, all 0 at first."""
        spec = TableSpec(
            *(self.rows, self.columns, Constant(0.0)),
            by_frequency=self._by_frequency,
            is_streamed=True,
        )
        return {self.table: spec}

    def segment_of(self, rows_P: tf.Tensor) -> tf.Tensor:
        """Return the segment of each row, (P,) int32."""
        with tf.device(HOST):
            bounds = tf.constant(self.bounds, tf.int32) if under_xla() else self._bounds
            return count_at_most(bounds, rows_P) - 1

    def parts(self, pairs: VectorWordPairs, targets: int | None) -> list[Part]:
        """Return one part, not yet computed: each pair's softmax cross-entropy within its segment.

        Only segments with a pair are in it; without XLA, the single segment of a level always is.

        Args:
            pairs: Pairs whose targets are rows of this level, under XLA in ascending order if there
                are several segments. There a pair of another target is left out.
            targets: The number of words to predict, maybe each in several pairs, for a plan of
                memory; None if it is not known.
        """
        if under_xla() and not self._is_block(pairs):
            padded = PaddedSegments(
                self.table, self.bounds, pairs, self.segment_of(pairs.targets_P)
            )
            return [Part(self.table, pairs.hidden_ND, padded=padded)]
        members, segments_G = None, tf.zeros(1, tf.int32)
        if under_xla():
            is_row_P = (pairs.targets_P >= 0) & (pairs.targets_P < self.rows)
            pairs = pairs._replace(weights_P=tf.where(is_row_P, pairs.weights_P, 0.0))
        if self.segments > 1:
            pairs, members, segments_G = _sort_by_segment(pairs, self.segment_of(pairs.targets_P))
        elif pairs.owners_P is not None:
            with tf.device(HOST):
                count = tf.shape(pairs.owners_P)
                members = SegmentMembers(pairs.owners_P, tf.zeros_like(count), count)

        def span(segment: tf.Tensor) -> tuple[Any, Any]:
            """Return the first row of a segment of the part, and the row after its last."""
            return self._span(segments_G[segment]) if self.segments > 1 else (0, self.rows)

        def block(
            segment: tf.Tensor, tile: tf.Tensor, normalizer_M: tf.Tensor | None
        ) -> tuple[tf.Tensor, Labels]:
            """Return the rows of a tile, and the labels of the segment's vectors in it."""
            first, end = self._cut(*span(segment), tile)
            labels = Labels(pairs.targets_P - first, pairs.weights_P, tile == 0)
            if self.segments > 1:
                labels = labels.part(functools.partial(members.take, segment))
            return tf.range(first, end), labels._replace(normalizer_M=normalizer_M)

        part = Part(
            table=self.table,
            hidden_ND=pairs.hidden_ND,
            segments=1 if self.segments == 1 else tf.size(segments_G),
            rows=classes.rows_read(np.diff(self.bounds), targets),
            members=members,
            block=block,
            loss=softmax.losses,
            gradients=softmax.losses_and_gradients,
        )
        if self._tile is not None:
            part = part._replace(
                tiles=lambda segment: tf.convert_to_tensor(self._count_tiles(*span(segment))),
                measure=softmax.log_sum_exp,
            )
        return [part]

    def _is_block(self, pairs: VectorWordPairs) -> bool:
        """Return whether all vectors are scored with all rows at once, in static sizes."""
        count = pairs.targets_P.shape[0]
        is_whole = self.segments == 1 and self._tile is None and pairs.owners_P is None
        return is_whole and count is not None and count * self.rows <= softmax.SCORES

    def _span(self, segment: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the first row of a segment, and the row after its last, int32 scalars."""
        return self._bounds[segment], self._bounds[segment + 1]

    def _count_tiles(self, first: Any, end: Any) -> Any:
        """Return the number of tiles of a segment with the given rows."""
        return 1 if self._tile is None else -((first - end) // self._tile)

    def _cut(self, first: Any, end: Any, tile: Any) -> tuple[Any, Any]:
        """Return the first row of a tile of a segment, and the row after its last."""
        if self._tile is None:
            return first, end
        first += tile * self._tile
        return first, tf.minimum(end, first + self._tile)

    def log_probabilities(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: tf.Tensor
    ) -> tf.Tensor:
        """Return the log-probability of each row, (N, rows) float32; all rows are read at once.

        Args:
            above_NG: The log-probability of each segment.
        """
        rows_RD = gather(self.table, tf.range(self.rows))
        scores_RN = tf.matmul(rows_RD, hidden_ND, transpose_b=True)
        segment_R = self.segment_of(tf.range(self.rows))
        greatest_GN = tf.math.unsorted_segment_max(scores_RN, segment_R, self.segments)
        shares_RN = tf.exp(scores_RN - tf.gather(greatest_GN, segment_R))
        sums_GN = tf.math.unsorted_segment_sum(shares_RN, segment_R, self.segments)
        normalizer_GN = greatest_GN + tf.math.log(sums_GN) - tf.transpose(above_NG)
        return tf.transpose(scores_RN - tf.gather(normalizer_GN, segment_R))

    def word_segments(
        self, hidden_ND: tf.Tensor, gather: Gather, above_NG: tf.Tensor
    ) -> list[WordSegments]:
        """Return the rows as words, in their order, a block for each segment or tile.

        Rows are read when log-probabilities are asked for. Only a segment of several tiles is also
        read before, for the normalizer.

        Args:
            above_NG: The log-probability of each segment.
        """

        def blocks(segment: Any) -> tuple[Any, Callable[[Any], WordBlock]]:
            """Return the number of tiles of a segment, and the function of a tile."""
            span = self._span(segment)
            tiles = self._count_tiles(*span)
            above_N1 = tf.gather(above_NG, [segment], axis=1)

            def read(tile: Any) -> WordBlock:
                """Return the ids and the rows of a tile."""
                ids_M = tf.range(*self._cut(*span, tile))
                return ids_M, gather(self.table, ids_M)

            def add_tile(tile: tf.Tensor, carry_N: tf.Tensor) -> list[tf.Tensor]:
                """Return the log-sum-exp of the scores up to a tile, in a list."""
                sum_N = softmax.log_sum_exp(hidden_ND, read(tile)[1], carry_N)
                return [tf.ensure_shape(sum_N, carry_N.shape)]

            if self._tile is not None:
                start_N = tf.fill(tf.shape(hidden_ND)[:1], -math.inf)
                (measured_N,) = loop(tf.where(tiles > 1, tiles, 0), add_tile, [start_N])

            def words(tile: Any) -> WordBlock:
                """Return the ids and the log-probabilities of a tile."""
                ids_M, rows_MD = read(tile)
                scores_NM = tf.matmul(hidden_ND, rows_MD, transpose_b=True)
                normalizer_N = tf.reduce_logsumexp(scores_NM, axis=1)
                if self._tile is not None:
                    normalizer_N = tf.where(tiles > 1, measured_N, normalizer_N)
                return ids_M, scores_NM - normalizer_N[:, tf.newaxis] + above_N1

            return tiles, words

        return [WordSegments(above_NG, blocks)]


def _sort_by_segment(
    pairs: VectorWordPairs, segment_P: tf.Tensor
) -> tuple[VectorWordPairs, SegmentMembers, tf.Tensor]:
    """Sort pairs by segment; return them, and the members and ids of the segments with pairs."""
    with tf.device(HOST):
        order_P = tf.argsort(segment_P, stable=True)
        segments_G, _, counts_G = tf.unique_with_counts(tf.gather(segment_P, order_P))
        starts_G = tf.cumsum(counts_G, exclusive=True)
    pairs = pairs.select(order_P)
    return pairs, SegmentMembers(pairs.owners_P, starts_G, counts_G), segments_G


_NAMES = ("output", "classes", "superclasses")  # of the tables, words first


class ClassSoftmax(NormalizedLoss):
    """The loss -log P(c | h) - log P(w | c, h) of a word w of class c (Goodman 2001).

    Each of the two is a softmax. There may also be classes of classes, as a third level. Without
    classes the loss is the full softmax.

    A class is an interval of ids, so its rows are adjacent. The targets of a step are grouped by
    class. The rows of a class are read, differentiated and written once for all of its targets.

    Args:
        words: The number of words, V.
        starts: Where the segments of each level begin, top level first, as
            `losses.classes.classes.partition` returns it. Empty for the full softmax.
    """

    is_likelihood, lists_pairs = True, True

    def __init__(self, words: int, columns: int, starts: Sequence[np.ndarray] = ()):
        top = np.array([0, len(starts[0]) - 1 if len(starts) else words])
        bounds = [*reversed(starts), top]
        self._levels = [
            Level(name, bounds_G, columns) for name, bounds_G in zip(_NAMES, bounds, strict=False)
        ]

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of tables with a row for each word, and for each class of each level."""
        return {name: spec for level in self._levels for name, spec in level.tables().items()}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[Any, list[Part]]:
        """Return 0, and a part for each level, not yet computed."""
        pairs = VectorWordPairs.from_predictions(predictions, is_sorted=len(self._levels) > 1)
        parts = []
        for level in self._levels:
            parts += level.parts(pairs, predictions.targets_GM.shape.num_elements())
            pairs = pairs._replace(targets_P=level.segment_of(pairs.targets_P))
        return 0.0, parts

    def exact(self, predictions: Predictions, gather: Gather) -> list[Part]:
        """Return the parts of a class softmax, not yet computed, with a number for each vector."""
        return ClassSoftmax.loss(self, predictions, {})[1]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the logarithm of the share of the text of each word and of each class."""
        share_N = classes.probabilities(counts_V)
        priors: dict[str, np.ndarray] = {}
        for level in self._levels:
            priors[level.table] = np.log(share_N).astype(np.float32)
            share_N = np.add.reduceat(share_N, level.bounds[:-1])
        return priors

    def word_segments(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordSegments]:
        """Return the words of each class; see `NormalizedLoss`.

        The rows of all classes are read at once. The bound of a class is its log-probability.
        """
        hidden_ND = tf.cast(hidden_ND, tf.float32)
        above_NG = tf.zeros_like(hidden_ND[:, :1])
        for level in reversed(self._levels[1:]):
            above_NG = level.log_probabilities(hidden_ND, gather, above_NG)
        return self._levels[0].word_segments(hidden_ND, gather, above_NG)
