"""A field of a settings dataclass that is also a command-line flag."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from typing import Any

# Ids are 32-bit integers, in files and in tensors.
MOST_ROWS = 2**31 - 1
# Far more than anybody lists; a graph with a part for each of thousands takes minutes to trace.
_MOST_NUMBERS = 100
_NAME_BYTES = 255  # NAME_MAX of Linux: no file system there takes a longer name of a file
# A home folder, at the start or after a comma or a colon, where a value names several files.
_HOME = re.compile(r"(?:^|(?<=[,:]))\s*~[^/,:]*")
_BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str}
# What to give for a setting, by the annotation of its dataclass field.
_REMEDIES = {
    "bool": "give True or False",
    "int": "give a whole number",
    "float": "give a number",
    "str": "give text",
}


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    bounds: tuple[float, float] | None = None,
    half_open: bool = False,
    fixed: bool = False,
    path: bool = False,
    numbers: type | None = None,
) -> Any:
    """Return a dataclass field that is also a flag, with the rules of its value as metadata.

    Args:
        default: The value of the flag when it is not given; a task may have another one.
        help: The text that `--help` shows, in full sentences.
        choices: The allowed values; empty allows any.
        bounds: The smallest and the largest allowed number, also of each one of `numbers`. Every
            number has bounds. The largest is far above any practical value, and low enough that
            32-bit arithmetic cannot overflow.
        half_open: Whether the value must be less than the upper bound.
        fixed: Whether a run cannot be resumed with another value, because the stored data
            depends on it.
        path: Whether the value names files or folders, in which `~` is the home folder.
        numbers: `int` or `float` if the text lists such numbers between commas, at most 100 of
            them. The list may be empty if it is by default.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "bounds": bounds,
        "half_open": half_open,
        "fixed": fixed,
        "path": path,
        "numbers": numbers,
    }
    return dataclasses.field(default=default, metadata=metadata)


# A setting with which a run cannot be resumed if it has another value.
fixed_setting = functools.partial(setting, fixed=True)


def parse(field: dataclasses.Field, text: str) -> bool | int | float | str:
    """Return the value that a text of the command line or of a flagfile stands for.

    Raises:
        ValueError: The text stands for no value of the field's type; the message is the remedy.
    """
    kind = str(field.type)
    if "\0" in text:
        raise ValueError("a NUL character is in it; leave it out")
    try:
        if kind == "bool":
            return _BOOLS[text.lower()]
        if kind != "str":
            return int(text) if kind == "int" else float(text)
    except (KeyError, ValueError):  # Python reads at most 4,300 digits
        is_long = kind == "int" and text.strip().lstrip("+-").isdecimal()
        raise ValueError("give a smaller number" if is_long else _REMEDIES[kind]) from None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it is not UTF-8; give other text, or rename the file") from error
    return expand_home(text) if field.metadata["path"] else text


def expand_home(text: str) -> str:
    """Return names of files with `~` expanded at the start and after a comma or a colon.

    Raises:
        ValueError: A name has more than 255 bytes.
    """
    path = _HOME.sub(lambda home: os.path.expanduser(home[0].strip()), text)
    if any(len(name.encode()) > _NAME_BYTES for name in re.split("[/,]", path)):
        raise ValueError(f"a name in it is longer than {_NAME_BYTES} bytes; shorten it")
    return path


def typed(field: dataclasses.Field, value: Any) -> bool | int | float | str:
    """Return a value of a Python program as the type in the annotation of its setting.

    A float may be given as an integer, names of files as a path, and a text such as "10,20" as 10
    or [10, 20]. A number, a bool, a text or a list of numpy is as good as one of Python.

    Raises:
        ValueError: The value has another type; the message is the remedy.
    """
    kind, is_path = str(field.type), field.metadata["path"]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # of numpy
        value = value.item()
    if is_path and isinstance(value, os.PathLike):
        value = os.fspath(value)
    is_list = isinstance(value, list | tuple | range) or getattr(value, "ndim", 0) == 1
    if kind == "str" and not is_path and (is_list or type(value) in (int, float)):
        value = ",".join(map(str, value if is_list else [value]))
    if isinstance(value, bool) == (kind == "bool") and isinstance(value, _TYPES[kind]):
        try:
            return float(value) if kind == "float" else value
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    raise ValueError("give text or a path" if is_path else _REMEDIES[kind])


def fault(field: dataclasses.Field, value: Any) -> str | None:
    """Return an error message if a value is not allowed for a setting, or None."""
    choices = field.metadata["choices"]
    if choices and value not in choices:
        return f"not one of {', '.join(choices)}"
    kind = field.metadata["numbers"]
    if kind is None:
        return _outside(field, value)
    items = [item.strip() for item in value.split(",") if item.strip()]
    if field.default and not items:
        return f"give numbers such as {field.default}"
    if len(items) > _MOST_NUMBERS:
        return f"give at most {_MOST_NUMBERS} numbers"
    for item in items:
        number = _number(item, kind)
        if number is None:
            return f"{item[:40]!r} is no {'whole ' if kind is int else ''}number; give one"
        wrong = _outside(field, number)
        if wrong:
            return wrong
    return None


def is_whole_number(text: str, largest: int = MOST_ROWS) -> bool:
    """Return whether a text is a whole number from 0 to `largest`, in digits without a sign."""
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= largest


def numbers(text: str) -> list[int]:
    """Return the whole numbers that a checked text of `numbers=int` lists between commas."""
    return [int(item) for item in text.split(",") if item.strip()]


def as_text(value: Any) -> str:
    """Return the value of a setting as text for a flagfile; booleans are `true` and `false`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _outside(field: dataclasses.Field, value: Any) -> str | None:
    """Return an error message that names the bound that a value is beyond, or None."""
    least, most = field.metadata["bounds"] or (value, value)
    if not value >= least:
        return f"give at least {least:.15g}"
    if field.metadata["half_open"] and not value < most:
        return f"give less than {most:.15g}"
    return f"give at most {most:.15g}" if value > most else None


def _number(text: str, kind: type) -> float | None:
    """Return the number that a text is written as; None if it is no number, or NaN."""
    if kind is int:
        return int(text) if is_whole_number(text, 10**19) else None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
