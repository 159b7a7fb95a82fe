"""The `--help` of a command; the flags of a training run are grouped by subject."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from absl import flags

from ..settings import Config, effects, flag_values
from ..settings.setting import as_text

_WIDTH = 88
_FORMAT: dict[str, Any] = {
    "initial_indent": " " * 6,
    "subsequent_indent": " " * 6,
    "break_on_hyphens": False,
}


def command(task: str) -> str:
    """Return the help of the running command: its docstring, its own flags, and those of a run.

    Args:
        task: The value of `--task`; empty for a command without the flags of a training run.
    """
    hidden = set(flag_values.fields()) if task else set()
    for module, known in flags.FLAGS.flags_by_module_dict().items():
        hidden |= {flag.name for flag in known if module.startswith(("absl.", "tensorflow."))}
    shown = [flags.FLAGS[name] for name in flags.FLAGS if flags.FLAGS[name].name not in hidden]
    own = ["\n".join(["Flags:", *map(_own_flag, shown)])] if shown else []
    texts = [str(sys.modules["__main__"].__doc__), *own, *([training_flags(task)] if task else [])]
    return "\n\n".join(text.strip("\n") for text in texts)


def training_flags(task: str) -> str:
    """Return the help of the flags of a task, grouped by the dataclasses that define them."""
    kind, groups = flag_values.TASKS[task], {}
    fields, usual = flag_values.fields_of(kind), flag_values.defaults({"task": task})
    for section in vars(kind()).values():
        for group in reversed(type(section).__mro__):
            names = [name for name in vars(group).get("__annotations__", ()) if name in fields]
            title = group.__name__.removesuffix("Config")
            shown = [_flag(name, usual[name], fields[name].metadata, kind) for name in names]
            groups[title] = "\n".join([f"{title}:", *shown]) if shown else ""
    for title in ("Distribution", "Profile"):  # few runs need them
        groups[title] = groups.pop(title)
    others = ", ".join(other for other in flag_values.TASKS if other != task)
    last = f"These are the flags of --task={task}. Others: {others}; give one beside --help."
    return "\n\n".join([*filter(None, groups.values()), textwrap.fill(last, _WIDTH)])


def _own_flag(flag: flags.Flag) -> str:
    """Return the lines of a flag of the command itself."""
    field = getattr(flag.parser, "field", None)
    return _flag(flag.name, flag.default, field.metadata if field else {"help": flag.help})


def _flag(
    name: str, default: Any, rules: Mapping[str, Any], task: type[Config] | None = None
) -> str:
    """Return the wrapped lines of one flag: name, help, choices, default, and what it needs."""
    lines, choices = [rules["help"]], rules.get("choices")
    if choices:
        lines.append(f"One of: {', '.join(choices)}.")
    shown = ",".join(default) if isinstance(default, list) else as_text(default)
    lines.append(f"Default: {'empty' if shown in ('', 'None') else shown}.")
    if task and name in effects.NEEDS:
        other, values = effects.NEEDS[name]
        known = flag_values.fields_of(task)[other].metadata["choices"] or values
        needed = " or ".join(f"--{other}={value}" for value in values if value in known)
        lines.append(f"Only with {needed}.")
    wrapped = [line for text in lines for line in textwrap.wrap(text, _WIDTH, **_FORMAT)]
    return "\n".join([f"  --{'[no]' if isinstance(default, bool) else ''}{name}", *wrapped])
