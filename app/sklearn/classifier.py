"""A text classifier with the interface of scikit-learn."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ..input.labelled_files import MOST_WEIGHT
from ..system import devices
from ..tasks.classify.classify_model import Classifier, load_trained, make_model, make_scorer
from .estimator import (
    TextEstimator,
    argument_names,
    as_bytes,
    as_training_texts,
    check_labels,
    train,
)


class _Table(NamedTuple):
    """Rows (V, D) in memory."""

    rows_VD: np.ndarray

    def gather(self, ids_N: tf.Tensor) -> tf.Tensor:
        """Return the rows of some ids."""
        return tf.gather(self.rows_VD, ids_N)


class TextClassifier(ClassifierMixin, TextEstimator):
    """A classifier of texts by the mean of the vectors of their words (`--task=classify`).

    Args:
        dim: The columns of a vector.
        epochs: Passes over the texts.
        learning_rate: The peak learning rate; 0 for the optimizer's default.
        loss: How labels are predicted: `softmax` or another loss of the task.
        word_ngrams: The length in words of the longest n-gram that is a feature.
        min_count: Words that occur fewer times are dropped.
        tokenizer: How texts are split, `whitespace` or `unicode`.
        random_state: The seed, a whole number, a `numpy.random.RandomState`, or None for any.
        settings: Other settings of `lexrow train`, by the names of their flags.

    Attributes:
        classes_: The labels in sorted order.
    """

    def __init__(
        self,
        dim: int = 100,
        epochs: int = 5,
        learning_rate: float = 0.16,
        loss: str = "softmax",
        word_ngrams: int = 1,
        min_count: int = 1,
        tokenizer: str = "whitespace",
        random_state: int | np.random.RandomState | None = 1,
        settings: Mapping[str, Any] | None = None,
    ):
        self.dim = dim
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.loss = loss
        self.word_ngrams = word_ngrams
        self.min_count = min_count
        self.tokenizer = tokenizer
        self.random_state = random_state
        self.settings = settings

    def fit(
        self, X: Iterable[str], y: Iterable, sample_weight: Sequence[float] | None = None
    ) -> TextClassifier:
        """Train on texts and their labels.

        Args:
            y: The label of each text.
            sample_weight: The weight of each text in the loss; by default 1.

        Raises:
            ValueError: The texts, labels, weights or parameters cannot be used.
            RunError: Training failed.
        """
        texts = as_training_texts(X)
        check_labels(y)
        labels = np.asarray(y)
        check_classification_targets(labels)
        if labels.shape != (len(texts),):
            raise ValueError(f"X has {len(texts)} texts, y the shape {labels.shape}; give as many")
        self.classes_, ids = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has {len(self.classes_)} class; give texts of two or more")
        weights = _check_sample_weight(sample_weight, texts, ensure_non_negative=True)
        place = int(weights.argmax())
        if weights[place] > MOST_WEIGHT:
            raise ValueError(
                f"sample_weight[{place}]={weights[place]:g}; give at most {MOST_WEIGHT:,.0f}"
            )
        if len(np.unique(ids[weights > 0])) < 2:
            raise ValueError(
                "sample_weight: the texts with a weight above 0 have fewer than two labels, so "
                "there is nothing to learn; give texts of two labels such weights"
            )
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder) / "texts.csv"
            with open(corpus, "w", encoding="utf-8", errors="replace", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["text", "label", "weight"])
                rows.writerows(zip(texts, ids.tolist(), weights.tolist(), strict=True))
            columns = {f"{name}_column": name for name in ("text", "label", "weight")}
            others = {"loss": self.loss, "word_ngrams": self.word_ngrams, "heldout_share": 0.0}
            with argument_names({str(corpus): "X"}):
                config = self._config("classify", corpus, **columns, **others)
                trained = load_trained(config, train(config, folder))
            self._fitted_config = config
        self._words, self._labels = trained.words, trained.labels
        self._features = trained.features
        self._rows = {
            name: table.gather(tf.range(table.rows)).numpy()
            for name, table in trained.tables.items()
        }
        self._score: Any = None
        return self

    def predict_proba(self, X: Iterable[str]) -> np.ndarray:
        """Return the probability of each label for each text, (N, C) float32, as `classes_`."""
        check_is_fitted(self)
        texts = as_bytes(X)
        self._score = self._score or self._make_scorer()
        chances_NC = np.zeros((len(texts), len(self.classes_)), np.float32)
        columns = [int(label) for label in self._labels.tokens]
        chances_NC[:, columns] = np.concatenate([chances_NC[:0, columns], *self._score(texts)])
        if self.loss == "one_vs_all":  # as OneVsRestClassifier, of which each text has one label
            sums_N1 = chances_NC.sum(axis=1, keepdims=True)
            chances_NC /= np.where(sums_N1 > 0, sums_N1, 1.0)
        return chances_NC

    def predict(self, X: Iterable[str]) -> np.ndarray:
        """Return the most probable label of each text, (N,); `X` are the texts."""
        chances_NC = self.predict_proba(X)  # raises first if nothing is fitted
        return self.classes_[chances_NC.argmax(axis=1)]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without TensorFlow's functions, which cannot be pickled."""
        state = dict(super().__getstate__())
        return state | {"_score": None} if "_score" in state else state

    def _make_scorer(self):
        """Return a function from texts to their probabilities (see `make_scorer`)."""
        config = self._fitted_config
        model = make_model(config, self._features, self._labels)
        tables = {name: _Table(rows_VD) for name, rows_VD in self._rows.items()}
        classifier = Classifier(model, tables, self._features, devices.name(config.run))
        return make_scorer(classifier, config, self._words, len(self._labels.tokens))
