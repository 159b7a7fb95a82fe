"""A text vectorizer with the interface of scikit-learn."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..checkpoints.workdir import read_settings
from ..settings import Config, flag_values
from ..settings.checks import make_config
from ..tasks import trained_vectors
from ..text import vector_files
from ..text.tokenize import make_tokenizer
from ..text.unicode_rules import normal_form, normalize
from ..types import WordVectors
from .estimator import (
    TextEstimator,
    argument_names,
    as_bytes,
    as_texts,
    as_training_texts,
    train,
)

_TEXTS = 4096  # texts whose vectors are computed at a time


class TextVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):
    """Turns texts into the means of the vectors of their words.

    Args:
        vectors: A workdir, or a file of word2vec or fastText. None: `fit` trains skip-gram on the
            texts.
        dim: The columns of a vector. Given vectors have their own.
        epochs: Passes over the texts.
        learning_rate: The peak learning rate; 0 for the optimizer's default.
        min_count: Words that occur fewer times are dropped.
        tokenizer: How texts are split, `whitespace` or `unicode`, also for the vectors of a file.
            For a workdir, texts are split as in its run.
        random_state: The seed, a whole number, a `numpy.random.RandomState`, or None for any.
        settings: Other settings of `lexrow train`, by the names of their flags.

    Attributes:
        vocabulary_: The row of each word, as the tokenizer writes it.
        vectors_: The rows, (V, D) float32.
    """

    def __init__(
        self,
        vectors: str | None = None,
        dim: int = 100,
        epochs: int = 5,
        learning_rate: float = 0.0,
        min_count: int = 5,
        tokenizer: str = "whitespace",
        random_state: int | np.random.RandomState | None = 1,
        settings: Mapping[str, Any] | None = None,
    ):
        self.vectors = vectors
        self.dim = dim
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.min_count = min_count
        self.tokenizer = tokenizer
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Iterable[str], y: Any = None) -> TextVectorizer:
        """Load the vectors, or train them on the texts.

        Raises:
            ValueError: The texts, the parameters or the vectors cannot be used.
            RunError: Training failed.
        """
        texts = as_training_texts(X) if self.vectors is None else as_texts(X)
        if self.vectors is None:
            with tempfile.TemporaryDirectory() as folder:
                corpus = Path(folder) / "texts.txt"
                lines = (" ".join(text.splitlines()) + "\n" for text in texts)
                with open(corpus, "w", encoding="utf-8", errors="replace") as file:
                    file.writelines(lines)
                with argument_names({str(corpus): "X"}):
                    config = self._config("words", corpus)
                    found = trained_vectors.load(train(config, folder).path)
        else:
            config, found = self._load_vectors()
        self._corpus_config = config.corpus
        # Words of a file may be written in another form than those of the texts.
        tokens = normalize(found.tokens, normal_form(config.corpus))
        self.vocabulary_ = {token: row for row, token in reversed([*enumerate(tokens)])}
        self.vectors_ = np.asarray(found.matrix, np.float32)
        self._n_features_out = self.vectors_.shape[1]  # for get_feature_names_out
        return self

    def _load_vectors(self) -> tuple[Config, WordVectors]:
        """Return the vectors of a workdir or of a file, and the configuration to split texts by."""
        if not self.vectors or not isinstance(self.vectors, str | os.PathLike):
            raise ValueError(f"vectors={self.vectors!r}: give the name of a workdir or of a file")
        with argument_names({f"workdir={self.vectors}": f"vectors={self.vectors}"}):
            if not Path(self.vectors).is_dir():
                return make_config({"tokenizer": self.tokenizer}), vector_files.read(self.vectors)
            config = flag_values.from_names(read_settings(self.vectors))
            found = trained_vectors.load(self.vectors)
        if config.run.task == "recommend":
            raise ValueError(f"vectors={self.vectors}: a recommender, which has no words")
        return config, found

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """Return the mean vector of each text, (N, D) float32; 0 for a text without known words."""
        check_is_fitted(self)
        texts, split = as_bytes(X), make_tokenizer(self._corpus_config)
        means = [np.zeros((0, self._n_features_out), np.float32)]
        for first in range(0, len(texts), _TEXTS):
            words = split(tf.constant(texts[first : first + _TEXTS], tf.string))
            found = (word.decode() for word in words.flat_values.numpy().tolist())
            rows_M = np.fromiter((self.vocabulary_.get(word, -1) for word in found), np.int64)
            owners_M = tf.boolean_mask(words.value_rowids(), rows_M >= 0)
            vectors_MD = self.vectors_[rows_M[rows_M >= 0]]
            means.append(tf.math.unsorted_segment_mean(vectors_MD, owners_M, words.nrows()))
        return np.concatenate(means)
