"""The settings by the name of their flag: conversion, defaults, subjects and values as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from . import Config
from .setting import typed

# Ids are 32-bit integers, in files and in tensors.
MOST_ROWS = 2**31 - 1
# The groups of flags in `--help`, in order.
SUBJECTS = (
    "run",
    "text",
    "vocabulary",
    "input",
    "labelled text",
    "ratings",
    "model",
    "loss",
    "optimizer",
    "table",
    "distribution",
    "profile",
)


def by_name(config: Config) -> dict[str, Any]:
    """Return the value of every setting, by the name of its flag.

    Args:
        config: The settings of a run.

    Returns:
        Flag name -> value, in the order of the dataclasses.
    """
    return {
        name: value for section in vars(config).values() for name, value in vars(section).items()
    }


def fields() -> dict[str, dataclasses.Field]:
    """Return the dataclass field of every setting, by the name of its flag."""
    sections = vars(Config()).values()
    return {field.name: field for section in sections for field in dataclasses.fields(section)}


def by_subject() -> dict[str, list[dataclasses.Field]]:
    """Return the dataclass fields of each subject, in the order of `SUBJECTS`."""
    groups: dict[str, list[dataclasses.Field]] = {subject: [] for subject in SUBJECTS}
    for section in dataclasses.fields(Config):
        for field in dataclasses.fields(getattr(Config, section.name)):
            groups[field.metadata["subject"] or section.metadata["subject"]].append(field)
    return groups


def tasks_of(field: dataclasses.Field) -> tuple[str, ...]:
    """Return the tasks for which a setting has an effect, also by the setting it depends on.

    Args:
        field: The dataclass field of the setting.

    Returns:
        Values of `--task`, in the order of its choices.
    """
    known = fields()
    tasks = known["task"].metadata["choices"]
    if not field.metadata["only"]:
        return tasks
    other, *values = field.metadata["only"]
    if other == "task":
        return tuple(task for task in tasks if task in values)
    by_task = known[other].metadata["of_task"]
    return tuple(
        task
        for task in tasks_of(known[other])
        if not by_task or not set(values).isdisjoint(by_task[task])
    )


def default(field: dataclasses.Field, values: Mapping[str, Any]) -> Any:
    """Return the default of a setting beside the values of other settings.

    Args:
        field: The dataclass field of the setting.
        values: Flag name -> value. A missing setting has its default beside the given values.
    """
    known = fields()
    for others, value in field.metadata["beside"]:
        if all(
            wanted == (values[name] if name in values else default(known[name], values))
            for name, wanted in others.items()
        ):
            return value
    return field.default


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of all settings beside some values.

    Args:
        values: Flag name -> value.

    Returns:
        Flag name -> default, also for the settings in `values`.
    """
    return {name: default(field, values) for name, field in fields().items()}


def from_names(values: dict[str, Any]) -> Config:
    """Return the configuration with these values; the inverse of `by_name`.

    Args:
        values: Flag name -> value. A missing setting has its default, the same for every task.
            Unknown names are ignored.
    """
    sections = {}
    for name, section in vars(Config()).items():
        given = {setting: values[setting] for setting in vars(section) if setting in values}
        sections[name] = dataclasses.replace(section, **given)
    return Config(**sections)


def typed_value(name: str, value: Any) -> Any:
    """Return a value of a Python program in the type of its setting.

    Args:
        name: The name of the flag.
        value: The value; see `setting.typed` for what is allowed.

    Raises:
        UsageError: The value has another type.
    """
    try:
        return typed(fields()[name], value)
    except ValueError as error:
        shown = " ".join(repr(value).split())[:60]
        raise UsageError(f"--{name}={shown}: {error}") from None


def is_whole_number(text: str, largest: int = MOST_ROWS) -> bool:
    """Return whether a text is a whole number from 0 to `largest`, in digits without a sign.

    Args:
        text: The text, which may be anything.
        largest: The largest number allowed.
    """
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= largest


def numbers(text: str) -> list[int]:
    """Return the whole numbers that a checked text lists between commas; none for an empty text.

    Args:
        text: The value of a setting with `numbers=int`.
    """
    return [int(item) for item in text.split(",") if item.strip()]


def windows(profile_steps: str) -> list[tuple[int, int]]:
    """Return the windows of steps that `--profile_steps` asks to record in a profile.

    Args:
        profile_steps: The value of the flag; empty for no window.

    Returns:
        The first step of each window, and the step after its last.

    Raises:
        UsageError: The value is not a list of windows in rising order.
    """
    steps = profile_steps.split(",") if profile_steps else []
    numbers = [int(step) for step in steps if is_whole_number(step.strip())]
    rising = all(low < high for low, high in zip(numbers, numbers[1:], strict=False))
    if len(numbers) < len(steps) or len(steps) % 2 or not rising:
        raise UsageError(
            f"--profile_steps={profile_steps}: give START,STOP such as 100,200, or several in "
            "rising order, such as 100,200,900,1000"
        )
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def as_text(value: Any) -> str:
    """Return the value of a setting as text for a flagfile; booleans are `true` and `false`.

    Args:
        value: The value.
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
