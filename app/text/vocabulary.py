"""The tokens that have a row, most frequent first, and their file."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..system.checked_files import COUNT
from ..system.files import read_lines, replacing

UNKNOWN = -1
# Tokens of a closed vocabulary: any token that has no id of its own, and the end of a document.
UNK, EOS = "<unk>", "<eos>"

# No tokenizer makes a token with these, and the files of tokens that people exchange are cut there.
_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]")
_LINE = re.compile(r"([^ \t\n\v\f\r]+)\t([0-9]{1,18})\r?\n?")


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """V tokens by descending count, then by code point; the position of a token is its id.

    tokens: V strings without white space. counts: (V,) int64. total: tokens of the corpus, those
    without an id included; a vocabulary from a file knows only the sum of its counts.
    """

    tokens: list[str]
    counts: np.ndarray
    total: int


def save(vocabulary: Vocabulary, path: str) -> None:
    """Writes a line `token<TAB>count` for each id in turn. Raises RunError when it cannot."""
    for token in vocabulary.tokens:
        if not token or _WHITE_SPACE.search(token):
            raise ValueError(f"token {token!r} is empty or holds white space")
    lines = zip(vocabulary.tokens, vocabulary.counts.tolist(), strict=True)
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        # `load` skips a byte-order mark, which may also be the beginning of the first token.
        if any(token.startswith("\ufeff") for token in vocabulary.tokens[:1]):
            file.write("\ufeff")
        file.writelines(f"{token}\t{count}\n" for token, count in lines)


def load(path: str) -> Vocabulary:
    """Reads what `save` wrote, or anyone's file of the same form (LF or CRLF).

    Raises UsageError, naming the file, the line and the remedy, when it is missing, empty,
    malformed, not by descending count, or names a token twice.
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
        raise UsageError(f"{path}: its counts add up to {total}, which is too much; mend them")
    return Vocabulary(list(lines), np.array(counts, np.int64), total)


def lookup_table(vocabulary: Vocabulary) -> tf.lookup.StaticHashTable:
    """A table from tokens to their ids, int32; `UNKNOWN` (-1) for any other."""
    ids = tf.range(len(vocabulary.tokens), dtype=tf.int32)
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary.tokens), ids)
    return tf.lookup.StaticHashTable(initializer, default_value=UNKNOWN)


def _parse(line: bytes, where: str) -> tuple[str, int]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{where}: not UTF-8; convert the file") from None
    fields = _LINE.fullmatch(text)
    if fields is None or int(fields[2]) == 0:
        shown = text.rstrip("\r\n")[:60]
        raise UsageError(
            f"{where}: {shown!r} is not token<TAB>count with a count above 0; mend or remove it"
        )
    return fields[1], int(fields[2])
