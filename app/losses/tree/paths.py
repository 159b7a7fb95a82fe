"""The canonical Huffman code of a vocabulary, the paths of words through its tree, and their nodes.

The code takes a few numbers for each depth instead of a tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...tables.row_reads import unique
from ...types import HOST


class Code(NamedTuple):
    """The shape of a binary tree over the words, from which every word's path follows.

    The nodes of a depth have an index from 0. Nodes with children come before nodes that are words.
    The children of node i are nodes 2 i and 2 i + 1 of the next depth, so the ancestor of node i
    that is s depths further up is i >> s. So no path and no pointer is stored for any word.

    Words with shorter paths have lower ids. Of one depth, the word with the higher index has the
    lower id. So the words of a subtree are a range of ids at each depth.

    Attributes:
        words_E: The number of words at each depth, from depth 0, int64, as are all fields.
        inner_E: The number of nodes with children at each depth.
        last_E: The index of word `id` at its depth is `last_E[depth] - id`.
        rows_E: The table row of the first node of each depth; rows are numbered from the root down.
        ends_E: The number of words at each depth or above, so their ids are below it.
    """

    words_E: np.ndarray
    inner_E: np.ndarray
    last_E: np.ndarray
    rows_E: np.ndarray
    ends_E: np.ndarray

    @property
    def depth(self) -> int:
        """The length of the longest path."""
        return len(self.words_E) - 1

    def count_read(self, targets: int | None) -> float:
        """Return about how many rows the paths of so many words have; all if it is not known.

        By Huffman's rule a path leads to a node at depth d with a probability of about 2^-d.
        """
        if targets is None:
            return float(self.inner_E.sum())
        chances_E = -np.expm1(-targets * 0.5 ** np.arange(len(self.inner_E)))
        return float(chances_E @ self.inner_E)

    def count_below(self, depth: int) -> float:
        """Return about how many nodes a path has at a depth and all depths below it."""
        return float(self.inner_E[depth:] @ 0.5 ** np.arange(depth, len(self.inner_E)))


def canonical_code(counts_V: np.ndarray) -> Code:
    """Return the canonical code with Huffman's code lengths (Schwartz and Kallick 1964).

    Args:
        counts_V: Occurrences of the words, descending, so that lower ids get shorter paths.
    """
    words_E = code_length_counts(counts_V)
    inner_E = np.zeros_like(words_E)
    nodes = 1
    for depth, words in enumerate(words_E):
        inner_E[depth] = nodes - words
        nodes = 2 * inner_E[depth]
    ends_E = np.cumsum(words_E)
    rows_E = np.cumsum(inner_E) - inner_E
    return Code(words_E, inner_E, inner_E + ends_E - 1, rows_E, ends_E)


def code_length_counts(counts_V: np.ndarray) -> np.ndarray:
    """Return the number of words of each code length in an optimal binary code.

    Several codes have the least sum of counts times lengths (Huffman 1952). This one has the
    shortest longest word: of two items of equal weight a word is joined before a node (Schwartz
    1964).

    Huffman's algorithm joins the two lightest items again and again. Here all items that weigh no
    more than these two together are joined in one round, two by two; the new nodes are no lighter.
    This gives the same tree in a few dozen array operations instead of V - 1 turns of a loop.

    Args:
        counts_V: Occurrences of the words. A count below 1 is taken as 1.

    Returns:
        The number of words of each length from 0 to the longest, int64. A single word has length 0.
    """
    words_V = np.sort(np.maximum(counts_V, 1).astype(np.int64))
    size = len(words_V)
    # Nodes are made by ascending weight, so that words and nodes are two sorted queues: `word` and
    # `node` are their first items, `end` is the number of nodes.
    nodes = np.empty(size, np.int64)
    word_parents, node_parents = np.empty(size, np.int32), np.empty(size, np.int32)
    word = node = end = 0
    rounds = []
    while end < size - 1:
        front = np.concatenate([words_V[word : word + 2], nodes[node : min(node + 2, end)]])
        light = np.searchsorted(words_V[word:], np.sort(front)[:2].sum(), side="right")
        weights = np.concatenate([words_V[word : word + light], nodes[node:end]])
        pairs = len(weights) // 2
        order = np.argsort(weights, kind="stable")[: 2 * pairs]  # merges the queues, words first
        parents, is_word = end + np.arange(2 * pairs) // 2, order < light
        joined = np.count_nonzero(is_word)
        word_parents[word : word + joined] = parents[is_word]
        node_parents[node : node + 2 * pairs - joined] = parents[~is_word]
        nodes[end : end + pairs] = weights[order].reshape(-1, 2).sum(axis=1)
        rounds.append(slice(end, end + pairs))
        word, node, end = word + joined, node + 2 * pairs - joined, end + pairs
    if not rounds:
        return np.ones(1, np.int64)
    depths = np.zeros(size, np.int16)
    for nodes_made in reversed(rounds[:-1]):  # the last round made the root
        depths[nodes_made] = depths[node_parents[nodes_made]] + 1
    return np.bincount(depths[word_parents] + 1)


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
    """The nodes with children on the paths of M words, at the last C depths.

    Attributes:
        rows_U: The unique nodes as rows of the table, by depth, int32.
        row_MC: The index into `rows_U` of each node on each path, int32; -1 where a path has ended.
        left_MC: 1 if the path goes left at the node, else 0, int32.
    """

    rows_U: tf.Tensor
    row_MC: tf.Tensor
    left_MC: tf.Tensor


def path_nodes(code: Code, ids_M: tf.Tensor, start: int = 0) -> PathNodes:
    """Return the nodes with children on the paths of words, at a depth and all depths below it.

    Args:
        ids_M: The ids of the words, int32, descending; -1 stands for no word, which has no path.
        start: The first depth.
    """
    with tf.device(HOST):
        firsts_C = tf.constant(code.rows_E[start : max(code.depth, 1)], tf.int32)
        ends_E, last_E = tf.constant(code.ends_E, tf.int32), tf.constant(code.last_E, tf.int32)
        node_N, is_new_N, row_MC, left_MC = _walk(
            ids_M, tf.convert_to_tensor(start), firsts_C, ends_E, last_E
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
    """Return by depth and word the nodes on the paths of words; see `path_nodes` for the words.

    Returns:
        The rows of the nodes, (C M,), whether each is the first of its node; then for each word
        and depth, (M, C), the index among the unique nodes, -1 after the end; 1 for a left turn.
    """
    lengths_M = tf.reduce_sum(tf.cast(ids_M >= ends_E[:, tf.newaxis], tf.int32), axis=0)
    depth_C1 = start + tf.range(tf.size(firsts_C))[:, tf.newaxis]
    is_real_CM = lengths_M > depth_C1
    child_CM = _children(ids_M, lengths_M, depth_C1, last_E)
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


def _children(
    ids: tf.Tensor, lengths: tf.Tensor, depths: tf.Tensor, last_E: tf.Tensor
) -> tf.Tensor:
    """Return the index of the node after each depth on the paths of words, int32.

    It is odd if the path goes right. It does not matter where a path has ended.
    """
    indices = tf.gather(last_E, lengths) - ids
    return tf.bitwise.right_shift(indices, tf.maximum(lengths - depths - 1, 0))


def padded_paths(code: Code, ids_GM: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the nodes on the paths of words, all paths as long as the longest of the tree.

    Returns:
        The nodes as rows of the table, (G, M, C) int32, and the turns at them, (G, M, C) float32: 1
        to the left, -1 to the right. After the end of a path the row is the largest int32, which is
        not a row, and the turn is 0.
    """
    ends_E, last_E = tf.constant(code.ends_E, tf.int32), tf.constant(code.last_E, tf.int32)
    firsts_C = tf.constant(code.rows_E[: max(code.depth, 1)], tf.int32)
    depth_C, id_GM1 = tf.range(firsts_C.shape[0]), ids_GM[:, :, tf.newaxis]
    length_GM1 = tf.reduce_sum(tf.cast(id_GM1 >= ends_E, tf.int32), axis=2, keepdims=True)
    child_GMC = _children(id_GM1, length_GM1, depth_C, last_E)
    is_real_GMC = length_GM1 > depth_C
    rows_GMC = firsts_C + tf.bitwise.right_shift(child_GMC, 1)
    turns_GMC = 1 - 2 * tf.cast(child_GMC & 1, tf.float32)
    return tf.where(is_real_GMC, rows_GMC, tf.int32.max), tf.where(is_real_GMC, turns_GMC, 0.0)


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


# The number of entries of a group is rounded up to a multiple of this, since oneDNN takes 0.3 ms
# for the first matrix product of each new shape, and XLA compiles for each shape.
_STRIDE = 16
# From this many groups on, an eighth of them, those with the longest paths, are a block of their
# own, and so are the next three eighths. Then there is less padding: 28,000 entries for 256 groups
# instead of 38,000, of which 22,000 are not padding.
_MANY = 32


class Entries(NamedTuple):
    """The nodes on the paths of the words of some groups, word by word.

    A node has one entry for each path that it is on. Each group has K entries, with padding at the
    end.

    Attributes:
        row_GK: The index of each entry's node among the unique nodes, int32; 0 for padding.
        word_GK: The word of the group whose path each entry is on, int32; M for padding.
        left_GK: 1 if the path goes left at the node, else 0, int32.
    """

    row_GK: tf.Tensor
    word_GK: tf.Tensor
    left_GK: tf.Tensor


class GroupPaths(NamedTuple):
    """The paths of the words of G groups; all tensors are on the host.

    Attributes:
        order_G: The groups by descending number of nodes on their paths, int32.
        sizes: The number of groups of each block, in this order; None for one block of all.
        cut_GM: The position of each path at the first depth, int32: the index of the path's node if
            it has children at this depth. For a path that has ended, the number of nodes with
            children at this depth, plus the id of the path's word. Groups are in `order_G`.
        rows_U: The unique nodes at the first depth or below it, as rows of the table, int32.
        blocks: The entries of the groups, block by block; none if the tree has no further depth.
    """

    order_G: tf.Tensor
    sizes: list[int] | None
    cut_GM: tf.Tensor
    rows_U: tf.Tensor
    blocks: list[Entries]

    def split(self, values: tf.Tensor) -> list[tf.Tensor]:
        """Split values, one for each group of `order_G`, as `blocks`."""
        return [values] if self.sizes is None else tf.split(values, self.sizes)


def group_paths(code: Code, ids_GM: tf.Tensor, first: int) -> GroupPaths:
    """Return the paths of the words of groups, from some depth on.

    Args:
        ids_GM: The ids of the M words of each group, int32; M is static.
        first: The first depth.
    """
    groups = ids_GM.shape[0]
    sizes = None
    if groups is not None and groups >= _MANY:
        sizes = [groups // 8, groups // 2 - groups // 8, groups - groups // 2]
    with tf.device(HOST):
        ids_W, inverse_P = unique(ids_GM)
        order_W = tf.argsort(ids_W, direction="DESCENDING")
        place_P = tf.gather(tf.math.invert_permutation(order_W), inverse_P)
        place_GM = tf.reshape(place_P, tf.shape(ids_GM))
        ids_M = pad(tf.gather(ids_W, order_W), -1, is_coarse=True)
        ends_E, last_E = tf.constant(code.ends_E, tf.int32), tf.constant(code.last_E, tf.int32)
        inner = tf.constant(code.inner_E[first], tf.int32)
        cut_M, sizes_G = _measure(ids_M, place_GM, tf.constant(first), ends_E, last_E, inner)
        order_G = tf.argsort(sizes_G, direction="DESCENDING", stable=True)
        place_GM = tf.ensure_shape(tf.gather(place_GM, order_G), ids_GM.shape)
        rows_U = tf.zeros([0], tf.int32)
        paths = GroupPaths(order_G, sizes, tf.gather(cut_M, place_GM), rows_U, [])
        if code.depth == first:
            return paths
        nodes = path_nodes(code, ids_M, first)
        ends_GM = _ends(nodes.row_MC, place_GM)
        for ends_HM, place_HM in zip(paths.split(ends_GM), paths.split(place_GM), strict=True):
            stride = _STRIDE if paths.blocks else 2 * _STRIDE
            slots_K = tf.range(-(-tf.reduce_max(ends_HM) // stride) * stride)
            entries = _list(nodes.row_MC, nodes.left_MC, place_HM, ends_HM, slots_K)
            paths.blocks.append(Entries(*entries))
        return paths._replace(rows_U=nodes.rows_U)


@tf.function(autograph=False, jit_compile=True)
def _measure(
    ids_M: tf.Tensor,
    place_GM: tf.Tensor,
    shared: tf.Tensor,
    ends_E: tf.Tensor,
    last_E: tf.Tensor,
    inner: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the positions of words at a depth, and the lengths of the paths of groups below it."""
    lengths_M = tf.reduce_sum(tf.cast(ids_M >= ends_E[:, tf.newaxis], tf.int32), axis=0)
    further_M = tf.maximum(lengths_M - shared, 0)
    inner_M = tf.bitwise.right_shift(tf.gather(last_E, lengths_M) - ids_M, further_M)
    cut_M = tf.where(lengths_M > shared, inner_M, ids_M + inner)
    return cut_M, tf.reduce_sum(tf.gather(further_M, place_GM), axis=1)


@tf.function(autograph=False, jit_compile=True)
def _ends(row_MC: tf.Tensor, place_GM: tf.Tensor) -> tf.Tensor:
    """Return where the entries of each word of a group end, (G, M) int32."""
    counts_M = tf.reduce_sum(tf.cast(row_MC >= 0, tf.int32), axis=1)
    return tf.cumsum(tf.gather(counts_M, place_GM), axis=1)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of twenty
def _list(
    row_MC: tf.Tensor,
    left_MC: tf.Tensor,
    place_GM: tf.Tensor,
    ends_GM: tf.Tensor,
    slots_K: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the fields of `Entries`."""
    words, depths = tf.shape(place_GM)[1], tf.shape(row_MC)[1]
    is_after_GMK = slots_K >= ends_GM[:, :, tf.newaxis]
    word_GK = tf.reduce_sum(tf.cast(is_after_GMK, tf.int32), axis=1)
    begin_GK = tf.reduce_max(tf.where(is_after_GMK, ends_GM[:, :, tf.newaxis], 0), axis=1)
    is_real_GK = word_GK < words
    place_GK = tf.gather(place_GM, tf.minimum(word_GK, words - 1), batch_dims=1)
    index_GK = tf.where(is_real_GK, place_GK * depths + slots_K - begin_GK, 0)
    value_N = tf.reshape(2 * row_MC + left_MC, [-1])
    value_GK = tf.where(is_real_GK, tf.gather(value_N, index_GK), 0)
    return tf.bitwise.right_shift(value_GK, 1), word_GK, value_GK & 1
