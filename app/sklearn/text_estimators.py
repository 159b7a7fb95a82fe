"""A text classifier and a text vectorizer with the interface of scikit-learn."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ..checkpoints.workdir import Workdir, read_settings
from ..input.labelled_files import MOST_WEIGHT
from ..settings import CorpusConfig, flag_values
from ..settings.checks import make_config
from ..system import devices
from ..tasks import trained_vectors
from ..tasks.classify.classify_model import Classifier, load_trained, make_model, make_scorer
from ..text import vector_files
from ..text.tokenize import make_tokenizer
from ..text.unicode_rules import normal_form, normalize
from ..trained import argument_names
from ..training.run import train_and_evaluate
from ..types import WordVectors

# Flags that an estimator sets, beside those of its parameters.
_OWN = {"workdir", "plan_only", "heldout"}
_TEXTS = 4096  # texts whose vectors are computed at a time
# How messages name what the arguments of `fit` become.
_ARGUMENTS = {"corpus=X": "X", "seed=": "random_state="}


class TextEstimator(BaseEstimator):
    """Has the tags of an estimator of texts, and trains a task."""

    def __sklearn_tags__(self) -> Tags:
        """Return the tags: texts, and no table of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array = True, True
        tags.input_tags.two_d_array = False
        return tags

    def _config(self, task: str, corpus: Path, **values: Any) -> Any:
        """Return the configuration of a run on a file, by the parameters and other settings.

        Raises ValueError if a setting is one that the estimator sets, and UsageError for others.
        """
        values |= {"task": task, "corpus": str(corpus), "dim": self.dim, "epochs": self.epochs}
        values |= {"learning_rate": self.learning_rate, "seed": self._seed()}
        values |= {"tokenizer": self.tokenizer, "min_count": self.min_count, "audit": False}
        if not isinstance(self.settings, Mapping | None):
            raise ValueError(f"settings={self.settings!r}: give a dictionary, by names of flags")
        for name in self.settings or {}:
            if name in values or name in _OWN:
                kind = type(self).__name__
                raise ValueError(
                    f"settings: {kind} sets {name!r} itself; use its parameter, if it has one"
                )
        return make_config(values | dict(self.settings or {}))

    def _seed(self) -> Any:
        """Return the seed of the run: a whole number as it is, else a number that is drawn."""
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return self.random_state


def _train(config: Any, folder: str) -> Workdir:
    """Train a run in a folder without printing, and return its workdir."""
    place = Workdir(Path(folder) / "run")
    train_and_evaluate(config, place.path, is_quiet=True)
    return place


def _as_texts(X: Iterable[str]) -> list[str]:
    """Return texts as a list; raise ValueError for one string, or an item that is no string."""
    if isinstance(X, str):
        raise ValueError("X is one string; give a list of texts")
    if not isinstance(X, Iterable):
        raise ValueError(f"X is {type(X).__name__}; give a list of texts")
    texts = np.asarray(X, object).tolist() if hasattr(X, "__array__") else list(X)
    wrong = next((place for place, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"X[{wrong}] is {type(texts[wrong]).__name__}, and not a text")
    return texts


def _as_training_texts(X: Iterable[str]) -> list[str]:
    """Return texts to train on as a list; raise ValueError if no text has a word."""
    texts = _as_texts(X)
    if not any(map(str.strip, texts)):
        raise ValueError("X: no text has a word; give texts of words")
    return texts


def _check_labels(y: Iterable) -> None:
    """Raise ValueError if a label is None or NaN."""
    for place, label in enumerate(np.asarray(y, object).ravel()):
        if label is None or (isinstance(label, (float, np.floating)) and np.isnan(label)):
            raise ValueError(f"y[{place}] is no label, but None or NaN; give each text a label")


def _as_bytes(X: Iterable[str]) -> list[bytes]:
    """Return texts in UTF-8."""
    return [text.encode("utf-8", "replace") for text in _as_texts(X)]


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

    __module__ = __package__  # where a pickled estimator finds its class

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
        texts = _as_training_texts(X)
        _check_labels(y)
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
            with argument_names({str(corpus): "X", **_ARGUMENTS}):
                config = self._config("classify", corpus, **columns, **others)
                trained = load_trained(config, _train(config, folder))
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
        texts = _as_bytes(X)
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

    __module__ = __package__  # where a pickled estimator finds its class

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
        texts = _as_training_texts(X) if self.vectors is None else _as_texts(X)
        if self.vectors is None:
            with tempfile.TemporaryDirectory() as folder:
                corpus = Path(folder) / "texts.txt"
                lines = (" ".join(text.splitlines()) + "\n" for text in texts)
                with open(corpus, "w", encoding="utf-8", errors="replace") as file:
                    file.writelines(lines)
                with argument_names({str(corpus): "X", **_ARGUMENTS}):
                    config = self._config("words", corpus)
                    split = config.corpus
                    found = trained_vectors.load(_train(config, folder).path)
        else:
            split, found = self._load_vectors()
        self._corpus_config = split
        # Words of a file may be written in another form than those of the texts.
        tokens = normalize(found.tokens, normal_form(split))
        self.vocabulary_ = {token: row for row, token in reversed([*enumerate(tokens)])}
        self.vectors_ = np.asarray(found.matrix, np.float32)
        self._n_features_out = self.vectors_.shape[1]  # for get_feature_names_out
        return self

    def _load_vectors(self) -> tuple[CorpusConfig, WordVectors]:
        """Return how texts are split, and the vectors of a workdir or of a file."""
        if not self.vectors or not isinstance(self.vectors, str | os.PathLike):
            raise ValueError(f"vectors={self.vectors!r}: give the name of a workdir or of a file")
        with argument_names({f"workdir={self.vectors}": f"vectors={self.vectors}"}):
            if not Path(self.vectors).is_dir():
                split = make_config({"tokenizer": self.tokenizer}).corpus
                return split, vector_files.read(self.vectors)
            config = flag_values.from_names(read_settings(self.vectors))
            found = trained_vectors.load(self.vectors)
        if config.run.task == "recommend":
            raise ValueError(f"vectors={self.vectors}: a recommender, which has no words")
        return config.corpus, found

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """Return the mean vector of each text, (N, D) float32; 0 for a text without known words."""
        check_is_fitted(self)
        texts, split = _as_bytes(X), make_tokenizer(self._corpus_config)
        means = [np.zeros((0, self._n_features_out), np.float32)]
        for first in range(0, len(texts), _TEXTS):
            words = split(tf.constant(texts[first : first + _TEXTS], tf.string))
            found = (word.decode() for word in words.flat_values.numpy().tolist())
            rows_M = np.fromiter((self.vocabulary_.get(word, -1) for word in found), np.int64)
            owners_M = tf.boolean_mask(words.value_rowids(), rows_M >= 0)
            vectors_MD = self.vectors_[rows_M[rows_M >= 0]]
            means.append(tf.math.unsorted_segment_mean(vectors_MD, owners_M, words.nrows()))
        return np.concatenate(means)
