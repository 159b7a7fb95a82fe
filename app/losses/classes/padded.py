"""Softmaxes within segments of rows, in blocks of static sizes, as XLA needs them.

The segments are cut into tiles of S rows, the last tile of each padded. A block has B tiles and M
pairs for each: the pairs of a vector and a word whose word is in the segment. So three batched
products score and differentiate a block, however many segments it has. A block has all tiles of its
segments, and so the normalizers of its pairs. Only a segment that is larger than a block is read
twice, first for the normalizers, as `losses.stream` does.

Segments with few pairs and with many have blocks of their own. The number of blocks, and of chunks
of M pairs of a block, is counted in each step, so that no pair is left out.

Keras traces a step for batches of any size, and XLA compiles it for each. Where the number of pairs
is not known when the step is traced, blocks are as large as for `_PAIRS[-1]` pairs at most.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla  # no public way to stop XLA's fusion

from ...system.loops import loop
from ..base import Gather, VectorWordPairs
from ..stream import Update

# The most numbers in memory at once: of the rows of a block, and of its vectors or scores.
_ROWS, _SCORES = 48 << 20, 32 << 20
_TILE_ROWS = 8, 128  # the least and the most, unless a segment is larger than a block
# Segments of at most so many pairs are in blocks of as many, the others in blocks of the last.
_PAIRS = 32, 512, 8192
_NO_ROW = tf.int32.max  # XLA drops a row that is written to it


class _Shape(NamedTuple):
    """The blocks of the segments that have from `least` to `most` pairs.

    Attributes:
        tiles: B.
        pairs: M.
        step: How many tiles further the next block begins. Tiles of a segment that began in the
            block before are left out, so a block can have all tiles of its segments.
        places: The most tiles that a step can have in these blocks.
    """

    least: int
    most: int
    tiles: int
    pairs: int | tf.Tensor
    step: int
    places: int


class _Block(NamedTuple):
    """B tiles; where `is_tile_B` is False, the others are of any tile."""

    shape: _Shape
    is_tile_B: tf.Tensor
    place_B: tf.Tensor  # in the list of the tiles of all blocks
    slot_B: tf.Tensor  # equal for the tiles of a segment
    first_B: tf.Tensor  # row
    ids_U: tf.Tensor  # of the B S rows, _NO_ROW for padding
    start_B: tf.Tensor  # of the pairs of its segment
    count_B: tf.Tensor
    rows_BSD: tf.Tensor  # 0 for padding
    normalizer_P: tf.Tensor | None = None  # of each pair over its segment, if this was measured


class PaddedSegments:
    """The softmax cross-entropy of pairs, each within the segment of its word.

    Args:
        table: The name of the table that has the rows.
        bounds: Where each segment begins, and where the last one ends, (G + 1,) int64.
        pairs: Pairs by ascending row, in any order if there is one segment. Pairs whose row is not
            in any segment are left out.
        segment_P: The segment of each pair.
    """

    def __init__(
        self, table: str, bounds: np.ndarray, pairs: VectorWordPairs, segment_P: tf.Tensor
    ):
        self._table, self._bounds, self._pairs = table, bounds, pairs
        sizes_G, columns = np.diff(bounds), pairs.hidden_ND.shape[1]
        largest, fitting = int(sizes_G.max()), max(_ROWS // columns, 1)
        if len(sizes_G) == 1 or largest > fitting:
            self._size, self._is_measured = min(largest, fitting), largest > fitting
        else:
            half = max(int(sizes_G.mean() / 2), 1)
            size = min(max(1 << (half.bit_length() - 1), _TILE_ROWS[0]), _TILE_ROWS[1])
            self._size, self._is_measured = min(largest, size), False
        tiles_G = -(-sizes_G // self._size)
        self._most_tiles = 1 if self._is_measured else int(tiles_G.max())
        self._segment_F = np.repeat(np.arange(len(sizes_G)), tiles_G)
        self._number_F = np.arange(len(self._segment_F)) - np.repeat(
            np.cumsum(tiles_G) - tiles_G, tiles_G
        )
        targets_P = pairs.targets_P
        self._known = targets_P.shape[0]
        self._count = tf.size(targets_P) if self._known is None else self._known
        self._places = _least(len(self._segment_F), self._count * int(tiles_G.max()))
        is_listed_P = tf.range(self._count) < (self._count if pairs.count is None else pairs.count)
        is_own_P = is_listed_P & (targets_P >= 0) & (targets_P < int(bounds[-1]))
        self._counts_G = tf.math.unsorted_segment_sum(
            tf.cast(is_own_P, tf.int32), tf.where(is_own_P, segment_P, 0), len(sizes_G)
        )
        before = tf.reduce_sum(tf.cast(is_listed_P & (targets_P < 0), tf.int32))
        self._starts_G = before + tf.cumsum(self._counts_G, exclusive=True)

    @property
    def gradient_bytes(self) -> int:
        """The bytes of the gradients of all rows that the pairs may need; 0 if not known."""
        if self._known is None:
            return 0
        return self._places * self._size * self._pairs.hidden_ND.shape[1] * tf.float32.size

    def differentiate(
        self,
        gather: Gather,
        update: Update | None = None,
        by_rows_alone: bool = False,
        by_vector: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, Sequence[tf.Tensor]]:
        """Compute and differentiate the loss; see `losses.stream.differentiate`.

        Without `update`, the ids of the rows have the largest int32 for padding.
        """
        hidden_ND = self._pairs.hidden_ND
        by_row: list[tf.Tensor] = []
        if update is None:
            shape = self._places, self._size
            by_row = [tf.fill(shape, _NO_ROW), tf.zeros([*shape, hidden_ND.shape[1]])]

        def visit(block: _Block, *carried: tf.Tensor) -> list:
            """Add the loss and the gradients of a block, and update its rows."""
            value, by_hidden_ND, *by_row = carried
            rows_BSD = block.rows_BSD

            def add(chunk: tf.Tensor | int, *sums: tf.Tensor) -> list[tf.Tensor]:
                """Add the loss and the gradients of a chunk of pairs."""
                index_Q, hidden_BMD, loss_BM, error_BMS = self._chunk(block, chunk)
                value, by_hidden_ND, sum_BSD = sums
                index_Q1 = index_Q[:, tf.newaxis]
                if not by_rows_alone:
                    rows = tf.cast(rows_BSD, hidden_BMD.dtype)
                    by_hidden_BMD = tf.cast(tf.matmul(error_BMS, rows), tf.float32)
                    by_hidden_QD = tf.reshape(by_hidden_BMD, [-1, hidden_BMD.shape[2]])
                    by_hidden_ND = tf.tensor_scatter_nd_add(by_hidden_ND, index_Q1, by_hidden_QD)
                if by_vector:
                    value = tf.tensor_scatter_nd_add(value, index_Q1, _in_line(loss_BM))
                else:
                    value += tf.reduce_sum(loss_BM)
                by_rows_BSD = tf.matmul(error_BMS, hidden_BMD, transpose_a=True)
                return [value, by_hidden_ND, sum_BSD + tf.cast(by_rows_BSD, tf.float32)]

            sums = [value, by_hidden_ND, tf.zeros_like(rows_BSD)]
            *sums, by_rows_BSD = self._over_chunks(block, add, sums)
            if update is not None:
                flat = [-1, rows_BSD.shape[2]]
                rows_UD, by_rows_UD = tf.reshape(rows_BSD, flat), tf.reshape(by_rows_BSD, flat)
                with tf.name_scope("update/"):
                    update(self._table, block.ids_U, rows_UD, by_rows_UD)
                return sums
            index_B1 = tf.where(block.is_tile_B, block.place_B, self._places)[:, tf.newaxis]
            ids_BS = tf.reshape(block.ids_U, rows_BSD.shape[:2])
            new = zip(by_row, (ids_BS, by_rows_BSD), strict=True)
            return [*sums, *(tf.tensor_scatter_nd_update(old, index_B1, each) for old, each in new)]

        zero = tf.zeros_like(hidden_ND[:, 0], tf.float32) if by_vector else tf.constant(0.0)
        first = [zero, tf.zeros_like(hidden_ND, tf.float32), *by_row]
        value, by_hidden_ND, *by_row = self._over_blocks(gather, visit, first)
        if by_row:
            ids, values = by_row
            by_row = [tf.reshape(ids, [-1]), tf.reshape(values, [-1, values.shape[2]])]
        return value, tf.cast(by_hidden_ND, hidden_ND.dtype), by_row

    def losses(self, gather: Gather) -> tf.Tensor:
        """Return the loss of each hidden vector, (N,) float32; see `losses.stream.losses`.

        XLA leaves out the gradients, which nothing reads.
        """
        return self.differentiate(gather, lambda *_: None, by_vector=True)[0]

    def _over_blocks(
        self,
        gather: Gather,
        visit: Callable[..., Sequence[tf.Tensor]],
        carried: Sequence[tf.Tensor],
    ) -> Sequence[tf.Tensor]:
        """Return `carried` after `visit(block, *carried)` for every block."""
        before: tf.Tensor | int = 0  # tiles in the blocks of other shapes
        for shape in self._shapes():
            is_in_G = (self._counts_G > shape.least) & (self._counts_G <= shape.most)
            is_in_F = tf.gather(is_in_G, self._segment_F)
            place_F = tf.cumsum(tf.cast(is_in_F, tf.int32)) - 1
            total, tiles = place_F[-1] + 1, len(self._segment_F)
            tile_F = tf.tensor_scatter_nd_update(
                tf.zeros([tiles + shape.tiles], tf.int32),
                tf.where(is_in_F, place_F, tiles + shape.tiles)[:, tf.newaxis],
                tf.range(tiles),
            )
            block_of = functools.partial(self._block, gather, shape, tile_F, total, before)
            count = 1 if shape.step >= shape.places else -(-total // shape.step)
            known = self._measure(block_of, count) if self._is_measured else None
            carried = _repeat(
                count,
                lambda index, *carried, block_of=block_of, known=known: visit(
                    block_of(index)._replace(normalizer_P=known), *carried
                ),
                carried,
            )
            before += total
        return carried

    def _shapes(self) -> list[_Shape]:
        """Return the shapes of the blocks."""
        columns, most_tiles, found = self._pairs.hidden_ND.shape[1], self._most_tiles, []
        wide = max(self._size, columns)
        count = most = self._known
        if count is None:
            count, most = _PAIRS[-1], _NO_ROW
        if len(self._bounds) == 2 or self._is_measured:
            pairs = _least(max(_SCORES // wide, 1), self._count)
            return [_Shape(0, most, 1, pairs, 1, len(self._segment_F))]
        least = 0
        for number, pairs in enumerate(_PAIRS):
            if least >= count:
                break
            limit = most if number == len(_PAIRS) - 1 else min(pairs, count)
            segments = min(len(self._bounds) - 1, count // (least + 1))
            places = min(len(self._segment_F), segments * most_tiles)
            pairs = min(pairs, count, max(_SCORES // (2 * most_tiles * wide), _PAIRS[0]))
            tiles = min(_ROWS // (self._size * columns), _SCORES // (pairs * wide))
            tiles = min(max(tiles, 2 * most_tiles), places + most_tiles - 1)
            if self._known is None:
                places = most
            found.append(_Shape(least, limit, tiles, pairs, tiles - most_tiles + 1, places))
            least = limit
        return found

    def _block(
        self,
        gather: Gather,
        shape: _Shape,
        tile_F: tf.Tensor,
        total: tf.Tensor,
        before: tf.Tensor | int,
        index: tf.Tensor | int,
    ) -> _Block:
        """Return a block of the tiles that are listed in `tile_F`, `total` in number."""
        begin = index * shape.step
        place_B = begin + tf.range(shape.tiles)
        tile_B = tf.gather(tile_F, place_B)
        number_B = tf.gather(tf.constant(self._number_F, tf.int32), tile_B)
        segment_B = tf.gather(tf.constant(self._segment_F, tf.int32), tile_B)
        slot_B = place_B - number_B - begin
        is_tile_B = place_B < total
        if not self._is_measured:
            is_tile_B &= (slot_B >= 0) & (slot_B < shape.step)
        bounds = tf.constant(self._bounds, tf.int32)
        first_B = tf.gather(bounds, segment_B) + number_B * self._size
        end_B = tf.where(is_tile_B, tf.gather(bounds, segment_B + 1), 0)
        # In one dimension: XLA would give indices that were (B, S) another layout, and then also
        # the table, which it would transpose in each block.
        row_U = tf.range(shape.tiles * self._size)
        ids_U = tf.gather(first_B, row_U // self._size) + row_U % self._size
        is_row_U = ids_U < tf.gather(end_B, row_U // self._size)
        ids_U = tf.where(is_row_U, ids_U, _NO_ROW)
        with tf.name_scope("gather/"):
            rows_UD = gather(self._table, tf.minimum(ids_U, int(self._bounds[-1]) - 1))
            rows_UD = tf.where(is_row_U[:, tf.newaxis], rows_UD, 0.0)  # a row may have NaN
        return _Block(
            shape,
            is_tile_B,
            before + place_B,
            tf.where(is_tile_B, slot_B, shape.tiles - 1),
            first_B,
            ids_U,
            tf.gather(self._starts_G, segment_B),
            tf.where(is_tile_B, tf.gather(self._counts_G, segment_B), 0),
            tf.reshape(rows_UD, [-1, self._size, rows_UD.shape[1]]),
        )

    def _over_chunks(
        self, block: _Block, body: Callable[..., list[tf.Tensor]], carried: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        """Return `carried` after `body(chunk, *carried)` for every chunk of pairs of a block."""
        shape = block.shape
        is_one = isinstance(shape.pairs, int) and shape.most <= shape.pairs
        count = 1 if is_one else -(-tf.reduce_max(block.count_B) // shape.pairs)
        return _repeat(count, body, carried)

    def _measure(self, block_of: Callable[[Any], _Block], count: tf.Tensor | int) -> tf.Tensor:
        """Return the normalizer of each pair over all tiles of its segment, (P,) float32."""

        def visit(index: tf.Tensor | int, sum_P: tf.Tensor) -> Sequence[tf.Tensor]:
            """Add the scores of a block of one tile."""
            block = block_of(index)

            def add(chunk: tf.Tensor | int, sum_P: tf.Tensor) -> list[tf.Tensor]:
                """Add the scores of a chunk of pairs."""
                pair_Q, is_pair_Q, _, _, scores_BMS = self._score(block, chunk)
                tile_Q = tf.reshape(tf.reduce_logsumexp(scores_BMS, axis=2), [-1])
                before_Q = tf.gather(sum_P, pair_Q)
                greater_Q = tf.maximum(before_Q, tile_Q)
                parts_Q = tf.exp(before_Q - greater_Q) + tf.exp(tile_Q - greater_Q)
                index_Q1 = tf.where(is_pair_Q, pair_Q, self._count)[:, tf.newaxis]
                sum_Q = greater_Q + tf.math.log(parts_Q)
                return [tf.tensor_scatter_nd_update(sum_P, index_Q1, sum_Q)]

            return self._over_chunks(block, add, [sum_P])

        (sum_P,) = _repeat(count, visit, [tf.fill([self._count], -math.inf)])
        return sum_P

    def _score(self, block: _Block, chunk: tf.Tensor | int) -> tuple[tf.Tensor, ...]:
        """Return Q = B M pairs, whether there is each, the indices of vectors, vectors, and scores.

        The indices of pairs and of vectors are (Q,); that of a vector is N if there is no pair.
        """
        shape = block.shape
        number_Q = tf.range(shape.tiles * shape.pairs)
        tile_Q, number_Q = number_Q // shape.pairs, number_Q % shape.pairs + chunk * shape.pairs
        is_pair_Q = number_Q < tf.gather(block.count_B, tile_Q)
        pair_Q = tf.where(is_pair_Q, tf.gather(block.start_B, tile_Q) + number_Q, 0)
        owners_P, hidden_ND = self._pairs.owners_P, self._pairs.hidden_ND
        owner_Q = pair_Q if owners_P is None else tf.gather(owners_P, pair_Q)
        hidden_QD = tf.where(is_pair_Q[:, tf.newaxis], tf.gather(hidden_ND, owner_Q), 0.0)
        hidden_BMD = tf.reshape(hidden_QD, [shape.tiles, shape.pairs, hidden_ND.shape[1]])
        rows = tf.cast(block.rows_BSD, hidden_ND.dtype)
        scores_BMS = tf.cast(tf.matmul(hidden_BMD, rows, transpose_b=True), tf.float32)
        is_row_B1S = tf.reshape(block.ids_U != _NO_ROW, [shape.tiles, 1, self._size])
        scores_BMS = tf.where(is_row_B1S, scores_BMS, tf.float32.min)
        index_Q = _in_line(tf.where(is_pair_Q, owner_Q, tf.shape(hidden_ND)[0]))
        return pair_Q, is_pair_Q, index_Q, hidden_BMD, scores_BMS

    def _chunk(self, block: _Block, chunk: tf.Tensor | int) -> tuple[tf.Tensor, ...]:
        """Return the indices of vectors, the vectors, and the loss and its gradient by the scores.

        The loss of a pair is in the tile that has its row, and 0 in the others of its segment. The
        gradient has the dtype of the vectors.
        """
        pair_Q, is_pair_Q, index_Q, hidden_BMD, scores_BMS = self._score(block, chunk)
        shape = [block.shape.tiles, block.shape.pairs]
        pair_BM, is_pair_BM = tf.reshape(pair_Q, shape), tf.reshape(is_pair_Q, shape)
        if block.normalizer_P is not None:
            normalizer_BM = tf.gather(block.normalizer_P, pair_BM)
        else:
            normalizer_BM = self._normalizers(block, scores_BMS)
        position_BM = tf.gather(self._pairs.targets_P, pair_BM) - block.first_B[:, tf.newaxis]
        is_target_BMS = position_BM[..., tf.newaxis] == tf.range(self._size)
        score_BM = tf.reduce_sum(tf.where(is_target_BMS, scores_BMS, 0.0), axis=2)
        weights_BM = tf.gather(self._pairs.weights_P, pair_BM)
        is_here_BM = is_pair_BM & (position_BM >= 0) & (position_BM < self._size)
        loss_BM = tf.where(is_here_BM, (normalizer_BM - score_BM) * weights_BM, 0.0)
        shares_BMS = tf.exp(scores_BMS - normalizer_BM[..., tf.newaxis])
        error_BMS = (shares_BMS - tf.cast(is_target_BMS, tf.float32)) * weights_BM[..., tf.newaxis]
        # Padding may have a share that is not finite.
        error_BMS = tf.where(is_pair_BM[..., tf.newaxis], error_BMS, 0.0)
        return index_Q, hidden_BMD, loss_BM, tf.cast(error_BMS, hidden_BMD.dtype)

    def _normalizers(self, block: _Block, scores_BMS: tf.Tensor) -> tf.Tensor:
        """Return the log-sum-exp of each pair's scores over the tiles of its segment, (B, M)."""
        greatest_BM = tf.reduce_max(scores_BMS, axis=2)

        def join(values_BM: tf.Tensor, combine: Callable[..., tf.Tensor]) -> tf.Tensor:
            """Return the values of each tile's segment, from those of its tiles."""
            if self._most_tiles == 1:
                return values_BM
            return tf.gather(combine(values_BM, block.slot_B, block.shape.tiles), block.slot_B)

        greatest_BM = join(greatest_BM, tf.math.unsorted_segment_max)
        shares_BMS = tf.exp(scores_BMS - greatest_BM[..., tf.newaxis])
        sums_BM = join(tf.reduce_sum(shares_BMS, axis=2), tf.math.unsorted_segment_sum)
        return greatest_BM + tf.math.log(sums_BM)


def _least(most: int, count: int | tf.Tensor) -> int | tf.Tensor:
    """Return the least of two numbers, a tensor if the second is one."""
    return min(most, count) if isinstance(count, int) else tf.minimum(most, count)


def _in_line(values: tf.Tensor) -> tf.Tensor:
    """Return values in one dimension, for XLA to add by index.

    XLA would give two dimensions of blocks and pairs another layout, and then also the sums by
    vector, which it would transpose twice in each block.
    """
    return xla.optimization_barrier(tf.reshape(values, [-1]))[0]


def _repeat(
    count: tf.Tensor | int,
    body: Callable[..., Sequence[tf.Tensor]],
    carried: Sequence[tf.Tensor],
) -> Sequence[tf.Tensor]:
    """Return `carried` after `body(index, *carried)` for each index, without a loop for one."""
    return body(0, *carried) if isinstance(count, int) else loop(count, body, carried)
