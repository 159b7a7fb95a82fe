"""Read word vectors of the safetensors and Parquet files that `lexrow export` writes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

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
        parts = {}
        for name in {"vectors", "tokens", "counts"} & header.keys():
            first, last = (start + offset for offset in header[name]["data_offsets"])
            part = data[first:last].view(_DTYPES[header[name]["dtype"]])
            parts[name] = part.reshape(header[name]["shape"])
        tokens = json.loads(parts["tokens"].tobytes())[: limit or None]
        matrix = np.array(parts["vectors"][: limit or None], np.float32)
        counts = np.array(parts["counts"][: limit or None]) if "counts" in parts else None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give another file") from error
    except (ValueError, LookupError, TypeError) as error:
        reason = f"no tensors `vectors` and `tokens` can be read ({error})"
        raise UsageError(f"{path}: {reason}; {_AGAIN}") from error
    if matrix.ndim != 2 or len(tokens) != len(matrix):
        raise UsageError(f"{path}: {len(tokens)} tokens, and vectors {matrix.shape}; {_AGAIN}")
    return WordVectors(tokens, matrix, counts)


def _read_parquet(path: str | Path, limit: int) -> WordVectors:
    """Read the columns `token`, `vector` and `count`; see `vector_files.read`."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UsageError(f'{path}: needs pyarrow; pip install "lexrow[handover]"') from error
    tokens: list[str] = []
    parts, counts = [], []
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
    counts_V = np.concatenate(counts) if counts else None
    if counts_V is not None and counts_V.dtype.kind == "f" and math.isnan(counts_V.sum()):
        counts_V = None  # null: not known
    return WordVectors(tokens, np.concatenate(parts), counts_V)
