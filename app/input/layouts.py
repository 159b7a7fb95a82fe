"""How a file of ratings is laid out: told by its name, its header and its first lines."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..config import RatingsConfig
from ..errors import UsageError
from ..text import reading
from . import delimited, parquet
from .delimited import Lines

# Column names that need not be given (those of MovieLens among them), without case and signs.
_NAMES = (
    ("user", "userid"),
    ("item", "itemid", "movieid"),
    ("rating",),
    ("timestamp", "time"),
)
_FLAGS = ("user_column", "item_column", "rating_column", "time_column")
_LINES = 100  # that are looked at
_BLOCK_BYTES = 16 << 20
_SEPARATORS = {
    "::": "`::`",
    "\t": "tabs",
    ",": "commas",
    ";": "semicolons",
    "": "white space",
}
_PAIR = (2, 3, 4)  # fields of a line without a header: with a rating, and with a time


class Layout(NamedTuple):
    """kind: `pairs`, `lists` or `parquet`. separator: of fields; empty for white space.

    header: whether the first line has names. columns: where user, item, rating and time are, the
    last two None where there are none; names in a Parquet file, else positions. fields: how many a
    line of pairs has.
    """

    kind: str
    separator: str = ""
    header: bool = False
    columns: tuple = (0, 1, None, None)
    fields: int = 2

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


def detect_layout(path: str, settings: RatingsConfig) -> Layout:
    """The layout of a file. UsageError where it cannot be told, or lacks a column asked for."""
    named = tuple(getattr(settings, flag) for flag in _FLAGS)
    if path.lower().endswith(".parquet"):
        return Layout("parquet", columns=_placed(path, parquet.column_names(path), named, list))
    number, first = _first_line(path)
    separator = _separator(first)
    some = itertools.islice(delimited.read_rows(path, read_lines(path), separator), _LINES)
    fields = [row for _, row in some]
    if any(named) or (settings.layout != "lists" and _is_header(fields[0])):
        places = _placed(path, fields[0], named, range)
        return Layout("pairs", separator, True, places, len(fields[0]))
    counts = {len(row) for row in fields}
    kind = settings.layout
    if kind == "auto":
        alike = len(counts) == 1 and (len(fields) > 1 or separator)
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
    semicolons = {sum(field.count(";") for field in row) for row in fields}
    if separator == "," and len(semicolons) == 1 and 0 not in semicolons:
        raise UsageError(
            f"{path}, line {number}: {first[:60]!r} has commas and semicolons; give fields between "
            "tabs, with points as decimal signs, or name columns with --user_column"
        )
    if named_only or any(not is_number(field) for field in fields[0][2:count]):
        what = "number" if named_only else "rating"
        raise UsageError(
            f"{path}, line {number}: {first[:60]!r} has no {what}, so may be a header; name "
            "its columns with --user_column and --item_column"
        )
    places = tuple(i if i < count else None for i in range(4))
    return Layout("pairs", separator, False, places, len(fields[0]))


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
                f"--{flag}={name}: {path} has no such column, but {delimited.list_columns(names)}; "
                "give one"
            )
        if index is not None:
            delimited.check_single(path, names, names[index])
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


def read_lines(path: str) -> Iterator[Lines]:
    """Yield the lines of a text file, some MB at a time.

    Raises:
        UsageError: A line is too long, or the file is not UTF-8: keys that are replaced by another
          could fall together.
        RunError: The file cannot be read.
    """
    return delimited.whole_lines(path, _decoded(path))


def _decoded(path: str) -> Iterator[str]:
    for offset, block in reading.raw_blocks(path, "line", _BLOCK_BYTES):
        try:
            yield block.decode()
        except UnicodeDecodeError as error:
            where = f"byte {block[error.start]:#04x} at offset {offset + error.start:,}"
            raise UsageError(f"{path}: {where} is not UTF-8; convert the file") from None


def _first_line(path: str) -> Lines:
    """Return the first line that is not blank, and its number."""
    for first, text in read_lines(path):
        for number, line in enumerate(io.StringIO(text), first):
            if line.strip():
                return number, line.removesuffix("\n")
    raise UsageError(f"{path} is empty; give a file of users and items")


def _separator(line: str) -> str:
    """Return the separator of the fields of a line; empty for white space."""
    unquoted = re.sub(r'"[^"]*"', "", line)
    return next(sign for sign in _SEPARATORS if sign in (unquoted or line))
