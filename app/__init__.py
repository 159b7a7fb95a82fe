"""Word vectors and large embedding tables, trained row by row in TensorFlow 2.

    import lexrow

    words = lexrow.train_words("corpus.txt", dim=100)
    words.most_similar("king")
    words = lexrow.load("data/runs/words")

    train_words(corpus)             -> Words: similar words, vectors of texts, files of vectors
    train_classifier(texts, labels) -> Texts: labels of texts, probabilities, scores
    train_recommender(pairs)        -> Items: items for users, similar items, new users
    train_language_model(corpus)    -> Language: perplexity, next words, text
    load(path)                      -> one of these, from a workdir or a file
    lexrow.keras, lexrow.sklearn       layers and optimizers for Keras, and estimators

`help(lexrow.train_words)` lists the settings of a task, `help(lexrow.Words)` what its result does.
"""

from __future__ import annotations

import importlib
from typing import Any

from .errors import missing_package

__version__ = "0.1.0"
# The module of each function and class, which is imported when the name is first used. TensorFlow,
# which takes seconds, is started when a model is trained or loaded.
_MODULES = {
    "train_words": "words",
    "train_classifier": "texts",
    "train_recommender": "items",
    "train_language_model": "language",
    "load": "trained",
    "Words": "words",
    "Texts": "texts",
    "Items": "items",
    "Language": "language",
}


def __getattr__(name: str) -> Any:
    """Return a function or class of this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        error.msg = missing_package(error) or error.msg
        raise


def __dir__() -> list[str]:
    return [*_MODULES, "__version__"]
