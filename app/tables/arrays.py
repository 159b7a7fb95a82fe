"""Arrays in files with checksums, so that a damaged file is noticed."""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..system import machine
from ..system.checked_files import COUNT, damaged, read_bytes, read_json, reading
from ..system.files import replacing

_BLOCK_BYTES = 1 << 24  # bytes read at a time
_FLOAT_BYTES = 4
# The size of the parts in which a whole table is read: small beside a table, large beside the cost
# of a call.
_PART_BYTES = 16 << 20

Checksum = tuple[int, int]  # the size of a file in bytes, and the CRC-32 of its bytes
CHECKSUM_SHAPE = [COUNT, COUNT]  # its shape in JSON (see `checked_files.fits`)


def write(path: Path, parts: Iterable[np.ndarray]) -> Checksum:
    """Replace a file by the bytes of arrays, one after the other, without their dtypes and shapes.

    Returns:
        The checksum of the file, for `read`.
    """
    size = check = 0
    with open(path, "wb") as file:
        for part in parts:
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            file.write(data)
            size, check = size + len(data), zlib.crc32(data, check)
    return size, check


def read(path: Path, checksum: Sequence[int], row_bytes: int = 1) -> Iterator[bytes]:
    """Read a file that `write` wrote, part by part, and verify its checksum at the end.

    The file is opened when the first part is asked for.

    Yields:
        The bytes of the file, in parts of whole rows of about 16 MB.

    Raises:
        DamagedError: The file is missing or damaged. Damage may be noticed only after all parts
            were given.
    """
    size = check = 0
    with reading(path), open(path, "rb") as file:
        while data := file.read(max(_BLOCK_BYTES // row_bytes, 1) * row_bytes):
            size, check = size + len(data), zlib.crc32(data, check)
            if size > checksum[0]:
                break
            if len(data) % row_bytes == 0:
                yield data
    if [size, check] != list(checksum):
        raise damaged(path, f"{size} bytes with check {check:x}, where {checksum} was written")


def save(path: Path, state: Mapping[str, Any], parts: Mapping[str, np.ndarray]) -> None:
    """Write arrays to files, and then a JSON file beside them with their checksums.

    Args:
        state: Values that JSON can hold. The key "files" is added to them for the arrays.
        parts: Arrays by the names of their files. An array of dtype object must hold bytes; the
            lengths of its items go to a second file with the suffix ".lengths".
    """
    files = {name: _save_array(path.parent / name, part) for name, part in parts.items()}
    path.write_text(json.dumps({**state, "files": files}))


def load(
    path: Path, shape: Mapping[str, Any], dtypes: Mapping[str, Sequence[type]]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the files that `save` wrote.

    Args:
        shape: The shape of its value without the key "files" (see `checked_files.fits`).
        dtypes: The possible dtypes of each array to read, by its name; `object` for an array of
            bytes. Other arrays are not read.

    Raises:
        DamagedError: A file is missing or damaged, or an array has another dtype.
    """
    parts = {name: tuple(map(_entry_shape, types)) for name, types in dtypes.items()}
    state = read_json(path, {**shape, "files": parts})
    return state, {name: _load_array(path, name, state["files"][name]) for name in dtypes}


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an archive for `read_npz`, as a whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def read_npz(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Return arrays of an archive that `numpy.savez` wrote, in the order of the names.

    Args:
        path: The file. It is read whole.

    Raises:
        DamagedError: The file is missing, damaged, or lacks an array.
    """
    try:
        parts = parse_npz(read_bytes(path), names)
        return [parts[name] for name in names]
    except (ValueError, LookupError) as error:
        raise damaged(path, str(error)) from error


def parse_npz(data: bytes, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return arrays of an archive of `numpy.savez`; they take no more memory than its bytes.

    Args:
        names: The names of the arrays to read. Those that the archive lacks are left out, and
            others are not read.

    Raises:
        ValueError: The archive is damaged or compressed, or an entry is not just one array.
    """
    parts = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {entry.filename: entry for entry in archive.infolist()}
            for name in names:
                entry = files.get(f"{name}.npy")
                if entry is None:
                    continue
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > len(data):
                    raise ValueError(f"{name!r} is compressed, or longer than the file")
                # The archive verifies the checksum of a part that is read whole.
                file = io.BytesIO(archive.read(entry))
                parts[name] = np.lib.format.read_array(file, allow_pickle=False)
                if file.read(1):
                    raise ValueError(f"{name!r} has bytes after its array")
    except Exception as error:  # whatever the libraries raise for damaged bytes
        raise ValueError(str(error)) from error
    return parts


def lengths_name(name: str) -> str:
    """Return the name of the file with the lengths of the items of an array of bytes."""
    return Path(name).with_suffix(".lengths").name


def _save_array(path: Path, part: np.ndarray) -> dict[str, Any]:
    """Write one array, and return its entry in the JSON file.

    An array of bytes has two files: its joined items, and their lengths.
    """
    if part.dtype != object:
        return {"mark": write(path, [part]), "dtype": part.dtype.str, "shape": part.shape}
    lengths = np.fromiter(map(len, part), np.int64, len(part))
    entry = _save_array(path, np.frombuffer(b"".join(part), np.uint8))
    return {**entry, "lengths": _save_array(path.parent / lengths_name(path.name), lengths)}


def _entry_shape(dtype: type) -> dict[str, Any]:
    """Return the shape of an array's entry in the JSON file (see `checked_files.fits`)."""
    if dtype is object:
        return {**_entry_shape(np.uint8), "lengths": _entry_shape(np.int64)}
    return {"mark": CHECKSUM_SHAPE, "shape": [COUNT], "dtype": frozenset([np.dtype(dtype).str])}


def _load_array(json_path: Path, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    """Read the array of an entry of the JSON file, or an array of bytes if it has "lengths".

    Raises DamagedError if a file is damaged or does not agree with the entry.
    """
    data = b"".join(read(json_path.parent / name, entry["mark"]))
    try:
        part = np.frombuffer(data, entry["dtype"]).reshape(entry["shape"])
    except ValueError as error:
        raise damaged(json_path, f"it does not agree with its file {name!r}: {error}") from error
    if "lengths" not in entry:
        return part.copy()
    lengths = _load_array(json_path, lengths_name(name), entry["lengths"])
    ends = np.cumsum(lengths).tolist()
    are_within = lengths.ndim == 1 and np.all((lengths >= 0) & (lengths <= len(data)))
    if not are_within or (ends or [0])[-1] != len(data):
        raise damaged(json_path, f"the lengths of {name!r} do not add up to its bytes")
    strings = np.empty(len(ends), object)
    strings[:] = [data[low:high] for low, high in zip([0, *ends], ends, strict=False)]
    return strings


def row_slices(rows: int, columns: int) -> Iterator[slice]:
    """Split the rows of a table into parts of about 16 MB, at least one row each.

    Yields:
        Slices that together cover 0 .. V - 1, in order.
    """
    count = max(1, _PART_BYTES // (_FLOAT_BYTES * columns))
    for start in range(0, rows, count):
        yield slice(start, min(start + count, rows))


def make_buffer(shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """Return a float32 array to fill, in memory or, if memory is short, in a temporary file.

    Memory is short unless the array takes less than half of what is free. The values are
    arbitrary at first.

    Args:
        folder: The folder of the temporary file, which has no name and ends with the array. Where
            the folder cannot be written, it is that of TMPDIR.
    """
    if math.prod(shape) * _FLOAT_BYTES < machine.free_bytes() // 2:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile(dir=folder if os.access(folder, os.W_OK) else None) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)
