"""Predict and score labels with the trained tables of a classifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from ...input.features import Features
from ...input.labelled import Examples
from ...losses import inference
from ...losses.base import gather_from
from ...models.bag import Bag
from ...tables.base import Table
from ...tables.row_reads import unique
from ...text.fasttext.line_features import hash_names
from ...text.meter import show_progress
from ...types import HOST
from . import label_metrics
from .label_metrics import Tally

# Most probabilities, and most texts, that are computed at a time.
_MAX_PROBABILITIES, _MAX_TEXTS = 1 << 22, 4096


class Classifier:
    """A model with the tables that it reads at each prediction.

    Args:
        model: The bag-of-words model.
        features: Which words and n-grams a text has.
        device: Where to compute.

    Attributes:
        features: The argument.
    """

    def __init__(self, model: Bag, tables: Mapping[str, Table], features: Features, device: str):
        self._model, self._gather, self.features = model, gather_from(tables), features
        self._device = device
        ids, count = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
        self._hidden = tf.function(self._means, (ids, ids, ids, count), autograph=False)

    def probabilities(
        self, tokens_M: np.ndarray, lengths_E: np.ndarray, hashes_M: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the probability of each label for each text, (E, C) float32, by label id.

        A text without words is predicted from a zero vector.

        Args:
            tokens_M: Ids of words, int32, one text after the other (see `Features.extract`).
            lengths_E: Number of words of each text.
            hashes_M: The hash of each word, int32, if the features need it.
        """
        hashes_M = tokens_M if hashes_M is None else hashes_M
        owners_M = np.repeat(np.arange(len(lengths_E), dtype=np.int32), lengths_E)
        with tf.device(self._device):
            hidden_ED = self._hidden(tokens_M, owners_M, hashes_M, len(lengths_E))
            blocks = inference.distribution(self._model.output, hidden_ED, self._gather)
            parts = [*zip(*blocks, strict=True)]
        ids_C, log_EC = np.concatenate(parts[0]), np.concatenate(parts[1], axis=1)
        return np.exp(log_EC[:, np.argsort(ids_C)])

    def score(self, examples: Examples, check: Callable[[], None] = lambda: None) -> Tally:
        """Predict the labels of labelled texts, and return the counts of right predictions.

        Several labels are predicted for a text only if some of the texts have several.

        Args:
            check: Called after each part of the texts; see `training.job.Scores`.
        """
        multi_label = self._model.output.is_multi_label and (examples.label_counts_E > 1).any()
        size = batch_size(len(examples.labels))
        hashes_W = hash_names(examples.words) if self.features.needs_hashes else None
        tallies = []
        with show_progress("scoring held-out texts", len(examples), " texts") as show:
            for first in range(0, len(examples), size):
                part = examples.part(first, first + size)
                hashes_M = None if hashes_W is None else hashes_W[part.tokens_M]
                chances_EC = self.probabilities(part.tokens_M, part.lengths_E, hashes_M)
                tallies.append(
                    label_metrics.count_predictions(
                        chances_EC, part.labels_N, part.label_counts_E, multi_label
                    )
                )
                show(first + len(part))
                check()
        return Tally(*map(sum, zip(*tallies, strict=True)))

    def _means(
        self, tokens_M: tf.Tensor, owners_M: tf.Tensor, hashes_M: tf.Tensor, count: tf.Tensor
    ) -> tf.Tensor:
        """Return the mean of the feature vectors of each of `count` texts, (E, D); 0 without any.

        `owners_M` has the position of the text of each token.
        """
        with tf.device(HOST):  # the number of features gives all further shapes
            ids_N, owners_N = self.features.extract(tokens_M, owners_M, hashes_M)
        ids_U, inverse_N = unique(ids_N)
        has_row_U = ids_U < self.features.rows
        rows_UD = self._gather("input", tf.where(has_row_U, ids_U, 0))
        rows_UD = tf.where(has_row_U[:, tf.newaxis], rows_UD, 0.0)
        return tf.sparse.segment_mean(rows_UD, inverse_N, owners_N, num_segments=count)


def batch_size(labels: int) -> int:
    """Return how many texts to predict at a time: at most 4,096, and fewer with many labels."""
    return max(1, min(_MAX_TEXTS, _MAX_PROBABILITIES // labels))
