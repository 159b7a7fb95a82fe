"""Every public name has a docstring with an example, and the examples print what they show."""

from __future__ import annotations

import doctest
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import app as lexrow
import app.keras
import app.sklearn
from app import items, language, texts, trained, words
from app.types import WordVectors

# Classes of `lexrow` whose methods are public names, too.
RESULTS = {"Words", "Texts", "Items", "Language"}
SHORT = {"__contains__", "__iter__", "__len__", "__repr__", "__getitem__"}


def has_example(thing: object) -> bool:
    """Whether the docstring of a function or a class has an example, or one of its methods has."""
    names = [name for name in vars(thing)] if inspect.isclass(thing) else []
    own = [thing, *(getattr(thing, name) for name in names if not name.startswith("_"))]
    return any(">>>" in (inspect.getdoc(one) or "") for one in own)


@pytest.mark.parametrize("module", [lexrow, app.keras, app.sklearn], ids=lambda one: one.__name__)
def test_public_names_have_an_example(module):
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    lacking = [name for name in names if not has_example(getattr(module, name))]
    for kind in RESULTS & set(names):
        for name, method in vars(getattr(module, kind)).items():
            if callable(method) and not name.startswith("_") and ">>>" not in (method.__doc__ or ""):
                lacking.append(f"{kind}.{name}")
    assert lacking == []
