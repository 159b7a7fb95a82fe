"""Arrays in files that tell whether they are whole."""

from __future__ import annotations

import io
import json
import math
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RunError
from ..system import host_memory
from ..system.checked_files import COUNT, damaged, missing, read_bytes, read_json

_BLOCK = 1 << 24  # bytes read at a time
_FLOAT = 4  # bytes

# What `write` tells of a file, and `read` wants to find: its bytes, and their CRC-32.
Mark = tuple[int, int]
MARK = [COUNT, COUNT]  # its shape in JSON (see `checked_files.fits`)
# What a damaged archive makes `zipfile` and numpy raise.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    LookupError,
    EOFError,
    RuntimeError,  # also that a part is compressed or encrypted in an unknown way
    OSError,  # a wrong offset
)


def write(path: Path, parts: Iterable[np.ndarray]) -> Mark:
    """Writes arrays one after the other. OSError when it cannot."""
    size = check = 0
    with open(path, "wb") as file:
        for part in parts:
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            file.write(data)
            size, check = size + len(data), zlib.crc32(data, check)
    return size, check


def read(path: Path, mark: Sequence[int], row_bytes: int = 1) -> Iterator[bytes]:
    """Read what was written, in parts of whole rows.

    Args:
        path: The file.
        mark: What `write` returned for it.
        row_bytes: Bytes of a row.

    Raises:
        DamagedError: The file is missing, or, at the end at the latest, it is damaged.
        RunError: The file cannot be read.
    """
    size = check = 0
    try:
        with open(path, "rb") as file:
            while data := file.read(max(_BLOCK // row_bytes, 1) * row_bytes):
                size, check = size + len(data), zlib.crc32(data, check)
                if size > mark[0]:
                    break
                if len(data) % row_bytes == 0:
                    yield data
    except FileNotFoundError as error:
        raise missing(path) from error
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; mend that and run again") from error
    if [size, check] != list(mark):
        raise damaged(path, f"{size} bytes with check {check:x}, where {mark} was written")


def save(path: Path, state: Mapping[str, Any], parts: Mapping[str, np.ndarray]) -> None:
    """Writes what JSON can hold to `path`, and arrays by name beside it. OSError when it cannot.

    An array of objects is one of bytes.
    """
    files = {name: _save(path.parent / name, part) for name, part in parts.items()}
    path.write_text(json.dumps({**state, "files": files}))


def load(
    path: Path, shape: Mapping[str, Any], dtypes: Mapping[str, Sequence[type]]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `save` wrote.

    Args:
        path: The JSON file.
        shape: The shape of what it holds (see `checked_files.fits`).
        dtypes: By the name of each array to read, the types of which its elements may be.

    Returns:
        What the JSON file holds, and the arrays by name.

    Raises:
        DamagedError: A file is missing or damaged.
        RunError: A file cannot be read.
    """
    parts = {name: tuple(map(_shape, types)) for name, types in dtypes.items()}
    state = read_json(path, {**shape, "files": parts})
    return state, {name: _load(path, name, state["files"][name]) for name in dtypes}


def read_npz(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read arrays of an archive that `numpy.savez` made.

    Args:
        path: The file.
        names: The names of the arrays.

    Raises:
        DamagedError: The file is missing, damaged, or lacks an array.
        RunError: The file cannot be read.
    """
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # The archive verifies the checksum of a part that is read whole, before it is parsed.
            parts = [io.BytesIO(archive.read(f"{name}.npy")) for name in names]
            return [np.lib.format.read_array(part, allow_pickle=False) for part in parts]
    except _ARCHIVE_ERRORS as error:
        raise damaged(path, str(error)) from error


def _save(path: Path, part: np.ndarray) -> dict[str, Any]:
    if part.dtype != object:
        return {"mark": write(path, [part]), "dtype": part.dtype.str, "shape": part.shape}
    lengths = np.fromiter(map(len, part), np.int64, len(part))
    found = _save(path, np.frombuffer(b"".join(part), np.uint8))
    return {**found, "lengths": _save(path.with_suffix(".lengths"), lengths)}


def _shape(dtype: type) -> dict[str, Any]:
    """Return the shape in JSON of what `_save` tells of an array."""
    if dtype is object:
        return {**_shape(np.uint8), "lengths": _shape(np.int64)}
    return {"mark": MARK, "shape": [COUNT], "dtype": frozenset([np.dtype(dtype).str])}


def _load(manifest: Path, name: str, how: Mapping[str, Any]) -> np.ndarray:
    """Read the array of this name, which `manifest` describes so."""
    path = manifest.parent / name
    data = b"".join(read(path, how["mark"]))
    try:
        part = np.frombuffer(data, how["dtype"]).reshape(how["shape"])
    except ValueError as error:
        raise damaged(manifest, f"{name!r} is not as it says: {error}") from error
    if "lengths" not in how:
        return part.copy()
    lengths = path.with_suffix(".lengths").name
    ends = np.cumsum(_load(manifest, lengths, how["lengths"])).tolist()
    strings = np.empty(len(ends), object)
    strings[:] = [data[low:high] for low, high in zip([0, *ends], ends, strict=False)]
    return strings


def room(shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """A float32 array to fill: in memory, or if that is short in a file that goes with the array.

    folder: where the file would be, which is seen by nobody.
    """
    if math.prod(shape) * _FLOAT < host_memory.free_bytes() // 2:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)
