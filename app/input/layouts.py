"""How a file of ratings is laid out: told by its name, its header and its first lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from app.config import RatingsConfig
from app.errors import UsageError
from app.text import reading

# Column names that need not be given (those of MovieLens among them), without case and signs.
_NAMES = (
    ("user", "userid"),
    ("item", "itemid", "movieid"),
    ("rating",),
    ("timestamp", "time"),
)
_FLAGS = ("user_column", "item_column", "rating_column", "time_column")
_LINES = 100  # that are looked at
_BLOCK_BYTES = 16 << 20  # a longer line would be cut
_SEPARATORS = {"::": "`::`", "\t": "tabs", ",": "commas", "": "white space"}
_PAIR = (2, 3, 4)  # fields of a line without a header: with a rating, and with a time


class Layout(NamedTuple):
    """kind: `pairs`, `lists` or `parquet`. separator: of fields; empty for white space.

    header: whether the first line has names. columns: where user, item, rating and time are, the
    last two None where there are none; names in a Parquet file, else positions.
    """

    kind: str
    separator: str = ""
    header: bool = False
    columns: tuple = (0, 1, None, None)

    def __str__(self) -> str:
        """As the banner has it."""
        if self.kind == "lists":
            return f"a user and then items in each line, between {_SEPARATORS[self.separator]}"
        known = zip(("user", "item", "rating", "time"), self.columns, strict=True)
        names = ", ".join(name for name, place in known if place is not None)
        if self.kind == "parquet":
            return f"{names} from Parquet columns"
        header = " below a header" if self.header else ""
        return f"{names} between {_SEPARATORS[self.separator]}{header}"


def detect(path: str, settings: RatingsConfig) -> Layout:
    """The layout of a file. UsageError where it cannot be told, or lacks a column asked for."""
    named = tuple(getattr(settings, flag) for flag in _FLAGS)
    if path.lower().endswith(".parquet"):
        return Layout("parquet", columns=_placed(path, parquet_names(path), named, list))
    some = _first_lines(path)
    first = some[0]
    separator = next(sign for sign in _SEPARATORS if sign in first)
    fields = [line.split(separator or None) for line in some]
    if any(named) or (settings.layout != "lists" and _is_header(fields[0])):
        return Layout("pairs", separator, True, _placed(path, fields[0], named, range))
    counts = {len(row) for row in fields}
    kind = settings.layout
    if kind == "auto":
        alike = len(counts) == 1 and (len(some) > 1 or separator)
        kind = "pairs" if alike and counts <= set(_PAIR) else "lists"
        if not alike and separator and counts <= set(_PAIR):
            raise UsageError(
                f"{path}: lines of {' and '.join(map(str, sorted(counts)))} fields; give "
                "--layout=lists if each is a user and items, else --layout=pairs"
            )
        if alike and kind == "lists" and separator:
            raise UsageError(
                f"{path}: {len(fields[0])} columns; name them with --user_column and "
                "--item_column, or give --layout=lists"
            )
    if kind == "lists":
        return Layout("lists", separator)
    count = min(len(fields[0]), max(_PAIR))
    named_only = any(
        not is_number(name) and len(rest) > 1 and all(map(is_number, rest))
        for name, *rest in zip(*fields, strict=False)
    )
    if named_only or any(not is_number(field) for field in fields[0][2:count]):
        raise UsageError(
            f"{path}, line 1: {first[:60]!r} has no {'number' if named_only else 'rating'}, so may "
            "be a header; name its columns with --user_column and --item_column"
        )
    return Layout("pairs", separator, False, tuple(i if i < count else None for i in range(4)))


def parquet_names(path: str) -> list[str]:
    """The columns of a Parquet file."""
    return parquet(path).schema_arrow.names


def parquet(path: str):
    """A `pyarrow.parquet.ParquetFile`. UsageError where it is none, or without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(f"{path}: Parquet files need pyarrow; pip install pyarrow") from error
    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: no Parquet file ({error}); check or rename it") from error


def _placed(path: str, names: list[str], named: tuple[str, ...], places) -> tuple:
    """Where the four columns are among those of a header: as `places` has it, or None."""
    names = [name.strip().strip('"') for name in names]
    simple = [_simple(name) for name in names]
    found = []
    for flag, name, known in zip(_FLAGS, named, _NAMES, strict=True):
        index = next((i for i, other in enumerate(simple) if other in known), None)
        if name:
            index = names.index(name) if name in names else None
        if index is None and (name or flag in _FLAGS[:2]):
            raise UsageError(
                f"--{flag}={name}: {path} has no such column, but {', '.join(names)}; give one"
            )
        found.append(None if index is None else names[index] if places is list else index)
    return tuple(found)


def _is_header(fields: list[str]) -> bool:
    simple = {_simple(field) for field in fields}
    return all(simple & set(known) for known in _NAMES[:2])


def _simple(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_number(field: str) -> bool:
    """Whether Python reads a number there."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def blocks(path: str) -> Iterator[list[str]]:
    """The lines of a text file, some MB at a time. RunError where it cannot be read.

    UsageError where it is not UTF-8: keys that are replaced by another could fall together.
    """
    for offset, block in reading.raw_blocks(path, "line", _BLOCK_BYTES):
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            where = f"byte {block[error.start]:#04x} at offset {offset + error.start:,}"
            raise UsageError(f"{path}: {where} is not UTF-8; convert the file") from None
        yield text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _first_lines(path: str) -> list[str]:
    some = [line for line in next(blocks(path), [])[:_LINES] if line.strip()]
    if not some:
        raise UsageError(f"{path} is empty; give a file of users and items")
    return some
