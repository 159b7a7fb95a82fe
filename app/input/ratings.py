"""Read files of users, items, ratings and times into arrays."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import UsageError
from ..settings import RatingsConfig
from ..text import columns
from ..text.vocabulary import whole
from . import layouts
from .layouts import Layout, read_lines

_ROWS = 1 << 16  # rows that are kept as lists at a time

# `line` or `row`, the number of each row of a group, and a function from a column to its cells.
_Group = tuple[str, Sequence[int], Callable[[Any], Sequence[str]]]
# users_N, items_N, ratings_N, times_N: see `Ratings`.
_Columns = tuple[np.ndarray, np.ndarray, "np.ndarray | None", "np.ndarray | None"]


class _Keys(dict[str, int]):
    """Numbers of keys, in order of appearance: a new key gets the next number.

    `names` has each key once: 5800.0 is the key 5800, too.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def __missing__(self, key: str) -> int:
        name = whole(key)
        if name != key:
            number = self[name]
        else:
            number = len(self.names)
            self.names.append(key)
        self[key] = number
        return number


class Ratings(NamedTuple):
    """N pairs of a user and an item.

    Attributes:
        user_keys: Names of the users.
        item_keys: Names of the items.
        users_N: Positions in `user_keys`, int32.
        items_N: Positions in `item_keys`, int32.
        ratings_N: float32, or None if the files have none.
        times_N: int64, or None if the files have none.
        layout: The detected layout of the files, for the banner.
    """

    user_keys: list[str]
    item_keys: list[str]
    users_N: np.ndarray
    items_N: np.ndarray
    ratings_N: np.ndarray | None
    times_N: np.ndarray | None
    layout: str

    def select(self, chosen: np.ndarray) -> Ratings:
        """Return the selected pairs.

        Args:
            chosen: A mask or numbers of pairs.
        """
        columns = zip(self._fields[2:6], self[2:6], strict=True)
        return self._replace(**{name: part[chosen] for name, part in columns if part is not None})


def read(sources: Sequence[str], settings: RatingsConfig) -> Ratings:
    """Return the pairs of some files in order; keys in order of appearance.

    Raises:
        UsageError: A line is malformed, the files differ in their columns, or there is no pair.
        RunError: A file cannot be read.
    """
    users, items = _Keys(), _Keys()
    parts: list[_Columns] = []
    shown_layouts = []
    for path in sources:
        layout = layouts.detect_layout(path, settings)
        read_file = _read_lists if layout.kind == "lists" else _read_pairs
        parts += read_file(path, layout, users, items)
        shown_layouts.append(str(layout))
    files = ", ".join(sources)
    if not any(len(part[0]) for part in parts):
        raise UsageError(f"{files}: no pair of a user and an item; give files that have some")
    arrays = []
    for kind, column in zip(
        ("users", "items", "ratings", "times"), zip(*parts, strict=True), strict=True
    ):
        present = [part for part in column if part is not None]
        if present and len(present) < len(column):
            raise UsageError(
                f"{files}: some have {kind} and some have not; give files with the same columns"
            )
        arrays.append(np.concatenate(present) if present else None)
    users_N, items_N, ratings_N, times_N = arrays
    shown_layout = " and ".join(dict.fromkeys(shown_layouts))
    return Ratings(users.names, items.names, users_N, items_N, ratings_N, times_N, shown_layout)


def _read_pairs(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    """Yield the pairs of a file, some at a time; add new keys to `users` and `items`."""
    user, item, rating, time = layout.columns
    for what, numbers, cells in _GROUPS[layout.kind](path, layout):
        where = f"{path}, {what}", numbers
        yield (
            _ids(cells(user), users, "a user", *where),
            _ids(cells(item), items, "an item", *where),
            None if rating is None else _ratings(cells(rating), *where),
            None if time is None else _times(cells(time), *where),
        )


def _read_lists(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    """Yield the pairs of lines of a user and items, as `_read_pairs` does, without ratings."""
    for numbers, rows in _grouped(columns.split_rows(path, read_lines(path), layout.separator)):
        counts = [len(row) - 1 for row in rows]
        item_cells = [cell.strip(" ") for row in rows for cell in row[1:]]
        users_M = _ids(
            [row[0].strip(" ") for row in rows], users, "a user", f"{path}, line", numbers
        )
        items_N = _ids(item_cells, items, "an item", f"{path}, line", np.repeat(numbers, counts))
        yield np.repeat(users_M, counts), items_N, None, None


def _grouped(rows: Iterator[tuple[int, Any]]) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
    """Yield the numbers and the contents of some thousand rows at a time."""
    while group := list(itertools.islice(rows, _ROWS)):
        numbers, contents = zip(*group, strict=True)
        yield numbers, contents


def _json_groups(path: str, layout: Layout) -> Iterator[_Group]:
    """Yield groups of the objects of JSON lines."""

    def as_text(cell: Any, number: int, name: str) -> str:
        whole = isinstance(cell, float) and cell.is_integer()  # as in Parquet
        return columns.as_text(int(cell) if whole else cell, f"{path}, line {number}", name)

    for numbers, values in _grouped(columns.read_objects(path, read_lines(path))):

        def cells(name: str, numbers=numbers, values=values) -> list[str]:
            """Return the cells of a column as text."""
            pairs = zip(numbers, values, strict=True)
            return [as_text(value.get(name), number, name) for number, value in pairs]

        yield "line", numbers, cells


def _parquet_groups(path: str, layout: Layout) -> Iterator[_Group]:
    """Yield groups of the rows of a Parquet file."""
    first = 1
    for batch in columns.read_batches(path, [name for name in layout.columns if name is not None]):
        cells = functools.partial(columns.read_cells, path, batch)
        yield "row", range(first, first + len(batch)), cells
        first += len(batch)


def _line_groups(path: str, layout: Layout) -> Iterator[_Group]:
    """Yield groups of the lines below the header, without blanks around cells."""
    has_header = layout.header
    for numbers, cells in _columns(path, layout):
        if has_header:
            has_header = False
            numbers, cells = numbers[1:], [column[1:] for column in cells]
        yield "line", numbers, cells.__getitem__


_GROUPS: dict[str, Callable[[str, Layout], Iterator[_Group]]] = {
    "pairs": _line_groups,
    "json": _json_groups,
    "parquet": _parquet_groups,
}


def _columns(path: str, layout: Layout) -> Iterator[tuple[Sequence[int], Sequence[Sequence[str]]]]:
    """Yield line numbers and columns of some rows, the header included; refuse malformed rows.

    Blanks around a cell are removed.
    """
    texts = read_lines(path)
    for first, text in texts:
        found = _plain_columns(text, layout)
        if found:
            yield range(first, first + len(found[0])), found
            continue
        # A quoted cell may continue in the next text, so all following texts are read row by row.
        following = texts if columns.is_quoted(text, layout.separator) else ()
        rows = columns.split_rows(
            path, itertools.chain([(first, text)], following), layout.separator
        )
        needed = 1 + max(column for column in layout.columns if column is not None)
        for numbers, group in _grouped(rows):
            for number, row in zip(numbers, group, strict=True):
                columns.check_cells(f"{path}, line {number}", row, needed, layout.fields)
            yield numbers, [[row[column].strip(" ") for row in group] for column in range(needed)]


def _plain_columns(text: str, layout: Layout) -> list[list[str]]:
    """Return the columns of lines; [] for white space, or if one is blank, quoted or irregular."""
    separator = layout.separator
    if not separator or columns.is_quoted(text, separator):
        return []
    lines = text[:-1].split("\n")
    separators = layout.fields - 1
    if {line.count(separator) for line in lines} != {separators}:
        return []
    if f"\n{separator * separators}\n" in f"\n{text}":  # a blank row
        return []
    cells = text[:-1].replace(separator, "\n").split("\n")  # 4 times as fast as line by line
    if " " in text:
        cells = [cell.strip(" ") for cell in cells]
    return [cells[column :: layout.fields] for column in range(layout.fields)]


def _ids(
    column: Sequence[str], keys: _Keys, what: str, where: str, numbers: Sequence[int]
) -> np.ndarray:
    """Return the number of each key of a column, int32; add a new key with the next number."""
    old_count = len(keys.names)
    found_N = np.fromiter(map(keys.__getitem__, column), np.int32, len(column))
    for key in keys.names[old_count:]:
        if key and "\n" not in key:
            continue
        reason = (
            f"{key!r} has a line break, which a name cannot; rename it"
            if key
            else f"the name of {what} is empty; fill it in or remove that row"
        )
        raise UsageError(f"{where} {numbers[column.index(key)]}: {reason}")
    return found_N


def _ratings(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    """Return the ratings of a column, float32; refuse numbers that float32 cannot hold."""
    with np.errstate(over="ignore"):  # too large numbers become infinite, and are refused
        return _parse_numbers(column, np.float32, "rating", where, numbers)


def _parse_numbers(
    column: Sequence[str], dtype: type, what: str, where: str, numbers: Sequence[int]
) -> np.ndarray:
    """Return the numbers of a column.

    Args:
        column: Their texts.
        dtype: Of the result.
        what: Name of a number, for messages.
        where: File, for messages.
        numbers: Line of each text, for messages.
    """
    try:
        values = np.fromiter(map(float, column), dtype, len(column))
        wrong = np.flatnonzero(~np.isfinite(values))
    except ValueError:
        wrong = [next(i for i, text in enumerate(column) if not layouts.is_number(text))]
    if "_" in "".join(column):  # Python allows it between digits
        wrong = [i for i, text in enumerate(column) if "_" in text]
    for index in wrong:
        raise UsageError(
            f"{where} {numbers[index]}: {column[index]!r} is not a {what}; correct or remove it"
        )
    return values


def _times(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    """Return times, int64: numbers cut to integers, dates as seconds from 1970; refuse others."""
    if column and layouts.is_number(column[0]):
        values = _parse_numbers(column, np.float64, "time", where, numbers)
        for index in np.flatnonzero(np.abs(values) >= 2.0**63):
            raise UsageError(
                f"{where} {numbers[index]}: {column[index]!r} is not a time; correct it"
            )
        if np.abs(values).max() < 2.0**53:  # float64 represents every integer up to here
            return values.astype(np.int64)
        integers = (int(text) if text.isdecimal() else int(float(text)) for text in column)
        return np.fromiter(integers, np.int64, len(column))
    seconds_N = np.zeros(len(column), np.int64)
    for index, text in enumerate(column):
        try:
            seconds_N[index] = _seconds(text)
        except ValueError as error:
            raise UsageError(
                f"{where} {numbers[index]}: {text!r} is not a time; give a number, or a date such "
                "as 2020-12-31T23:59:59"
            ) from error
    return seconds_N


def _seconds(date: str) -> int:
    """Return the seconds from 1970 to a date, by default UTC; raise ValueError if it is no date."""
    with warnings.catch_warnings():  # numpy warns that it does not keep the offset
        warnings.simplefilter("ignore", UserWarning)
        seconds = np.datetime64(date, "s")
    if np.isnat(seconds) or layouts.is_number(date):
        raise ValueError(date)
    return int(seconds.astype(np.int64))
