"""Write word vectors as a Parquet file (https://parquet.apache.org), a row for each word."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.files import replacing
from ..types import WordVectors

_ROWS = 4_096  # of a row group


def write(vectors: WordVectors, path: str | Path) -> None:
    """Write the columns token, count and vector; the file replaces an earlier one.

    `token` is text, `count` is int64, null if it is not known, and `vector` is a list of D float32
    numbers, of fixed size.

    Raises:
        UsageError: The path is a folder, or pyarrow is not installed.
        RunError: The file cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            '--format=parquet needs pyarrow; pip install "lexrow[handover]"'
        ) from error
    columns = vectors.matrix.shape[1]
    schema = pyarrow.schema(
        [
            pyarrow.field("token", pyarrow.string(), nullable=False),
            ("count", pyarrow.int64()),
            pyarrow.field("vector", pyarrow.list_(pyarrow.float32(), columns), nullable=False),
        ]
    )
    tokens = [token.encode("utf-8", "replace") for token in vectors.tokens]
    counts = pyarrow.nulls(len(tokens), pyarrow.int64())
    if vectors.counts is not None:
        counts = pyarrow.array(np.asarray(vectors.counts, np.int64))
    numbers = pyarrow.array(np.ascontiguousarray(vectors.matrix, np.float32).reshape(-1))
    matrix = pyarrow.FixedSizeListArray.from_arrays(numbers, columns)
    table = pyarrow.table([pyarrow.array(tokens, pyarrow.string()), counts, matrix], schema=schema)
    # Neither words, which are unique, nor float32 numbers get much smaller.
    how = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        parquet.write_table(table, file, row_group_size=_ROWS, **how)
