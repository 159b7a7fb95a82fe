"""A field of a configuration, which is a flag as well."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

# Far more than anybody lists; a graph with a part for each of thousands takes minutes to trace.
_MOST_NUMBERS = 100


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    fixed: bool = False,
    only: tuple[str, ...] = (),
    by_task: Mapping[str, Any] | None = None,
    of_task: Mapping[str, tuple[str, ...]] | None = None,
    path: bool = False,
    numbers: type | None = None,
) -> Any:
    """Return a dataclass field that doubles as a flag.

    Args:
        default: The value of a flag that is not given.
        help: What `--help` says of it, in sentences.
        choices: The only values that it may have.
        minimum: The least that a number may be, also each one of `numbers`.
        maximum: The most that a number may be. Every number has this or `below`: far above what
            anybody trains with, and low enough that neither arithmetic in 32 bits nor an
            allocation that no plan of the memory knows of fails at it.
        below: What a number has to be less than.
        fixed: Whether the value gives a meaning to what a workdir stores, so that a run cannot be
            resumed with another one.
        only: The name of another setting, and the values of it for which this one means anything.
        by_task: The defaults of tasks for which `default` is not right.
        of_task: The choices of each task for which this setting means anything, its default first.
        path: Whether it names files or folders, in which `~` is a home folder.
        numbers: `int` or `float` for a text that lists such numbers between commas, at most 100 of
            them. It may be empty where its default is.
    """
    if of_task:
        choices = tuple(dict.fromkeys(choice for known in of_task.values() for choice in known))
        by_task = {task: known[0] for task, known in of_task.items()}
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "below": below,
        "fixed": fixed,
        "only": ("task", *of_task) if of_task else only,
        "by_task": by_task or {},
        "of_task": of_task or {},
        "path": path,
        "numbers": numbers,
    }
    return dataclasses.field(default=default, metadata=metadata)


def fault(field: dataclasses.Field, value: Any) -> str | None:
    """Return what is wrong with a value by itself, or None."""
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
    """Return which bound of its field a value is beyond, or None."""
    minimum, maximum, below = map(field.metadata.get, ("minimum", "maximum", "below"))
    if minimum is not None and not value >= minimum:
        return f"give at least {minimum:.15g}"
    if maximum is not None and value > maximum:
        return f"give at most {maximum:.15g}"
    if below is not None and not value < below:
        return f"give less than {below:.15g}"
    return None


def _number(text: str, kind: type) -> float | None:
    """Return the number that a text is, or None. Signs and underscores are of no whole number."""
    if kind is int:
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
