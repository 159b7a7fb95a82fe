"""Arrays in files that tell whether they are whole."""

from __future__ import annotations

import json
import math
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app import system
from app.errors import DamagedError
from app.files import Manifest, read_manifest

_BLOCK = 1 << 24  # bytes read at a time
_FLOAT = 4  # bytes

# What `write` tells of a file, and `read` wants to find: its bytes, and their CRC-32.
Mark = tuple[int, int]


def write(path: Path, parts: Iterable[np.ndarray]) -> Mark:
    """Writes arrays one after the other. OSError when it cannot."""
    size = check = 0
    with open(path, "wb") as file:
        for part in parts:
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            file.write(data)
            size, check = size + len(data), zlib.crc32(data, check)
    return size, check


def read(path: Path, mark: Mark, row_bytes: int = 1) -> Iterator[bytes]:
    """Yield what was written, in parts of whole rows.

    Raises:
        DamagedError: It is something else; this is known after the last part at the latest.
        OSError: It cannot be read.
    """
    size = check = 0
    with open(path, "rb") as file:
        while data := file.read(max(_BLOCK // row_bytes, 1) * row_bytes):
            size, check = size + len(data), zlib.crc32(data, check)
            if len(data) % row_bytes == 0:
                yield data
    if (size, check) != tuple(mark):
        raise DamagedError(f"{path} holds {size} bytes with check {check:x}, not {mark}")


def save(path: Path, state: Mapping[str, Any], parts: Mapping[str, np.ndarray]) -> None:
    """Writes what JSON can hold to `path`, and arrays by name beside it. OSError when it cannot.

    An array of objects is one of bytes.
    """
    files = {name: _save(path.parent / name, part) for name, part in parts.items()}
    path.write_text(json.dumps({**state, "files": files}))


def load(path: Path) -> tuple[Manifest, Manifest]:
    """Return what `save` wrote: the state and the arrays, by name.

    Raises:
        DamagedError: It is something else; later too, when a name is asked for that is not there.
        OSError: It cannot be read.
    """
    state = read_manifest(path)
    try:
        parts = {name: _load(path.parent / name, how) for name, how in state["files"].items()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} does not say what is beside it: {error}") from error
    return state, Manifest(path, parts)


def _save(path: Path, part: np.ndarray) -> dict[str, Any]:
    if part.dtype != object:
        return {"mark": write(path, [part]), "dtype": part.dtype.str, "shape": part.shape}
    lengths = np.fromiter(map(len, part), np.int64, len(part))
    found = _save(path, np.frombuffer(b"".join(part), np.uint8))
    return {**found, "lengths": _save(path.with_suffix(".lengths"), lengths)}


def _load(path: Path, how: Mapping[str, Any]) -> np.ndarray:
    data = b"".join(read(path, how["mark"]))
    if "lengths" not in how:
        return np.frombuffer(data, how["dtype"]).reshape(how["shape"]).copy()
    ends = np.cumsum(_load(path.with_suffix(".lengths"), how["lengths"])).tolist()
    strings = np.empty(len(ends), object)
    strings[:] = [data[low:high] for low, high in zip([0, *ends], ends, strict=False)]
    return strings


def room(shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """A float32 array to fill: in memory, or if that is short in a file that goes with the array.

    folder: where the file would be, which is seen by nobody.
    """
    if math.prod(shape) * _FLOAT < system.free_bytes() // 2:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)
