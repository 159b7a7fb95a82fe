"""Write word vectors as files of arrays: safetensors and Parquet.

Rows are read in blocks, so that a matrix is never copied whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from ..errors import needs_package
from ..system.files import replacing
from ..types import WordVectors

_BLOCK_ROWS = 4_096
# Bytes. A reader may map the file, so a tensor begins at a multiple of the size of its numbers.
_ALIGNMENT = 8
_SIZES = {"I64": 8, "F32": 4, "U8": 1}


def read_blocks(vectors: WordVectors, rows_N: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield vectors in order, little-endian float32, some thousand rows at a time, (M, D) each.

    Args:
        rows_N: The rows to read, integers; all by default.
    """
    count = len(vectors.tokens) if rows_N is None else len(rows_N)
    for low in range(0, count, _BLOCK_ROWS):
        part = slice(low, low + _BLOCK_ROWS)
        yield np.ascontiguousarray(vectors.matrix[part if rows_N is None else rows_N[part]], "<f4")


def finite_rows(vectors: WordVectors, rows_N: np.ndarray) -> np.ndarray:
    """Return those of some row numbers whose vectors have finite numbers only, in order.

    A warning names the number of rows that are left out.
    """
    parts = [np.isfinite(block).all(axis=1) for block in read_blocks(vectors, rows_N)]
    is_finite_N = np.concatenate([np.empty(0, bool), *parts])
    if not is_finite_N.all():
        logging.warning("%d words have no finite vector: left out", (~is_finite_N).sum())
    return rows_N[is_finite_N]


class Tensor(NamedTuple):
    """A tensor to write.

    Attributes:
        dtype: Its dtype in the format's own words: I64, F32 or U8.
        shape: Its shape.
        parts: Its numbers as consecutive little-endian arrays.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: Iterable[np.ndarray]


def write_safetensors(vectors: WordVectors, path: str | Path) -> None:
    """Write word vectors as a safetensors file, which replaces an earlier one.

    The format is described at https://github.com/huggingface/safetensors#format. A file has a
    header in JSON and then the bytes of its tensors. The library `safetensors` writes tensors only
    as a whole, so it is not used here.

    Its tensors are `vectors`, (V, D) float32; `tokens`, a JSON list of the V words in UTF-8, as
    bytes (uint8); and `counts`, (V,) int64, if the counts are known. The words are a tensor because
    the header may not have more than 100 MB.

    Raises:
        UsageError: The path is a folder.
        RunError: The file cannot be written.
    """
    text = json.dumps(vectors.tokens, ensure_ascii=False).encode("utf-8", "replace")
    tensors = {
        "vectors": Tensor("F32", vectors.matrix.shape, read_blocks(vectors)),
        "tokens": Tensor("U8", (len(text),), [np.frombuffer(text, np.uint8)]),
    }
    if vectors.counts is not None:
        counts = np.asarray(vectors.counts, "<i8")
        tensors = {"counts": Tensor("I64", counts.shape, [counts]), **tensors}
    with replacing(path) as temporary:
        write_tensors(temporary, tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors.

    Args:
        tensors: The tensors by name, those with the largest numbers first.
    """
    header: dict[str, object] = {"__metadata__": {"format": "np"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + math.prod(tensor.shape) * _SIZES[tensor.dtype]
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            for part in tensor.parts:
                file.write(part.data)


def write_parquet(vectors: WordVectors, path: str | Path) -> None:
    """Write word vectors as a Parquet file, a row for each word; it replaces an earlier one.

    The column `token` is text, `count` is int64, null if it is not known, and `vector` is a
    list of D float32 numbers, of fixed size.

    Raises:
        UsageError: The path is a folder, or pyarrow is not installed.
        RunError: The file cannot be written.
    """
    with needs_package('--format=parquet needs pyarrow; pip install "lexrow[handover]"'):
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    columns = vectors.matrix.shape[1]
    schema = pyarrow.schema(
        [
            pyarrow.field("token", pyarrow.string(), nullable=False),
            ("count", pyarrow.int64()),
            pyarrow.field("vector", pyarrow.list_(pyarrow.float32(), columns), nullable=False),
        ]
    )
    # Neither words, which are unique, nor float32 numbers get much smaller.
    settings = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    low = 0
    with (
        replacing(path) as temporary,
        open(temporary, "wb") as file,
        ParquetWriter(file, schema, **settings) as writer,
    ):
        for block in read_blocks(vectors):
            part = slice(low, low + len(block))
            tokens = [token.encode("utf-8", "replace") for token in vectors.tokens[part]]
            counts = [None] * len(block) if vectors.counts is None else vectors.counts[part]
            arrays = [
                pyarrow.array(tokens, pyarrow.string()),
                pyarrow.array(counts, pyarrow.int64(), safe=False),
                pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(block.reshape(-1)), columns),
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            low = part.stop
