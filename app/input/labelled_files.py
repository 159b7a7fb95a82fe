"""Read labelled texts: lines in fastText's format, or columns of CSV files and their like.

They are read once and kept in memory, 4 bytes per token, so that each epoch can have another order.
A text may have a weight, such as `__weight__0.5`, and each of its labels a share of it: `good:0.7`.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..settings import CorpusConfig, InputConfig, LabelledConfig
from ..settings.classify_config import MOST_WEIGHT
from ..text import columns, reading
from ..text.fasttext.model_file import LINE_END
from ..text.reading import Progress
from ..text.tokenize import drop_long_tokens, make_splitter, warn_about_long_tokens
from .blocks import TextFiles, interleave_sources, map_in_order, raise_read_errors, share_dataset
from .features import Examples, list_starts

_ROWS = 4096  # rows of a file that are tokenized at a time
_STRINGS, _NUMBERS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)


# A text, its labels, at least one, and its weight as text, or nothing.
_Row = tuple[str, list[str], list[str]]


class Files(NamedTuple):
    """Files of labelled texts, and how they are read."""

    sources: tuple[str, ...]
    corpus: CorpusConfig
    labelled: LabelledConfig
    settings: InputConfig


def read(
    sources: tuple[str, ...], corpus: CorpusConfig, labelled: LabelledConfig, settings: InputConfig
) -> Examples:
    """Return the labelled texts of some files; words and labels in order of appearance.

    A repeated label of a text counts once. The number of dropped long tokens is logged. With the
    features of fastText, each text ends with the word `</s>`.

    Raises:
        UsageError: There is no text, a text has no label (file and line), a column is missing or
            there twice, or quotes are malformed.
        RunError: A file cannot be read.
    """
    files = Files(sources, corpus, labelled, settings)
    words: dict[bytes, int] = {}
    labels: dict[str, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    all_dropped = 0
    progress = Progress.make(sources)
    parsed = _parse(files, progress)
    with raise_read_errors(progress):
        for dropped, *block in parsed.as_numpy_iterator():
            all_dropped += int(dropped)
            try:
                parts.append(_number_block(words, labels, labelled, *block))
            except ValueError as error:
                raise explain_line(files) from error
    warn_about_long_tokens(all_dropped)
    if not any(len(lengths_E) for _, lengths_E, *_ in parts):
        raise UsageError(f"{', '.join(sources)}: no example in it; {_remedy(corpus, labelled)}")
    examples = _join([word.decode() for word in words], list(labels), parts)
    if not len(examples):
        raise UsageError(
            f"{', '.join(sources)}: every text has the weight 0; give some a weight above 0"
        )
    return examples


def _number_block(
    words: dict[bytes, int],
    labels: dict[str, int],
    labelled: LabelledConfig,
    count: int,
    *lists: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Return the texts of a block with ids of words and labels, as arguments of `_join`.

    `words` and `labels` get the new ones, and `lists` are those of `_parse`. Raise ValueError if a
    text has no label, or if a weight is wrong.
    """
    words_U, words_M, owners_M, labels_U, labels_N, label_owners_N, *weights = lists
    label_counts_E = np.bincount(label_owners_N, minlength=count)
    if not label_counts_E.all():
        raise ValueError("a text without a label")
    weights_E = _text_weights(count, *weights)
    names = (label.decode() for label in labels_U.tolist())
    pairs = [_parse_label(name, labelled.label_weights) for name in names]
    ids_M = _assign_ids(words_U.tolist(), words)[words_M]
    lengths_E = np.bincount(owners_M, minlength=count)
    if labelled.fasttext_features:
        (end,) = _assign_ids([LINE_END.encode()], words)
        ids_M, lengths_E = np.insert(ids_M, np.cumsum(lengths_E), end), lengths_E + 1
    return (
        ids_M,
        lengths_E,
        _assign_ids([name for name, _ in pairs], labels)[labels_N],
        label_counts_E,
        weights_E,
        np.array([share for _, share in pairs], np.float32)[labels_N],
    )


def _assign_ids(names: list, index: dict[Any, int]) -> np.ndarray:
    """Return the id of each name, (U,) int32; a new name gets the next id."""
    return np.fromiter((index.setdefault(name, len(index)) for name in names), np.int32, len(names))


def _join(words: list[str], labels: list[str], parts: Sequence[tuple[np.ndarray, ...]]) -> Examples:
    """Return the texts as `Examples`, without repeated labels of a text and without weights of 0.

    Weights that are all 1 are left out.
    """
    arrays = map(np.concatenate, zip(*parts, strict=True))
    tokens_M, lengths_E, labels_N, label_counts_E, weights_E, shares_N = arrays
    owners_N = np.repeat(np.arange(len(lengths_E)), label_counts_E)
    _, first_N = np.unique(owners_N * len(labels) + labels_N, return_index=True)
    first_N.sort()  # a repeated label of a text counts once
    kept_N = first_N[shares_N[first_N] > 0]
    label_counts_E = np.bincount(owners_N[kept_N], minlength=len(lengths_E))
    shares_N = shares_N[kept_N]
    examples = Examples(
        words,
        labels,
        tokens_M,
        list_starts(lengths_E),
        labels_N[kept_N],
        list_starts(label_counts_E),
        None if (weights_E == 1).all() else weights_E,
        None if (shares_N == 1).all() else shares_N,
    )
    counts_E = (weights_E > 0) & (label_counts_E > 0)
    return examples if counts_E.all() else examples.select(counts_E)


def _parse(files: Files, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of the parsed blocks of the files.

    These are the number of tokens that were too long and of texts; then words, labels and weights,
    each with the text number of each. Words and labels are the unique ones, then the position of
    each in these. Errors end it early, without a message: iterate inside
    `raise_read_errors(progress)`.
    """
    sources, corpus, labelled, settings = files
    parse = _make_parser(corpus, labelled)

    def parse_block(text: tf.Tensor, *lists: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the parsed texts of a block."""
        texts_E = text
        if not corpus.text_column:
            lines = tf.strings.split(text, "\n")
            texts_E = tf.boolean_mask(lines, tf.strings.strip(lines) != "")
        words, owners_M, dropped, *marks = parse(texts_E)
        labels, label_owners_N, *weights = marks or lists
        words_and_labels = *tf.unique(words), owners_M, *tf.unique(labels), label_owners_N
        return dropped, tf.size(texts_E), *words_and_labels, *weights

    if corpus.text_column:
        blocks = _column_blocks(files, progress)
    else:
        blocks = share_dataset(TextFiles(sources, corpus, settings), progress)
    return map_in_order(blocks, parse_block, settings, "tokenize").prefetch(settings.prefetch)


def _text_weights(count: int, weights_K: np.ndarray, owners_K: np.ndarray) -> np.ndarray:
    """Return the weight of each text, (count,) float32, 1 where none is given.

    `weights_K` has weights as bytes, and `owners_K` the text number of each. Raise ValueError if
    one is wrong, or a text has several.
    """
    if len(owners_K) > len(np.unique(owners_K)):
        raise ValueError("a text with several weights")
    weights_E = np.ones(count, np.float32)
    weights_E[owners_K] = [_parse_weight(weight.decode()) for weight in weights_K.tolist()]
    return weights_E


def make_word_splitter(
    corpus: CorpusConfig, labelled: LabelledConfig
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Return a function from texts (E,) to words (M,) without labels, and their text numbers (M,).

    With the features of fastText, the last word of each text is `</s>`.
    """
    parse = _make_parser(corpus, labelled)
    if not labelled.fasttext_features:
        return lambda texts_E: parse(texts_E)[:2]

    def split(texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the words of texts, each with `</s>` at its end, and the text number of each."""
        words_M, owners_M, *_ = parse(texts_E)
        words = tf.RaggedTensor.from_value_rowids(words_M, owners_M, tf.size(texts_E, tf.int64))
        words = tf.concat([words, tf.fill(tf.stack([words.nrows(), 1]), LINE_END)], axis=1)
        return words.flat_values, words.value_rowids()

    return split


def _make_parser(
    corpus: CorpusConfig, labelled: LabelledConfig
) -> Callable[[tf.Tensor], tuple[tf.Tensor, ...]]:
    """Return a function from texts (E,) to flat lists of their words, and maybe of more.

    These are the words, the text number of each, and how many were too long. In lines, where a
    piece PREFIXname is the label `name` and WEIGHT_PREFIXnumber is a weight, labels and weights
    without prefixes follow, each with the text number of each.
    """
    split = make_splitter(corpus)

    def flatten(tokens: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        words, dropped = drop_long_tokens(tokens)
        return words.flat_values, words.value_rowids(), dropped

    if corpus.text_column:
        return lambda texts_E: flatten(split(texts_E))
    by_space = make_splitter(dataclasses.replace(corpus, tokenizer="whitespace"))
    prefixes = [labelled.label_prefix, labelled.weight_prefix]
    # RE2 and Python read this escape alike.
    label, weight = (f"{re.escape(prefix)}.+" if prefix else "$^" for prefix in prefixes)

    def parse_lines(lines_E: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the words, labels and weights of each line."""
        pieces = by_space(lines_E)
        pieces_M, owners_M = pieces.flat_values, pieces.value_rowids()
        is_mark_M = tf.strings.regex_full_match(pieces_M, f"{weight}|{label}")
        words = tf.ragged.boolean_mask(pieces, pieces.with_flat_values(~is_mark_M))
        if corpus.tokenizer != "whitespace":
            words = split(tf.strings.reduce_join(words, axis=1, separator=" "))
        marks_N = tf.boolean_mask(pieces_M, is_mark_M)
        mark_owners_N = tf.boolean_mask(owners_M, is_mark_M)
        is_weight_N = tf.strings.regex_full_match(marks_N, weight)
        lists = []
        for chosen_N, prefix in zip((~is_weight_N, is_weight_N), prefixes, strict=True):
            chosen = tf.boolean_mask(marks_N, chosen_N)
            lists.append(tf.strings.regex_replace(chosen, f"^{re.escape(prefix)}", ""))
            lists.append(tf.boolean_mask(mark_owners_N, chosen_N))
        return *flatten(words), *lists

    return parse_lines


# Columns of labels and text.


def _column_blocks(files: Files, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of groups of rows: texts, then labels and weights, and the text of each.

    Errors end it early, without a message: iterate inside `raise_read_errors(progress)`.
    """

    def read_groups(index: int) -> Iterator[tuple[list, ...]]:
        """Yield the groups of the source of this number."""
        rows, most = read_columns(files, progress, index), files.settings.block_bytes
        for group in reading.grouped(rows, _ROWS, most, lambda row: len(row[0])):
            texts, *lists = zip(*group, strict=True)
            flat: list[list] = []
            for column in lists:
                flat.append(list(itertools.chain(*column)))
                flat.append([number for number, items in enumerate(column) for _ in items])
            yield list(texts), *flat

    how = (_STRINGS, _STRINGS, _NUMBERS, _STRINGS, _NUMBERS), progress, files.settings.readers
    return interleave_sources(len(files.sources), read_groups, *how)


def read_columns(files: Files, progress: Progress, index: int) -> Iterator[_Row]:
    """Yield the rows of the file of a number.

    Raises:
        UsageError: A column is missing or repeated, a row has no label or a wrong weight, or the
            file is malformed.
    """
    sources, corpus, labelled, settings = files
    names = {"text_column": corpus.text_column, "label_column": labelled.label_column}
    if labelled.weight_column:
        names["weight_column"] = labelled.weight_column
    how = corpus.invalid_utf8, settings.block_bytes, progress, index
    for where, (text, label, *weights) in columns.read_rows(sources[index], names, *how):
        # A cell of JSON lines or Parquet may be a list of labels.
        cells = label if isinstance(label, list) else [label]
        texts = (columns.as_text(cell, where, labelled.label_column) for cell in cells)
        labels = [part for cell in texts for part in _split_labels(cell, labelled.label_separator)]
        if not labels:
            raise UsageError(f"{where}: has no label; correct or remove it")
        weights = [columns.as_text(cell, where, labelled.weight_column) for cell in weights]
        if wrong := _wrong_weight(weights, labels, corpus, labelled):
            raise UsageError(f"{where}: {wrong}")
        yield columns.as_text(text, where, corpus.text_column), labels, weights


def _split_labels(cell: str, separator: str) -> list[str]:
    """Return the labels of a cell, split at --label_separator if given, without needless blanks."""
    parts = cell.split(separator) if separator else [cell]
    return [" ".join(part.split()) for part in parts if part.strip()]


# Weights, and messages.


def _parse_weight(text: str, most: float = MOST_WEIGHT) -> float:
    """Return the number that a text is; raise ValueError unless it is one from 0 to `most`."""
    weight = float(text) if "_" not in text else math.nan  # Python reads 1_0 as 10
    if not 0 <= weight <= most:
        raise ValueError(text)
    return weight


def _parse_label(label: str, has_weight: bool = True) -> tuple[str, float]:
    """Return the name of a label `name:weight`, and its weight; raise ValueError if it is wrong.

    The last colon counts, and a label without one has the weight 1.
    """
    name, colon, number = label.rpartition(":")
    if not (has_weight and colon):
        return label, 1.0
    if not name:
        raise ValueError(label)
    return name, _parse_weight(number, 1.0)


def _wrong_weight(
    weights: Sequence[str], labels: Sequence[str], corpus: CorpusConfig, labelled: LabelledConfig
) -> str:
    """Return what is wrong with the weights of a text or of its labels, and the remedy, or ""."""
    fault = ""
    try:
        for shown in weights:
            _parse_weight(shown)
        if len(weights) > 1:
            fault = f"has {len(weights)} weights"
    except ValueError:
        fault = f"the weight {shown[:40]!r} is not a number from 0 to {MOST_WEIGHT:,.0f}"
    remedy = f"give one such as {labelled.weight_prefix}0.5, or another --weight_prefix"
    flag = "--weight_column"
    if not fault:
        try:
            for shown in labels:
                _parse_label(shown, labelled.label_weights)
        except ValueError:
            fault = f"the label {shown[:40]!r} has no number from 0 to 1 after its last colon"
            remedy = f"give one such as {labelled.label_prefix}good:0.7, or --nolabel_weights"
            flag = "--label_weights"
    if corpus.text_column:
        remedy = f"correct it, or leave out {flag}"
    return f"{fault}; {remedy}" if fault else ""


def explain_line(files: Files) -> UsageError:
    """Read files of lines again, and return the error of the first wrong line.

    A line is wrong if it has no label, or if one of its weights is wrong.
    """
    sources, corpus, labelled, settings = files
    for path in sources:
        number, is_continued = 1, False  # current line, and whether it began in an earlier block
        for block in reading.blocks(path, "line", block_bytes=settings.block_bytes):
            for line in io.StringIO(block.decode()):
                wrong = _wrong_line(line, corpus, labelled)
                if wrong and is_continued:
                    return UsageError(
                        f"--block_bytes={settings.block_bytes}: {path}, line {number} is longer, "
                        "so a part of it has no label; give a larger value, or shorten the line"
                    )
                if wrong:
                    return UsageError(f"{path}, line {number}: {wrong}")
                is_continued = not line.endswith("\n")
                number += not is_continued
    return UsageError(f"{', '.join(sources)}: a text has no label; {_remedy(corpus, labelled)}")


def _wrong_line(line: str, corpus: CorpusConfig, labelled: LabelledConfig) -> str:
    """Return what is wrong with a line, and the remedy; "" if nothing is, or it is blank."""
    pieces, weights, labels = line.split(), [], []
    for piece in pieces:
        mark = labelled.weight_prefix
        if mark and piece.startswith(mark) and piece != mark:
            weights.append(piece.removeprefix(mark))
        elif piece.startswith(labelled.label_prefix) and piece != labelled.label_prefix:
            labels.append(piece.removeprefix(labelled.label_prefix))
    if pieces and not labels:
        return f"has no label; {_remedy(corpus, labelled)}"
    return _wrong_weight(weights, labels, corpus, labelled)


def _remedy(corpus: CorpusConfig, labelled: LabelledConfig) -> str:
    """Return the end of an error message: which lines or columns the files must have."""
    if corpus.text_column:
        return (
            "name its columns by --text_column and --label_column, or leave both out for lines of "
            "labels and text"
        )
    return (
        f"give lines such as `{labelled.label_prefix}good a fine film` (--label_prefix), or name "
        "--text_column and --label_column"
    )
