"""The paths of groups of words through a Huffman tree, and the nodes on them."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...types import HOST
from .huffman import Code

# The number of entries of a group is rounded up to a multiple of this, since oneDNN takes 0.3 ms
# for the first matrix product of each new shape.
_STRIDE = 32


class GroupNodes(NamedTuple):
    """The nodes on the paths of the words of each group, with the words of a group in order.

    A node has one entry for each path that it is on. Each group has K entries, with padding at the
    end. S of the G K entries are not padding.

    Attributes:
        rows_U: The unique nodes as rows of the table, ascending, int32.
        entry_S: The entries by ascending row, as indices into the G K entries, int32.
        entry_rows_S: The index into `rows_U` of each of these entries, int32.
        row_GK: The index into `rows_U` of each entry, int32.
        word_GK: The word of the group whose path each entry is on, int32.
        left_GK: 1 if the path goes left at the node, else 0, int32.
        real_GK: 0 if the entry is padding, else 1, int32.
    """

    rows_U: tf.Tensor
    entry_S: tf.Tensor
    entry_rows_S: tf.Tensor
    row_GK: tf.Tensor
    word_GK: tf.Tensor
    left_GK: tf.Tensor
    real_GK: tf.Tensor


class GroupPaths:
    """The paths of words in groups; all tensors are on the host.

    Args:
        code: The code of the vocabulary.
        ids_GM: The ids of the M words of each group, int32; M is static.
    """

    def __init__(self, code: Code, ids_GM: tf.Tensor):
        with tf.device(HOST):
            self._code = code
            self._groups, self._words = tf.shape(ids_GM)[0], ids_GM.shape[1]
            self._ids_P = tf.reshape(ids_GM, [-1])
            ends_E = tf.constant(code.ends_E, tf.int32)
            self._lengths_P = tf.searchsorted(ends_E, self._ids_P, side="right")
            last_P = tf.gather(tf.constant(code.last_E, tf.int32), self._lengths_P)
            self._indices_P = last_P - self._ids_P
            # The longest paths first; then the nodes of each depth are in the order of their rows.
            self._order_P = tf.argsort(self._ids_P, direction="DESCENDING", stable=True)

    def cut(self, depth: int) -> tf.Tensor:
        """Return the position of each path at one depth, also for paths that end before, (G, M).

        Args:
            depth: The depth.

        Returns:
            Numbers (G, M), int32: the index of the path's node if it has children at this depth.
            For a path that has ended, the number of nodes with children at this depth, plus the id
            of the path's word.
        """
        with tf.device(HOST):
            further_P = self._lengths_P - depth
            inner_P = tf.bitwise.right_shift(self._indices_P, tf.maximum(further_P, 0))
            ended_P = self._ids_P + int(self._code.inner_E[depth])
            cut_P = tf.where(further_P > 0, inner_P, ended_P)
            return tf.reshape(cut_P, (self._groups, self._words))

    def nodes(self, start: int | tf.Tensor, count: int | tf.Tensor) -> GroupNodes:
        """Return the nodes with children on the paths, at the depths start .. start + count - 1.

        Args:
            start: The first depth.
            count: The number of depths; those below the tree have no nodes.
        """
        with tf.device(HOST):
            nodes_P = tf.clip_by_value(self._lengths_P - start, 0, count)
            ends_GM = tf.cumsum(tf.reshape(nodes_P, (self._groups, self._words)), axis=1)
            entries = -(-tf.reduce_max(ends_GM) // _STRIDE) * _STRIDE
            ends_GM += tf.range(self._groups)[:, tf.newaxis] * entries
            begins_P = tf.reshape(ends_GM, [-1]) - nodes_P

            # Entries by depth; of each depth the words whose paths go on, which come first.
            ends_E = tf.constant(self._code.ends_E, tf.int32)
            rising_P = tf.gather(self._ids_P, self._order_P[::-1])
            ended_C = tf.searchsorted(rising_P, ends_E[start : start + count])
            words_C = self._groups * self._words - ended_C
            ends_C = tf.cumsum(words_C)
            number_S = tf.range(ends_C[-1])
            step_S = tf.searchsorted(ends_C, number_S, side="right")
            word_S = tf.gather(self._order_P, number_S - tf.gather(ends_C - words_C, step_S))

            further_S = tf.gather(self._lengths_P, word_S) - start - step_S
            index_S = tf.gather(self._indices_P, word_S)
            first_S = tf.gather(tf.constant(self._code.rows_E, tf.int32), start + step_S)
            node_S = first_S + tf.bitwise.right_shift(index_S, further_S)
            left_S = 1 - (tf.bitwise.right_shift(index_S, further_S - 1) & 1)
            new_S = tf.not_equal(node_S, tf.concat([[-1], node_S], axis=0)[:-1])
            row_S = tf.cumsum(tf.cast(new_S, tf.int32)) - 1
            entry_S = tf.gather(begins_P, word_S) + step_S

            source_N = tf.scatter_nd(entry_S[:, tf.newaxis], number_S + 1, [self._groups * entries])
            source_GK = tf.reshape(source_N, (self._groups, entries))

            def by_entry(values_S: tf.Tensor) -> tf.Tensor:
                """Return the value of each entry, (G, K); 0 for padding."""
                return tf.gather(tf.concat([[0], values_S], axis=0), source_GK)

            return GroupNodes(
                rows_U=tf.boolean_mask(node_S, new_S),
                entry_S=entry_S,
                entry_rows_S=row_S,
                row_GK=by_entry(row_S),
                word_GK=by_entry(word_S) % self._words,
                left_GK=by_entry(left_S),
                real_GK=tf.minimum(source_GK, 1),
            )
