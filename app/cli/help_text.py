"""The `--help` of a command; the flags of a training run are grouped by subject."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from absl import flags

from ..settings import flag_values
from ..settings.setting import as_text

_WIDTH = 88


def command(task: str) -> str:
    """Return the help of the running command: its docstring, its own flags, and those of a run.

    Args:
        task: The value of `--task`; empty for a command without the flags of a training run.
    """
    hidden = set(flag_values.fields()) if task else set()
    for module, known in flags.FLAGS.flags_by_module_dict().items():
        hidden |= {flag.name for flag in known if module.startswith(("absl.", "tensorflow."))}
    own = []
    for flag in (flags.FLAGS[name] for name in flags.FLAGS):
        if flag.name not in hidden:
            field = getattr(flag.parser, "field", None)
            rules = field.metadata if field else {"help": flag.help}
            own.append(_flag(flag.name, flag.default, rules))
    texts = [str(sys.modules["__main__"].__doc__), *(["\n".join(["Flags:", *own])] if own else [])]
    return "\n\n".join(text.strip("\n") for text in (*texts, *training_flags(task)))


def training_flags(task: str) -> list[str]:
    """Return the help of the flags of a task by the dataclasses that define them; none for ""."""
    if not task:
        return []
    kind, groups = flag_values.TASKS[task], {}
    fields, usual = flag_values.fields_of(kind), flag_values.defaults({"task": task})
    for section in vars(kind()).values():
        for group in reversed(type(section).__mro__):
            names = [name for name in vars(group).get("__annotations__", ()) if name in fields]
            title = group.__name__.removesuffix("Config")
            shown = [_flag(name, usual[name], fields[name].metadata, fields) for name in names]
            groups[title] = "\n".join([f"{title}:", *shown]) if shown else ""
    for title in ("Distribution", "Profile"):  # few runs need them
        groups[title] = groups.pop(title)
    others = ", ".join(other for other in flag_values.TASKS if other != task)
    last = f"These are the flags of --task={task}. Others: {others}; give one beside --help."
    return [*filter(None, groups.values()), textwrap.fill(last, _WIDTH)]


def _flag(
    name: str, default: Any, rules: Mapping[str, Any], fields: flag_values.Fields | None = None
) -> str:
    """Return the wrapped lines of one flag: name, help, choices, default, and what it needs."""
    lines, choices = [rules["help"]], rules.get("choices")
    if choices:
        lines.append(f"One of: {', '.join(choices)}.")
    shown = ",".join(default) if isinstance(default, list) else as_text(default)
    lines.append(f"Default: {'empty' if shown in ('', 'None') else shown}.")
    if fields and name in flag_values.NEEDS:
        other, values = flag_values.NEEDS[name]
        known = fields[other].metadata["choices"] or values
        needed = " or ".join(f"--{other}={value}" for value in values if value in known)
        lines.append(f"Only with {needed}.")
    indent = " " * 6
    wrapped = [
        textwrap.fill(
            text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        for text in lines
    ]
    return "\n".join([f"  --{'[no]' if isinstance(default, bool) else ''}{name}", *wrapped])
