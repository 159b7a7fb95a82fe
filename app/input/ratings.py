"""Files of users, items, ratings and times, as arrays."""

from __future__ import annotations

import csv
import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from app.config import RatingsConfig
from app.errors import UsageError
from app.input import layouts
from app.input.layouts import Layout

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

    def some(self, chosen: np.ndarray) -> Ratings:
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
        layout = layouts.detect(path, settings)
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
    for key in itertools.chain(users, items):
        if not key or "\t" in key or "\n" in key:
            raise UsageError(f"{names}: {key!r} is no name of a user or an item; mend that line")
    return Ratings(list(users), list(items), *columns, " and ".join(dict.fromkeys(told)))


def _of_pairs(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    user, item, rating, time = layout.columns
    fields = 1 + max(place for place in layout.columns if place is not None)
    start = 1
    for lines in layouts.blocks(path):
        skipped = int(layout.header and start == 1)
        numbers = range(start + skipped, start + len(lines))
        columns, numbers = _columns(lines[skipped:], numbers, layout.separator, fields, path)
        yield (
            _ids(columns[user], users),
            _ids(columns[item], items),
            None if rating is None else _ratings(columns[rating], f"{path}, line", numbers),
            None if time is None else _times(columns[time], f"{path}, line", numbers),
        )
        start += len(lines)


def _of_lists(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    for lines in layouts.blocks(path):
        rows = [line.split(layout.separator or None) for line in lines if line.strip()]
        users_M = _ids([row[0] for row in rows], users)
        listed = list(itertools.chain.from_iterable(row[1:] for row in rows))
        yield (
            np.repeat(users_M, [len(row) - 1 for row in rows]),
            _ids(listed, items),
            None,
            None,
        )


def _of_parquet(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    user, item, rating, time = layout.columns
    wanted = [name for name in layout.columns if name is not None]
    first = 1
    for batch in layouts.parquet(path).iter_batches(columns=wanted):
        numbers = range(first, first + len(batch))

        def encoded(name: str, keys: _Keys, batch=batch) -> np.ndarray:
            column = batch[name].dictionary_encode()
            if column.null_count:
                raise UsageError(f"{path}: column {name} has empty cells; remove their rows")
            distinct = [str(key) for key in column.dictionary.to_pylist()]
            return _ids(distinct, keys)[column.indices.to_numpy()]

        def cells(name: str, batch=batch) -> list[str]:
            return [str(value) for value in batch[name].to_pylist()]

        yield (
            encoded(user, users),
            encoded(item, items),
            None if rating is None else _ratings(cells(rating), f"{path}, row", numbers),
            None if time is None else _times(cells(time), f"{path}, row", numbers),
        )
        first += len(batch)


_READERS: dict[str, Callable[[str, Layout, _Keys, _Keys], Iterator[_Columns]]] = {
    "pairs": _of_pairs,
    "lists": _of_lists,
    "parquet": _of_parquet,
}


def _columns(
    lines: list[str], numbers: Sequence[int], separator: str, fields: int, path: str
) -> tuple[Sequence[Sequence[str]], Sequence[int]]:
    """So many columns of lines that are not empty, and the numbers of those in the file."""
    is_plain = separator and not (separator == "," and any('"' in line for line in lines))
    if is_plain and len({line.count(separator) for line in lines}) == 1:
        cells = separator.join(lines).split(separator)  # 4 times as fast as row by row
        every = len(cells) // len(lines)
        if every >= fields:
            return [cells[place::every] for place in range(fields)], numbers
    try:
        rows = (
            list(csv.reader(lines))
            if separator == ","
            else [line.split(separator or None) for line in lines]
        )
    except csv.Error as error:
        raise UsageError(f"{path}, line {numbers[0]} or later: {error}; mend it") from error
    kept = [(number, row) for number, row in zip(numbers, rows, strict=False) if any(row)]
    for number, row in kept:
        if len(row) < fields:
            raise UsageError(
                f"{path}, line {number}: {len(row)} of {fields} fields; mend or remove it"
            )
    columns = list(zip(*(row[:fields] for _, row in kept), strict=True))
    return columns or [()] * fields, [number for number, _ in kept]


def _numbering() -> _Keys:
    numbers: _Keys = defaultdict()
    numbers.default_factory = numbers.__len__
    return numbers


def _ids(column: Sequence[str], keys: _Keys) -> np.ndarray:
    return np.fromiter(map(keys.__getitem__, column), np.int32, len(column))


def _ratings(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    with np.errstate(over="ignore"):  # of what is then infinite
        return _finite(column, np.float32, "rating", where, numbers)


def _finite(
    column: Sequence[str], dtype: type, what: str, where: str, numbers: Sequence[int]
) -> np.ndarray:
    """The numbers of a column, in lines of these numbers. what: they are, for messages."""
    try:
        values = np.fromiter(map(float, column), dtype, len(column))
        wrong = np.flatnonzero(~np.isfinite(values))
    except ValueError:
        wrong = [next(i for i, text in enumerate(column) if not layouts.is_number(text))]
    for index in wrong:
        raise UsageError(
            f"{where} {numbers[index]}: {column[index]!r} is no {what}; mend or remove it"
        )
    return values


def _times(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    """Seconds or whatever else is counted; dates as seconds since 1970."""
    if column and layouts.is_number(column[0]):
        return _finite(column, np.float64, "time", where, numbers).astype(np.int64)
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
