"""Read word vectors of the safetensors and Parquet files that `lexrow export` writes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..types import WordVectors

_DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "|u1"}
_AGAIN = "copy it again, or give a file of `lexrow export`"


def reader(path: str | Path) -> Callable[[str | Path, int], WordVectors] | None:
    """Return the function that reads a file, by its name; None for other kinds of file."""
    return {".safetensors": _read_safetensors, ".parquet": _read_parquet}.get(
        Path(path).suffix.lower()
    )


def _read_safetensors(path: str | Path, limit: int) -> WordVectors:
    """Read the tensors `vectors`, `tokens` and `counts`; see `vector_files.read`."""
    try:
        data = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:start].tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is no JSON object")
        parts = {}
        for name in {"vectors", "tokens", "counts"} & header.keys():
            first, last = (start + offset for offset in header[name]["data_offsets"])
            part = data[first:last].view(_DTYPES[header[name]["dtype"]])
            parts[name] = part.reshape(header[name]["shape"])
        tokens = json.loads(parts["tokens"].tobytes())
        _check(path, tokens, parts["vectors"].shape, parts.get("counts"))
        matrix = np.array(parts["vectors"][: limit or None], np.float32)
        counts = np.array(parts["counts"][: limit or None]) if "counts" in parts else None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give another file") from error
    except UsageError:
        raise
    except (ValueError, LookupError, TypeError) as error:
        reason = f"no tensors `vectors` and `tokens` can be read ({error})"
        raise UsageError(f"{path}: {reason}; {_AGAIN}") from error
    return WordVectors(tokens[: limit or None], matrix, counts)


def _check(
    path: str | Path, tokens: Any, shape: tuple[int, ...], counts: np.ndarray | None = None
) -> None:
    """Raise UsageError if tokens, the shape of vectors and counts are not of one table."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UsageError(f"{path}: a token is no text; {_AGAIN}")
    if len(shape) != 2 or len(tokens) != shape[0] or not shape[1]:
        raise UsageError(f"{path}: {len(tokens)} tokens, and vectors {shape}; {_AGAIN}")
    if counts is not None and (counts.shape != shape[:1] or counts.dtype.kind not in "iuf"):
        raise UsageError(f"{path}: {len(tokens)} tokens, and counts {counts.shape}; {_AGAIN}")


def _read_parquet(path: str | Path, limit: int) -> WordVectors:
    """Read the columns `token`, `vector` and `count`; see `vector_files.read`."""
    try:
        import pyarrow
        from pyarrow import compute
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UsageError(f'{path}: needs pyarrow; pip install "lexrow[handover]"') from error
    tokens: list[str] = []
    parts: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = ["token", "vector", *(["count"] if "count" in names else [])]
            if missing := {*wanted} - {*names}:
                raise UsageError(f"{path}: no column {min(missing)!r}; {_AGAIN}")
            for batch in file.iter_batches(columns=wanted):
                rows = batch.slice(0, limit - len(tokens)) if limit else batch
                if not len(rows):
                    break
                tokens += rows["token"].to_pylist()
                widths = compute.list_value_length(rows["vector"]).to_pylist()
                columns = parts[0].shape[1] if parts else widths[0]
                if wrong := [width for width in widths if not width or width != columns]:
                    found = f"of {wrong[0]} numbers" if wrong[0] is not None else "missing"
                    raise UsageError(
                        f"{path}: a vector is {found}, where the first has {columns}; {_AGAIN}"
                    )
                numbers = rows["vector"].flatten().to_numpy(zero_copy_only=False)
                parts.append(numbers.astype(np.float32).reshape(len(rows), -1))
                if "count" in wanted:
                    counts.append(rows["count"].to_numpy(zero_copy_only=False))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: {error}; {_AGAIN}") from error
    if not parts:
        raise UsageError(f"{path}: no row has a word; {_AGAIN}")
    matrix, counts_V = np.concatenate(parts), np.concatenate(counts) if counts else None
    _check(path, tokens, matrix.shape, counts_V)
    if counts_V is not None and counts_V.dtype.kind == "f" and math.isnan(counts_V.sum()):
        counts_V = None  # null: not known
    return WordVectors(tokens, matrix, counts_V)
