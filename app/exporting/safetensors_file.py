"""Write safetensors files (https://github.com/huggingface/safetensors#format) part by part.

A file has a header in JSON and then the bytes of its tensors. The library `safetensors` writes
tensors only as a whole, so it is not used here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..system.files import replacing
from ..types import WordVectors
from .row_blocks import read_blocks

# Bytes. A reader may map the file, so a tensor begins at a multiple of the size of its numbers.
_ALIGNMENT = 8
_SIZES = {"I64": 8, "F32": 4, "U8": 1}


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


def write(vectors: WordVectors, path: str | Path) -> None:
    """Write word vectors as a safetensors file, which replaces an earlier one.

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
