"""A text classifier and a text vectorizer with the interface of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .. import Words, train_classifier, train_words
from ..trained import argument_names

# Settings that an estimator sets, beside those of its parameters.
_OWN = {
    *("task", "corpus", "workdir", "plan_only", "heldout", "initial_model", "grow_vocab"),
    *("text_column", "label_column", "weight_column", "label_separator"),
}
# How messages name what the arguments of `fit` become.
_NAMES = {"texts:": "X:", "corpus:": "X:", "weights[": "sample_weight[", "seed=": "random_state="}


class TextEstimator(BaseEstimator):
    """Has the tags of an estimator of texts, and trains with its parameters."""

    def __sklearn_tags__(self) -> Tags:
        """Return the tags: texts, and no table of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array = True, True
        tags.input_tags.two_d_array = False
        return tags

    def _train(self, train: Callable[..., Any], *data: Any, **values: Any) -> Any:
        """Return what a function such as `train_words` makes with the parameters and settings."""
        values |= {"dim": self.dim, "epochs": self.epochs, "seed": self._seed()}
        values |= {"tokenizer": self.tokenizer, "min_count": self.min_count}
        values["verbose"] = False
        if not isinstance(self.settings, Mapping | None):
            raise ValueError(f"settings={self.settings!r}: give a dictionary, by names of settings")
        others = dict(self.settings or {})
        for name in others:
            if name in values or name in _OWN or name == "learning_rate":
                kind = type(self).__name__
                raise ValueError(
                    f"settings: {kind} sets {name!r} itself; use its parameter, if it has one"
                )
        if self.learning_rate is not None:
            others["learning_rate"] = self.learning_rate
        with argument_names(_NAMES):
            return train(*data, **values, **others)

    def _seed(self) -> Any:
        """Return the seed of the run: a whole number as it is, else a number that is drawn."""
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return self.random_state


def _as_texts(X: Iterable[str]) -> list[str]:
    """Return texts as a list; raise ValueError for one string, or an item that is no string."""
    if isinstance(X, str) or not isinstance(X, Iterable):
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


def _as_labels(y: Any) -> np.ndarray:
    """Return labels (N,), or of several labels a text an indicator (N, C), as a dense array.

    Raises:
        ValueError: They are no labels.
    """
    if issparse(y):
        return y.toarray()
    for place, label in enumerate(np.asarray(y, object).ravel()):
        if label is None or (isinstance(label, float | np.floating) and np.isnan(label)):
            raise ValueError(f"y[{place}] is no label, but None or NaN; give each text a label")
    check_classification_targets(y)
    return np.asarray(y)


class TextClassifier(ClassifierMixin, TextEstimator):
    """A classifier of texts by the mean of the vectors of their words.

    A text has one label, or several: then `y` is an indicator matrix (N, C), as of
    `sklearn.preprocessing.MultiLabelBinarizer`, and `predict` returns one.

    Args:
        dim: The columns of a vector.
        epochs: Passes over the texts.
        learning_rate: The peak learning rate. None: the default of the optimizer.
        loss: How labels are predicted: `softmax`, `one_vs_all` or another loss of
            `lexrow.train_classifier`. `auto` is `one_vs_all` for several labels a text, else
            `softmax`.
        word_ngrams: The length in words of the longest n-gram that is a feature.
        min_count: Words that occur fewer times are dropped.
        tokenizer: How texts are split, `whitespace` or `unicode`.
        random_state: The seed, a whole number, a `numpy.random.RandomState`, or None for any.
        settings: Other settings of `lexrow.train_classifier`, by name.

    Attributes:
        classes_: The labels in sorted order; of several labels a text, the columns of `y`.
        texts_: The trained `lexrow.Texts`; its labels are positions in `classes_`.

    Example:
        >>> texts, labels = ["a warm film", "dull hours"] * 20, ["good", "bad"] * 20
        >>> TextClassifier(dim=10, epochs=10).fit(texts, labels).predict(["a film"]).tolist()
        ['good']
    """

    __module__ = __package__  # where a pickled estimator finds its class

    def __init__(
        self,
        dim: int = 100,
        epochs: int = 5,
        learning_rate: float | None = None,
        loss: str = "auto",
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

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of texts that may have several labels."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(
        self, X: Iterable[str], y: Any, sample_weight: Sequence[float] | None = None
    ) -> TextClassifier:
        """Train on texts and their labels.

        Args:
            y: The label of each text; or an indicator (N, C), dense or sparse. A text may have
                none of its labels.
            sample_weight: The weight of each text in the loss; by default 1.

        Raises:
            ValueError: The texts, labels, weights or parameters cannot be used.
            RunError: Training failed.
        """
        texts, labels = _as_training_texts(X), _as_labels(y)
        is_multi_label = type_of_target(labels) == "multilabel-indicator"
        if len(labels) != len(texts) or labels.ndim != 1 + is_multi_label:
            raise ValueError(f"X has {len(texts)} texts, y the shape {labels.shape}; give as many")
        loss = self.loss
        if loss == "auto":
            loss = "one_vs_all" if is_multi_label else "softmax"
        weights = _check_sample_weight(sample_weight, texts, ensure_non_negative=True)
        if is_multi_label:
            if loss != "one_vs_all":
                raise ValueError(f"loss={loss!r} gives a text one label; give 'one_vs_all' for y")
            classes = np.arange(labels.shape[1])
            # A class of its own, which `predict_proba` drops, for texts without a label.
            ids = [np.flatnonzero(row_C).tolist() or [len(classes)] for row_C in labels]
        else:
            classes, ids = np.unique(labels, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(f"y has {len(classes)} class; give texts of two or more")
            if len(np.unique(ids[weights > 0])) < 2:
                raise ValueError(
                    "sample_weight: the texts with a weight above 0 have fewer than two labels, so "
                    "there is nothing to learn; give texts of two labels such weights"
                )
        values = {"loss": loss, "word_ngrams": self.word_ngrams, "heldout_share": 0.0}
        self.texts_ = self._train(train_classifier, texts, ids, weights=weights, **values)
        self.classes_, self._is_multi_label = classes, is_multi_label
        return self

    def predict_proba(self, X: Iterable[str]) -> np.ndarray:
        """Return the probability of each label for each text, (N, C) float32, as `classes_`."""
        check_is_fitted(self)
        known_NL = self.texts_.predict_proba(_as_texts(X))
        chances_NC = np.zeros((len(known_NL), len(self.classes_) + 1), np.float32)
        chances_NC[:, [int(label) for label in self.texts_.labels]] = known_NL
        chances_NC = chances_NC[:, :-1]
        if not self._is_multi_label:  # as OneVsRestClassifier; the sums of a softmax are 1
            sums_N1 = chances_NC.sum(axis=1, keepdims=True)
            chances_NC /= np.where(sums_N1 > 0, sums_N1, 1.0)
        return chances_NC

    def predict(self, X: Iterable[str]) -> np.ndarray:
        """Return the most probable label of each text, (N,); of several, an indicator (N, C)."""
        chances_NC = self.predict_proba(X)  # raises first if nothing is fitted
        if self._is_multi_label:
            return (chances_NC > 0.5).astype(int)
        return self.classes_[chances_NC.argmax(axis=1)]


class TextVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):
    """Turns texts into the means of the vectors of their words.

    Args:
        vectors: A workdir, or a file of word2vec or fastText. None: `fit` trains skip-gram on the
            texts.
        dim: The columns of a vector. Given vectors have their own.
        epochs: Passes over the texts.
        learning_rate: The peak learning rate. None: the default of the optimizer.
        min_count: Words that occur fewer times are dropped.
        tokenizer: How texts are split, `whitespace` or `unicode`, also for the vectors of a file.
            For a workdir, texts are split as in its run.
        sif: The weight of frequent words in a mean, see `lexrow.Words.encode`; 0 for none.
        random_state: The seed, a whole number, a `numpy.random.RandomState`, or None for any.
        settings: Other settings of `lexrow.train_words`, by name.

    Attributes:
        words_: The `lexrow.Words`.

    Example:
        >>> TextVectorizer(dim=10, epochs=1).fit_transform(["a warm film", "dull hours"] * 20).shape
        (40, 10)
    """

    __module__ = __package__  # where a pickled estimator finds its class

    def __init__(
        self,
        vectors: str | None = None,
        dim: int = 100,
        epochs: int = 5,
        learning_rate: float | None = None,
        min_count: int = 5,
        tokenizer: str = "whitespace",
        sif: float = 0.0,
        random_state: int | np.random.RandomState | None = 1,
        settings: Mapping[str, Any] | None = None,
    ):
        self.vectors = vectors
        self.dim = dim
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.min_count = min_count
        self.tokenizer = tokenizer
        self.sif = sif
        self.random_state = random_state
        self.settings = settings

    def fit(self, X: Iterable[str], y: Any = None) -> TextVectorizer:
        """Load the vectors, or train them on the texts.

        Raises:
            FileNotFoundError: There is no file or folder of the vectors.
            ValueError: The texts, the parameters or the vectors cannot be used.
            RunError: Training failed.
        """
        if self.vectors is None:
            self.words_ = self._train(train_words, _as_training_texts(X))
        else:
            _as_texts(X)
            if not self.vectors or not isinstance(self.vectors, str | os.PathLike):
                remedy = "give the name of a workdir or of a file"
                raise ValueError(f"vectors={self.vectors!r}: {remedy}")
            with argument_names({f"workdir={self.vectors}": f"vectors={self.vectors}"}):
                # The vectors of a workdir have its tokenizer.
                tokenizer = "" if os.path.isdir(self.vectors) else self.tokenizer
                self.words_ = Words.load(self.vectors, tokenizer=tokenizer)
        self._n_features_out = self.words_.vectors.shape[1]  # for get_feature_names_out
        return self

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """Return the mean vector of each text, (N, D) float32; 0 for a text without known words."""
        check_is_fitted(self)
        return self.words_.encode(_as_texts(X), sif=self.sif)
