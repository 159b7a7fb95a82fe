"""A field of a configuration dataclass that is also a command-line flag."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

# What to give for a setting, by the annotation of its dataclass field.
_REMEDIES = {
    "bool": "give True or False",
    "int": "give a whole number",
    "float": "give a number",
    "str": "give text",
}
# Far more than anybody lists; a graph with a part for each of thousands takes minutes to trace.
_MOST_NUMBERS = 100


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    bounds: tuple[float, float] | None = None,
    half_open: bool = False,
    fixed: bool = False,
    only: tuple[Any, ...] = (),
    by_task: Mapping[str, Any] | None = None,
    beside: tuple[tuple[Mapping[str, Any], Any], ...] = (),
    of_task: Mapping[str, tuple[str, ...]] | None = None,
    path: bool = False,
    numbers: type | None = None,
    subject: str = "",
    former: tuple[Any, ...] = (),
    before: Any = None,
) -> Any:
    """Return a dataclass field that is also a flag, with the rules of its value as metadata.

    Args:
        default: The value of the flag when it is not given.
        help: The text that `--help` shows, in full sentences.
        choices: The allowed values; empty allows any.
        bounds: The smallest and the largest allowed number, also of each one of `numbers`. Every
            number has bounds. The largest is far above any practical value, and low enough that
            32-bit arithmetic cannot overflow.
        half_open: Whether the value must be less than the upper bound.
        fixed: Whether a run cannot be resumed with another value, because the stored data
            depends on it.
        only: The name of another setting, followed by its values for which this setting has an
            effect.
        by_task: The defaults of the tasks that do not use `default`.
        beside: Defaults beside certain values of other settings: pairs of those values by name, and
            the default. The first pair whose values all hold is used, before `by_task`.
        of_task: The choices of each task for which this setting has an effect. The first choice is
            the default of the task.
        path: Whether the value names files or folders, in which `~` is the home folder.
        numbers: `int` or `float` if the text lists such numbers between commas, at most 100 of
            them. The list may be empty if it is by default.
        subject: The group of the flag in `--help`; empty for the group of its section.
        former: Earlier defaults, which the flags of older workdirs have. They are allowed where
            they have no effect.
        before: The value of workdirs that are older than the setting, if it is not the default.
    """
    if of_task:
        choices = tuple(dict.fromkeys(choice for known in of_task.values() for choice in known))
        by_task = {task: known[0] for task, known in of_task.items()}
    metadata = {
        "help": help,
        "choices": choices,
        "bounds": bounds,
        "half_open": half_open,
        "fixed": fixed,
        "only": ("task", *of_task) if of_task else only,
        "beside": (*beside, *(({"task": task}, value) for task, value in (by_task or {}).items())),
        "of_task": of_task or {},
        "path": path,
        "numbers": numbers,
        "subject": subject,
        "former": former,
        "before": before,
    }
    return dataclasses.field(default=default, metadata=metadata)


def typed(field: dataclasses.Field, value: Any) -> bool | int | float | str:
    """Return a value of a Python program as the type in the annotation of its setting.

    A float may be given as an integer, and names of files as a path. A number, a bool or a text of
    numpy is as good as one of Python.

    Args:
        field: The dataclass field of the setting.
        value: The value.

    Raises:
        ValueError: The value has another type; the message is the remedy.
    """
    kind = str(field.type)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # of numpy
        value = value.item()
    if field.metadata["path"] and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bool):
        if kind == "bool":
            return value
    elif kind == "int" and isinstance(value, Integral):
        return int(value)
    elif kind == "float" and isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value == abs(value) else -math.inf
    elif kind == "str" and isinstance(value, str):
        return value
    elif kind == "str" and isinstance(value, (Real, list, tuple)):
        parts = value if isinstance(value, (list, tuple)) else [value]
        example = ",".join(map(str, parts))[:40]
        raise ValueError(f'give text, such as "{example}"')
    raise ValueError("give text or a path" if field.metadata["path"] else _REMEDIES[kind])


def same(field: dataclasses.Field, text: str, other: str) -> bool:
    """Return whether two texts are the same value of a setting, such as `1` and `1.0` of a float.

    Args:
        field: The dataclass field of the setting.
        text: A value, as text.
        other: Another value, as text.
    """
    number = _number(text, float) if field.type == "float" else None
    return text == other or (number is not None and number == _number(other, float))


def fault(field: dataclasses.Field, value: Any) -> str | None:
    """Return an error message if a value is not allowed for a setting, or None.

    Args:
        field: The dataclass field of the setting.
        value: The value to check.
    """
    choices = field.metadata["choices"]
    if choices and value not in choices:
        return f"not one of {', '.join(choices)}"
    kind = field.metadata["numbers"]
    if kind is None:
        return _outside(field, value)
    items = [item.strip() for item in value.split(",") if item.strip()]
    if field.default and not items:
        return f"give numbers such as {field.default}"
    if len(items) > _MOST_NUMBERS:
        return f"give at most {_MOST_NUMBERS} numbers"
    for item in items:
        number = _number(item, kind)
        if number is None:
            return f"{item[:40]!r} is no {'whole ' if kind is int else ''}number; give one"
        wrong = _outside(field, number)
        if wrong:
            return wrong
    return None


def _outside(field: dataclasses.Field, value: Any) -> str | None:
    """Return an error message that names the bound that a value is beyond, or None."""
    least, most = field.metadata["bounds"] or (value, value)
    if not value >= least:
        return f"give at least {least:.15g}"
    if field.metadata["half_open"] and not value < most:
        return f"give less than {most:.15g}"
    return f"give at most {most:.15g}" if value > most else None


def _number(text: str, kind: type) -> float | None:
    """Return the number that a text is written as; None if it is no number, or NaN.

    A whole number (kind int) has at most 19 digits, and no sign or underscore.
    """
    if kind is int:
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
