"""A text as the mean of the rows of its words and n-grams, from which its labels are predicted."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.bags import Bags
from ..losses.base import Loss, Predictions
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..types import HOST, Batch, Rows
from .base import Outcome
from .words import draw_seed, initial_seed, loss_outcome


@dataclasses.dataclass(frozen=True)
class Bag:
    """A linear classifier of averaged rows (Joulin et al. 2016, section 2), as fastText's.

    size: rows of words and n-grams. dim: D. output: how the mean predicts labels. seed: of the
    run. dtype: of the products with it.
    """

    size: int
    dim: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Features are rows of `input`, U(-1, 1) / D at first (FastText::createRandomMatrix); the
        other tables are the loss's.
        """
        initial = Uniform(1 / self.dim, initial_seed("initial", self.seed))
        spec = TableSpec(self.size, self.dim, initial, by_frequency=True, grows=True)
        return {"input": spec, **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The features, and what the loss needs."""
        bags: Bags = batch.data
        labels_BM = bags.labels_BM
        seed = draw_seed(batch, "negatives")
        return {"input": bags.ids_N, **self.output.lookups(labels_BM, labels_BM.shape[0], seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """The loss of all labels by their weights, and the number of texts."""
        bags: Bags = batch.data
        hidden_BD = tf.cast(mean(rows["input"], bags), self.dtype)
        with tf.device(HOST):  # with the labels
            weights_B1M = bags.weights_BM[:, tf.newaxis]
        predictions = Predictions(hidden_BD[:, tf.newaxis], bags.labels_BM, weights_B1M)
        real_B = tf.cast(bags.weights_BM[:, 0] > 0, tf.float32)
        return loss_outcome(self.output, predictions, rows, tf.reduce_sum(real_B))


def mean(rows: Rows, bags: Bags) -> tf.Tensor:
    """The mean of the rows of each bag's features, (B, D) float32; 0 for an empty bag."""
    places = {"indices": rows.positions_N, "segment_ids": bags.owners_N}
    count = bags.labels_BM.shape[0]

    @tf.custom_gradient
    def means(values_UD: tf.Tensor):
        def gradient(upstream_BD: tf.Tensor) -> tf.Tensor:
            # What TensorFlow would make of it sorts the rows first.
            return tf.raw_ops.SparseSegmentMeanGrad(
                grad=tf.pad(upstream_BD, [[0, 1], [0, 0]]),
                output_dim0=tf.shape(values_UD)[0],
                **places,
            )

        # Reads the rows where they are, where a gather would copy them: half the time. The padding
        # is one bag more.
        return tf.sparse.segment_mean(values_UD, **places, num_segments=count + 1)[:count], gradient

    return means(rows.values_UD)
