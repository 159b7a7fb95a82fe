"""Read labelled texts: lines in fastText's format, or columns of CSV files and their like.

They are read once and kept in memory, 4 bytes per token, so that each epoch can have another order.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..settings import ClassifyConfig
from ..text.blocks import interleave_sources, map_in_order, raise_read_errors
from ..text.reading import Progress
from ..text.shares import ALL, Share, share_dataset, share_of
from ..text.tokenize import Tokenizer, drop_long_tokens, make_splitter, warn_about_long_tokens
from ..types import ALONE, Team
from . import labelled_columns, labelled_parts, labelled_weights
from .labelled import Examples, list_starts
from .labelled_errors import explain_line, remedy
from .labelled_parts import ParsedBlock

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
        weights_K: Weights of texts, as strings.
        weight_owners_K: Text number of each weight.
    """

    count: Any
    words_M: Any
    owners_M: Any
    dropped: Any
    labels_N: Any
    label_owners_N: Any
    weights_K: Any
    weight_owners_K: Any


def read(sources: tuple[str, ...], config: ClassifyConfig, team: Team = ALONE) -> Examples:
    """Return the labelled texts of some files; words and labels in order of appearance.

    A repeated label of a text counts once. The number of dropped long tokens is logged. Each
    process of a team parses a share of the blocks, and all get the texts of all.

    Args:
        sources: Paths of the files.
        config: The configuration of the run.
        team: The processes that read the files together.

    Raises:
        UsageError: There is no text, a text has no label (file and line), a column is missing or
            there twice, or quotes are malformed.
        RunError: A file cannot be read.
    """
    if team is ALONE:
        blocks = _parse(sources, config, ALL)
    else:
        blocks = labelled_parts.gather(lambda: _parse(sources, config, share_of(team)), team)
    words: dict[bytes, int] = {}
    labels: dict[str, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    dropped = 0
    for block in blocks:
        dropped += block.dropped
        parts.append(
            (
                _assign_ids(block.words, words)[block.words_M],
                block.lengths_E,
                _assign_ids(block.labels, labels)[block.labels_N],
                block.label_counts_E,
                block.weights_E,
                block.shares_N,
            )
        )
    warn_about_long_tokens(dropped)
    if not any(len(lengths_E) for _, lengths_E, *_ in parts):
        raise UsageError(f"{', '.join(sources)}: no example in it; {remedy(config)}")
    joined = map(np.concatenate, zip(*parts, strict=True))
    examples = _join([word.decode() for word in words], list(labels), *joined)
    if not len(examples):
        raise UsageError(
            f"{', '.join(sources)}: every text has the weight 0; give some a weight above 0"
        )
    return examples


def _parse(sources: tuple[str, ...], config: ClassifyConfig, share: Share) -> Iterator[ParsedBlock]:
    """Yield the parsed blocks of a share of the files; see `read` for the errors."""
    progress = Progress.make(sources)
    blocks = _blocks(sources, config, progress, share)
    with raise_read_errors(progress):
        for words_U, labels_U, texts in blocks.as_numpy_iterator():
            label_counts_E = np.bincount(texts.label_owners_N, minlength=texts.count)
            weights_E = labelled_weights.text_weights(
                texts.weights_K, texts.weight_owners_K, texts.count
            )
            names_U, shares_U = _parse_labels(labels_U, config.labelled.label_weights)
            if weights_E is None or None in shares_U or not label_counts_E.all():
                raise explain_line(sources, config)
            yield ParsedBlock(
                words_U.tolist(),
                names_U,
                int(texts.dropped),
                texts.words_M,
                np.bincount(texts.owners_M, minlength=texts.count),
                texts.labels_N,
                label_counts_E,
                weights_E,
                np.array(shares_U, np.float32)[texts.labels_N],
            )


def _join(
    words: list[str],
    labels: list[str],
    tokens_M: np.ndarray,
    lengths_E: np.ndarray,
    labels_N: np.ndarray,
    label_counts_E: np.ndarray,
    weights_E: np.ndarray,
    shares_N: np.ndarray,
) -> Examples:
    """Return the texts as `Examples`, without repeated labels of a text and without weights of 0.

    Weights that are all 1 are left out.
    """
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


def make_word_splitter(
    config: ClassifyConfig,
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Return a function from texts (E,) to words (M,) without labels, and their text numbers (M,).

    Args:
        config: The configuration of the run.
    """
    if config.corpus.text_column:
        split = make_splitter(config.corpus)
        return lambda texts_E: _split_words(split, texts_E)[:2]
    parse_lines = _make_line_parser(config)
    return lambda texts_E: parse_lines(texts_E)[1:3]


def _blocks(
    sources: tuple[str, ...], config: ClassifyConfig, progress: Progress, share: Share
) -> tf.data.Dataset:
    """Return a dataset of (unique words, unique labels, texts with positions among these).

    It has the blocks of a share of the files. Files of columns are read whole, and only the parsing
    of their texts is shared.

    Errors end it early, without a message: iterate inside `raise_read_errors(progress)`.
    """
    settings = config.input
    if config.corpus.text_column:
        split = make_splitter(config.corpus)

        def read_columns(index: int) -> Iterator[tuple[list, ...]]:
            for rows in labelled_columns.read_columns(sources[index], config, progress, index):
                texts, *lists = zip(*rows, strict=True)
                flat: list[list] = [part for column in lists for part in _flatten(column)]
                yield list(texts), *flat

        def parse_columns(texts_E: tf.Tensor, *lists: tf.Tensor) -> _Texts:
            return _Texts(tf.size(texts_E), *_split_words(split, texts_E), *lists)

        parse_block: Callable[..., _Texts] = parse_columns
        signature = _STRINGS, _STRINGS, _NUMBERS, _STRINGS, _NUMBERS
        blocks = interleave_sources(
            len(sources), read_columns, signature, progress, settings.readers
        ).shard(share.total, share.number)
    else:
        parse_lines = _make_line_parser(config)

        def parse_text(block: tf.Tensor) -> _Texts:
            lines = tf.strings.split(block, "\n")
            return parse_lines(tf.boolean_mask(lines, tf.strings.strip(lines) != ""))

        parse_block = parse_text
        by_line = dataclasses.replace(config.corpus, documents="line")
        blocks = share_dataset(sources, by_line, settings, progress, share)

    def with_unique(*block: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, _Texts]:
        """Return a block's unique words, unique labels, and texts with positions among these."""
        texts = parse_block(*block)
        words_U, words_M = tf.unique(texts.words_M)
        labels_U, labels_N = tf.unique(texts.labels_N)
        return words_U, labels_U, texts._replace(words_M=words_M, labels_N=labels_N)

    return map_in_order(blocks, with_unique, settings, "tokenize").prefetch(settings.prefetch)


def _flatten(lists: tuple[list[str], ...]) -> tuple[list[str], list[int]]:
    """Return the items of all lists, and the position of the list of each item."""
    return list(itertools.chain(*lists)), [at for at, items in enumerate(lists) for _ in items]


def _make_line_parser(config: ClassifyConfig) -> Callable[[tf.Tensor], _Texts]:
    """Return a function from E lines to their `_Texts`.

    A piece PREFIXname is the label `name`, and WEIGHT_PREFIXnumber is a weight.
    """
    by_space = make_splitter(dataclasses.replace(config.corpus, tokenizer="whitespace"))
    prefixes = [config.labelled.weight_prefix, config.labelled.label_prefix]
    # RE2 and Python read this escape alike.
    weight, label = (f"{re.escape(prefix)}.+" if prefix else "$^" for prefix in prefixes)
    split = None if config.corpus.tokenizer == "whitespace" else make_splitter(config.corpus)

    def parse_lines(lines_E: tf.Tensor) -> _Texts:
        """Return the words of each line, and the labels and weights without prefixes."""
        pieces = by_space(lines_E)
        pieces_M, owners_M = pieces.flat_values, pieces.value_rowids()
        is_mark_M = tf.strings.regex_full_match(pieces_M, f"{weight}|{label}")
        if split is None:
            is_word = pieces.with_flat_values(~is_mark_M)
            words = _split_words(lambda pieces: tf.ragged.boolean_mask(pieces, is_word), pieces)
        else:
            word_M = tf.where(~is_mark_M)[:, 0]
            words_and_owners = tf.gather(pieces_M, word_M), tf.gather(owners_M, word_M)
            texts_E = tf.strings.unsorted_segment_join(
                *words_and_owners, tf.size(lines_E), separator=" "
            )
            words = _split_words(split, texts_E)
        mark_N = tf.where(is_mark_M)[:, 0]
        marks_N, mark_owners_N = tf.gather(pieces_M, mark_N), tf.gather(owners_M, mark_N)
        is_weight_N = tf.strings.regex_full_match(marks_N, weight)
        lists = []
        for chosen_N, prefix in zip((~is_weight_N, is_weight_N), reversed(prefixes), strict=True):
            chosen = tf.boolean_mask(marks_N, chosen_N)
            lists.append(tf.strings.regex_replace(chosen, f"^{re.escape(prefix)}", ""))
            lists.append(tf.boolean_mask(mark_owners_N, chosen_N))
        return _Texts(tf.size(lines_E), *words, *lists)

    return parse_lines


def _split_words(split: Tokenizer, texts_E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the words of texts, the text number of each, and how many were too long."""
    words, dropped = drop_long_tokens(split(texts_E))
    return words.flat_values, words.value_rowids(), dropped


def _parse_labels(labels_U: np.ndarray, has_weights: bool) -> tuple[list[str], list[float | None]]:
    """Return the names of labels, and the weight of each, None if it is wrong."""
    labels = [label.decode() for label in labels_U.tolist()]
    parsed = [
        labelled_weights.parse_label(label) if has_weights else (label, 1.0) for label in labels
    ]
    return [name for name, _ in parsed], [share for _, share in parsed]


def _assign_ids(names: list, index: dict[Any, int]) -> np.ndarray:
    """Return the id of each name, (U,) int32; a new name gets the next id."""
    ids = (index.setdefault(name, len(index)) for name in names)
    return np.fromiter(ids, np.int32, len(names))
