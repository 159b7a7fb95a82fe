"""Detect the layout of a file of ratings from its content, its header and its first lines."""

from __future__ import annotations

import collections
import io
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import UsageError
from ..settings import RatingsConfig
from ..text import columns, reading
from ..text.columns import Lines


def _with_id(names: str) -> tuple[str, ...]:
    """Return names between bars, each also with `id` at its end."""
    return tuple(name + end for name in names.split("|") for end in ("", "id"))


class _Field(NamedTuple):
    """A column of the files.

    Attributes:
        name: Its name in the banner, and the start of its flag.
        usual: Names that no flag needs to give (also MovieLens's), in lower case without
            punctuation.
        others: Names that stand for the column only if the header has none of the usual ones.
    """

    name: str
    usual: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The flag that names the column."""
        return f"{self.name}_column"

    def find(self, names: list[str]) -> int | None:
        """Return the position of the first name of a header that is in the first list possible."""
        simple = [_simple(name) for name in names]
        both = self.usual, self.others
        found = (i for known in both for i, name in enumerate(simple) if name in known)
        return next(found, None)


_USERS = "uid|customer|client|buyer|visitor|member|account|reviewer|reader|listener|session"
_ITEMS = (
    "iid|product|movie|article|book|song|track|artist|game|recipe|business|content|isbn|asin|sku"
)
_FIELDS = (
    _Field("user", ("user", "userid"), _with_id(_USERS)),
    _Field("item", ("item", "itemid", "movieid"), _with_id(_ITEMS)),
    _Field("rating", ("rating",)),
    _Field("time", ("timestamp", "time")),
)
# A name in a header of RecBole, and the type of its column.
_TYPED = re.compile(r"(.+):(token|token_seq|float|float_seq)")
_LINES = 100  # lines that are examined
# From this share of lines with as many fields as a pair has, other lines are taken for mistakes.
_MOST = 0.8
_BLOCK_BYTES = 16 << 20
_SEPARATORS = {
    "::": "`::`",
    "\t": "tabs",
    ",": "commas",
    ";": "semicolons",
    "": "white space",
}
_NAMED = {"parquet": "Parquet columns", "json": "JSON lines"}
_PAIR = (2, 3, 4)  # fields of a line without a header: a pair, with a rating, and with a time


class Layout(NamedTuple):
    """The layout of a file.

    Attributes:
        kind: `pairs`, `lists`, `json` or `parquet`.
        separator: Between fields; empty for white space.
        header: Whether the first line has names.
        columns: Columns of user, item, rating and time, the last two None if absent. Names for
            JSON lines and Parquet, else positions.
        fields: Number of fields of a line of pairs.
    """

    kind: str
    separator: str = ""
    header: bool = False
    columns: tuple = (0, 1, None, None)
    fields: int = 2

    def __str__(self) -> str:
        """Return the layout as the banner shows it."""
        if self.kind == "lists":
            return f"a user and then items in each line, between {_SEPARATORS[self.separator]}"
        known = zip(_FIELDS, self.columns, strict=True)
        names = ", ".join(field.name for field, column in known if column is not None)
        if self.kind in _NAMED:
            return f"{names} from {_NAMED[self.kind]}"
        header = " below a header" if self.header else ""
        return f"{names} between {_SEPARATORS[self.separator]}{header}"


def detect_layout(path: str, settings: RatingsConfig) -> Layout:
    """Return the layout of a file, from its first bytes and its first 100 rows.

    If a flag names a column, or the first row has usual names of a user and an item column or names
    with RecBole's types, it is a header. Otherwise --layout decides, or the numbers of fields.

    Raises:
        UsageError: The layout is unclear, a named column is missing or there twice, or the file is
            empty, malformed or not UTF-8.
        RunError: The file cannot be read.
    """
    named = tuple(getattr(settings, field.flag) for field in _FIELDS)
    kind = columns.recognize(path).format
    if kind in _NAMED:
        names = columns.column_names(path, kind, read_lines(path))
        return Layout(kind, columns=_find_columns(path, names, named, by_name=True))
    number, first = _first_line(path)
    separator = _separator(first)
    first_rows = itertools.islice(columns.split_rows(path, read_lines(path), separator), _LINES)
    rows = [*first_rows]
    fields = [row for _, row in rows]
    if not fields:
        raise UsageError(f"{path} has only separators; give a file of users and items")
    if any(named) or (settings.layout != "lists" and _is_header(fields[0], separator)):
        found = _find_columns(path, fields[0], named, by_name=False)
        return Layout("pairs", separator, True, found, len(fields[0]))
    kind = settings.layout if settings.layout != "auto" else _choose_kind(path, rows, separator)
    where = f"{path}, line {number}: {first[:60]!r}"
    layout = Layout("lists", separator)
    if kind == "pairs":
        layout = _headerless_pairs(where, separator, fields)
    if settings.layout == "auto":
        _check_names(where, fields, kind)
    return layout


def _choose_kind(path: str, rows: list[tuple[int, list[str]]], separator: str) -> str:
    """Return whether rows without a header are `pairs` or `lists`."""
    fields = [row for _, row in rows]
    counts = {len(row) for row in fields}
    is_uniform = len(counts) == 1 and (len(fields) > 1 or separator)
    if is_uniform and counts <= set(_PAIR):
        return "pairs"
    if not is_uniform and separator and counts <= set(_PAIR):
        raise UsageError(
            f"{path}: lines of {' and '.join(map(str, sorted(counts)))} fields; give "
            "--layout=lists if each is a user and items, else --layout=pairs"
        )
    if not is_uniform:
        _check_lists(path, rows)
    if is_uniform and separator:
        raise UsageError(
            f"{path}: {len(fields[0])} columns; name them with --user_column and --item_column, or "
            "give --layout=lists"
        )
    return "lists"


def _check_lists(path: str, rows: list[tuple[int, list[str]]]) -> None:
    """Raise UsageError if rows of several widths are pairs with a few mistakes, not lists."""
    width, count = collections.Counter(len(row) for _, row in rows).most_common(1)[0]
    if width in _PAIR and _MOST * len(rows) <= count < len(rows):
        line, odd = next((line, len(row)) for line, row in rows if len(row) != width)
        raise UsageError(
            f"{path}, line {line}: {odd} field(s), where most lines have {width}; correct it, or "
            "give --layout=lists if each line is a user and items"
        )


def _check_names(where: str, fields: list[list[str]], kind: str) -> None:
    """Raise UsageError if the first row has names of columns rather than a user and an item.

    Args:
        where: File, number and text of the first line, for messages.
    """
    pairs = [row[:2] for row in fields if len(row) > 1]
    is_new = [cell not in others for cell, *others in zip(*pairs, strict=True)]
    usual = zip(fields[0], _FIELDS[:2], strict=False)
    has_name = any(field.find([cell]) == 0 for cell, field in usual)
    # Ids such as u17 and B00X have digits, and names of columns hardly ever.
    has_digit = [[bool(re.search(r"\d", cell)) for cell in row] for row in pairs]
    is_odd = len(pairs) > 2 and not any(has_digit[0]) and all(map(all, has_digit[1:]))
    if pairs and all(is_new) and (has_name or (is_odd and kind == "pairs")):
        raise UsageError(
            f"{where} may be a header; name its columns with --user_column and --item_column, or "
            f"give --layout={kind} if it is none"
        )


def _headerless_pairs(where: str, separator: str, fields: list[list[str]]) -> Layout:
    """Return the layout of pairs without a header: user, item, and then rating and time, if any.

    Args:
        where: File, number and text of the first line, for messages.
    """
    count = min(len(fields[0]), max(_PAIR))
    has_name_column = any(
        not is_number(name) and len(rest) > 1 and all(map(is_number, rest))
        for name, *rest in zip(*fields, strict=False)
    )
    semicolons = {sum(field.count(";") for field in row) for row in fields}
    if separator == "," and len(semicolons) == 1 and 0 not in semicolons:
        raise UsageError(
            f"{where} has commas and semicolons; give fields between "
            "tabs, with points as decimal signs, or name columns with --user_column"
        )
    if has_name_column or any(not is_number(field) for field in fields[0][2:count]):
        what = "number" if has_name_column else "rating"
        raise UsageError(
            f"{where} has no {what}, so it may be a header; name its columns with --user_column "
            "and --item_column"
        )
    found = tuple(i if i < count else None for i in range(4))
    return Layout("pairs", separator, False, found, len(fields[0]))


def _find_columns(path: str, names: list[str], named: tuple[str, ...], by_name: bool) -> tuple:
    """Return the columns of user, item, rating and time in a header; None for an absent one.

    A column without a flag is found by its usual names. Rating and time may be absent.

    Args:
        names: The header.
        named: Names that the flags give, or empty strings.
        by_name: Whether to return names instead of positions.
    """
    headers = [name.strip().strip('"') for name in names]
    names, types = _split_types(headers)
    tokens = [index for index, kind in enumerate(types) if kind == "token"]
    found: list[int | str | None] = []
    is_guess = not (by_name or any(named))
    remedy = ", or give --layout=lists if its first line is no header" if is_guess else ""
    taken: dict[int, str] = {}
    for number, (field, name) in enumerate(zip(_FIELDS, named, strict=True)):
        index = field.find(names)
        if index is None and number < min(len(tokens), 2):
            index = tokens[number]  # RecBole's files begin with the user and the item
        if name:
            known = names if name in names else headers
            index = known.index(name) if name in known else None
        if index is None and (name or number < 2):
            raise columns.missing_column(path, field.flag, name, names)
        if index is not None:
            columns.check_single(path, names, names[index], remedy)
            if index in taken:
                raise UsageError(
                    f"--{field.flag}={names[index]}: is also --{taken[index]}; name another column"
                )
            taken[index] = field.flag
        found.append(None if index is None else headers[index] if by_name else index)
    return tuple(found)


def _split_types(headers: list[str]) -> tuple[list[str], list[str]]:
    """Return the names and the types of a header of RecBole; no types if it is another one."""
    typed = [_TYPED.fullmatch(header) for header in headers]
    if not all(typed):
        return headers, []
    return [match[1] for match in typed], [match[2] for match in typed]


def _is_header(fields: list[str], separator: str) -> bool:
    """Return whether a row has usual names of a user column and of an item column, or all types."""
    if separator == "" and len(set(fields)) < len(fields):
        return False  # a sentence, or a list
    names, types = _split_types(fields)
    return bool(types) or all(field.find(names) is not None for field in _FIELDS[:2])


def _simple(name: str) -> str:
    """Return a name in lower case, with only ASCII letters and digits."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_number(field: str) -> bool:
    """Return whether `float` accepts the field, as it does "1e5", "nan" and "inf"."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_lines(path: str) -> Iterator[Lines]:
    """Yield whole lines of a text file, some MB at a time, with the number of the first line.

    Raises:
        UsageError: A line is too long, or the file is not UTF-8: with replacements, two keys could
            become equal.
        RunError: The file cannot be read.
    """
    blocks = reading.blocks(path, "line", "refuse", _BLOCK_BYTES)
    return columns.whole_lines(path, map(bytes.decode, blocks))


def _first_line(path: str) -> Lines:
    """Return the number and the text of the first line that is not blank."""
    for first, text in read_lines(path):
        for number, line in enumerate(io.StringIO(text), first):
            if line.strip():
                return number, line.removesuffix("\n")
    raise UsageError(f"{path} is empty; give a file of users and items")


def _separator(line: str) -> str:
    """Return the first of `_SEPARATORS` that a line has outside of quotes; "" for white space."""
    unquoted = re.sub(r'"[^"]*"', "", line)
    return next(sign for sign in _SEPARATORS if sign in (unquoted or line))
