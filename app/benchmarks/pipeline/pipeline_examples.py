"""The examples of `pipeline`'s classifier, and the ways from their text to batches of ids.

An example is 20 words of a vocabulary of 1,000, which is the case's own; how often a word comes
goes by Zipf's law. Its label says whether its words weigh more than those of the median example,
each word having a weight that nobody is told: so a classifier on the mean of the words' vectors can
learn it. The words are of ASCII letters, so that every preprocessing gives the same ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...config import CorpusConfig
from ...text.blocks import without_tuning_thread
from ...text.tokenize import Tokenizer, make_tokenizer
from ...text.vocabulary import Vocabulary, lookup_table

WORDS = 20
VOCABULARY = 1000
NAIVE_BATCH, BATCH = 32, 128

# Texts that are tokenised together.
_BLOCK = 1024
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Preprocessing = Callable[[tf.Tensor], tf.Tensor]


class Examples(NamedTuple):
    """N examples. texts: strings. labels_N: int32, 0 or 1. ids_NT: int32, the 20 words of each."""

    texts: list[str]
    labels_N: np.ndarray
    ids_NT: np.ndarray
    vocabulary: Vocabulary


def make(count: int, seed: int) -> Examples:
    """So many examples."""
    random = np.random.default_rng(seed)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        letters = random.choice(list(_LETTERS), random.integers(2, 11))
        words["".join(letters)] = None
    share_V = 1 / np.arange(1, VOCABULARY + 1)
    ids_NT = random.choice(VOCABULARY, (count, WORDS), p=share_V / share_V.sum()).astype(np.int32)
    weighs_N = random.normal(size=VOCABULARY)[ids_NT].sum(axis=1)
    tokens = list(words)
    texts = [" ".join(tokens[word] for word in ids_T) for ids_T in ids_NT]
    vocabulary = Vocabulary(tokens, np.bincount(ids_NT.ravel(), minlength=VOCABULARY), ids_NT.size)
    return Examples(texts, (weighs_N > np.median(weighs_N)).astype(np.int32), ids_NT, vocabulary)


def light(examples: Examples) -> Preprocessing:
    """Texts (M,) to ids (M, 20) int32: split at white space, look up."""
    return _preprocessing(examples, tf.strings.split)


def heavy(examples: Examples) -> Preprocessing:
    """Texts (M,) to ids (M, 20) int32: what `--tokenizer=unicode` does to text, and look up.

    That is NFKC, folding of case, a regular expression for white space, UnicodeScriptTokenizer, and
    a regular expression for punctuation at the ends of each token.
    """
    return _preprocessing(examples, make_tokenizer(CorpusConfig(tokenizer="unicode")))


def _preprocessing(examples: Examples, tokenize: Tokenizer) -> Preprocessing:
    table = lookup_table(examples.vocabulary)

    def ids(texts_M: tf.Tensor) -> tf.Tensor:
        return tf.reshape(table.lookup(tokenize(texts_M).flat_values), (-1, WORDS))

    return ids


def naive(examples: Examples) -> tf.data.Dataset:
    """Batches of 32, (ids, labels): an example at a time, nothing ahead of the step."""
    return _one_by_one(examples, light(examples)).batch(NAIVE_BATCH)


def prefetched(examples: Examples) -> tf.data.Dataset:
    """`naive`, with batches of 128 that are made ahead of the step."""
    return _one_by_one(examples, light(examples)).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def parallel(examples: Examples) -> tf.data.Dataset:
    """`prefetched`, with the heavy preprocessing of several examples at a time."""
    ids = _one_by_one(examples, heavy(examples), tf.data.AUTOTUNE)
    return ids.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _one_by_one(
    examples: Examples, preprocessing: Preprocessing, parallel_calls: int | None = None
) -> tf.data.Dataset:
    # Shuffled before the preprocessing, so that an epoch's first step does not wait for that of
    # every example.
    texts = tf.data.Dataset.from_tensor_slices((examples.texts, examples.labels_N))
    return texts.shuffle(len(examples.texts)).map(
        lambda text, label: (preprocessing(text[tf.newaxis])[0], label),
        num_parallel_calls=parallel_calls,
    )


def ours(examples: Examples, epochs: int, steps: int, seed: int) -> tf.data.Dataset:
    """What so many steps train on, (S, 128, 1 + 20) int32, for all epochs: labels, then ids.

    The heavy preprocessing of 1,024 texts at a time, in a parallel map; from the second epoch on
    the ids that were kept from the first. One epoch follows the other in the same pipeline, each in
    an order of its own. The last batches of an epoch are filled up: a label of -1 is none.
    """
    ids = heavy(examples)
    count = len(examples.texts)
    missing = -count % (steps * BATCH)

    def rows(texts_M: tf.Tensor, labels_M: tf.Tensor) -> tf.Tensor:
        return tf.concat([labels_M[:, tf.newaxis], ids(texts_M)], axis=1)

    texts = tf.data.Dataset.from_tensor_slices((examples.texts, examples.labels_N)).batch(_BLOCK)
    kept = texts.map(rows, num_parallel_calls=tf.data.AUTOTUNE).cache()

    def shuffled(rows_NL: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        padding = [[-1] + [0] * WORDS] * missing
        rows_NL = tf.ensure_shape(rows_NL, (count, 1 + WORDS))
        rows_NL = tf.random.experimental.stateless_shuffle(rows_NL, (seed, epoch))
        filled = tf.concat([rows_NL, tf.reshape(padding, (missing, 1 + WORDS))], axis=0)
        return tf.reshape(filled, (-1, steps, BATCH, 1 + WORDS))

    def calls(epoch: tf.Tensor) -> tf.data.Dataset:
        return kept.rebatch(count).map(lambda rows_NL: shuffled(rows_NL, epoch)).unbatch()

    found = tf.data.Dataset.range(epochs).flat_map(calls).prefetch(tf.data.AUTOTUNE)
    return without_tuning_thread(found)
