"""Read columns of Parquet files: keys, numbers and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import RunError, UsageError

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

_ROWS, _BYTES = 1 << 16, 16 << 20  # the most rows at a time, and their average size


def column_names(path: str) -> list[str]:
    """Return the names of the columns of a file.

    Args:
        path: The file.

    Raises:
        UsageError: It is not a Parquet file, or pyarrow is not installed.
    """
    return _open(path).schema_arrow.names


def row_count(path: str) -> int:
    """Return the number of rows of a file.

    Args:
        path: The file.

    Raises:
        UsageError: It is not a Parquet file, or pyarrow is not installed.
    """
    return _open(path).metadata.num_rows


def read_rows(path: str, names: Sequence[str]) -> Iterator[tuple]:
    """Yield the cells of some columns row by row; an empty cell is None.

    Args:
        path: The file.
        names: Columns that the file has.

    Raises:
        UsageError: It is not a Parquet file, pyarrow is not installed, or text is not UTF-8.
        RunError: The file is damaged.
    """
    metadata = _open(path).metadata
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    rows = max(1, min(_ROWS, _BYTES * metadata.num_rows // max(size, 1)))  # texts may be long
    for batch in read_batches(path, names, rows):
        try:
            columns = [batch[name].to_pylist() for name in names]
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: its text is not UTF-8; convert it") from error
        yield from zip(*columns, strict=True)


def read_batches(
    path: str, names: Sequence[str], rows: int = _ROWS
) -> Iterator[pyarrow.RecordBatch]:
    """Yield rows of some columns, some thousands at a time.

    Args:
        path: The file.
        names: Columns that the file has; a repeated name counts once.
        rows: The most rows at a time.

    Raises:
        UsageError: It is not a Parquet file, or pyarrow is not installed.
        RunError: The file is damaged.
    """
    file = _open(path)
    import pyarrow

    try:
        yield from file.iter_batches(rows, columns=list(dict.fromkeys(names)))
    except (pyarrow.ArrowException, OSError) as error:
        raise RunError(_damaged(path, error)) from error


def read_keys(path: str, batch: pyarrow.RecordBatch, name: str) -> tuple[list[str], np.ndarray]:
    """Return the unique keys of a column as text, and the position among them for each row.

    Keys are in order of appearance. Numbers become decimal text, and floats without a fraction
    become integers: 3.0 is "3".

    Args:
        path: The file, for messages.
        batch: Some rows of it.
        name: The column.

    Raises:
        UsageError: A cell is empty or not UTF-8, or the type of the column cannot be a key.
    """
    import pyarrow
    from pyarrow import types

    column = _filled(path, batch, name)
    if types.is_nested(column.type):
        raise UsageError(
            f"{path}: column {name} is of {column.type}; give a column of text or numbers"
        )
    try:
        if types.is_binary(column.type) or types.is_large_binary(column.type):
            column = column.cast(pyarrow.large_string())
        encoded = column.dictionary_encode()
        unique = encoded.dictionary.to_pylist()
    except (pyarrow.ArrowInvalid, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: column {name} is not UTF-8; convert it") from error
    if types.is_floating(column.type):  # pandas writes integers with empty cells as floats
        if not np.isfinite(unique).all():
            raise UsageError(f"{path}: column {name} has empty cells; remove their rows")
        unique = [int(key) if key.is_integer() else key for key in unique]
    return list(map(str, unique)), encoded.indices.to_numpy()


def read_cells(path: str, batch: pyarrow.RecordBatch, name: str) -> list[str]:
    """Return the cells of a column as text; dates and times are seconds since 1970 (UTC).

    Args:
        path: The file, for messages.
        batch: Some rows of it.
        name: The column.

    Raises:
        UsageError: A cell is empty.
    """
    import pyarrow
    from pyarrow import types

    column = _filled(path, batch, name)
    if types.is_timestamp(column.type) or types.is_date(column.type):
        column = column.cast(pyarrow.timestamp("s"), safe=False).cast(pyarrow.int64())
    return list(map(str, column.to_pylist()))


def _filled(path: str, batch: pyarrow.RecordBatch, name: str) -> pyarrow.Array:
    """Return a column, decoded if it is dictionary-encoded; refuse empty cells (UsageError)."""
    import pyarrow

    column = batch[name]
    if isinstance(column, pyarrow.DictionaryArray):
        column = column.dictionary_decode()
    if column.null_count:
        raise UsageError(f"{path}: column {name} has empty cells; remove their rows")
    return column


def _open(path: str) -> ParquetFile:
    """Open a Parquet file, and read its metadata.

    Raises:
        UsageError: It is not a Parquet file, or pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UsageError(f"{path}: Parquet files need pyarrow; pip install pyarrow") from error
    try:
        return ParquetFile(path, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(_damaged(path, error)) from error


def _damaged(path: str, error: Exception) -> str:
    """Return the message for a damaged file."""
    reason = " ".join(str(error).split())
    return f"{path} is truncated or corrupt ({reason}); fetch or write it again"
