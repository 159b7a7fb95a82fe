"""Parse the comma-separated values of options."""

from __future__ import annotations

from collections.abc import Collection

from ...config import settings
from ...errors import UsageError


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


def numbers(value: str) -> list[int]:
    """Return the whole numbers in a comma-separated value in ascending order, each once.

    Args:
        value: The value of an option, which `Options` has checked; an empty one gives an empty
            list.
    """
    return sorted(set(settings.numbers(value)))


def items(value: str) -> list[str]:
    """Return the items of a comma-separated value, without white space and repetitions.

    Args:
        value: The value.
    """
    return list(dict.fromkeys(item.strip() for item in value.split(",") if item.strip()))
