"""Join the phrases of a text, pairs of tokens that are seldom together by chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..settings import CorpusConfig
from ..text.phrase_table import JOINT, Phrases, PhraseTable
from ..text.tokenize import Tokenizer, make_splitter, make_tokenizer

Joiner = Callable[[tf.RaggedTensor], tf.RaggedTensor]


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
    # A pair is one number, so that a binary search finds it.
    keys = [number_of[first] * len(parts) + number_of[second] for first, second in table.pairs]
    order = np.argsort(keys)
    keys_P = tf.constant(np.array(keys, np.int64)[order])
    joined_P = tf.constant([JOINT.join(table.pairs[row]) for row in order])
    numbers = tf.lookup.KeyValueTensorInitializer(
        tf.constant(parts), tf.range(len(parts), dtype=tf.int64)
    )
    part_numbers = tf.lookup.StaticHashTable(numbers, default_value=-1)

    def join_pairs(words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the tokens (N, None) of the documents with the pairs joined."""
        words_M, documents_M = words.flat_values, words.value_rowids()
        numbers_M = part_numbers.lookup(words_M)
        first, second = numbers_M[:-1], numbers_M[1:]
        is_near = documents_M[:-1] == documents_M[1:]
        at_C = tf.where((first >= 0) & (second >= 0) & is_near)[:, 0]  # candidates
        key_C = tf.gather(first, at_C) * len(parts) + tf.gather(second, at_C)
        row_C = tf.searchsorted(keys_P, key_C, out_type=tf.int64)
        row_C = tf.minimum(row_C, len(table.pairs) - 1)
        is_pair_C = tf.gather(keys_P, row_C) == key_C
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
    goes_on = at_Q[1:] == at_Q[:-1] + 1
    begins_Q = tf.concat([tf.ones_like(at_Q[:1], tf.bool), ~goes_on], axis=0)
    run_Q = tf.cumsum(tf.cast(begins_Q, tf.int32)) - 1
    starts = tf.boolean_mask(at_Q, begins_Q)
    return (at_Q - tf.gather(starts, run_Q)) % 2 == 0
