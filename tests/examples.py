"""Runs the examples of docstrings."""

from __future__ import annotations

import doctest
import functools
import inspect
from collections.abc import Mapping
from typing import Any

# Only one step is traced.
QUICK = {"steps_per_call": 1}


def run(thing: Any, names: Mapping[str, Any], but: str = "") -> None:
    """Run the examples of a module, a class or a function, which may use some names.

    What they train is trained with the settings of `QUICK`. Those of `but` are not run.
    """
    module = thing if inspect.ismodule(thing) else False
    known = {**vars(thing), **names} if module else {**names}
    for name in known:
        if name.startswith("train_"):
            known[name] = functools.partial(known[name], **QUICK)
    found = doctest.DocTestFinder().find(thing, thing.__name__, module, globs=known)
    assert any(test.examples for test in found)
    found = [test for test in found if test.name != but]
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0, test.name
