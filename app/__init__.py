"""Lexrow: word vectors and large embedding tables, trained row by row in TensorFlow 2."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
# The functions and classes of this package, and the module of each. A module is imported when a
# name of it is first used, as TensorFlow takes seconds.
_MODULES = {"train_words": "words", "Words": "words", "load": "trained"}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Return a function or class of this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
