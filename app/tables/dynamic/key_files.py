"""The files of a map of keys in a checkpoint, and what they must hold."""

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


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the keys of a map that was saved, their rows and sightings, in the order of rows.

    Raises:
        DamagedError: A file is missing or damaged.
    """
    _, parts = read_arrays(folder / STATE, {})
    rows = np.flatnonzero(parts["counts"])
    return parts["keys"], rows, parts["counts"][rows]


def read_arrays(path: Path, dtypes: dict) -> tuple[dict, dict[str, np.ndarray]]:
    """Return what the file holds, and its arrays and those of `dtypes`; they fit together."""
    state, parts = arrays.load(path, SHAPE, {**_DTYPES, **dtypes})
    used, free = state["used"], parts["free"]
    fits = used <= state["capacity"] and len(parts["counts"]) == len(parts["last"]) == used
    fits = fits and len(parts["keys"]) == np.count_nonzero(parts["counts"]) == used - len(free)
    if not fits or not np.all((free >= 0) & (free < used)):
        raise damaged(path, "its arrays do not fit together")
    return state, parts
