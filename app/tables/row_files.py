"""The rows of a table in a checkpoint: a file of their bytes, and a manifest beside it.

They are written and read by numpy, so that vectors are loaded without TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..system.checked_files import COUNT, damaged, read_json, reading
from . import arrays

VALUES = "values"  # the file of the rows of a table; that of a slot has its name
# By name: the dtype of numpy with the same bytes.
_DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
_MANIFEST_SHAPE = {
    "mark": arrays.CHECKSUM_SHAPE,
    "rows": range(2**31),
    "columns": range(1, 2**31),
    "dtype": frozenset(_DTYPES),
    "writes": COUNT,
}


def write(path: Path, parts: Iterable[np.ndarray], **manifest: Any) -> None:
    """Write rows to a file, and their manifest to PATH.json.

    Args:
        parts: All rows in order, in parts (N, D).
        **manifest: The number of `rows` and `columns`, the name of the `dtype`, and the number of
            `writes` of the table (see `RoundedTable`).
    """
    mark = arrays.write(path, parts)
    path.with_suffix(".json").write_text(json.dumps({"mark": mark, **manifest}))


def exists(path: Path) -> bool:
    """Return whether a checkpoint has a file of rows, or its manifest."""
    return path.exists() or path.with_suffix(".json").exists()


def read(paths: Sequence[Path], folder: Path, most: int = 0) -> np.ndarray:
    """Read the rows of a table, which are in one file or, by turns, in several.

    Args:
        folder: See `arrays.make_buffer`.
        most: Read only so many rows, the first ones; then no checksum is compared. 0 reads all.

    Returns:
        Rows (V, D), float32.
    """
    manifests = [read_manifest(path) for path in paths]
    rows = sum(manifest["rows"] for manifest in manifests)
    wanted = min(rows, most or rows)
    rows_VD = arrays.make_buffer((wanted, manifests[0]["columns"]), folder)
    for number, (path, manifest) in enumerate(zip(paths, manifests, strict=True)):
        for first, part_ND in read_parts(path, manifest):
            ids_N = number + (first + np.arange(len(part_ND))) * len(paths)
            count = np.searchsorted(ids_N, wanted)
            rows_VD[ids_N[:count]] = part_ND[:count]
            if count < len(ids_N):
                break
    return rows_VD


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a file of rows.

    Raises:
        DamagedError: It is missing or contradicts itself or the file. So memory that is allocated
            by the manifest is no more than that of the file.
    """
    file = path.with_suffix(".json")
    manifest = read_json(file, _MANIFEST_SHAPE)
    if manifest["mark"][0] != manifest["rows"] * _row_bytes(manifest):
        raise damaged(file, "its rows and columns are not those of its bytes")
    with reading(path):
        size = path.stat().st_size
    if manifest["mark"][0] != size:
        raise damaged(path, f"{size} bytes, where {manifest['mark'][0]} were written")
    return manifest


def read_parts(path: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row number of each part of a file, and its rows, (any number, D) float32.

    Raises:
        DamagedError: The file is damaged; this may be noticed only after all parts were given.
    """
    start = 0
    for data in arrays.read(path, manifest["mark"], _row_bytes(manifest)):
        rows = np.frombuffer(data, _DTYPES[manifest["dtype"]]).reshape(-1, manifest["columns"])
        if manifest["dtype"] == "bfloat16":
            rows = (rows.astype(np.uint32) << 16).view(np.float32)
        yield start, rows.astype(np.float32, copy=False)
        start += len(rows)


def _row_bytes(manifest: Mapping[str, Any]) -> int:
    """Return the bytes of a row."""
    return manifest["columns"] * np.dtype(_DTYPES[manifest["dtype"]]).itemsize
