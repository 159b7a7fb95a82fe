"""The tokens of a text by descending count, other names by their counts, and files of both.

Tokens have no white space, and a user may write their file (--vocab). Names, of labels, users and
items, may have blanks, and only a run writes their files.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from ..system import checked_files
from ..system.checked_files import COUNT, damaged
from ..system.files import LONGEST_LINE, replacing
from .reading import read_lines

if TYPE_CHECKING:
    import tensorflow as tf

UNKNOWN = -1
# Tokens of a closed vocabulary: any token without an id of its own, and the end of a document.
UNK, EOS = "<unk>", "<eos>"

# Between the tokens of a phrase, as in word2vec and gensim.
JOINT = "_"
# No tokenizer makes a token with these characters, and word2vec files are split at them.
WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]")
_LINE = re.compile(r"([^ \t\n\v\f\r]+)\t([0-9]{1,18})\r?\n?")
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_COMPARED = 50_000  # names, the most frequent, that are compared with an unknown one in 0.3 s
# An editor may have changed the line ends.
_NAME_LINE = re.compile(rb"(.*)\t(0|[1-9][0-9]{0,18})\r?", re.DOTALL)
_LONGEST_NAME = LONGEST_LINE - 32  # bytes: a tab, a count and a line end follow


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """V tokens by descending count. The position of a token is its id.

    A counted vocabulary has tokens of equal count in the order of their code points.

    Attributes:
        tokens: V strings without white space.
        counts: Occurrences of each token, (V,) int64.
        total: Tokens of the corpus, including those without an id. For a vocabulary from a file it
            is the sum of the counts.
    """

    tokens: list[str]
    counts: np.ndarray
    total: int


def join_words(text: str) -> str:
    """Return the words of a text as the token of a phrase: `new_york` for `new york`.

    Args:
        text: Words with white space between them.
    """
    return JOINT.join(text.split())


def save(vocabulary: Vocabulary, path: str) -> None:
    """Write a line `token<TAB>count` for each id in order.

    Raises:
        RunError: The file cannot be written.
        ValueError: A token is empty or has white space.
    """
    for token in vocabulary.tokens:
        if not token or WHITE_SPACE.search(token):
            raise ValueError(f"token {token!r} is empty or holds white space")
    # `load` skips a byte-order mark. If the first token starts with one, write it twice.
    is_marked = any(token.startswith("\ufeff") for token in vocabulary.tokens[:1])
    _write(vocabulary, path, "\ufeff" if is_marked else "")


def _write(vocabulary: Vocabulary, path: str | Path, start: str = "") -> None:
    """Write a line for each id in order, after the start of the file."""
    lines = zip(vocabulary.tokens, vocabulary.counts.tolist(), strict=True)
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(start)
        file.writelines(f"{token}\t{count}\n" for token, count in lines)


def load(path: str) -> Vocabulary:
    """Read a file that `save` wrote, or any file of the same form (LF or CRLF).

    Raises:
        UsageError: The file is missing, empty or malformed, is not sorted by descending count, or
            has a token twice.
    """
    lines: dict[str, int] = {}
    counts: list[int] = []
    for number, line in read_lines(path, "token<TAB>count lines"):
        where = f"{path}, line {number}"
        token, count = _parse(line, where)
        if token in lines:
            raise UsageError(
                f"{where}: token {token!r} is on line {lines[token]} already; remove one"
            )
        if counts and count > counts[-1]:
            raise UsageError(
                f"{where}: count {count} is above the {counts[-1]} before it; "
                "sort the lines by descending count"
            )
        lines[token] = number
        counts.append(count)
    if not counts:
        raise UsageError(f"{path} is empty; give a file of token<TAB>count lines")
    total = sum(counts)
    if total not in COUNT:
        raise UsageError(f"{path}: the counts add up to {total}, which is too large; correct them")
    return Vocabulary(list(lines), np.array(counts, np.int64), total)


def rank(counts: Iterable[tuple[str, int]], total: int, most: int | None = None) -> Vocabulary:
    """Return names by descending count, then by code point.

    Args:
        counts: Names, each once, and their counts.
        total: The `total` of the result.
        most: Largest number of names; None for all.
    """
    ranked = sorted(counts, key=lambda item: (-item[1], item[0]))[:most]
    found = np.array([count for _, count in ranked], np.int64)
    return Vocabulary([name for name, _ in ranked], found, total)


def grow(
    old: Vocabulary, counts: Mapping[str, int], total: int, min_count: int = 1, most: int = 0
) -> tuple[Vocabulary, np.ndarray]:
    """Return a vocabulary with the counts of more text added, and with its new tokens.

    Every old token stays. A new token counts in the new text alone, as the counts of rare tokens of
    the old text are not known.

    Args:
        old: The vocabulary so far, of tokens or of other names.
        counts: The count of each token of the new text.
        total: Tokens of the new text.
        min_count: The least count of a new token.
        most: The most tokens of the result, unless there are more old ones; 0 for no limit.

    Returns:
        The old and the new tokens, by descending count, then by code point; and the new id of each
        of the V old ids, (V,) int64.
    """
    known = dict(zip(old.tokens, old.counts.tolist(), strict=True))
    frequent = (item for item in counts.items() if item[1] >= min_count and item[0] not in known)
    new = rank(frequent, total, max(most - len(known), 0) if most else None)
    both = [(token, count + counts.get(token, 0)) for token, count in known.items()]
    grown = rank([*both, *zip(new.tokens, new.counts.tolist(), strict=True)], old.total + total)
    id_of = {token: number for number, token in enumerate(grown.tokens)}
    return grown, np.array([id_of[token] for token in old.tokens], np.int64)


def lookup_table(vocabulary: Vocabulary) -> tf.lookup.StaticHashTable:
    """Return a TensorFlow lookup table from tokens to ids, int32; `UNKNOWN` (-1) for others."""
    import tensorflow as tf

    ids = tf.range(len(vocabulary.tokens), dtype=tf.int32)
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary.tokens), ids)
    return tf.lookup.StaticHashTable(initializer, default_value=UNKNOWN)


def _parse(line: bytes, where: str) -> tuple[str, int]:
    """Return the token and the count of a line; raise a UsageError if it is malformed."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{where}: not UTF-8; convert the file") from None
    fields = _LINE.fullmatch(text)
    if fields is None or int(fields[2]) == 0:
        shown = text.rstrip("\r\n")[:60]
        raise UsageError(
            f"{where}: {shown!r} is not token<TAB>count with a count above 0; correct or remove it"
        )
    return fields[1], int(fields[2])


def whole(name: str) -> str:
    """Return a name without the fraction of a whole number: `5800` for `5800.0`.

    Programs write whole numbers so if some of them were missing.
    """
    match = _WHOLE.fullmatch(name) if name.endswith("0") else None
    return match[1] if match else name


def count_names(
    names: Sequence[str], ids_M: np.ndarray, min_count: int = 1, most: int = 0
) -> Vocabulary:
    """Return the names with their counts, by descending count, then by code point.

    Args:
        names: The names; their positions are ids.
        ids_M: The id of each occurrence, (M,) integers.
        min_count: Occurrences that a name needs; with 0, names that never occur stay.
        most: Largest number of names; 0 for all.

    Returns:
        Names with new ids. `total` is M, with the occurrences of dropped names.
    """
    counts_V = np.bincount(ids_M, minlength=len(names))
    frequent = ((names[i], int(counts_V[i])) for i in np.flatnonzero(counts_V >= min_count))
    return rank(frequent, len(ids_M), most or None)


def close_names(name: str, names: Sequence[str]) -> list[str]:
    """Return up to three of the most frequent names that are spelled like another, the best first.

    A number is like no other number.

    Args:
        names: The names, the most frequent first.
    """
    return [] if name.isdigit() else difflib.get_close_matches(name, names[:_COMPARED])


def save_names(names: Vocabulary, path: Path) -> None:
    """Write a line `name<TAB>count` for each id in order.

    Raises:
        UsageError: A name has a line feed, or is longer than a line may be; any other
            character is kept.
        RunError: The file cannot be written.
    """
    check_names(names.tokens, path)
    _write(names, path)


def check_names(names: Iterable[str], path: Path) -> None:
    """Raise UsageError for a name that `save_names` cannot write to a file."""
    for name in names:
        if "\n" in name:
            raise UsageError(f"{name!r} has a line break, which {path.name} cannot have; rename it")
        if len(name.encode()) > _LONGEST_NAME:
            raise UsageError(
                f"the name that begins with {name[:40]!r} has more than {_LONGEST_NAME:,} bytes, "
                f"which a line of {path.name} cannot; rename it"
            )


def load_names(path: Path) -> Vocabulary:
    """Read a file that `save_names` wrote; `total` is the sum of the counts.

    Raises:
        DamagedError: The file is missing or damaged.
        RunError: The file cannot be read.
    """
    names, counts = [], []
    for number, line in enumerate(checked_files.read_lines(path, LONGEST_LINE), 1):
        match = _NAME_LINE.fullmatch(line.removesuffix(b"\n"))
        if match is None:
            raise damaged(path, f"line {number} is not a name, tab and count")
        try:
            names.append(match[1].decode())
        except UnicodeDecodeError as error:
            raise damaged(path, f"line {number} is not UTF-8") from error
        counts.append(int(match[2]))
    total = sum(counts)
    if total not in COUNT:
        raise damaged(path, f"its counts add up to {total}")
    return Vocabulary(names, np.array(counts, np.int64), total)
