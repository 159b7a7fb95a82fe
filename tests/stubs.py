"""Write the signatures of `lexrow` for editors: python -m tests.stubs > app/__init__.pyi"""

import inspect

import app

_HEAD = '''\
"""The signatures of this package, which editors show. `python -m tests.stubs` prints this file."""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

'''


def text() -> str:
    """Return the content of the file."""
    kinds = {module: name for name, module in app._MODULES.items() if name[0].isupper()}
    lines = [f"from .{module} import {name} as {name}" for module, name in sorted(kinds.items())]
    lines += ["", "__version__: str", ""]
    for name, module in app._MODULES.items():
        if name.startswith("train_"):
            lines += [f"def {name}(", *_arguments(getattr(app, name)), f") -> {kinds[module]}: ..."]
    lines += ["def load(", *_arguments(app.load), f") -> {' | '.join(kinds.values())}: ..."]
    return _HEAD + "\n".join(lines) + "\n"


def _arguments(function) -> list[str]:
    """Return a line for each argument of a function."""
    lines, is_named = [], False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not is_named:
            lines.append("    *,")
            is_named = True
        default = "" if one.default is one.empty else f" = {one.default!r}".replace("'", '"')
        annotation = one.annotation.replace("os.PathLike", "PathLike")
        lines.append(f"    {one.name}: {annotation}{default},")
    return lines


if __name__ == "__main__":
    print(text(), end="")
