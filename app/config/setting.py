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
    maximum: float | None = None,
    below: float | None = None,
    fixed: bool = False,
    only: tuple[str, ...] = (),
    by_task: Mapping[str, Any] | None = None,
    of_task: Mapping[str, tuple[str, ...]] | None = None,
    path: bool = False,
) -> Any:
    """Return a dataclass field that doubles as a flag.

    Args:
        default: The value of a flag that is not given.
        help: What `--help` says of it, in sentences.
        choices: The only values that it may have.
        minimum: The least that a number may be.
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
    }
    return dataclasses.field(default=default, metadata=metadata)
