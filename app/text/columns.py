"""Read named columns of CSV, TSV, JSON lines and Parquet files, and the text of a corpus."""

from __future__ import annotations

import collections
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..settings import CorpusConfig
from . import content, delimited, parquet, reading
from .content import Content
from .delimited import Lines

_SEPARATORS = (",", "\t", ";")
_LINE_END = re.compile(r"\r+\n?|\n")
_SAMPLE = 100  # JSON objects that the names of the columns are taken from

# The place of a row, for messages, and its cells.
Row = tuple[str, list[Any]]


def recognize(path: str) -> Content:
    """Return the content of a file (see `content.recognize`).

    Args:
        path: The file.

    Raises:
        UsageError: The file is neither text nor Parquet, or cannot be decompressed.
        RunError: The file cannot be read.
    """
    with reading.open_source(path) as file:
        return content.recognize(path, file)


def is_cuttable(path: str, text_column: str) -> bool:
    """Return whether blocks of the text of a file are parts of the file, as it is plain UTF-8.

    Args:
        path: The file.
        text_column: Value of --text_column.

    Raises:
        UsageError: The file is neither text nor Parquet, or cannot be decompressed.
        RunError: The file cannot be read.
    """
    return not text_column and recognize(path).is_plain


def read_text(
    path: str, corpus: CorpusConfig, block_bytes: int, progress: reading.Progress, index: int
) -> Iterator[bytes]:
    """Yield the text of a file of the corpus in blocks, see `reading.blocks`.

    With --text_column, each cell of this column is a line, and a line end in it becomes a blank.

    Args:
        path: The file.
        corpus: How to read the file.
        block_bytes: Largest size of a block, before replacement.
        progress: Updated while the file is read.
        index: Number of the source in `progress`.

    Raises:
        UsageError: The file is no text, has no such column, or is malformed; or it is JSON lines or
            Parquet, and no column is named.
        RunError: The file cannot be read, or it is not UTF-8 with --invalid_utf8=error.
    """
    how = corpus.invalid_utf8, block_bytes, progress, index
    if not corpus.text_column:
        _check_lines(path)
        yield from reading.blocks(path, corpus.documents, *how)
        return
    rows = read_rows(path, {"text_column": corpus.text_column}, *how)
    texts = (as_text(cell, where, corpus.text_column) for where, (cell,) in rows)
    lines = ((_in_one_line(text) + "\n").encode() for text in texts)
    for _, block in reading.cut_blocks(_join(lines, block_bytes), corpus.documents, block_bytes):
        yield block


def read_rows(
    path: str,
    columns: Mapping[str, str],
    invalid_utf8: str,
    block_bytes: int,
    progress: reading.Progress,
    index: int,
) -> Iterator[Row]:
    """Yield the rows of a file that are not blank, with the cells of some columns in order.

    The content of the file shows its format. Cells of JSON lines and Parquet may have any type, and
    are None if they are missing.

    Args:
        path: The file.
        columns: Names of the columns, by the flag that names each.
        invalid_utf8: Value of --invalid_utf8.
        block_bytes: Bytes to read at a time.
        progress: Updated while the file is read.
        index: Number of the source in `progress`.

    Raises:
        UsageError: A column is missing or repeated, the number of cells differs, or quotes, JSON
            or the file are malformed.
        RunError: The file cannot be read, or it is not UTF-8 with --invalid_utf8=error.
    """
    kind = recognize(path).format
    if kind == "parquet":
        yield from _parquet_rows(path, columns, progress, index)
        return
    blocks = reading.blocks(path, "line", invalid_utf8, block_bytes, progress, index)
    lines = delimited.whole_lines(path, map(bytes.decode, blocks))
    yield from (_json_rows if kind == "json" else _delimited_rows)(path, lines, columns)


def as_text(cell: Any, where: str, column: str) -> str:
    """Return a cell as valid Unicode text; a missing one is empty.

    Args:
        cell: The cell.
        where: Its place, for messages.
        column: The name of its column, for messages.

    Raises:
        UsageError: The cell is a list or an object.
    """
    if isinstance(cell, str):
        if cell.isascii():
            return cell
        # JSON may have one half of a surrogate pair.
        return cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if cell is None:
        return ""
    if isinstance(cell, (list, tuple, dict)):
        raise UsageError(
            f"{where}: {column} is a list or an object; name a column of text or numbers"
        )
    return cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)


def read_objects(path: str, lines: Iterable[Lines]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON lines, each with the number of its line; skip blank lines.

    Args:
        path: The file, for messages.
        lines: Consecutive parts of the file, see `delimited.whole_lines`.

    Raises:
        UsageError: A line is no JSON object.
    """
    for first, text in lines:
        for number, line in enumerate(text[:-1].split("\n"), first):
            if not line or line.isspace():
                continue
            try:
                value, reason = json.loads(line), "it has no names"
            except (ValueError, RecursionError) as error:
                value, reason = None, str(error)
            if not isinstance(value, dict):
                raise UsageError(
                    f"{path}, line {number}: is no JSON object, as the first line is ({reason}); "
                    "correct or remove it"
                )
            yield number, value


def object_names(objects: Iterable[tuple[int, dict[str, Any]]]) -> list[str]:
    """Return the names in the first 100 objects of JSON lines, in order of appearance.

    Args:
        objects: The objects, each with the number of its line.
    """
    sample = itertools.islice(objects, _SAMPLE)
    return list(dict.fromkeys(name for _, value in sample for name in value))


def _in_one_line(text: str) -> str:
    """Return a text with a blank for each line end."""
    # Most have none, and a search for a character takes a tenth of the time of the pattern.
    return _LINE_END.sub(" ", text) if "\n" in text or "\r" in text else text


def _join(lines: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield lines joined to chunks of this size or more, as short ones would be slow to cut."""
    group, length = [], 0
    for line in lines:
        group.append(line)
        length += len(line)
        if length >= size:
            yield b"".join(group)
            group, length = [], 0
    yield b"".join(group)


def _check_lines(path: str) -> None:
    """Raise a UsageError for a file of the corpus that has columns, none of which is named."""
    kind = recognize(path).format
    if kind == "text":
        return
    if kind == "parquet":
        shown, names = "a Parquet file", parquet.column_names(path)
    else:
        shown = "a file of JSON lines"
        decoded = map(bytes.decode, reading.blocks(path))
        names = object_names(read_objects(path, delimited.whole_lines(path, decoded)))
    raise UsageError(
        f"{path} is {shown} with the columns {delimited.list_columns(names)}; name the one that "
        "has the texts by --text_column (and for --task=classify, also --label_column)"
    )


def _find(path: str, names: Sequence[str], columns: Mapping[str, str]) -> list[int]:
    """Return the positions of columns among all names; raise UsageError if one is not there."""
    for flag, name in columns.items():
        if name not in names:
            raise delimited.missing_column(path, flag, name, names)
        delimited.check_single(path, names, name)
    return [names.index(name) for name in columns.values()]


def _delimited_rows(path: str, lines: Iterable[Lines], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a CSV file, whose cells are between commas, tabs or semicolons."""
    lines = iter(lines)
    start = list(itertools.islice(lines, 1))
    separator = _separator(path, start, columns)
    rows = delimited.read_csv_rows(path, itertools.chain(start, lines), separator)
    _, header = next(rows, (0, []))
    found = _find(path, [name.strip() for name in header], columns)
    for number, row in rows:
        where = f"{path}, line {number}"
        delimited.check_cells(where, row, max(found) + 1, len(header))
        yield where, [row[column] for column in found]


def _separator(path: str, start: list[Lines], columns: Mapping[str, str]) -> str:
    """Return the separator between whose cells a header has all columns, else the most cells."""
    best, most = ",", 0
    separators = sorted(_SEPARATORS, key=lambda sign: ".tsv" in path.lower() and sign != "\t")
    for separator in separators:
        try:
            _, header = next(delimited.read_csv_rows(path, start, separator), (0, []))
        except UsageError:  # quotes that are none between other separators
            continue
        if {name.strip() for name in header}.issuperset(columns.values()):
            return separator
        if len(header) > most:
            best, most = separator, len(header)
    return best


def _json_rows(path: str, lines: Iterable[Lines], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines."""
    objects = read_objects(path, lines)
    sample = list(itertools.islice(objects, _SAMPLE))
    _find(path, object_names(sample), columns)
    for number, value in itertools.chain(sample, objects):
        yield f"{path}, line {number}", [value.get(name) for name in columns.values()]


def _parquet_rows(
    path: str, columns: Mapping[str, str], progress: reading.Progress, index: int
) -> Iterator[Row]:
    """Yield the rows of a Parquet file, and set the entries of `progress`."""
    progress.positions[index] = progress.replaced[index] = 0
    _find(path, parquet.column_names(path), columns)
    size, count = os.path.getsize(path), parquet.row_count(path)
    for number, row in enumerate(parquet.read_rows(path, list(columns.values())), 1):
        progress.positions[index] = size * number // count
        yield f"{path}, row {number}", list(row)
    if progress.digests is not None:
        how = "none", reading.BLOCK_BYTES, progress, index
        collections.deque(reading.raw_blocks(path, *how), maxlen=0)  # sets the digest
