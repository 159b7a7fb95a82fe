"""The bag-of-words classifier: labels are predicted from the mean of a text's feature vectors."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.bags import Bags
from ..losses.base import Loss, Predictions
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..types import HOST, Batch, Rows
from .base import Outcome, apply_loss
from .seeds import draw_seed, initial_seed


@dataclasses.dataclass(frozen=True)
class Bag:
    """A linear classifier of averaged rows, as fastText's (Joulin et al. 2016, section 2).

    Attributes:
        size: The number of features, which are words and n-grams.
        dim: The columns of a feature's vector, D.
        output: The loss by which the mean predicts labels.
        seed: The seed of the run.
        dtype: The dtype of the matrix products.
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

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids of the features, and the ids that the loss needs."""
        bags: Bags = batch.data
        labels_BM = bags.labels_BM
        seed = draw_seed(batch, "negatives")
        return {"input": bags.ids_N, **self.output.lookups(labels_BM, labels_BM.shape[0], seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the weighted loss of all labels, and the number of texts without padding.

        A text whose first label has the weight 0 is padding.
        """
        bags: Bags = batch.data
        hidden_BD = tf.cast(mean(rows["input"], bags), self.dtype)
        with tf.device(HOST):  # with the labels
            weights_B1M = bags.weights_BM[:, tf.newaxis]
        predictions = Predictions(hidden_BD[:, tf.newaxis], bags.labels_BM, weights_B1M)
        real_B = tf.cast(bags.weights_BM[:, 0] > 0, tf.float32)
        return apply_loss(self.output, predictions, rows, tf.reduce_sum(real_B))


def mean(rows: Rows, bags: Bags) -> tf.Tensor:
    """Return the mean of the rows of each text's features, (B, D) float32; 0 without features.

    Args:
        rows: The unique rows of the features, and the index of each feature's row among them.
        bags: The features of B texts. Padding features have the text number B and are left out.
    """
    segments = {"indices": rows.inverse_N, "segment_ids": bags.owners_N}
    count = bags.labels_BM.shape[0]

    @tf.custom_gradient
    def means(values_UD: tf.Tensor):
        """Return the means (B, D), with a gradient by the unique rows."""

        def gradient(upstream_BD: tf.Tensor) -> tf.Tensor:
            # TensorFlow's own gradient would sort the rows first.
            return tf.raw_ops.SparseSegmentMeanGrad(
                grad=tf.pad(upstream_BD, [[0, 1], [0, 0]]),
                output_dim0=tf.shape(values_UD)[0],
                **segments,
            )

        # This reads the rows in place and takes half the time of a gather, which copies them. The
        # last segment is that of the padding.
        return tf.sparse.segment_mean(values_UD, **segments, num_segments=count + 1)[
            :count
        ], gradient

    return means(rows.values_UD)
