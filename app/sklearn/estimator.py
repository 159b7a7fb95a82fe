"""The parts that the estimators share: parameters, seed, training, checked lists of texts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from ..checkpoints.workdir import Workdir
from ..errors import UsageError
from ..settings import Config
from ..settings.checks import make_config
from ..training.run import train_and_evaluate

# Flags that an estimator sets, beside those of its parameters.
_OWN = {"workdir", "plan_only", "heldout"}


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


def train(config: Config, folder: str) -> Workdir:
    """Train a run in a folder without printing, and return its workdir."""
    path = Path(folder) / "run"
    train_and_evaluate(config, path, is_quiet=True)
    return Workdir(path)


@contextlib.contextmanager
def argument_names(names: Mapping[str, str]) -> Iterator[None]:
    """Raise each UsageError of the context with the names of arguments instead of flags.

    Args:
        names: Further texts to replace in the message, after `--` is removed from flags.
    """
    try:
        yield
    except UsageError as error:
        text = re.sub(r"--(?=[a-z])", "", str(error))
        for name, argument in {**names, "corpus=X": "X", "seed=": "random_state="}.items():
            text = text.replace(name, argument)
        raise UsageError(text) from error


def as_texts(X: Iterable[str]) -> list[str]:
    """Return texts as a list.

    Raises:
        ValueError: X is one string or not iterable, or an item is no string.
    """
    if isinstance(X, str):
        raise ValueError("X is one string; give a list of texts")
    if not isinstance(X, Iterable):
        raise ValueError(f"X is {type(X).__name__}; give a list of texts")
    texts = np.asarray(X, object).tolist() if hasattr(X, "__array__") else list(X)
    wrong = next((place for place, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"X[{wrong}] is {type(texts[wrong]).__name__}, and not a text")
    return texts


def as_training_texts(X: Iterable[str]) -> list[str]:
    """Return texts to train on, as a list.

    Raises:
        ValueError: As for `as_texts`, or no text has a word.
    """
    texts = as_texts(X)
    if not any(map(str.strip, texts)):
        raise ValueError("X: no text has a word; give texts of words")
    return texts


def check_labels(y: Iterable) -> None:
    """Raise ValueError if a label is None or NaN.

    Args:
        y: The labels.
    """
    for place, label in enumerate(np.asarray(y, object).ravel()):
        if label is None or (isinstance(label, (float, np.floating)) and np.isnan(label)):
            raise ValueError(f"y[{place}] is no label, but None or NaN; give each text a label")


def as_bytes(X: Iterable[str]) -> list[bytes]:
    """Return texts in UTF-8.

    Raises:
        ValueError: As for `as_texts`.
    """
    return [text.encode("utf-8", "replace") for text in as_texts(X)]
