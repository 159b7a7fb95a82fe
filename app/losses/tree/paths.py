"""The paths of the words of a batch through a Huffman tree, and the nodes on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...types import HOST
from .huffman import Code

# XLA compiles a function for each shape. So lengths that differ between batches are rounded up to
# one of these: 256, 512, ... 2,048, 2,304, ... 4,096, 4,608, ... at most an eighth too many.
_LENGTHS = np.array(
    [256, 512, 768, 1024, 1280, 1536, 1792]
    + [parts << power for power in range(8, 28) for parts in range(8, 16)],
    np.int32,
)
# The same with fewer lengths: 256, 512, 1,024, 1,536, 2,048, 3,072, ... at most a half too many.
_FEW_LENGTHS = np.array(
    [256, 512] + [parts << power for power in range(9, 29) for parts in (2, 3)], np.int32
)
# Running sums are matrix products of blocks of this length: tf.cumsum takes 20 ns for a number.
_BLOCK = 64


class PathNodes(NamedTuple):
    """The nodes with children on the paths of M words, at C consecutive depths.

    Attributes:
        rows_U: The unique nodes as rows of the table, by depth, int32.
        row_MC: The index into `rows_U` of each node on each path, int32; -1 where a path has ended.
        left_MC: 1 if the path goes left at the node, else 0, int32.
    """

    rows_U: tf.Tensor
    row_MC: tf.Tensor
    left_MC: tf.Tensor


class Paths:
    """The paths of words; all tensors are on the host.

    Args:
        code: The code of the vocabulary.
        ids_M: The ids of the words, int32, descending; -1 stands for no word, which has no path.
    """

    def __init__(self, code: Code, ids_M: tf.Tensor):
        self._code, self._ids_M = code, ids_M

    def nodes(self, start: int | tf.Tensor, count: int | tf.Tensor) -> PathNodes:
        """Return the nodes with children on the paths, at the depths start .. start + count - 1.

        Args:
            start: The first depth.
            count: The number of depths; those below the tree have no nodes.
        """
        code = self._code
        with tf.device(HOST):
            firsts_C = tf.constant(code.rows_E, tf.int32)[start : start + count]
            ends_E, last_E = tf.constant(code.ends_E, tf.int32), tf.constant(code.last_E, tf.int32)
            node_N, is_new_N, row_MC, left_MC = _walk(
                self._ids_M, tf.convert_to_tensor(start), firsts_C, ends_E, last_E
            )
            return PathNodes(tf.boolean_mask(node_N, is_new_N), row_MC, left_MC)


def pad(values_N: tf.Tensor, value: int, is_coarse: bool = False) -> tf.Tensor:
    """Return a tensor padded along its first dimension to one of few lengths (see `_LENGTHS`).

    Args:
        values_N: The tensor, of any rank.
        value: The value of the padding.
        is_coarse: Whether the lengths are as few as `_FEW_LENGTHS`.
    """
    lengths = _FEW_LENGTHS if is_coarse else _LENGTHS
    count = values_N.shape[0]
    if count is not None:
        length = int(lengths[np.searchsorted(lengths, count)])
    else:
        count = tf.shape(values_N)[0]
        with tf.device(HOST):
            length = tf.gather(lengths, tf.searchsorted(lengths, count[tf.newaxis])[0])
    edges = [[0, length - count], *([0, 0] for _ in values_N.shape[1:])]
    return tf.pad(values_N, edges, constant_values=value)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of twenty
def _walk(
    ids_M: tf.Tensor, start: tf.Tensor, firsts_C: tf.Tensor, ends_E: tf.Tensor, last_E: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Walk along the paths of words.

    Args:
        ids_M: The words, as for `Paths`.
        start: The first depth.
        firsts_C: The table row of the first node of each depth.
        ends_E: The field of `Code`.
        last_E: The field of `Code`.

    Returns:
        node_N: The table row of the node of each path at each depth, depth by depth, (C M,).
        is_new_N: Whether the path goes on, and the path before it has another node, bool.
        row_MC: As in `PathNodes`.
        left_MC: As in `PathNodes`.
    """
    lengths_M = tf.reduce_sum(tf.cast(ids_M >= ends_E[:, tf.newaxis], tf.int32), axis=0)
    indices_M = tf.gather(last_E, lengths_M) - ids_M
    depth_C1 = start + tf.range(tf.size(firsts_C))[:, tf.newaxis]
    is_real_CM = lengths_M > depth_C1
    child_CM = tf.bitwise.right_shift(indices_M, tf.maximum(lengths_M - depth_C1 - 1, 0))
    node_CM = firsts_C[:, tf.newaxis] + tf.bitwise.right_shift(child_CM, 1)
    # Words are in descending order, so the paths through a node are neighbors at each depth.
    before_CM = tf.pad(node_CM[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    is_new_CM = is_real_CM & (node_CM != before_CM)
    row_CM = tf.reshape(_running_sum(tf.reshape(is_new_CM, [-1])), tf.shape(node_CM)) - 1
    return (
        tf.reshape(node_CM, [-1]),
        tf.reshape(is_new_CM, [-1]),
        tf.transpose(tf.where(is_real_CM, row_CM, -1)),
        tf.transpose(1 - (child_CM & 1)),
    )


def _running_sum(values_N: tf.Tensor) -> tf.Tensor:
    """Return the sum of the values up to each one, (N,) int32. Each value is 0 or 1."""
    count = tf.size(values_N)
    # A sum within a block is exact in float32.
    blocks_BK = tf.reshape(
        tf.pad(tf.cast(values_N, tf.float32), [[0, -count % _BLOCK]]), (-1, _BLOCK)
    )
    until_KK = tf.linalg.band_part(tf.ones((_BLOCK, _BLOCK)), 0, -1)
    within_BK = tf.cast(tf.matmul(blocks_BK, until_KK), tf.int32)
    sums_B = within_BK[:, -1]
    before_B = tf.cumsum(sums_B, exclusive=True)
    return tf.reshape(within_BK + before_B[:, tf.newaxis], [-1])[:count]
