"""The paths of a batch's words through a Huffman tree."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...types import HOST
from .huffman import Code

# A group has room for a multiple of so many nodes, as oneDNN takes 0.3 ms for the first product of
# each new shape.
_STRIDE = 32


class Slots(NamedTuple):
    """The nodes on the words' paths, those of one word of a group after the other.

    rows_U: the distinct nodes, as rows of the table, rising, int32. In the order of rows, S in all,
    place_S says where among the G K slots each is, and row_S which of the rows. By slots, int32:
    row_GK, word_GK, which word of the group, left_GK, 1 if its path goes left, and real_GK, 0 for a
    slot that the group does not need.
    """

    rows_U: tf.Tensor
    place_S: tf.Tensor
    row_S: tf.Tensor
    row_GK: tf.Tensor
    word_GK: tf.Tensor
    left_GK: tf.Tensor
    real_GK: tf.Tensor


class Paths:
    """The paths of words in groups: ids_GM, int32, M static. All of it is on the host."""

    def __init__(self, code: Code, ids_GM: tf.Tensor):
        with tf.device(HOST):
            self._code = code
            self._groups, self._words = tf.shape(ids_GM)[0], ids_GM.shape[1]
            self._ids_P = tf.reshape(ids_GM, [-1])
            ends_E = tf.constant(code.ends_E, tf.int32)
            self._lengths_P = tf.searchsorted(ends_E, self._ids_P, side="right")
            last_P = tf.gather(tf.constant(code.last_E, tf.int32), self._lengths_P)
            self._indices_P = last_P - self._ids_P
            # The longest paths first, and nodes of any depth by their rows.
            self._order_P = tf.argsort(self._ids_P, direction="DESCENDING", stable=True)

    def cut(self, depth: int) -> tf.Tensor:
        """Where the paths are at a depth, (G, M) int32: the index of a node with children there.

        A path that has ended is at the number of those plus the id of its word.
        """
        with tf.device(HOST):
            further_P = self._lengths_P - depth
            inner_P = tf.bitwise.right_shift(self._indices_P, tf.maximum(further_P, 0))
            ended_P = self._ids_P + int(self._code.inner_E[depth])
            cut_P = tf.where(further_P > 0, inner_P, ended_P)
            return tf.reshape(cut_P, (self._groups, self._words))

    def slots(self, start: int | tf.Tensor, count: int | tf.Tensor) -> Slots:
        """The nodes with children at depth `start` and the `count` - 1 after it, if any."""
        with tf.device(HOST):
            nodes_P = tf.clip_by_value(self._lengths_P - start, 0, count)
            ends_GM = tf.cumsum(tf.reshape(nodes_P, (self._groups, self._words)), axis=1)
            room = -(-tf.reduce_max(ends_GM) // _STRIDE) * _STRIDE
            ends_GM += tf.range(self._groups)[:, tf.newaxis] * room
            begins_P = tf.reshape(ends_GM, [-1]) - nodes_P

            # By depth, and of each depth the words that go on from there, which come first.
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
            place_S = tf.gather(begins_P, word_S) + step_S

            source_N = tf.scatter_nd(place_S[:, tf.newaxis], number_S + 1, [self._groups * room])
            source_GK = tf.reshape(source_N, (self._groups, room))

            def placed(values_S: tf.Tensor) -> tf.Tensor:
                return tf.gather(tf.concat([[0], values_S], axis=0), source_GK)

            return Slots(
                rows_U=tf.boolean_mask(node_S, new_S),
                place_S=place_S,
                row_S=row_S,
                row_GK=placed(row_S),
                word_GK=placed(word_S) % self._words,
                left_GK=placed(left_S),
                real_GK=tf.minimum(source_GK, 1),
            )
