"""Phrases, pairs of tokens such as `new york`: their tables, phrases.tsv, and their joining."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..settings import CorpusConfig
from ..system.checked_files import damaged, read_bytes
from ..system.files import replacing
from .tokenize import Tokenizer, make_splitter, make_tokenizer
from .vocabulary import JOINT

_COLUMNS = "# pass\tfirst\tsecond\tcount\tscore\n"


class PhraseTable(NamedTuple):
    """The P pairs of tokens that one pass over the text joins, by descending score.

    A token may be a phrase of an earlier pass.

    Attributes:
        pairs: The P pairs of tokens.
        counts: How often the tokens of each pair follow each other, (P,) int64.
        scores: The score of each pair, (P,) float64.
    """

    pairs: list[tuple[str, str]]
    counts: np.ndarray
    scores: np.ndarray


# The tables of several passes. Each is applied to the result of the one before it.
Phrases = tuple[PhraseTable, ...]
Joiner = Callable[[tf.RaggedTensor], tf.RaggedTensor]


def save(phrases: Phrases, path: Path) -> None:
    """Write a line `pass<TAB>first<TAB>second<TAB>count<TAB>score` for each phrase.

    Raises:
        RunError: The file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(_encode(phrases))


def compute_digest(phrases: Phrases) -> str:
    """Return the SHA-256 of the file that `save` writes."""
    return hashlib.sha256(_encode(phrases)).hexdigest()


def load(path: Path, digest: str) -> Phrases:
    """Read a file that `save` wrote.

    Args:
        digest: The value of `compute_digest` for the phrases of the run.

    Raises:
        DamagedError: The file is missing, or it is another one.
        RunError: The file cannot be read.
    """
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise damaged(path, "it is not the table of phrases that this run was made with")
    rows = [line.split("\t") for line in content.decode().split("\n")[1:-1]]
    tables = []
    for _, group in itertools.groupby(rows, key=lambda row: row[0]):
        _, first, second, counts, scores = zip(*group, strict=True)
        pairs = list(zip(first, second, strict=True))
        tables.append(PhraseTable(pairs, np.array(counts, np.int64), np.array(scores, float)))
    return tuple(tables)


def _encode(phrases: Phrases) -> bytes:
    """Return the content of the file of phrases."""
    lines = [_COLUMNS]
    for number, (pairs, counts, scores) in enumerate(phrases, 1):
        for (first, second), count, score in zip(
            pairs, counts.tolist(), scores.tolist(), strict=True
        ):
            lines.append(f"{number}\t{first}\t{second}\t{count}\t{score!r}\n")
    return "".join(lines).encode()


def make_phrase_splitter(corpus: CorpusConfig, phrases: Phrases) -> Tokenizer:
    """Return the splitter of the text, followed by the joining of phrases.

    Without phrases it is `make_splitter(corpus)`. Otherwise tokens that are too long are dropped
    before phrases are joined, as when phrases are counted.

    Returns:
        Function from valid UTF-8 strings (N,) to their tokens (N, None).
    """
    if not phrases:
        return make_splitter(corpus)
    tokenize, join = make_tokenizer(corpus), make_joiner(phrases)
    return lambda texts: join(tokenize(texts))


def make_joiner(phrases: Phrases) -> Joiner:
    """Return a function that joins phrases in tokens (N, None), the tokens of N documents.

    Each pass goes from left to right, and a joined token is not joined again in the same pass, as
    in word2phrase and gensim. No phrase crosses the end of a document.

    Args:
        phrases: The phrases of each pass; without any, the tokens are returned as they are.
    """
    passes = [_make_pass(table) for table in phrases if table.pairs]

    def join(words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of the documents after all passes."""
        for join_pairs in passes:
            words = join_pairs(words)
        return words

    return join


def _make_pass(table: PhraseTable) -> Joiner:
    """Return the function that joins the pairs of one table."""
    parts = sorted({part for pair in table.pairs for part in pair})
    number_of = {part: number for number, part in enumerate(parts)}
    # A pair is one number.
    keys = [number_of[first] * len(parts) + number_of[second] for first, second in table.pairs]
    joined_P = tf.constant([JOINT.join(pair) for pair in table.pairs])
    part_numbers, pair_rows = (
        tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(names, tf.range(len(names), dtype=tf.int64)), -1
        )
        for names in (tf.constant(parts), tf.constant(keys, tf.int64))
    )

    def join_pairs(words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of the documents with the pairs joined."""
        words_M, documents_M = words.flat_values, words.value_rowids()
        numbers_M = part_numbers.lookup(words_M)
        first, second = numbers_M[:-1], numbers_M[1:]
        is_near = documents_M[:-1] == documents_M[1:]
        at_C = tf.where((first >= 0) & (second >= 0) & is_near)[:, 0]  # candidates
        key_C = tf.gather(first, at_C) * len(parts) + tf.gather(second, at_C)
        row_C = pair_rows.lookup(key_C)
        is_pair_C = row_C >= 0
        at_Q, row_Q = tf.boolean_mask(at_C, is_pair_C), tf.boolean_mask(row_C, is_pair_C)
        taken_Q = _without_overlaps(at_Q)
        at_Q, row_Q = tf.boolean_mask(at_Q, taken_Q), tf.boolean_mask(row_Q, taken_Q)
        words_M = tf.tensor_scatter_nd_update(
            words_M, at_Q[:, tf.newaxis], tf.gather(joined_P, row_Q)
        )
        stays_M = tf.tensor_scatter_nd_update(
            tf.ones_like(words_M, tf.bool), at_Q[:, tf.newaxis] + 1, tf.zeros_like(at_Q, tf.bool)
        )
        before = tf.cumsum(tf.cast(stays_M, tf.int64))  # tokens that stay, up to each one
        splits = tf.gather(tf.concat([[0], before], axis=0), words.row_splits)
        kept = tf.boolean_mask(words_M, stays_M)
        return tf.RaggedTensor.from_row_splits(kept, splits, validate=False)

    return join_pairs


def _without_overlaps(at_Q: tf.Tensor) -> tf.Tensor:
    """Return which pairs to join, (Q,) bool: the first, third and so on of overlapping ones.

    Args:
        at_Q: The position of the first token of each pair, rising, int64.
    """
    begins_Q = tf.concat([tf.ones_like(at_Q[:1], tf.bool), at_Q[1:] != at_Q[:-1] + 1], axis=0)
    run_Q = tf.cumsum(tf.cast(begins_Q, tf.int32)) - 1
    return (at_Q - tf.gather(tf.boolean_mask(at_Q, begins_Q), run_Q)) % 2 == 0
