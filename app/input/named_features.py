"""Read features of users and items: categories and texts, by the name of the user or item."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import UsageError
from ..text import columns, reading
from ..text.vocabulary import Vocabulary, count_names, whole
from .ratings import find_key, read_lines

_SEVERAL = "|"  # between the values of a cell, as in the genres of MovieLens
_TOKEN = re.compile(r"\w+")

# Name of a user or an item -> its features, each once, as `column=value`.
ByName = Mapping[str, Sequence[str]]


class NamedFeatures(NamedTuple):
    """The features of V users or items, as lists of ids, one list after the other.

    Attributes:
        names: The names of the features; the position of a name is its id.
        starts: Where the list of each user or item begins in `features_N`, and the end, (V + 1,).
        features_N: The ids of the features, int32.
    """

    names: Vocabulary
    starts: np.ndarray
    features_N: np.ndarray

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The user or item of each entry of `features_N`, and the entry, (N,) int32 each."""
        owners_N = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))
        return owners_N, self.features_N

    def table_rows(self, trained: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the rows of a table whose sum is the vector of each user or item.

        The table has a row for each of those in training, then one that all share, then a row for
        each feature. The shared row stands for a user or item of which nothing else is known.

        Args:
            trained: How many users or items are in training; these come first.

        Returns:
            The rows, one list after the other, int32; where each list begins, and the end, (V + 1,)
            int64; and the number of rows of the table.
        """
        count = len(self.starts) - 1
        starts = self.starts + np.arange(count + 1) + np.minimum(np.arange(count + 1), trained)
        rows_N = np.empty(starts[-1], np.int32)
        is_feature_N = np.ones(len(rows_N), bool)
        shared_V, own_V = starts[:-1], starts[:trained] + 1
        is_feature_N[shared_V] = is_feature_N[own_V] = False
        rows_N[shared_V], rows_N[own_V] = trained, np.arange(trained)
        rows_N[is_feature_N] = self.features_N + (trained + 1)
        return rows_N, starts, trained + 1 + len(self.names.tokens)


def are_lists(starts: np.ndarray, ids_N: np.ndarray, lists: int, ids: int) -> bool:
    """Return whether arrays are the starts of some lists of ids, and these ids below a number."""
    return (
        starts.shape == (lists + 1,)
        and ids_N.ndim == 1
        and {starts.dtype.kind, ids_N.dtype.kind} == {"i"}
        and starts[0] == 0
        and starts[-1] == len(ids_N)
        and bool((np.diff(starts) >= 0).all())
        and bool(((ids_N >= 0) & (ids_N < ids)).all())
    )


class SideFeatures(NamedTuple):
    """The features of the users and of the items of a run, by id; None without a file of them."""

    users: NamedFeatures | None = None
    items: NamedFeatures | None = None


NO_FEATURES = SideFeatures()


def read(
    paths: Sequence[str], kind: str, key_column: str, text_columns: Sequence[str], flag: str
) -> dict[str, list]:
    """Return the features in files with a row for each user or item (see `ByName`).

    A cell has a category, or several ones between `|`, or a list. Empty cells have none. If a name
    has several rows, it has the features of all. Rows come from CSV, TSV, JSON lines or Parquet.

    Args:
        kind: `user` or `item`.
        key_column: The column of the names; empty for one with a usual name, such as `item_id`.
        text_columns: Columns of texts, whose tokens are features.
        flag: The flag that names the files, for messages.

    Raises:
        UsageError: A column is missing, or a row is malformed or has no name.
        RunError: A file cannot be read.
    """
    found: dict[str, dict[str, None]] = {}
    for path in paths:
        header, rows = _open(path)
        key = find_key(kind, header, key_column)
        if key is None:
            raise UsageError(
                f"--{flag}={path}: no column names the {kind}s among "
                f"{columns.list_columns(header)}; name one {kind}_id"
            )
        for where, row in rows:
            name = whole(columns.as_text(row.pop(key, None), where, key).strip())
            if not name:
                raise UsageError(f"{where}: the {kind} has no name; fill it in or remove that row")
            found.setdefault(name, {}).update(dict.fromkeys(features_of(row, text_columns, where)))
    if not found:
        shown = ",".join(paths)
        raise UsageError(f"--{flag}={shown}: it has no row below its header; give one that has")
    return {name: list(features) for name, features in found.items()}


def names(path: str) -> list[str]:
    """Return the names of the columns of a file of features; for errors see `read`."""
    return _open(path)[0]


def features_of(
    row: Mapping[str, Any], text_columns: Sequence[str], where: str = ""
) -> Iterator[str]:
    """Yield the features of a user or an item, each as `column=value`.

    White space within them becomes one blank, as a line break would end a name in a file of names.

    Args:
        row: The cells by column: text, numbers, or lists of these; None or NaN has no feature.
        text_columns: Columns whose tokens are features, in lower case.
        where: The place of the row, for messages.

    Raises:
        UsageError: A cell is an object, or a list of lists.
    """
    for column, cell in row.items():
        is_list = not isinstance(cell, str | bytes | Mapping) and isinstance(cell, Iterable)
        title = " ".join(column.split())
        for part in cell if is_list else [cell]:
            if isinstance(part, Iterable) and not isinstance(part, str | bytes):
                raise UsageError(
                    f"{where}: {column} is {part!r:.60}; give text, a number, or a list of these"
                )
            text = columns.as_text(part, where, column)
            values = _TOKEN.findall(text.casefold()) if column in text_columns else [text]
            if column not in text_columns and not is_list:
                values = text.split(_SEVERAL)
            cleaned = (" ".join(value.split()) for value in values)
            yield from (f"{title}={whole(value)}" for value in cleaned if value)


def gather(by_name: ByName, tokens: Sequence[str], trained: int) -> NamedFeatures:
    """Return the features of users or items in order.

    A feature that no user or item in training has is left out, as its row could not be trained.

    Args:
        by_name: Features by name; a name that is not there has none.
        tokens: The names of the users or items.
        trained: How many of them are in training; these come first.
    """
    lists = [by_name.get(whole(token), ()) for token in tokens]
    known = dict.fromkeys(feature for features in lists[:trained] for feature in features)
    ids = {name: number for number, name in enumerate(known)}
    ids_N = np.fromiter((ids[one] for some in lists[:trained] for one in some), np.int32)
    return with_names(lists, count_names(list(known), ids_N))


def with_names(lists: Iterable[Sequence[str]], names: Vocabulary) -> NamedFeatures:
    """Return lists of features as ids of known ones; others are left out."""
    ids = {name: number for number, name in enumerate(names.tokens)}
    found = [[ids[one] for one in dict.fromkeys(some) if one in ids] for some in lists]
    starts = np.cumsum([0, *map(len, found)], dtype=np.int64)
    return NamedFeatures(names, starts, np.fromiter((n for some in found for n in some), np.int32))


def _open(path: str) -> tuple[list[str], Iterator[tuple[str, dict[str, Any]]]]:
    """Return the names of the columns of a file, and its rows with their places."""
    names = columns.column_names(path)
    if reading.recognize_file(path).format == "json":
        objects = columns.read_objects(path, read_lines(path))
        return names, ((f"{path}, line {number}", dict(row)) for number, row in objects)
    how = "refuse", reading.BLOCK_BYTES, reading.Progress([0], [0]), 0
    rows = columns.read_rows(path, {name: name for name in names}, *how)
    return names, ((where, dict(zip(names, row, strict=True))) for where, row in rows)
