"""Labelled texts from files: lines of fastText's form, or columns of CSV and TSV files.

They are read once and kept in memory, 4 bytes a token, so that every epoch can go through all of
them in another order.
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
from ..text.blocks import block_dataset, interleave_sources, raise_read_errors, without_autograph
from ..text.reading import Progress
from ..text.tokenize import Tokenizer, drop_long_tokens, make_splitter, warn_about_long_tokens
from . import delimited
from .labelled import Examples, list_starts

_ROWS = 4096  # of a CSV file that are tokenised at a time
_STRINGS, _NUMBERS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)


class _Texts(NamedTuple):
    """Some texts as flat lists, of numpy arrays or of tensors.

    count: how many texts. words_M: their words. owners_M: which text each is of. dropped: how many
    tokens were too long. labels_N, label_owners_N: the same of labels.
    """

    count: Any
    words_M: Any
    owners_M: Any
    dropped: Any
    labels_N: Any
    label_owners_N: Any


def read(sources: tuple[str, ...], config: Config) -> Examples:
    """The examples of some files, words and labels in order of appearance.

    UsageError, with the file and the line, for a text without a label and for columns that are not
    there; RunError when a file cannot be read.
    """
    progress = Progress.of(sources)
    words: dict[bytes, int] = {}
    labels: dict[bytes, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    dropped = 0
    with raise_read_errors(progress):
        for words_U, labels_U, texts in _blocks(sources, config, progress).as_numpy_iterator():
            label_counts_E = np.bincount(texts.label_owners_N, minlength=texts.count)
            if not label_counts_E.all():
                raise _unlabelled(sources, config)
            dropped += int(texts.dropped)
            parts.append(
                (
                    _known(words_U, words)[texts.words_M],
                    np.bincount(texts.owners_M, minlength=texts.count),
                    _known(labels_U, labels)[texts.labels_N],
                    label_counts_E,
                )
            )
    warn_about_long_tokens(dropped)
    if not any(len(lengths_E) for _, lengths_E, *_ in parts):
        raise UsageError(f"{', '.join(sources)}: no example in it; {_wanted(config)}")
    tokens_M, lengths_E, labels_N, label_counts_E = map(np.concatenate, zip(*parts, strict=True))
    owners_N = np.repeat(np.arange(len(lengths_E)), label_counts_E)
    _, first_N = np.unique(owners_N * len(labels) + labels_N, return_index=True)
    first_N.sort()  # a label that a text has twice, it has once
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
    """From texts (E,) to their words, without labels that may be in them, and the text of each."""
    if config.labelled.text_column:
        split = make_splitter(config.corpus)
        return lambda texts_E: _words(split, texts_E)[:2]
    parted = _parted(config)
    return lambda texts_E: parted(texts_E)[1:3]


@without_autograph
def _blocks(sources: tuple[str, ...], config: Config, progress: Progress) -> tf.data.Dataset:
    """Distinct words and labels of some texts at a time, and these with places among those.

    Iterate inside `text.blocks.raise_read_errors`.
    """
    settings = config.input
    if config.labelled.text_column:
        split = make_splitter(config.corpus)

        def rows(index: int) -> Iterator[tuple[list[str], list[str], list[int]]]:
            try:
                yield from _rows(sources[index], config, progress, index)
            except UsageError as error:  # of which tf.data would print a traceback
                progress.error = error

        def of_block(texts_E: tf.Tensor, labels_N: tf.Tensor, owners_N: tf.Tensor) -> _Texts:
            return _Texts(tf.size(texts_E), *_words(split, texts_E), labels_N, owners_N)

        signature = _STRINGS, _STRINGS, _NUMBERS
        found = interleave_sources(len(sources), rows, signature, progress, settings.readers)
    else:
        parted = _parted(config)

        def of_block(block: tf.Tensor) -> _Texts:
            lines = tf.strings.split(block, "\n")
            return parted(tf.boolean_mask(lines, tf.strings.strip(lines) != ""))

        found = block_dataset(
            sources,
            "line",
            config.corpus.invalid_utf8,
            progress,
            settings.block_bytes,
            settings.readers,
        )

    def distinct(*block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, _Texts]:
        texts = of_block(*block)
        words_U, words_M = tf.unique(texts.words_M)
        labels_U, labels_N = tf.unique(texts.labels_N)
        return words_U, labels_U, texts._replace(words_M=words_M, labels_N=labels_N)

    found = found.map(
        distinct, num_parallel_calls=settings.map_parallelism, deterministic=True, name="tokenize"
    )
    return found.prefetch(settings.prefetch)


def _parted(config: Config) -> Callable[[tf.Tensor], _Texts]:
    """From lines (E,) to their words and labels."""
    by_space = make_splitter(dataclasses.replace(config.corpus, tokenizer="whitespace"))
    prefix = re.escape(config.labelled.label_prefix)  # which RE2 reads as Python does
    split = None if config.corpus.tokenizer == "whitespace" else make_splitter(config.corpus)

    def parted(lines_E: tf.Tensor) -> _Texts:
        pieces = by_space(lines_E)
        pieces_M, owners_M = pieces.flat_values, pieces.value_rowids()
        is_label_M = tf.strings.regex_full_match(pieces_M, f"{prefix}.+")
        label_N = tf.where(is_label_M)[:, 0]
        if split is None:
            is_word = pieces.with_flat_values(~is_label_M)
            words = _words(lambda pieces: tf.ragged.boolean_mask(pieces, is_word), pieces)
        else:
            word_M = tf.where(~is_label_M)[:, 0]
            others = tf.gather(pieces_M, word_M), tf.gather(owners_M, word_M)
            others_E = tf.strings.unsorted_segment_join(*others, tf.size(lines_E), separator=" ")
            words = _words(split, others_E)
        labels_N = tf.strings.regex_replace(tf.gather(pieces_M, label_N), f"^{prefix}", "")
        return _Texts(tf.size(lines_E), *words, labels_N, tf.gather(owners_M, label_N))

    return parted


def _words(split: Tokenizer, texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The words of some texts, the text of each, int64, and how many were too long."""
    found, dropped = drop_long_tokens(split(texts_E))
    return found.flat_values, found.value_rowids(), dropped


def _rows(
    path: str, config: Config, progress: Progress, index: int
) -> Iterator[tuple[list[str], list[str], list[int]]]:
    """Yield texts of a CSV or TSV file, some thousands at a time; their labels, and their texts."""
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
                f"{_wanted(config)}"
            )
        delimited.check_single(path, header, name)
    text, label = header.index(settings.text_column), header.index(settings.label_column)

    def examples() -> Iterator[tuple[str, list[str]]]:
        for number, row in cells:
            labels = _labels(row[label], settings) if len(row) > max(text, label) else []
            if not labels:
                raise UsageError(
                    f"{path}, line {number}: has no label, or too few cells; mend or remove it"
                )
            yield row[text], labels

    for some in _grouped(examples(), config.input.block_bytes):
        texts, labels = zip(*some, strict=True)
        owners = [text for text, some in enumerate(labels) for _ in some]
        yield list(texts), list(itertools.chain(*labels)), owners


def _grouped(
    examples: Iterator[tuple[str, list[str]]], longest: int
) -> Iterator[list[tuple[str, list[str]]]]:
    """Some thousand examples at a time, fewer where their texts together reach `longest`."""
    group, size = [], 0
    for text, labels in examples:
        group.append((text, labels))
        size += len(text)
        if len(group) == _ROWS or size >= longest:
            yield group
            group, size = [], 0
    if group:
        yield group


def _labels(cell: str, settings: LabelledConfig) -> list[str]:
    """The labels of a cell; white space within one is a blank."""
    parts = cell.split(settings.label_separator) if settings.label_separator else [cell]
    return [" ".join(part.split()) for part in parts if part.strip()]


def _unlabelled(sources: tuple[str, ...], config: Config) -> UsageError:
    """What is wrong with the first line that has no label."""
    prefix = config.labelled.label_prefix
    size = config.input.block_bytes
    for path in sources:
        number, is_rest = 1, False  # of the line in hand; whether it began in an earlier block
        for block in reading.blocks(path, "line", block_bytes=size):
            for line in io.StringIO(block.decode()):
                labels = (piece for piece in line.split() if piece.startswith(prefix))
                if line.strip() and all(label == prefix for label in labels):
                    if is_rest:
                        return UsageError(
                            f"--block_bytes={size}: {path}, line {number} is longer, so that a "
                            "part of it has no label; give more, or shorten the line"
                        )
                    return UsageError(f"{path}, line {number}: has no label; {_wanted(config)}")
                is_rest = not line.endswith("\n")
                number += not is_rest
    return UsageError(f"{', '.join(sources)}: a text has no label; {_wanted(config)}")


def _wanted(config: Config) -> str:
    if config.labelled.text_column:
        return (
            "name columns of its first line by --text_column and --label_column, or leave both "
            "out for lines of labels and text"
        )
    return (
        f"give lines such as `{config.labelled.label_prefix}good a fine film` (--label_prefix), "
        "or name --text_column and --label_column of CSV or TSV files"
    )


def _known(names_U: np.ndarray, index: dict[bytes, int]) -> np.ndarray:
    """The id of each name, (U,) int32; new names get the next ones."""
    ids = (index.setdefault(name, len(index)) for name in names_U.tolist())
    return np.fromiter(ids, np.int32, len(names_U))
