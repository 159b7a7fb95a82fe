"""Read rows of delimited text files: CSV (RFC 4180), and lines split at other separators."""

from __future__ import annotations

import csv
import difflib
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence

from ..errors import UsageError

# A longer line or quoted cell is refused: it is probably an unclosed quote or a binary file. In a
# list of items it would be a user with more than a million items.
LONGEST = 16 << 20  # characters
_QUOTING = (",", ";")
_SHOWN = 500  # characters of a header in a message

# Consecutive whole lines: the number of the first one, and the text, in which "\n" ends each.
Lines = tuple[int, str]


def whole_lines(path: str, blocks: Iterable[str]) -> Iterator[Lines]:
    r"""Yield the text of a file in parts of whole lines, each with the number of its first line.

    A line ends with "\n", "\r\n", "\r\r\n" or "\r", which all become "\n"; the last line gets one.

    Args:
        path: The file, for messages.
        blocks: Consecutive parts of its text.

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


def is_quoted(text: str, separator: str) -> bool:
    """Return whether a text may have quoted cells: it has a quote, and the separator is , or ;.

    Such cells may contain line ends.

    Args:
        text: The text.
        separator: Between fields.
    """
    return separator in _QUOTING and '"' in text


def read_rows(path: str, parts: Iterable[Lines], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of the line where it begins.

    A row is blank if all its cells are empty or white space. Blanks around a cell are kept.

    Args:
        path: The file, for messages.
        parts: Consecutive parts of the file, see `whole_lines`.
        separator: The separator of fields, or "" for white space. With "," and ";", cells may be
            quoted, and the text is read by `read_csv_rows`.

    Raises:
        UsageError: A quote is not closed, something follows a closed one, or a cell is too long;
            only with "," and ";".
    """
    if separator in _QUOTING:
        yield from read_csv_rows(path, parts, separator)
        return
    for first, text in parts:
        for number, line in enumerate(text[:-1].split("\n"), first):
            row = line.split(separator or None)
            if _has_content(row):
                yield number, row


def read_csv_rows(
    path: str, parts: Iterable[Lines], separator: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank of a text with quoted cells, as `read_rows` does.

    This sets the `csv.field_size_limit` of the process to `LONGEST`.

    Args:
        path: The file, for messages.
        parts: Consecutive parts of the file, see `whole_lines`.
        separator: Any single character.

    Raises:
        UsageError: A quote is not closed, something follows a closed one, or a cell is too long.
    """
    csv.field_size_limit(LONGEST)  # the module's own is 131,072 characters
    parts = iter(parts)
    number, text = next(parts, (1, ""))
    texts = itertools.chain([text], (text for _, text in parts))
    lines = itertools.chain.from_iterable(map(io.StringIO, texts))
    # Strict, because an unclosed quote would silently make the following lines part of its cell.
    reader = csv.reader(lines, delimiter=separator, strict=True)
    ended = 0
    try:
        for row in reader:
            if _has_content(row):
                yield number + ended, row
            ended = reader.line_num
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {number + ended}: {error}; close, double or remove quotes"
        ) from error


def list_columns(header: Sequence[str]) -> str:
    """Return the names of a header for a message: "none" if empty, cut if they are long.

    Args:
        header: The names.
    """
    names = ", ".join(header) or "none"
    return names if len(names) < _SHOWN else f"{names[:_SHOWN]}…"


def check_single(path: str, header: Sequence[str], name: str, remedy: str = "") -> None:
    """Raise a UsageError if a header has the name of a column more than once.

    Args:
        path: The file, for messages.
        header: The names.
        name: A column that is read.
        remedy: Another remedy, for the end of the message.

    Raises:
        UsageError: The name is there more than once.
    """
    if header.count(name) > 1:
        raise UsageError(
            f"{path}: {header.count(name)} columns are named {name}; remove or rename all but one"
            f"{remedy}"
        )


def missing_column(path: str, flag: str, name: str, names: Sequence[str]) -> UsageError:
    """Return the error for a column that a file has not; it names the columns that it has.

    Args:
        path: The file.
        flag: The flag of the column.
        name: The missing name, the value of the flag.
        names: The names of all columns.
    """
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f", such as {by_lower[near[0]]}" if near else ""
    return UsageError(
        f"--{flag}={name}: {path} has the columns {list_columns(names)}; name one of them{hint}"
    )


def check_cells(where: str, row: list[str], needed: int, usual: int) -> None:
    """Raise a UsageError for a row that lacks a column, or has content after the usual cells.

    Args:
        where: File and line, for messages.
        row: The cells.
        needed: The number of cells that it needs.
        usual: The number of cells of the first row.

    Raises:
        UsageError: The row has too few or too many cells.
    """
    if len(row) < needed:
        raise UsageError(f"{where}: {len(row)} of {needed} fields; correct or remove it")
    if any(row[usual:]):
        raise UsageError(
            f"{where}: {len(row)} fields where the first one has {usual}; quote cells that hold a "
            "separator, correct or remove it"
        )


def _has_content(row: list[str]) -> bool:
    """Return whether a row has a cell that is not blank."""
    return any(cell and not cell.isspace() for cell in row)


def _normalized(text: str) -> str:
    r"""Return a text in which each line end is "\n"."""
    if "\r" not in text:
        return text
    # Windows writes "\r\r\n" for rows that end in "\r\n" already.
    return text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
