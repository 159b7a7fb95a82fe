"""The bag-of-words classifier: labels are predicted from the mean of a text's feature vectors."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.bags import Bags
from ..losses.base import Loss, Predictions, Shares
from ..system.xla import under_xla
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..types import HOST, Batch, Rows, UniqueIds
from .base import Outcome, apply_loss, draw_seed, initial_seed
from .row_lists import average, sum_segments


@dataclasses.dataclass(frozen=True)
class Bag:
    """A linear classifier of averaged rows, as fastText's (Joulin et al. 2016, section 2).

    Attributes:
        size: The number of features, which are words and n-grams.
        dim: The columns of a feature's vector, D.
    """

    size: int
    dim: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the table `input`, the features' vectors, and the loss's tables."""
        # As FastText::createRandomMatrix.
        initial = Uniform(1 / self.dim, initial_seed("initial", self.seed))
        spec = TableSpec(self.size, self.dim, initial, by_frequency=True, grows=True)
        return {"input": spec, **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor | UniqueIds]:
        """Return the ids of the features, and the ids that the loss needs."""
        bags: Bags = batch.data
        labels_BM = bags.labels_BM
        seed = draw_seed(batch, "negatives")
        ids = UniqueIds(bags.ids_N, bags.counts_P2[:, 0])
        return {"input": ids, **self.output.lookups(labels_BM, labels_BM.shape[0], seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the weighted loss of all labels, and the number of texts without padding.

        A text whose first label has the weight 0 is padding.
        """
        bags: Bags = batch.data
        hidden_BD = tf.cast(mean(rows["input"], bags), self.dtype)
        with tf.device(HOST):  # with the labels
            weights_B1M = tf.expand_dims(bags.weights_BM, 1)
            shares = None
            if not isinstance(bags.shares_BM, tuple):
                shares = Shares(bags.text_weights_B[:, tf.newaxis], bags.shares_BM[:, tf.newaxis])
        # Not a slice, whose gradient copies.
        predictions = Predictions(tf.expand_dims(hidden_BD, 1), bags.labels_BM, weights_B1M, shares)
        real_B = tf.cast(bags.weights_BM[:, 0] > 0, tf.float32)
        return apply_loss(self.output, predictions, rows, tf.reduce_sum(real_B))


def mean(rows: Rows, bags: Bags) -> tf.Tensor:
    """Return the mean of the rows of each text's features, (B, D) float32; 0 without features.

    Args:
        rows: The rows of the unique features.
        bags: The features of B texts.
    """
    count, partitions = bags.labels_BM.shape[0], bags.counts_P2.shape[0]
    with tf.device(HOST):
        counts_P, entries_P = tf.unstack(bags.counts_P2, axis=1)
        ends_P = tf.cumsum(entries_P)
    if under_xla():
        entry_N, counts_P2 = tf.range(bags.shares_N.shape[0]), bags.counts_P2
        rows_N = bags.entries_N2[:, 1]  # all rows are one lookup
        if partitions > 1:
            rows_N += tf.where(entry_N < counts_P2[0, 1], 0, counts_P2[0, 0])
        rows = Rows(rows.values_UD, rows_N)
        return sum_segments(rows, bags.shares_N, bags.entries_N2[:, 0], count)
    values = [partition.values_UD for partition in rows.partitions] or [rows.values_UD]
    if len(values) < partitions:  # all rows are one lookup
        values = tf.split(rows.values_UD, counts_P, num=partitions)
    means = []
    for partition, values_UD in enumerate(values):
        with tf.device(HOST):
            entries = slice(ends_P[partition] - entries_P[partition], ends_P[partition])
            entries_N2, shares_N = bags.entries_N2[entries], bags.shares_N[entries]
        means.append(average(values_UD, entries_N2, shares_N, counts_P[partition], count))
    means_BD = tf.add_n(means) if partitions > 1 else means[0]
    return tf.ensure_shape(means_BD, (count, values[0].shape[1]))
