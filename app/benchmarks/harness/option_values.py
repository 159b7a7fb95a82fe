"""Check the options of a benchmark, and parse their comma-separated values."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ...config.setting import fault
from ...config.settings import MOST_ROWS, is_whole_number
from ...errors import UsageError
from .options import Options


def check(options: Options) -> None:
    """Check the values of the options.

    Args:
        options: The options of a case.

    Raises:
        UsageError: A value is not possible.
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if wrong := fault(field, value):
            raise UsageError(f"--{field.name}={value}: {wrong}")


def chosen(flag: str, value: str, known: Collection[str], noun: str) -> list[str]:
    """Return the names in a comma-separated value in their order, each once.

    Args:
        flag: The flag, for messages.
        value: Its value.
        known: The possible names.
        noun: A word for such a name.

    Raises:
        UsageError: A name is unknown.
    """
    names = items(value)
    for name in names:
        if name not in known:
            choices = ", ".join(known)
            raise UsageError(f"--{flag}={value}: {name} is no {noun}; choose from {choices}")
    return names


def numbers(flag: str, value: str, noun: str, least: int = 1) -> list[int]:
    """Return the whole numbers in a comma-separated value in ascending order, each once.

    Args:
        flag: The flag, for messages.
        value: Its value; an empty one gives an empty list.
        noun: A word for the counted things.
        least: The least number. The greatest is `MOST_ROWS`.

    Raises:
        UsageError: An item is no whole number, too small or too large.
    """
    for item in items(value):
        if not (is_whole_number(item) and int(item) >= least):
            raise UsageError(
                f"--{flag}={value}: {item} is no number of {noun}; give at least {least}"
                f" and at most {MOST_ROWS}"
            )
    return sorted({int(item) for item in items(value)})


def items(value: str) -> list[str]:
    """Return the items of a comma-separated value, without white space and repetitions.

    Args:
        value: The value.
    """
    return list(dict.fromkeys(item.strip() for item in value.split(",") if item.strip()))
