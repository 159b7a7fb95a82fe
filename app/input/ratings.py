"""Read files of users, items, ratings and times into arrays.

The layout of a file is detected from its content, its header and its first lines.
"""

from __future__ import annotations

import collections
import functools
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import UsageError
from ..settings import RatingsConfig
from ..text import columns, reading
from ..text.columns import Lines
from ..text.vocabulary import whole

_ROWS = 1 << 16  # rows that are kept as lists at a time


def _with_id(names: str) -> tuple[str, ...]:
    """Return header names, given with bars between them, each without and with `id` at its end."""
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
        """Return where a header names this column: by a usual name, else by one of the others."""
        simple = [_simple(name) for name in names]
        both = self.usual, self.others
        return next((i for known in both for i, name in enumerate(simple) if name in known), None)


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
_SEPARATORS = {"::": "`::`", "\t": "tabs", ",": "commas", ";": "semicolons", "": "white space"}
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
        layout = detect_layout(path, settings)
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
            None if rating is None else _parse_numbers(cells(rating), np.float32, "rating", *where),
            None if time is None else _times(cells(time), *where),
        )


def _read_lists(path: str, layout: Layout, users: _Keys, items: _Keys) -> Iterator[_Columns]:
    """Yield the pairs of lines of a user and items, as `_read_pairs` does, without ratings."""
    for numbers, rows in _grouped([columns.split_rows(path, read_lines(path), layout.separator)]):
        counts = [len(row) - 1 for row in rows]
        item_cells = [cell.strip(" ") for row in rows for cell in row[1:]]
        users_M = _ids(
            [row[0].strip(" ") for row in rows], users, "a user", f"{path}, line", numbers
        )
        items_N = _ids(item_cells, items, "an item", f"{path}, line", np.repeat(numbers, counts))
        yield np.repeat(users_M, counts), items_N, None, None


def _grouped(
    parts: Iterable[Iterator[tuple[int, Any]]],
) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
    """Yield the numbers and the contents of some thousand rows of a part at a time."""
    for rows in parts:
        while group := list(itertools.islice(rows, _ROWS)):
            numbers, contents = zip(*group, strict=True)
            yield numbers, contents


def _json_groups(path: str, layout: Layout) -> Iterator[_Group]:
    """Yield groups of the objects of JSON lines."""

    def as_text(cell: Any, number: int, name: str) -> str:
        whole = isinstance(cell, float) and cell.is_integer()  # as in Parquet
        return columns.as_text(int(cell) if whole else cell, f"{path}, line {number}", name)

    parts = (columns.read_objects(path, [part]) for part in read_lines(path))  # rows may be long
    for numbers, values in _grouped(parts):

        def cells(name: str, numbers=numbers, values=values) -> list[str]:
            """Return the cells of a column as text."""
            pairs = zip(numbers, values, strict=True)
            return [as_text(value.get(name), number, name) for number, value in pairs]

        yield "line", numbers, cells


def _parquet_groups(path: str, layout: Layout) -> Iterator[_Group]:
    """Yield groups of the rows of a Parquet file."""
    first, row_bytes = 1, _BLOCK_BYTES // _ROWS  # a row takes some objects of Python
    batches = columns.read_batches(path, [name for name in layout.columns if name is not None])
    how = _ROWS, _BLOCK_BYTES, lambda batch: batch.nbytes + len(batch) * row_bytes
    for group in reading.grouped(batches, *how):
        batch = columns.join_batches(group)
        cells = functools.partial(columns.read_cells, path, batch)
        yield "row", range(first, first + len(batch)), cells
        first += len(batch)


def _line_groups(path: str, layout: Layout) -> Iterator[_Group]:
    """Yield groups of the lines below the header, without blanks around cells."""
    texts, is_first = read_lines(path), layout.header
    for first, text in texts:
        # A quoted cell may continue in the next text, so these are read row by row, too.
        following = texts if columns.is_quoted(text, layout.separator) else ()
        uneven = _uneven_columns(path, itertools.chain([(first, text)], following), layout)
        found = _plain_columns(text, layout)
        for numbers, cells in [(range(first, first + len(found[0])), found)] if found else uneven:
            start, is_first = int(is_first), False
            yield "line", numbers[start:], [column[start:] for column in cells].__getitem__


def _uneven_columns(
    path: str, texts: Iterable[Lines], layout: Layout
) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
    """Yield line numbers and columns of some rows; refuse malformed rows."""
    needed = 1 + max(column for column in layout.columns if column is not None)
    for numbers, group in _grouped([columns.split_rows(path, texts, layout.separator)]):
        for number, row in zip(numbers, group, strict=True):
            columns.check_cells(f"{path}, line {number}", row, needed, layout.fields)
        yield numbers, [[row[column].strip(" ") for row in group] for column in range(needed)]


_GROUPS: dict[str, Callable[[str, Layout], Iterator[_Group]]] = {
    "pairs": _line_groups,
    "json": _json_groups,
    "parquet": _parquet_groups,
}


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
        with np.errstate(over="ignore"):  # too large numbers become infinite, and are refused
            values = np.fromiter(map(float, column), dtype, len(column))
        wrong = np.flatnonzero(~np.isfinite(values))
    except ValueError:
        wrong = [next(i for i, text in enumerate(column) if not is_number(text))]
    if "_" in "".join(column):  # Python allows it between digits
        wrong = [i for i, text in enumerate(column) if "_" in text]
    for index in wrong:
        raise UsageError(
            f"{where} {numbers[index]}: {column[index]!r} is not a {what}; correct or remove it"
        )
    return values


def _times(column: Sequence[str], where: str, numbers: Sequence[int]) -> np.ndarray:
    """Return times, int64: numbers cut to integers, dates as seconds from 1970; refuse others."""
    if column and is_number(column[0]):
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
    if np.isnat(seconds) or is_number(date):
        raise ValueError(date)
    return int(seconds.astype(np.int64))


# The layout of a file.


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
    kind = reading.recognize_file(path).format
    if kind in _NAMED:
        names = columns.column_names(path)
        return Layout(kind, columns=_find_columns(path, names, named, by_name=True))
    number, first = _first_line(path)
    separator = _separator(first)
    rows = [*itertools.islice(columns.split_rows(path, read_lines(path), separator), _LINES)]
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


def find_usual(names: list[str]) -> dict[str, int]:
    """Return the places of columns of usual names in a header, by `user`, `item` and so on."""
    places = {field.name: field.find(names) for field in _FIELDS}
    return {kind: place for kind, place in places.items() if place is not None}


def find_key(kind: str, names: Sequence[str], given: str = "") -> str | None:
    """Return the column of a header that names users or items; None if there is none.

    Args:
        kind: `user` or `item`.
        given: The name of the column in the pairs; empty if they have a usual name.
    """
    if given in names and given:
        return given
    (field,) = (one for one in _FIELDS if one.name == kind)
    place = field.find([*names])
    return names[place] if place is not None else "id" if "id" in names else None


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
