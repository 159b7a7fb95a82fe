"""A field of a configuration, which is a flag as well."""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    fixed: bool = False,
    only: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that doubles as a flag.

    choices, minimum: what `settings.check` holds the value to. fixed: whether the value gives a
    meaning to what a workdir stores, so that a run cannot be resumed with another one. only: the
    name of another setting, and the values of it for which this one means anything.
    """
    metadata = {"help": help, "choices": choices, "minimum": minimum, "fixed": fixed, "only": only}
    return dataclasses.field(default=default, metadata=metadata)
