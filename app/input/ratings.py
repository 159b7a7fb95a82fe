"""Files of users, items, ratings and times, as arrays."""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..config import RatingsConfig
from ..errors import UsageError
from . import delimited, layouts, parquet
from .layouts import Layout

_ROWS = 1 << 16  # that are kept as lists at a time

# The numbers of keys, in the order in which they were asked for.
_Keys = dict[str, int]
# users_N, items_N, ratings_N, times_N: see `Ratings`.
_Columns = tuple[np.ndarray, np.ndarray, "np.ndarray | None", "np.ndarray | None"]


class Ratings(NamedTuple):
    """N pairs of a user and an item.

    user_keys, item_keys: their names. users_N, items_N: places in those, int32. ratings_N: float32,
    times_N: int64, or None where the files have none. layout: what the files were taken for.
    """

    user_keys: list[str]
    item_keys: list[str]
    users_N: np.ndarray
    items_N: np.ndarray
    ratings_N: np.ndarray | None
    times_N: np.ndarray | None
    layout: str

    def select(self, chosen: np.ndarray) -> Ratings:
        """Those that are chosen, by a mask or by numbers."""
        parts = (None if part is None else part[chosen] for part in self[2:6])
        return Ratings(*self[:2], *parts, self.layout)


def read(sources: Sequence[str], settings: RatingsConfig) -> Ratings:
    """The pairs of some files, in their order; keys in order of appearance.

    UsageError, with the file and the line, for what is no pair; RunError where a file cannot be
    read.
    """
    users, items = _numbering(), _numbering()
    parts: list[_Columns] = []
    told = []
    for path in sources:
        layout = layouts.detect_layout(path, settings)
        parts += _READERS[layout.kind](path, layout, users, items)
        told.append(str(layout))
    names = ", ".join(sources)
    if not any(len(part[0]) for part in parts):
        raise UsageError(f"{names}: no pair of a user and an item; give files that have some")
    columns = []
    for what, column in zip(
        ("users", "items", "ratings", "times"), zip(*parts, strict=True), strict=True
    ):
        there = [part for part in column if part is not None]
        if there and len(there) < len(column):
            raise UsageError(f"{names}: some have {what} and some have not; give them alike")
        columns.append(np.concatenate(there) if there else None)
    return Ratings(list(users), list(items), *columns, " and ".join(dict.fromkeys(told)))


def _of_pairs(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    user, item, rating, time = layout.columns
    has_header = layout.header
    for numbers, columns in _columns(path, layout):
        if has_header:
            has_header = False
            numbers, columns = numbers[1:], [column[1:] for column in columns]
        where = f"{path}, line", numbers
        yield (
            _ids(columns[user], users, "a user", *where),
            _ids(columns[item], items, "an item", *where),
            None if rating is None else _ratings(columns[rating], *where),
            None if time is None else _times(columns[time], *where),
        )


def _of_lists(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    found = delimited.read_rows(path, layouts.read_lines(path), layout.separator)
    while some := list(itertools.islice(found, _ROWS)):
        numbers, rows = zip(*some, strict=True)
        where = f"{path}, line"
        counts = [len(row) - 1 for row in rows]
        listed = [cell.strip(" ") for row in rows for cell in row[1:]]
        users_M = _ids([row[0].strip(" ") for row in rows], users, "a user", where, numbers)
        items_N = _ids(listed, items, "an item", where, np.repeat(numbers, counts))
        yield np.repeat(users_M, counts), items_N, None, None


def _of_parquet(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    user, item, rating, time = layout.columns
    first = 1
    for batch in parquet.read_batches(path, [name for name in layout.columns if name is not None]):
        where = f"{path}, row", range(first, first + len(batch))

        def ids(column: str, keys: _Keys, what: str, batch=batch) -> np.ndarray:
            distinct, positions_N = parquet.read_keys(path, batch, column)
            of_column = f"{path}, column {column}: key", range(1, len(distinct) + 1)
            return _ids(distinct, keys, what, *of_column)[positions_N]

        yield (
            ids(user, users, "a user"),
            ids(item, items, "an item"),
            None if rating is None else _ratings(parquet.read_cells(path, batch, rating), *where),
            None if time is None else _times(parquet.read_cells(path, batch, time), *where),
        )
        first += len(batch)


_READERS: dict[str, Callable[[str, Layout, _Keys, _Keys], Iterator[_Columns]]] = {
    "pairs": _of_pairs,
    "lists": _of_lists,
    "parquet": _of_parquet,
}


def _columns(path: str, layout: Layout) -> Iterator[tuple[Sequence[int], list[Sequence[str]]]]:
    """Yield the columns of the rows of a file, and the number of the line of each row."""
    texts = layouts.read_lines(path)
    for first, text in texts:
        columns = _plain_columns(text, layout)
        if columns:
            yield range(first, first + len(columns[0])), columns
            continue
        # A quoted cell may go on in the next text, so that all of them are read row by row.
        others = texts if delimited.is_quoted(text, layout.separator) else ()
        rows = delimited.read_rows(path, itertools.chain([(first, text)], others), layout.separator)
        while some := list(itertools.islice(rows, _ROWS)):
            for number, row in some:
                _check_fields(row, layout, f"{path}, line {number}")
            numbers, rows_N = zip(*some, strict=True)
            needed = range(1 + max(place for place in layout.columns if place is not None))
            yield numbers, [[row[place].strip(" ") for row in rows_N] for place in needed]


def _plain_columns(text: str, layout: Layout) -> list[list[str]]:
    """Return the columns of lines of as many fields each; none for lines that are not so plain."""
    separator = layout.separator
    if not separator or delimited.is_quoted(text, separator):
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
    return [cells[place :: layout.fields] for place in range(layout.fields)]


def _check_fields(row: list[str], layout: Layout, where: str) -> None:
    """Refuse a row that lacks a column, or has more fields than the first one."""
    needed = 1 + max(place for place in layout.columns if place is not None)
    if len(row) < needed:
        raise UsageError(f"{where}: {len(row)} of {needed} fields; mend or remove it")
    if any(row[layout.fields :]):
        raise UsageError(
            f"{where}: {len(row)} fields where the first one has {layout.fields}; quote cells that "
            "hold a separator, mend or remove it"
        )


def _numbering() -> _Keys:
    numbers: _Keys = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


def _ids(
    column: Sequence[str], keys: _Keys, what: str, where: str, numbers: Sequence[int]
) -> np.ndarray:
    """Return the number of each key; new ones get the next.

    Raises:
        UsageError: A key cannot be a line of a file of names.
    """
    known = len(keys)
    found_N = np.fromiter(map(keys.__getitem__, column), np.int32, len(column))
    for key in itertools.islice(keys, known, None):
        if key and "\n" not in key:
            continue
        reason = (
            f"{key!r} holds a line break, which a name cannot; rename it"
            if key
            else f"the name of {what} is empty; fill it in or remove that row"
        )
        raise UsageError(f"{where} {numbers[column.index(key)]}: {reason}")
    return found_N


def _ratings(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    with np.errstate(over="ignore"):  # of what is then infinite
        return _finite(column, np.float32, "rating", where, numbers)


def _finite(
    column: Sequence[str], dtype: type, what: str, where: str, numbers: Sequence[int]
) -> np.ndarray:
    """Return the numbers of a column, in lines of these numbers; `what` they are, for messages."""
    try:
        values = np.fromiter(map(float, column), dtype, len(column))
        wrong = np.flatnonzero(~np.isfinite(values))
    except ValueError:
        wrong = [next(i for i, text in enumerate(column) if not layouts.is_number(text))]
    if "_" in "".join(column):  # which Python allows between digits
        wrong = [i for i, text in enumerate(column) if "_" in text]
    for index in wrong:
        raise UsageError(
            f"{where} {numbers[index]}: {column[index]!r} is no {what}; mend or remove it"
        )
    return values


def _times(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    """Return seconds or whatever else is counted; dates as seconds since 1970."""
    if column and layouts.is_number(column[0]):
        values = _finite(column, np.float64, "time", where, numbers)
        for index in np.flatnonzero(np.abs(values) >= 2.0**63):
            raise UsageError(f"{where} {numbers[index]}: {column[index]!r} is no time; mend it")
        if np.abs(values).max() < 2.0**53:  # up to which float64 has every integer
            return values.astype(np.int64)
        exact = (int(text) if text.isdecimal() else int(float(text)) for text in column)
        return np.fromiter(exact, np.int64, len(column))
    found = np.zeros(len(column), np.int64)
    for index, text in enumerate(column):
        try:
            found[index] = _seconds(text)
        except ValueError as error:
            raise UsageError(
                f"{where} {numbers[index]}: {text!r} is no time; give a number, or a date such as "
                "2020-12-31T23:59:59"
            ) from error
    return found


def _seconds(date: str) -> int:
    """Of a date since 1970; without an offset (`+01:00`) it is UTC. ValueError if it is none."""
    with warnings.catch_warnings():  # that it keeps no offset
        warnings.simplefilter("ignore", UserWarning)
        found = np.datetime64(date, "s")
    if np.isnat(found) or layouts.is_number(date):
        raise ValueError(date)
    return int(found.astype(np.int64))
