"""The peers of `softmax`: output layers in plain TensorFlow, without Lexrow."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf

from ...optimizers.base import Optimizer
from ...optimizers.row_updates import update_rows
from ...tables.base import Slot, Table
from ...tables.device import DeviceTable
from ...tables.row_reads import unique


def dense(
    tables: Mapping[str, DeviceTable],
    hidden_ND: tf.Tensor,
    targets_N: tf.Tensor,
    rate: tf.Tensor,
    number: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Train one step of the full softmax: all scores at once, a dense gradient, dense Adagrad.

    It updates the table in place, and all rows of it.

    Args:
        tables: The table `output`: a row for each word, and an accumulator for each value.
        hidden_ND: The hidden vectors.
        targets_N: The words to predict, int32.
        rate: The learning rate.
        number: Not used.

    Returns:
        The loss summed over the targets, and its gradient by the hidden vectors, (N, D).
    """
    values = tables["output"].values
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([hidden_ND, values])
        scores_NV = tf.matmul(hidden_ND, values, transpose_b=True)
        losses_N = tf.nn.sparse_softmax_cross_entropy_with_logits(targets_N, scores_NV)
        loss = tf.reduce_sum(losses_N)
    by_hidden, by_values = tape.gradient(loss, [hidden_ND, values])
    tf.raw_ops.ResourceApplyAdagradV2(
        var=values.handle,
        accum=tables["output"].slots["accumulator"].values.handle,
        lr=rate,
        epsilon=tf.constant(0.0),
        grad=by_values,
    )
    return loss, by_hidden


def class_size(words: int) -> int:
    """Return the square root of the number of words, rounded up: the words of a class.

    Args:
        words: The size of the vocabulary.
    """
    return math.isqrt(words - 1) + 1


def copies_tables(words: int, columns: int, slots: Mapping[str, Slot]) -> dict[str, DeviceTable]:
    """Return the tables of `copies`: a row for each word, and a row for each class.

    The last class is filled up with rows that no word has.

    Args:
        words: The size of the vocabulary.
        columns: Columns of the tables.
        slots: The optimizer state of each row, by name.
    """
    size = class_size(words)
    classes = -(-words // size)
    return {
        "output": DeviceTable(classes * size, columns, tf.zeros, slots=slots),
        "classes": DeviceTable(classes, columns, tf.zeros, slots=slots),
    }


def copies(
    tables: Mapping[str, Table],
    hidden_ND: tf.Tensor,
    targets_N: tf.Tensor,
    rate: tf.Tensor,
    number: tf.Tensor,
    words: int,
    optimizer: Optimizer,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Train one step of the class softmax of two levels; each target copies the rows of its class.

    There is a gradient for each copied row, as in `tf.IndexedSlices`. They are summed by row for
    the optimizer, which updates the rows of both tables in place.

    Args:
        tables: The tables of `copies_tables`.
        hidden_ND: The hidden vectors.
        targets_N: The words to predict, int32.
        rate: The learning rate.
        number: The number of the step, from 1.
        words: The size of the vocabulary.
        optimizer: Changes the rows.

    Returns:
        The loss summed over the targets, and its gradient by the hidden vectors, (N, D).
    """
    size = class_size(words)
    classes_N, places_N = targets_N // size, targets_N % size
    ids_NS = classes_N[:, tf.newaxis] * size + tf.range(size)
    rows_ND = tables["output"].gather(tf.reshape(ids_NS, [-1]))
    classes_CD = tables["classes"].gather(tf.range(tables["classes"].rows))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([hidden_ND, rows_ND, classes_CD])
        rows_NSD = tf.reshape(rows_ND, [-1, size, hidden_ND.shape[1]])
        scores_NS = tf.linalg.matvec(rows_NSD, hidden_ND)
        scores_NS = tf.where(ids_NS < words, scores_NS, scores_NS.dtype.min)
        scores_NC = tf.matmul(hidden_ND, classes_CD, transpose_b=True)
        loss = tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(places_N, scores_NS)
            + tf.nn.sparse_softmax_cross_entropy_with_logits(classes_N, scores_NC)
        )
    by_hidden, by_rows, by_classes = tape.gradient(loss, [hidden_ND, rows_ND, classes_CD])

    ids_U, inverse_N = unique(ids_NS)
    summed_UD = tf.math.unsorted_segment_sum(by_rows, inverse_N, tf.size(ids_U))
    every_C = tf.range(tables["classes"].rows)
    update_rows(optimizer.rule, tables["output"], ids_U, summed_UD, rate, number)
    update_rows(optimizer.rule, tables["classes"], every_C, by_classes, rate, number, classes_CD)
    return loss, by_hidden
