"""A field of a configuration dataclass that is also a command-line flag."""

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
    subject: str = "",
) -> Any:
    """Return a dataclass field that is also a flag.

    Args:
        default: The value of the flag when it is not given.
        help: The text that `--help` shows, in full sentences.
        choices: The allowed values; empty allows any.
        minimum: The smallest allowed number.
        maximum: The largest allowed number. Every number has `maximum` or `below`. The limit is far
            above any practical value, and low enough that 32-bit arithmetic cannot overflow.
        below: The number that the value must be less than.
        fixed: Whether a run cannot be resumed with another value, because the stored data
            depends on it.
        only: The name of another setting, followed by the values of it for which this setting has
            an effect.
        by_task: The defaults of the tasks that do not use `default`.
        of_task: The choices of each task for which this setting has an effect. The first choice is
            the default of the task.
        path: Whether the value names files or folders, in which `~` is the home folder.
        subject: The group of the flag in `--help`; empty for the group of its section.
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
        "subject": subject,
    }
    return dataclasses.field(default=default, metadata=metadata)
