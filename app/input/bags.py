"""Bags of words and of hashed word n-grams: what a text is to a classifier, and steps of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..config import InputConfig
from ..text.blocks import without_autograph, without_tuning_thread
from ..types import Batches
from .labelled import Examples
from .token_rows import block_seed

_LABEL = 13  # a stream of random numbers (see `input.pipeline`)
# By which fastText hashes n-grams (Dictionary::addWordNgrams, src/dictionary.cc).
_FACTOR = 116_049_371
# There is room for so many times the bags that a step has on average.
_ROOM = 1.25
# An epoch has at least about so many steps: with fewer, 5 epochs of few texts learn nothing.
_STEPS = 50
# Share of a step that is no padding, about, where texts are short beside it.
_FILLED = 0.99


class Bags(NamedTuple):
    """What a step trains on: N features of B texts.

    ids_N: int32 ids of words and n-grams. owners_N: which bag each is in, int32, not falling; B for
    the padding at the end. labels_BM: int32. weights_BM: float32, 0 for no label.
    """

    ids_N: Any
    owners_N: Any
    labels_BM: Any
    weights_BM: Any


class Features(NamedTuple):
    """Which features there are: the words, n-grams of up to so many words, and rows for those."""

    words: int
    ngrams: int
    buckets: int

    @property
    def rows(self) -> int:
        """Ids of features."""
        return self.words + (self.buckets if self.ngrams > 1 else 0)

    def sizes(self, lengths_E: np.ndarray, most: int) -> np.ndarray:
        """Features of texts of so many words, which are cut to `most` features."""
        lengths_E = np.minimum(lengths_E, self.longest(most))
        return sum(np.maximum(lengths_E - shorter, 0) for shorter in range(self.ngrams))

    def longest(self, most: int) -> int:
        """How many words a text of at most so many features has, at least 1."""
        return max(1, (most + self.ngrams * (self.ngrams - 1) // 2) // self.ngrams)

    def of(self, tokens_M: tf.Tensor, owners_M: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The features of texts, ids and owners (N,) int32, one text after the other.

        tokens_M: int32 ids of words. owners_M: the text that each is in, int32, not falling. The
        id of an n-gram is a hash of its words' ids, as fastText's is of their own hashes (Joulin et
        al. 2016, section 2.3; Dictionary::addWordNgrams).
        """
        if self.ngrams == 1:
            return tokens_M, owners_M
        count, ends = tf.size(tokens_M), [[0, self.ngrams - 1]]
        following = tf.pad(tf.cast(tokens_M, tf.int64), ends)
        owners = tf.pad(owners_M, ends, constant_values=-1)
        hash_M, ids, real = tf.cast(tokens_M, tf.int64), [tokens_M], [tf.ones_like(owners_M, bool)]
        for place in range(1, self.ngrams):
            hash_M = hash_M * _FACTOR + following[place : place + count]
            ids.append(self.words + tf.cast(hash_M % self.buckets, tf.int32))
            real.append(owners[place : place + count] == owners_M)
        real_MK = tf.stack(real, axis=1)
        owners_MK = tf.repeat(owners_M[:, tf.newaxis], self.ngrams, axis=1)
        ids_MK = tf.stack(ids, axis=1)
        return tf.boolean_mask(ids_MK, real_MK), tf.boolean_mask(owners_MK, real_MK)


class Packing(NamedTuple):
    """The static shapes of a call: S steps of B bags with M labels, and N features.

    micro: such batches that make one step of the call; S is a multiple of it.
    """

    steps: int
    features: int
    bags: int
    labels: int
    micro: int = 1

    def spec(self) -> Bags:
        """A batch."""
        features, labels = [self.features], [self.bags, self.labels]
        return Bags(
            tf.TensorSpec(features, tf.int32),
            tf.TensorSpec(features, tf.int32),
            tf.TensorSpec(labels, tf.int32),
            tf.TensorSpec(labels, tf.float32),
        )


def make_packing(
    examples: Examples, features: Features, settings: InputConfig, all_labels: bool
) -> Packing:
    """The shapes of the calls that go through the examples.

    all_labels: whether a text comes with all of its labels, or with one, drawn anew each time.
    """
    micro = max(1, settings.micro_batches)
    sizes_E = features.sizes(examples.lengths_E, settings.micro_tokens)
    least = int(sizes_E.sum()) // (_STEPS * micro)
    size = min(settings.micro_tokens, max(least, int(sizes_E.max())))
    bags = int(_ROOM * size / sizes_E.mean()) + 1
    labels = int(examples.label_counts_E.max()) if all_labels else 1
    steps = settings.steps_per_call * micro
    return Packing(steps, size, min(len(examples), bags), labels, micro)


def estimate_batches(examples: Examples, features: Features, shape: Packing) -> int:
    """About how many calls an epoch has."""
    total = features.sizes(examples.lengths_E, shape.features).sum()
    return -(-int(total / _FILLED) // (shape.features * shape.steps))


def plan_epoch(sizes_E: np.ndarray, shape: Packing, seed: int, epoch: int) -> np.ndarray:
    """Which examples are in which steps of an epoch, (calls, S, B) int32; -1 for none.

    sizes_E: features of each example, at most N. Every example comes once, in an order drawn for
    the epoch; a step takes the next ones that it has room for.
    """
    order_E = np.random.default_rng((seed, epoch)).permutation(len(sizes_E))
    ends_E = np.cumsum(sizes_E[order_E])
    bounds = [0]
    while (start := bounds[-1]) < len(order_E):
        before = ends_E[start - 1] if start else 0
        fitting = int(np.searchsorted(ends_E, before + shape.features, side="right"))
        bounds.append(min(fitting, start + shape.bags))
    counts_K = np.diff(bounds)
    planned_KB = np.full((-(-len(counts_K) // shape.steps) * shape.steps, shape.bags), -1, np.int32)
    planned_KB[: len(counts_K)][np.arange(shape.bags) < counts_K[:, np.newaxis]] = order_E
    return planned_KB.reshape(-1, shape.steps, shape.bags)


def make_batches(
    examples: Examples,
    features: Features,
    shape: Packing,
    weights_C: np.ndarray,
    settings: InputConfig,
    seed: int,
) -> Batches:
    """The batches of a run: `Bags` of S / micro steps, each of `micro` batches one after the other.

    weights_C: of each label, above 0.

    A text of more than N features is cut. The examples all have a word.
    """
    sizes_E = features.sizes(examples.lengths_E, shape.features)
    made = _maker(examples, features, shape, weights_C, seed)

    @without_autograph
    def dataset(epochs: range, first: int) -> tf.data.Dataset:
        def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            planned = tf.numpy_function(
                lambda epoch: plan_epoch(sizes_E, shape, seed, int(epoch)), [epoch], tf.int32
            )
            calls = tf.data.Dataset.from_tensor_slices(
                tf.ensure_shape(planned, [None, shape.steps, shape.bags])
            )
            left_out = tf.where(epoch == epochs.start, tf.constant(first, tf.int64), 0)
            found = calls.enumerate().skip(left_out)
            return found.map(lambda number, examples_SB: (epoch, number, examples_SB))

        numbers = tf.data.Dataset.range(epochs.start, epochs.stop, name="epochs")
        found = numbers.flat_map(of_epoch, name="epochs").map(
            lambda epoch, number, examples_SB: (epoch, made(epoch, number, examples_SB)),
            num_parallel_calls=settings.map_parallelism,
            deterministic=True,
            name="bags",
        )
        return without_tuning_thread(found.prefetch(settings.prefetch, name="ahead"))

    def epoch_batches(
        epochs: range, first: int, mine: range | None = None
    ) -> Iterator[tuple[int, Bags]]:
        for epoch, bags in dataset(epochs, first):
            yield int(epoch), Bags(*(_by_micro_batch(part, shape) for part in bags))

    return epoch_batches


def _by_micro_batch(part: tf.Tensor, shape: Packing) -> tf.Tensor:
    """(S, N, ...) as (S / micro, micro N, ...)."""
    _, size, *rest = part.shape
    return tf.reshape(part, (shape.steps // shape.micro, shape.micro * size, *rest))


def _maker(
    examples: Examples, features: Features, shape: Packing, weights_C: np.ndarray, seed: int
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Bags]:
    """From an epoch, the number of a call in it, and its examples (S, B) to its steps."""
    with tf.device("CPU"):
        tokens_M, starts_E = tf.constant(examples.tokens_M), tf.constant(examples.starts_E)
        longest = features.longest(shape.features)
        lengths_E = tf.constant(np.minimum(examples.lengths_E, longest))
        labels_N = tf.constant(examples.labels_N)
        label_starts_E = tf.constant(examples.label_starts_E)
        weights_C = tf.constant(weights_C, tf.float32)
    steps, size, bags = shape.steps, shape.features, shape.bags

    def by_step(values_F: tf.Tensor, counts_S: tf.Tensor, padding: int = 0) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_lengths(values_F, counts_S, validate=False)
        return ragged.to_tensor(padding, shape=(steps, size))

    def labels(examples_K: tf.Tensor, places_K: tf.Tensor, seed: tf.Tensor):
        starts_K1 = tf.gather(label_starts_E, examples_K)[:, tf.newaxis]
        counts_K1 = tf.gather(label_starts_E, examples_K + 1)[:, tf.newaxis] - starts_K1
        if shape.labels == 1:
            drawn_K1 = tf.random.stateless_uniform(tf.shape(counts_K1), seed, dtype=tf.float64)
            chosen_KM = tf.cast(drawn_K1 * tf.cast(counts_K1, tf.float64), tf.int64)
        else:
            chosen_KM = tf.range(shape.labels, dtype=tf.int64)[tf.newaxis] + 0 * starts_K1
        real_KM = chosen_KM < counts_K1
        labels_KM = tf.gather(labels_N, tf.where(real_KM, starts_K1 + chosen_KM, 0))
        weights_KM = tf.where(real_KM, tf.gather(weights_C, labels_KM), 0.0)
        labels_KM = tf.where(real_KM, labels_KM, 0)
        return tuple(
            tf.reshape(
                tf.scatter_nd(places_K[:, tf.newaxis], values_KM, (steps * bags, shape.labels)),
                (steps, bags, shape.labels),
            )
            for values_KM in (labels_KM, weights_KM)
        )

    def made(epoch: tf.Tensor, number: tf.Tensor, examples_SB: tf.Tensor) -> Bags:
        flat = tf.reshape(examples_SB, [-1])
        places_K = tf.cast(tf.where(flat >= 0)[:, 0], tf.int32)
        examples_K = tf.gather(flat, places_K)
        starts_K, lengths_K = tf.gather(starts_E, examples_K), tf.gather(lengths_E, examples_K)
        where_M = tf.ragged.range(starts_K, starts_K + lengths_K).flat_values
        ids_F, owners_F = features.of(tf.gather(tokens_M, where_M), tf.repeat(places_K, lengths_K))
        ones_F = tf.ones_like(owners_F)
        counts_P = tf.math.unsorted_segment_sum(ones_F, owners_F, steps * bags)
        counts_S = tf.reduce_sum(tf.reshape(counts_P, (steps, bags)), axis=1)
        return Bags(
            by_step(ids_F, counts_S),
            by_step(owners_F % bags, counts_S, bags),
            *labels(examples_K, places_K, block_seed(seed, _LABEL, epoch, number)),
        )

    return made
