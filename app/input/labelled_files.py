"""Read labelled texts: lines in fastText's format, or columns of CSV and TSV files.

They are read once and kept in memory, 4 bytes per token, so that each epoch can have another order.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..config import Config, LabelledConfig
from ..errors import UsageError
from ..text import reading
from ..text.blocks import block_dataset, interleave_sources, map_in_order, raise_read_errors
from ..text.reading import Progress
from ..text.tokenize import Tokenizer, drop_long_tokens, make_splitter, warn_about_long_tokens
from . import delimited
from .labelled import Examples, list_starts

_ROWS = 4096  # rows of a CSV file that are tokenized at a time
_STRINGS, _NUMBERS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)


class _Texts(NamedTuple):
    """Several texts as flat lists, of numpy arrays or of tensors.

    Attributes:
        count: Number of texts.
        words_M: Words, one text after the other.
        owners_M: Text number of each word.
        dropped: Number of tokens that were too long.
        labels_N: Labels, one text after the other.
        label_owners_N: Text number of each label.
    """

    count: Any
    words_M: Any
    owners_M: Any
    dropped: Any
    labels_N: Any
    label_owners_N: Any


def read(sources: tuple[str, ...], config: Config) -> Examples:
    """Return the labelled texts of some files; words and labels in order of appearance.

    A repeated label of a text counts once. The number of dropped long tokens is logged.

    Args:
        sources: Paths of the files.
        config: The configuration of the run.

    Raises:
        UsageError: There is no text, a text has no label (file and line), a column is missing or
            there twice, or quotes are malformed.
        RunError: A file cannot be read.
    """
    progress = Progress.make(sources)
    words: dict[bytes, int] = {}
    labels: dict[bytes, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    dropped = 0
    with raise_read_errors(progress):
        for words_U, labels_U, texts in _blocks(sources, config, progress).as_numpy_iterator():
            label_counts_E = np.bincount(texts.label_owners_N, minlength=texts.count)
            if not label_counts_E.all():
                raise _explain_missing_label(sources, config)
            dropped += int(texts.dropped)
            parts.append(
                (
                    _assign_ids(words_U, words)[texts.words_M],
                    np.bincount(texts.owners_M, minlength=texts.count),
                    _assign_ids(labels_U, labels)[texts.labels_N],
                    label_counts_E,
                )
            )
    warn_about_long_tokens(dropped)
    if not any(len(lengths_E) for _, lengths_E, *_ in parts):
        raise UsageError(f"{', '.join(sources)}: no example in it; {_remedy(config)}")
    tokens_M, lengths_E, labels_N, label_counts_E = map(np.concatenate, zip(*parts, strict=True))
    owners_N = np.repeat(np.arange(len(lengths_E)), label_counts_E)
    _, first_N = np.unique(owners_N * len(labels) + labels_N, return_index=True)
    first_N.sort()  # a repeated label of a text counts once
    labels_N, label_counts_E = labels_N[first_N], np.bincount(owners_N[first_N])
    return Examples(
        [word.decode() for word in words],
        [label.decode() for label in labels],
        tokens_M,
        list_starts(lengths_E),
        labels_N,
        list_starts(label_counts_E),
    )


def make_word_splitter(config: Config) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Return a function from texts (E,) to words (M,) without labels, and their text numbers (M,).

    Args:
        config: The configuration of the run.
    """
    if config.labelled.text_column:
        split = make_splitter(config.corpus)
        return lambda texts_E: _split_words(split, texts_E)[:2]
    parse_lines = _make_line_parser(config)
    return lambda texts_E: parse_lines(texts_E)[1:3]


def _blocks(sources: tuple[str, ...], config: Config, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of (unique words, unique labels, texts with positions among these).

    Errors end it early, without a message: iterate inside `raise_read_errors(progress)`.
    """
    settings = config.input
    if config.labelled.text_column:
        split = make_splitter(config.corpus)

        def read_columns(index: int) -> Iterator[tuple[list[str], list[str], list[int]]]:
            return _read_columns(sources[index], config, progress, index)

        def parse_columns(texts_E: tf.Tensor, labels_N: tf.Tensor, owners_N: tf.Tensor) -> _Texts:
            return _Texts(tf.size(texts_E), *_split_words(split, texts_E), labels_N, owners_N)

        parse_block: Callable[..., _Texts] = parse_columns
        signature = _STRINGS, _STRINGS, _NUMBERS
        blocks = interleave_sources(
            len(sources), read_columns, signature, progress, settings.readers
        )
    else:
        parse_lines = _make_line_parser(config)

        def parse_text(block: tf.Tensor) -> _Texts:
            lines = tf.strings.split(block, "\n")
            return parse_lines(tf.boolean_mask(lines, tf.strings.strip(lines) != ""))

        parse_block = parse_text
        by_line = dataclasses.replace(config.corpus, documents="line")
        blocks = block_dataset(sources, by_line, settings, progress)

    def with_unique(*block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, _Texts]:
        """Return a block's unique words, unique labels, and texts with positions among these."""
        texts = parse_block(*block)
        words_U, words_M = tf.unique(texts.words_M)
        labels_U, labels_N = tf.unique(texts.labels_N)
        return words_U, labels_U, texts._replace(words_M=words_M, labels_N=labels_N)

    return map_in_order(blocks, with_unique, settings, "tokenize").prefetch(settings.prefetch)


def _make_line_parser(config: Config) -> Callable[[tf.Tensor], _Texts]:
    """Return a function from E lines to their `_Texts`. A piece PREFIXname is the label `name`."""
    by_space = make_splitter(dataclasses.replace(config.corpus, tokenizer="whitespace"))
    prefix = re.escape(config.labelled.label_prefix)  # RE2 and Python read this escape alike
    split = None if config.corpus.tokenizer == "whitespace" else make_splitter(config.corpus)

    def parse_lines(lines_E: tf.Tensor) -> _Texts:
        """Return the words without labels, and the labels without prefix, of each line."""
        pieces = by_space(lines_E)
        pieces_M, owners_M = pieces.flat_values, pieces.value_rowids()
        is_label_M = tf.strings.regex_full_match(pieces_M, f"{prefix}.+")
        label_N = tf.where(is_label_M)[:, 0]
        if split is None:
            is_word = pieces.with_flat_values(~is_label_M)
            words = _split_words(lambda pieces: tf.ragged.boolean_mask(pieces, is_word), pieces)
        else:
            word_M = tf.where(~is_label_M)[:, 0]
            words_and_owners = tf.gather(pieces_M, word_M), tf.gather(owners_M, word_M)
            texts_E = tf.strings.unsorted_segment_join(
                *words_and_owners, tf.size(lines_E), separator=" "
            )
            words = _split_words(split, texts_E)
        labels_N = tf.strings.regex_replace(tf.gather(pieces_M, label_N), f"^{prefix}", "")
        return _Texts(tf.size(lines_E), *words, labels_N, tf.gather(owners_M, label_N))

    return parse_lines


def _split_words(split: Tokenizer, texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the words of texts, the text number of each, and how many were too long."""
    words, dropped = drop_long_tokens(split(texts_E))
    return words.flat_values, words.value_rowids(), dropped


def _read_columns(
    path: str, config: Config, progress: Progress, index: int
) -> Iterator[tuple[list[str], list[str], list[int]]]:
    """Yield texts, all their labels, and the text number of each label, in groups of a file's rows.

    Tabs separate the cells of a .tsv file, commas those of any other. Raise a UsageError for a
    missing or repeated column, and for a row without a label or with malformed quotes.
    """
    settings, suffixes = config.labelled, Path(path.lower()).suffixes[-2:]
    blocks = reading.blocks(
        path, "line", config.corpus.invalid_utf8, config.input.block_bytes, progress, index
    )
    lines = delimited.whole_lines(path, map(bytes.decode, blocks))
    cells = delimited.read_csv_rows(path, lines, "\t" if ".tsv" in suffixes else ",")
    _, header = next(cells, (0, []))
    header = [name.strip() for name in header]
    for flag in ("text_column", "label_column"):
        name = getattr(settings, flag)
        if name not in header:
            raise UsageError(
                f"--{flag}={name}: {path} has the columns {delimited.list_columns(header)}; "
                f"{_remedy(config)}"
            )
        delimited.check_single(path, header, name)
    text, label = header.index(settings.text_column), header.index(settings.label_column)

    def examples() -> Iterator[tuple[str, list[str]]]:
        """Yield the text and the labels of each row; refuse a row without a label."""
        for number, row in cells:
            labels = _split_labels(row[label], settings) if len(row) > max(text, label) else []
            if not labels:
                raise UsageError(
                    f"{path}, line {number}: has no label, or too few cells; correct or remove it"
                )
            yield row[text], labels

    for group in _group(examples(), config.input.block_bytes):
        texts, labels = zip(*group, strict=True)
        owners = [text for text, group in enumerate(labels) for _ in group]
        yield list(texts), list(itertools.chain(*labels)), owners


def _group(
    examples: Iterator[tuple[str, list[str]]], max_characters: int
) -> Iterator[list[tuple[str, list[str]]]]:
    """Yield lists of `_ROWS` examples, or fewer if their texts have `max_characters` or more."""
    group, size = [], 0
    for text, labels in examples:
        group.append((text, labels))
        size += len(text)
        if len(group) == _ROWS or size >= max_characters:
            yield group
            group, size = [], 0
    if group:
        yield group


def _split_labels(cell: str, settings: LabelledConfig) -> list[str]:
    """Return the labels of a cell, split at --label_separator if given, without needless blanks."""
    parts = cell.split(settings.label_separator) if settings.label_separator else [cell]
    return [" ".join(part.split()) for part in parts if part.strip()]


def _explain_missing_label(sources: tuple[str, ...], config: Config) -> UsageError:
    """Read the files again, and return the error that names the first line without a label."""
    prefix = config.labelled.label_prefix
    size = config.input.block_bytes
    for path in sources:
        number, is_continued = 1, False  # current line, and whether it began in an earlier block
        for block in reading.blocks(path, "line", block_bytes=size):
            for line in io.StringIO(block.decode()):
                labels = (piece for piece in line.split() if piece.startswith(prefix))
                if line.strip() and all(label == prefix for label in labels):
                    if is_continued:
                        return UsageError(
                            f"--block_bytes={size}: {path}, line {number} is longer, so a part of "
                            "it has no label; give a larger value, or shorten the line"
                        )
                    return UsageError(f"{path}, line {number}: has no label; {_remedy(config)}")
                is_continued = not line.endswith("\n")
                number += not is_continued
    return UsageError(f"{', '.join(sources)}: a text has no label; {_remedy(config)}")


def _remedy(config: Config) -> str:
    """Return the end of an error message: which lines or columns the files must have."""
    if config.labelled.text_column:
        return (
            "name columns of its first line by --text_column and --label_column, or leave both "
            "out for lines of labels and text"
        )
    return (
        f"give lines such as `{config.labelled.label_prefix}good a fine film` (--label_prefix), "
        "or name --text_column and --label_column of CSV or TSV files"
    )


def _assign_ids(names_U: np.ndarray, index: dict[bytes, int]) -> np.ndarray:
    """Return the id of each name, (U,) int32; a new name gets the next id."""
    ids = (index.setdefault(name, len(index)) for name in names_U.tolist())
    return np.fromiter(ids, np.int32, len(names_U))
