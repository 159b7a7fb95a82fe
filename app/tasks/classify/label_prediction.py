"""What a trained classifier says of texts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ...input.bags import Features
from ...input.labelled import Examples
from ...losses import inference
from ...models.bag import Bag
from ...tables.base import Table
from ...tables.row_reads import distinct
from . import label_metrics
from .label_metrics import Tally

# Of a text to predict or to score: probabilities, and texts, at a time.
_CHANCES, _TEXTS = 1 << 22, 4096


class Classifier:
    """What trained rows say of texts.

    each: whether each label has a probability of its own. device: where this is computed.
    """

    def __init__(
        self,
        model: Bag,
        tables: Mapping[str, Table],
        features: Features,
        each: bool,
        device: str,
    ):
        self._model, self._tables, self._features = model, tables, features
        self._each, self._device = each, device
        ids, count = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
        self._hidden = tf.function(self._means, (ids, ids, count), autograph=False)

    def probabilities(self, tokens_M: np.ndarray, lengths_E: np.ndarray) -> np.ndarray:
        """Of each label for each text, (E, C) float32.

        tokens_M: int32 ids of words, one text after the other. lengths_E: words of each text.
        """
        owners_M = np.repeat(np.arange(len(lengths_E), dtype=np.int32), lengths_E)
        with tf.device(self._device):
            hidden_ED = self._hidden(tokens_M, owners_M, len(lengths_E))
            blocks = inference.distribution(self._model.output, hidden_ED, self._gather)
            found = [*zip(*blocks, strict=True)]
        ids_C, log_EC = np.concatenate(found[0]), np.concatenate(found[1], axis=1)
        return np.exp(log_EC[:, np.argsort(ids_C)])

    def score(self, examples: Examples) -> Tally:
        """What it predicts of some examples."""
        each = self._each and bool((examples.label_counts_E > 1).any())
        size = batch_size(len(examples.labels))
        parts = [examples.part(first, first + size) for first in range(0, len(examples), size)]
        found = [
            label_metrics.count_predictions(
                self.probabilities(some.tokens_M, some.lengths_E),
                some.labels_N,
                some.label_counts_E,
                each,
            )
            for some in parts
        ]
        return Tally(*map(sum, zip(*found, strict=True)))

    def _means(self, tokens_M: tf.Tensor, owners_M: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        ids_N, owners_N = self._features.of(tokens_M, owners_M)
        ids_U, positions_N = distinct(ids_N)
        rows_UD = self._gather("input", ids_U)
        return tf.sparse.segment_mean(rows_UD, positions_N, owners_N, num_segments=count)

    def _gather(self, name: str, ids_U: tf.Tensor) -> tf.Tensor:
        return self._tables[name].gather(ids_U)


def batch_size(labels: int) -> int:
    """How many texts are predicted at a time."""
    return max(1, min(_TEXTS, _CHANCES // labels))
