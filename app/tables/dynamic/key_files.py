"""The files of a key map in a checkpoint, and the check of their content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...system.checked_files import COUNT, damaged
from .. import arrays

INT64, STRING = "int64", "string"
STATE = "keys.json"
SHAPE = {
    "capacity": COUNT,
    "kind": frozenset([INT64, STRING]),
    "admits": bool,
    "step": COUNT,
    "used": COUNT,
    "swept": COUNT,
    "added": (COUNT, None),
}
_DTYPES = {"counts": [np.int64], "last": [np.int64], "free": [np.int64], "keys": [np.int64, object]}
# All files of a map.
FILES = (STATE, *_DTYPES, arrays.lengths_name("keys"), "sketch")


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the keys of a saved map, with their rows and counts, in the order of their rows.

    Args:
        folder: The folder of the map.

    Returns:
        Keys (N,), int64 or bytes, their rows (N,), and how often each was seen, (N,), int64.

    Raises:
        DamagedError: A file is missing or damaged.
    """
    _, parts = read_arrays(folder / STATE, {})
    rows = np.flatnonzero(parts["counts"])
    return parts["keys"], rows, parts["counts"][rows]


def read_arrays(path: Path, dtypes: dict) -> tuple[dict, dict[str, np.ndarray]]:
    """Read the files of a saved map, and check that they agree.

    Args:
        path: The JSON file of the map.
        dtypes: The possible dtypes of further arrays to read, by name.

    Returns:
        The value of the JSON file, and the arrays by name.

    Raises:
        DamagedError: A file is missing or damaged, or the arrays do not agree.
    """
    state, parts = arrays.load(path, SHAPE, {**_DTYPES, **dtypes})
    used, free = state["used"], parts["free"]
    fits = used <= state["capacity"] and len(parts["counts"]) == len(parts["last"]) == used
    fits = fits and len(parts["keys"]) == np.count_nonzero(parts["counts"]) == used - len(free)
    if not fits or not np.all((free >= 0) & (free < used)):
        raise damaged(path, "its arrays do not fit together")
    return state, parts
