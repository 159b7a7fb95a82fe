"""The `--help` of a command; the flags of a training run are grouped by subject."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from absl import flags

from ..settings import settings

_WIDTH = 88
_FORMAT: dict[str, Any] = {
    "initial_indent": " " * 6,
    "subsequent_indent": " " * 6,
    "break_on_hyphens": False,
}


def has_training_flags() -> bool:
    """Return whether the command takes the flags of a training run."""
    return settings.fields().keys() <= set(flags.FLAGS)


def command(task: str, shared: str) -> str:
    """Return the help of the running command: its docstring, its own flags, and shared flags.

    Args:
        task: A value of `--task`; see `training_flags`.
        shared: The name of the module with the flags that several commands have. Its help is left
            out where the flags of a training run are shown.
    """
    own = _without_title(flags.FLAGS.main_module_help())
    if has_training_flags():
        others = training_flags(task)
    else:
        others = _without_title(flags.FLAGS.module_help(shared))
    texts = [str(sys.modules["__main__"].__doc__), own and f"Flags:\n{own}", others]
    return "\n\n".join(text.strip("\n") for text in texts if text)


def _without_title(text: str) -> str:
    """Return the help of a module's flags without its first line, the path of the module."""
    return text.strip("\n").partition("\n")[2]


def training_flags(task: str = "") -> str:
    """Return the help of the flags of a training run, grouped by subject.

    Args:
        task: A value of `--task`, to show only the flags, choices and defaults of that task; empty
            for all tasks.
    """
    groups = []
    for subject, fields in settings.by_subject().items():
        shown = [field for field in fields if not task or task in settings.tasks_of(field)]
        shown.sort(key=lambda field: field.name != subject)  # --model first among "Model"
        if shown:
            groups.append("\n".join([f"{subject.capitalize()}:", *(_flag(f, task) for f in shown)]))
    if not task:
        groups.append("Give --task=NAME beside --help to see only the flags of that task.")
    return "\n\n".join(groups)


def _flag(field: dataclasses.Field, task: str) -> str:
    """Return the wrapped lines of one flag: name, help, choices, default and scope."""
    name = f"[no]{field.name}" if isinstance(field.default, bool) else field.name
    choices = field.metadata["of_task"].get(task) or field.metadata["choices"]
    lines = [field.metadata["help"], f"One of: {', '.join(choices)}." if choices else ""]
    lines += [_default(field, task), _scope(field, task)]
    wrapped = [line for text in lines for line in textwrap.wrap(text, _WIDTH, **_FORMAT)]
    return "\n".join([f"  --{name}", *wrapped])


def _default(field: dataclasses.Field, task: str) -> str:
    """Return the line with the default of a task, or of all tasks if `task` is empty."""
    usual = field.default
    others = []
    for beside, value in field.metadata["beside"]:
        needed = [f"--{name}={_value(needs)}" for name, needs in beside.items() if name != "task"]
        if not needed and beside["task"] == task:
            usual = value
        elif needed and (not task or _is_possible(beside, task)):
            others.append(f"{_value(value)} with {' and '.join(needed)}")
        elif not task:
            others.append(f"{beside['task']}: {_value(value)}")
    # Where choices depend on the task, every task has its own default.
    has_usual = task or not field.metadata["of_task"]
    return f"Default: {'; '.join(([_value(usual)] if has_usual else []) + others)}."


def _is_possible(values: Mapping[str, Any], task: str) -> bool:
    """Return whether a task allows values of settings, by name."""
    known = settings.fields()
    return all(
        value in known[name].metadata["of_task"].get(task, ())
        if known[name].metadata["of_task"]
        else task in settings.tasks_of(known[name])
        for name, value in values.items()
    )


def _scope(field: dataclasses.Field, task: str) -> str:
    """Return the line with the tasks, and the values of another flag, that give a flag an effect.

    It is empty for a flag that always has an effect.
    """
    sentences = []
    tasks = settings.tasks_of(field)
    if not task and len(tasks) < len(settings.fields()["task"].metadata["choices"]):
        sentences.append(f"Tasks: {', '.join(tasks)}.")
    other, *values = field.metadata["only"] or ("task",)
    if other != "task":
        known = settings.fields()[other].metadata["of_task"].get(task, values)
        others = [f"--{other}={value}" for value in values if value in known]
        sentences.append(f"Only with {' or '.join(others)}.")
    return " ".join(sentences)


def _value(value: Any) -> str:
    """Return a default as it is written on the command line; for empty text the word `empty`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else "empty"
