"""Make the examples of the classifier of `pipeline`, and their input pipelines.

An example is 20 words of a vocabulary of 1,000, drawn by Zipf's law. Each word has a hidden weight,
and the label says whether the words of the example weigh more than those of the median example. A
classifier on the mean of the words' vectors can learn it. The words have ASCII letters only, so
that every preprocessing returns the same ids.
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

# Texts that are tokenized together.
_BLOCK = 1024
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Preprocessing = Callable[[tf.Tensor], tf.Tensor]


class Examples(NamedTuple):
    """N examples.

    Attributes:
        texts: The texts.
        labels_N: The labels, int32, 0 or 1.
        ids_NT: The 20 words of each, int32.
        vocabulary: The vocabulary.
    """

    texts: list[str]
    labels_N: np.ndarray
    ids_NT: np.ndarray
    vocabulary: Vocabulary


def make(count: int, seed: int) -> Examples:
    """Return random examples, which depend on the seed only.

    Args:
        count: The number of examples.
        seed: The seed of all random values.
    """
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
    """Return a function that splits texts (M,) at white space, and returns ids (M, 20) int32.

    Args:
        examples: The examples.
    """
    return _preprocessing(examples, tf.strings.split)


def heavy(examples: Examples) -> Preprocessing:
    """Return a function that tokenizes texts (M,) by `--tokenizer=unicode`, to ids (M, 20) int32.

    That is NFKC, case folding, and regular expressions of classes of Unicode characters.

    Args:
        examples: The examples.
    """
    return _preprocessing(examples, make_tokenizer(CorpusConfig(tokenizer="unicode")))


def _preprocessing(examples: Examples, tokenize: Tokenizer) -> Preprocessing:
    """Return a function from texts (M,) of 20 tokens each to ids (M, 20) int32."""
    table = lookup_table(examples.vocabulary)

    def ids(texts_M: tf.Tensor) -> tf.Tensor:
        """Return the ids of the tokens of the texts, (M, 20) int32."""
        return tf.reshape(table.lookup(tokenize(texts_M).flat_values), (-1, WORDS))

    return ids


def naive(examples: Examples) -> tf.data.Dataset:
    """Return batches of 32, (ids, labels): examples split one at a time, without a prefetch.

    The batches are of one epoch in random order, a new one in each pass; the last is smaller.

    Args:
        examples: The examples.
    """
    return _one_by_one(examples, light(examples)).batch(NAIVE_BATCH)


def prefetched(examples: Examples) -> tf.data.Dataset:
    """Return the pipeline of `naive` with batches of 128 and a prefetch.

    Args:
        examples: The examples.
    """
    return _one_by_one(examples, light(examples)).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def parallel(examples: Examples) -> tf.data.Dataset:
    """Return the pipeline of `prefetched` with `heavy`, for several examples in parallel.

    Args:
        examples: The examples.
    """
    ids = _one_by_one(examples, heavy(examples), tf.data.AUTOTUNE)
    return ids.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _one_by_one(
    examples: Examples, preprocessing: Preprocessing, parallel_calls: int | None = None
) -> tf.data.Dataset:
    """Return single examples (ids (20,), label) of one epoch, in random order without a seed.

    Each pass has a new order. `parallel_calls` examples are made at a time; None is one.
    """
    # Shuffled before the preprocessing, so that the first step does not wait for all examples.
    texts = tf.data.Dataset.from_tensor_slices((examples.texts, examples.labels_N))
    return texts.shuffle(len(examples.texts)).map(
        lambda text, label: (preprocessing(text[tf.newaxis])[0], label),
        num_parallel_calls=parallel_calls,
    )


def ours(examples: Examples, epochs: int, steps: int, seed: int) -> tf.data.Dataset:
    """Return the batches of all epochs for calls of S steps, (S, 128, 1 + 20) int32: label, ids.

    The heavy preprocessing runs on 1,024 texts at a time in a parallel map; its ids are cached in
    the first epoch. All epochs are in one pipeline, each in another order. The last batches of an
    epoch are padded with labels of -1.

    Args:
        examples: The examples.
        epochs: The number of epochs.
        steps: The steps S of a call.
        seed: The seed of the orders.
    """
    ids = heavy(examples)
    count = len(examples.texts)
    missing = -count % (steps * BATCH)

    def rows(texts_M: tf.Tensor, labels_M: tf.Tensor) -> tf.Tensor:
        """Return the label and the ids of each text, (M, 1 + 20) int32."""
        return tf.concat([labels_M[:, tf.newaxis], ids(texts_M)], axis=1)

    texts = tf.data.Dataset.from_tensor_slices((examples.texts, examples.labels_N)).batch(_BLOCK)
    cached = texts.map(rows, num_parallel_calls=tf.data.AUTOTUNE).cache()

    def shuffled(rows_NL: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Return all rows in the order of an epoch, padded at the end: (calls, S, 128, 1 + 20)."""
        padding = [[-1] + [0] * WORDS] * missing
        rows_NL = tf.ensure_shape(rows_NL, (count, 1 + WORDS))
        rows_NL = tf.random.experimental.stateless_shuffle(rows_NL, (seed, epoch))
        filled = tf.concat([rows_NL, tf.reshape(padding, (missing, 1 + WORDS))], axis=0)
        return tf.reshape(filled, (-1, steps, BATCH, 1 + WORDS))

    def calls(epoch: tf.Tensor) -> tf.data.Dataset:
        """Return the batches of an epoch, an element for each call."""
        return cached.rebatch(count).map(lambda rows_NL: shuffled(rows_NL, epoch)).unbatch()

    batches = tf.data.Dataset.range(epochs).flat_map(calls).prefetch(tf.data.AUTOTUNE)
    return without_tuning_thread(batches)
