"""Read named columns of CSV, TSV, JSON lines and Parquet files, and the text of a corpus.

CSV (RFC 4180) is read by Python's `csv` and JSON by its `json`: pyarrow's readers of these take an
unclosed quote for one long cell, read large integers as floats, and do not number lines.
"""

from __future__ import annotations

import collections
import csv
import difflib
import io
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RunError, UsageError, needs_package
from ..settings import CorpusConfig
from . import reading

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

# A longer line or quoted cell is refused: it is probably an unclosed quote or a binary file. In a
# list of items it would be a user with more than a million items.
LONGEST = 16 << 20  # characters
_SEPARATORS = (",", "\t", ";")
_QUOTING = (",", ";")
_LINE_END = re.compile(r"\r+\n?|\n")
_SAMPLE = 100  # JSON objects that the names of the columns are taken from
_SHOWN = 500  # characters of a header in a message
# The most rows of Parquet at a time: of numbers, of texts, and of lists, and the size of most.
# Fewer take longer; texts and lists may be long, and a file need not tell how long.
_NUMBERS, _TEXTS, _LISTS, _BYTES = 1 << 16, 512, 16, 16 << 20

# The place of a row, for messages, and its cells.
Row = tuple[str, list[Any]]
# Consecutive whole lines: the number of the first one, and the text, in which "\n" ends each.
Lines = tuple[int, str]


def read_text(
    path: str, corpus: CorpusConfig, block_bytes: int, progress: reading.Progress, index: int
) -> Iterator[bytes]:
    """Yield the text of a file of the corpus in blocks, see `reading.blocks`.

    With --text_column, each cell of this column is a line, and a line end in it becomes a blank.

    Args:
        block_bytes: Largest size of a block, before replacement.

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
    # Short lines would be slow to cut.
    chunks = map(b"".join, reading.grouped(lines, block_bytes, block_bytes))
    for _, block in reading.cut_blocks(chunks, corpus.documents, block_bytes):
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
    are None if they are missing. The other arguments are those of `read_text`.

    Args:
        columns: Names of the columns, by the flag that names each.
        block_bytes: Bytes to read at a time.

    Raises:
        UsageError: A column is missing or repeated, the number of cells differs, or quotes, JSON
            or the file are malformed.
        RunError: The file cannot be read, or it is not UTF-8 with --invalid_utf8=error.
    """
    kind = reading.recognize_file(path).format
    if kind != "text":
        _find(path, column_names(path), columns)
    if kind == "parquet":
        yield from _parquet_rows(path, columns, progress, index)
        return
    blocks = reading.blocks(path, "line", invalid_utf8, block_bytes, progress, index)
    lines = whole_lines(path, map(bytes.decode, blocks))
    yield from (_json_rows if kind == "json" else _delimited_rows)(path, lines, columns)


def as_text(cell: Any, where: str, column: str) -> str:
    """Return a cell as valid Unicode text; a missing one is empty.

    Raises:
        UsageError: The cell is a list or an object.
    """
    if isinstance(cell, str):
        if cell.isascii():
            return cell
        # JSON may have one half of a surrogate pair.
        return cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if cell is None or cell != cell:  # NaN
        return ""
    if isinstance(cell, (list, tuple, dict)):
        raise UsageError(
            f"{where}: {column} is a list or an object; name a column of text or numbers"
        )
    return cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)


def _in_one_line(text: str) -> str:
    """Return a text with a blank for each line end."""
    # Most have none, and a search for a character takes a tenth of the time of the pattern.
    return _LINE_END.sub(" ", text) if "\n" in text or "\r" in text else text


def _check_lines(path: str) -> None:
    """Raise a UsageError for a file of the corpus that has columns, none of which is named."""
    kind = reading.recognize_file(path).format
    if kind == "text":
        return
    shown = "a Parquet file" if kind == "parquet" else "a file of JSON lines"
    raise UsageError(
        f"{path} is {shown} with the columns {list_columns(column_names(path))}; name the "
        "one that has the texts by --text_column (and for --task=classify, also --label_column)"
    )


# Lines and rows.


def whole_lines(path: str, blocks: Iterable[str]) -> Iterator[Lines]:
    r"""Yield the text of a file in parts of whole lines, each with the number of its first line.

    A line ends with "\n", "\r\n", "\r\r\n" or "\r", which all become "\n"; the last line gets one.

    Raises:
        UsageError: A line is longer than `LONGEST`.
    """
    number, rest = 1, ""
    for block in blocks:
        text = rest + block
        held = 2 if text.endswith("\r\r") else int(text.endswith("\r"))  # "\n" may follow
        lines = _normalized(text[: len(text) - held])
        end = lines.find("\n")
        if (end if end >= 0 else len(lines)) > LONGEST:  # a block begins at most one such line
            raise UsageError(
                f"{path}, line {number}: longer than {LONGEST:,} characters; check that the file "
                "is text, or split the line"
            )
        end = lines.rfind("\n") + 1
        rest = lines[end:] + text[len(text) - held :]
        if end:
            yield number, lines[:end]
            number += lines.count("\n")
    if rest:
        yield number, _normalized(rest).removesuffix("\n") + "\n"


def _normalized(text: str) -> str:
    r"""Return a text in which each line end is "\n"."""
    if "\r" not in text:
        return text
    # Windows writes "\r\r\n" for rows that end in "\r\n" already.
    return text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")


def is_quoted(text: str, separator: str) -> bool:
    """Return whether a text may have quoted cells, which may contain line ends."""
    return separator in _QUOTING and '"' in text


def split_rows(
    path: str, parts: Iterable[Lines], separator: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of the line where it begins.

    A row is blank if all its cells are empty or white space. Blanks around a cell are kept.

    Args:
        parts: Consecutive parts of the file, see `whole_lines`.
        separator: The separator of fields, or "" for white space. With "," and ";", cells may be
            quoted.

    Raises:
        UsageError: A quote is not closed, something follows a closed one, or a cell is too long;
            only with "," and ";".
    """
    if separator in _QUOTING:
        yield from _split_csv(path, parts, separator)
        return
    for first, text in parts:
        for number, line in enumerate(text[:-1].split("\n"), first):
            row = line.split(separator or None)
            if _has_content(row):
                yield number, row


def _split_csv(path: str, parts: Iterable[Lines], separator: str) -> Iterator[tuple[int, list]]:
    """Yield the rows of a text that may have quoted cells, as `split_rows` does.

    This sets the `csv.field_size_limit` of the process to `LONGEST`.
    """
    csv.field_size_limit(LONGEST)  # the module's own is 131,072 characters
    parts = iter(parts)
    number, text_0 = next(parts, (1, ""))
    ended = size = 0  # the lines of the rows that have ended, and the text since

    def lines() -> Iterator[io.StringIO]:
        """Yield the parts; a row of short cells with line ends could take all of them."""
        nonlocal size
        for text in itertools.chain([text_0], (text for _, text in parts)):
            if size > LONGEST:
                raise csv.Error(f"row is longer than {LONGEST:,} characters")
            size += len(text)
            yield io.StringIO(text)

    # Strict, because an unclosed quote would silently make the following lines part of its cell.
    reader = csv.reader(itertools.chain.from_iterable(lines()), delimiter=separator, strict=True)
    try:
        for row in reader:
            if _has_content(row):
                yield number + ended, row
            ended, size = reader.line_num, 0
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {number + ended}: {error}; close, double or remove quotes"
        ) from error


def _has_content(row: list[str]) -> bool:
    """Return whether a row has a cell that is not blank."""
    return any(cell and not cell.isspace() for cell in row)


def check_cells(where: str, row: list[str], needed: int, usual: int) -> None:
    """Raise a UsageError for a row that lacks a column, or has content after the usual cells.

    Args:
        needed: The number of cells that it needs.
        usual: The number of cells of the first row.
    """
    if len(row) < needed:
        raise UsageError(f"{where}: {len(row)} of {needed} fields; correct or remove it")
    if any(row[usual:]):
        raise UsageError(
            f"{where}: {len(row)} fields where the first one has {usual}; quote cells that hold a "
            "separator, correct or remove it"
        )


def _delimited_rows(path: str, lines: Iterable[Lines], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a CSV file, whose cells are between commas, tabs or semicolons."""
    header, rows = _split_header(path, lines, columns.values())
    found = _find(path, header, columns)
    for number, row in rows:
        where = f"{path}, line {number}"
        check_cells(where, row, max(found) + 1, len(header))
        yield where, [row[column] for column in found]


def _split_header(
    path: str, lines: Iterable[Lines], names: Collection[str]
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of a CSV file, in which there are some names, and the rows below it."""
    lines = iter(lines)
    start = list(itertools.islice(lines, 1))
    rows = _split_csv(path, itertools.chain(start, lines), _separator(path, start, names))
    _, header = next(rows, (0, []))
    return [name.strip() for name in header], rows


def _separator(path: str, start: list[Lines], names: Collection[str]) -> str:
    """Return the separator between whose cells a header has all names, else the most cells."""
    best, most = ",", 0
    for separator in sorted(_SEPARATORS, key=lambda sign: ".tsv" in path.lower() and sign != "\t"):
        try:
            _, header = next(_split_csv(path, start, separator), (0, []))
        except UsageError:  # quotes that are none between other separators
            continue
        if names and {name.strip() for name in header}.issuperset(names):
            return separator
        if len(header) > most:
            best, most = separator, len(header)
    return best


# Names of columns.


def column_names(path: str, wanted: Collection[str] = ()) -> list[str]:
    """Return the names of the columns of a file; for lines of text, what the first one has.

    Those of JSON lines are the names in its first 100 objects, in order of appearance.

    Args:
        wanted: Names that choose the separator of a CSV file.

    Raises:
        UsageError: It is JSON lines or Parquet that cannot be used.
        RunError: The file cannot be read.
    """
    kind = reading.recognize_file(path).format
    if kind == "parquet":
        return _open(path).schema_arrow.names
    lines = whole_lines(path, map(bytes.decode, reading.blocks(path)))
    if kind == "json":
        objects = itertools.islice(read_objects(path, lines), _SAMPLE)
        return list(dict.fromkeys(name for _, value in objects for name in value))
    try:
        return _split_header(path, lines, wanted)[0]
    except UsageError:  # a quote in a line of text
        return []


def list_columns(header: Sequence[str]) -> str:
    """Return the names of a header for a message: "none" if empty, cut if they are long."""
    names = ", ".join(header) or "none"
    return names if len(names) < _SHOWN else f"{names[:_SHOWN]}…"


def check_single(path: str, header: Sequence[str], name: str, remedy: str = "") -> None:
    """Raise a UsageError if a header has the name of a column more than once.

    Args:
        name: A column that is read.
        remedy: Another remedy, for the end of the message.
    """
    if header.count(name) > 1:
        raise UsageError(
            f"{path}: {header.count(name)} columns are named {name}; remove or rename all but one"
            f"{remedy}"
        )


def missing_column(path: str, flag: str, name: str, names: Sequence[str]) -> UsageError:
    """Return the error for a column that a file has not; it names the columns that it has.

    Args:
        name: The missing name, the value of the flag.
    """
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f", such as {by_lower[near[0]]}" if near else ""
    return UsageError(
        f"--{flag}={name}: {path} has the columns {list_columns(names)}; name one of them{hint}"
    )


def _find(path: str, names: Sequence[str], columns: Mapping[str, str]) -> list[int]:
    """Return the positions of columns among all names; raise UsageError if one is not there."""
    places = {name: place for place, name in enumerate(names)}
    for flag, name in columns.items():
        if name not in places:
            raise missing_column(path, flag, name, names)
    if len(places) < len(names):
        for name in columns.values():
            check_single(path, names, name)
    return [places[name] for name in columns.values()]


# JSON lines.


def read_objects(path: str, lines: Iterable[Lines]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON lines, each with the number of its line; skip blank lines.

    Args:
        lines: Consecutive parts of the file, see `whole_lines`.

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


def _json_rows(path: str, lines: Iterable[Lines], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines."""
    for number, value in read_objects(path, lines):
        yield f"{path}, line {number}", [value.get(name) for name in columns.values()]


# Parquet.


def _parquet_rows(
    path: str, columns: Mapping[str, str], progress: reading.Progress, index: int
) -> Iterator[Row]:
    """Yield the rows of a Parquet file, and set the entries of `progress`."""
    progress.positions[index] = progress.replaced[index] = 0
    names = list(columns.values())
    size, count, number = os.path.getsize(path), _open(path).metadata.num_rows, 0
    for batch in read_batches(path, names):
        try:
            cells = [batch[name].to_pylist() for name in names]
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: its text is not UTF-8; convert it") from error
        for row in zip(*cells, strict=True):
            number += 1
            progress.positions[index] = size * number // count
            yield f"{path}, row {number}", list(row)
    if progress.digests is not None:
        how = "none", reading.BLOCK_BYTES, progress, index
        collections.deque(reading.raw_blocks(path, *how), maxlen=0)  # sets the digest


def read_batches(path: str, names: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    """Yield rows of some columns of a Parquet file, some hundreds at a time, fewer if long.

    Args:
        names: Columns that the file has; a repeated name counts once.

    Raises:
        UsageError: It is not a Parquet file, or pyarrow is not installed.
        RunError: The file is damaged.
    """
    file, names = _open(path), list(dict.fromkeys(names))
    import pyarrow

    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    flat = [leaf for leaf in leaves if leaf.path in names]
    texts = [leaf.path for leaf in flat if leaf.physical_type == "BYTE_ARRAY"]
    most = _LISTS if len(flat) < len(names) else _TEXTS if texts else _NUMBERS
    longest, encoded = max([1, *(leaf.length for leaf in flat)]), _open(path, texts)
    try:
        for group in range(file.num_row_groups):
            # A cell that is repeated is stored once, so a small file may hold any number of bytes.
            rows = max(1, min(most, _BYTES // max(longest, _longest(encoded, group, texts))))
            for batch in file.iter_batches(rows, row_groups=[group], columns=names):
                for number, column in enumerate(batch.columns):
                    if isinstance(column, pyarrow.DictionaryArray):
                        name, plain = batch.schema.names[number], column.dictionary_decode()
                        batch = batch.set_column(number, name, plain)
                yield batch
    except (pyarrow.ArrowException, OSError) as error:
        raise reading.damaged(path, error, RunError) from error


def _longest(file: ParquetFile, group: int, texts: Sequence[str]) -> int:
    """Return the bytes of the longest cell in the dictionaries of columns of a row group.

    A dictionary comes with the first row, and has all cells that are stored once for many rows.

    Args:
        file: The file, which reads these columns with their dictionaries.
    """
    import pyarrow.compute

    longest = 0
    for batch in itertools.islice(file.iter_batches(1, row_groups=[group], columns=texts), 1):
        for column in batch.columns:
            if not isinstance(column, pyarrow.DictionaryArray):  # of the type JSON
                return _BYTES // _LISTS
            lengths = pyarrow.compute.binary_length(column.dictionary)
            longest = max(longest, pyarrow.compute.max(lengths).as_py() or 0)
    return longest


def join_batches(batches: Iterable[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    """Return the rows of some batches as one."""
    import pyarrow

    return pyarrow.concat_batches(list(batches))


def read_cells(path: str, batch: pyarrow.RecordBatch, name: str) -> list[str]:
    """Return the cells of a column of keys, numbers or times as text.

    Floats without a fraction become integers, 3.0 is "3": pandas writes integers with empty cells
    as floats. Dates and times become seconds since 1970 (UTC).

    Args:
        batch: Some rows of it.

    Raises:
        UsageError: A cell is empty or not UTF-8, or the column has lists or objects.
    """
    import pyarrow
    from pyarrow import types

    column = batch[name]
    if types.is_nested(column.type):
        raise UsageError(
            f"{path}: column {name} is of {column.type}; give a column of text or numbers"
        )
    try:
        if types.is_timestamp(column.type) or types.is_date(column.type):
            column = column.cast(pyarrow.timestamp("s"), safe=False).cast(pyarrow.int64())
        elif types.is_binary(column.type) or types.is_large_binary(column.type):
            column = column.cast(pyarrow.large_string())
        encoded = column.dictionary_encode()  # few cells differ, and Python reads only these
        unique = encoded.dictionary.to_pylist()
    except (pyarrow.ArrowInvalid, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: column {name} is not UTF-8; convert it") from error
    is_float = types.is_floating(column.type)
    if column.null_count or (is_float and not np.isfinite(unique).all()):
        raise UsageError(f"{path}: column {name} has empty cells; remove their rows")
    if is_float:
        unique = [int(cell) if cell.is_integer() else cell for cell in unique]
    return np.array([*map(str, unique), ""], object)[encoded.indices.to_numpy()].tolist()


def _open(path: str, encoded: Sequence[str] = ()) -> ParquetFile:
    """Open a Parquet file, and read its metadata; raise UsageError if it is none.

    Args:
        encoded: Columns of texts whose cells are not decoded, but read as numbers of a dictionary.
    """
    with needs_package(f"{path}: Parquet files need pyarrow; pip install pyarrow"):
        import pyarrow
        from pyarrow.parquet import ParquetFile
    try:
        return ParquetFile(path, read_dictionary=list(encoded), page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise reading.damaged(path, error) from error
