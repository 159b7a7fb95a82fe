"""Write word vectors as a Parquet file (https://parquet.apache.org), a row for each word."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import needs_package
from ..system.files import replacing
from ..types import WordVectors
from .row_blocks import read_blocks


def write(vectors: WordVectors, path: str | Path) -> None:
    """Write the columns token, count and vector; the file replaces an earlier one.

    `token` is text, `count` is int64, null if it is not known, and `vector` is a list of D float32
    numbers, of fixed size.

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
            counts = None if vectors.counts is None else np.asarray(vectors.counts[part], np.int64)
            arrays = [
                pyarrow.array(tokens, pyarrow.string()),
                pyarrow.nulls(len(block), pyarrow.int64())
                if counts is None
                else pyarrow.array(counts),
                pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(block.reshape(-1)), columns),
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            low = part.stop
