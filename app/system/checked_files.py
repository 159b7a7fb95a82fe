"""Functions to read and check files of a workdir or a checkpoint, and their error messages."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import DamagedError, RunError

COUNT = range(2**63)  # the shape of an int64 that is at least 0
_JSON_BYTES = 64 << 20  # far more than any JSON file of a workdir has
_REMEDY = "put back a copy of it, or train in a new workdir"


def read_json(path: str | Path, shape: Any, optional: bool = False) -> Any:
    """Read a JSON file and check its value.

    Args:
        shape: The shape that the value must have (see `fits`).

    Returns:
        The value, or None for an optional file that is missing.

    Raises:
        DamagedError: The file is missing and not optional, is no JSON or longer than 64 MiB, or its
            value has another shape.
    """
    with reading(Path(path)):
        try:
            with open(path, "rb") as file:
                data = file.read(_JSON_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            if optional:
                return None
            raise
    if len(data) > _JSON_BYTES:
        raise damaged(path, f"it is longer than {_JSON_BYTES:,} bytes")
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    if isinstance(shape, dict) and isinstance(value, dict):
        for name, part in shape.items():
            if name is not str and not fits(value.get(name), part):
                raise damaged(path, f"its {name!r} is {str(value.get(name))[:40]!r}")
    if not fits(value, shape):
        raise damaged(path, f"it holds {str(value)[:40]!r}")
    return value


def fits(value: Any, shape: Any) -> bool:
    """Return whether a value from a JSON file has a shape.

    Args:
        shape: The exact type (`float` also fits an integer of less than 2^63 in size); a range of
            integers or a frozen set of strings, of which the value must be one; None for null; a
            tuple of shapes, one of which must fit; a list with the shapes of the items, or with one
            shape of all of them; a dictionary from names to the shapes of their fields. A field
            that is absent counts as null, other fields may have any value, and the name `str`
            stands for every name.
    """
    if isinstance(shape, tuple):
        return any(fits(value, alternative) for alternative in shape)
    if isinstance(shape, list):
        if type(value) is not list:
            return False
        shapes = shape if len(shape) > 1 else shape * len(value)
        return len(value) == len(shapes) and all(map(fits, value, shapes))
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if str in shape:
            return all(fits(item, shape[str]) for item in value.values())
        return all(fits(value.get(name), part) for name, part in shape.items())
    if isinstance(shape, range):
        return type(value) is int and value in shape
    if isinstance(shape, frozenset):
        return type(value) is str and value in shape
    if shape is float:  # an integer that no float holds would fail later
        return type(value) is float or (type(value) is int and abs(value) in COUNT)
    return value is None if shape is None else type(value) is shape


def read_bytes(path: str | Path) -> bytes:
    """Read a whole file of a workdir.

    Raises:
        DamagedError: There is no such file.
    """
    with reading(Path(path)):
        return Path(path).read_bytes()


def read_lines(path: str | Path, longest: int) -> Iterator[bytes]:
    """Yield the lines of a file of a workdir, each with its end.

    Args:
        longest: The most bytes that a line may have, with its end.

    Raises:
        DamagedError: The file is missing or empty, a line is longer, or the last one has no end.
    """
    number = 0
    with reading(Path(path)), open(path, "rb") as file:
        while line := file.readline(longest + 1):
            number += 1
            if len(line) > longest:
                raise damaged(path, f"line {number} is longer than {longest:,} bytes")
            if not line.endswith(b"\n"):
                raise damaged(path, "its last line is cut short")
            yield line
    if not number:
        raise damaged(path, "it is empty")


def missing(path: str | Path) -> DamagedError:
    """Return the error for a file that a workdir or a checkpoint lacks."""
    return DamagedError(f"{path} is missing; {_REMEDY}")


def damaged(path: str | Path, reason: str) -> DamagedError:
    """Return the error for a file that fails its own check.

    Args:
        reason: The reason, as a clause.
    """
    return DamagedError(f"{path} is damaged: {reason}; {_REMEDY}")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert an OSError or MemoryError of a block that reads a path to an error for the user.

    Raises:
        DamagedError: The path, or a file below it, is missing.
        RunError: The system refuses to read it (no permission, a failing disk, no memory), or a
            file elsewhere is missing.
    """
    try:
        yield
    except MemoryError as error:
        raise RunError(f"there is not enough memory to read {path}; free some") from error
    except OSError as error:
        failed = Path(error.filename) if isinstance(error.filename, str) else path
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and failed.is_relative_to(path):
            raise missing(failed) from error
        reason = error.strerror or error
        raise RunError(f"cannot read {failed}: {reason}; mend that and run this again") from error


def list_folder(folder: Path, prefix: str = "") -> list[Path]:
    """Return the sorted paths of a folder's content, or [] if there is no folder."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.lexists(folder):
            return []
        raise RunError(f"{folder} is no folder; rename it, or choose another --workdir") from error
    except OSError as error:
        raise RunError(
            f"cannot read {folder}: {error.strerror}; make it readable, or choose another --workdir"
        ) from error
    return [folder / name for name in sorted(names) if name.startswith(prefix)]
