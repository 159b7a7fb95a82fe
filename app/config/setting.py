"""A field of a configuration, which is a flag as well."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    fixed: bool = False,
    only: tuple[str, ...] = (),
    by_task: Mapping[str, Any] | None = None,
    of_task: Mapping[str, tuple[str, ...]] | None = None,
) -> Any:
    """A dataclass field that doubles as a flag.

    choices, minimum: what `settings.check` holds the value to. fixed: whether the value gives a
    meaning to what a workdir stores, so that a run cannot be resumed with another one. only: the
    name of another setting, and the values of it for which this one means anything. by_task: the
    defaults of tasks for which `default` is not right. of_task: the choices of each task for which
    this setting means anything, its default first.
    """
    if of_task:
        choices = tuple(dict.fromkeys(choice for known in of_task.values() for choice in known))
        by_task = {task: known[0] for task, known in of_task.items()}
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "fixed": fixed,
        "only": ("task", *of_task) if of_task else only,
        "by_task": by_task or {},
        "of_task": of_task or {},
    }
    return dataclasses.field(default=default, metadata=metadata)
