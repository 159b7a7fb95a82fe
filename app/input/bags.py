"""Make batches of bags of words and hashed word n-grams, the input of a text classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..config import InputConfig
from ..text.blocks import map_in_order, without_autograph, without_tuning_thread
from ..types import Batches
from .features import Features
from .labelled import Examples
from .token_rows import block_seed

_LABEL = 13  # a stream of random numbers (see `input.token_rows`)
# A step has space for this many times the average number of bags.
_BAGS_SLACK = 1.25
# An epoch has about this many steps or more: with fewer, 5 epochs of few texts learn nothing.
_MIN_STEPS = 50
# Approximate share of a step that is not padding, if texts are short.
_FILLED = 0.99


class Bags(NamedTuple):
    """The batch of a step: N features of B texts.

    Attributes:
        ids_N: Ids of words and n-grams, int32.
        owners_N: Text number of each feature, int32, not descending; B for the padding at the end.
        labels_BM: Labels of each text, int32; 0 for padding.
        weights_BM: Weight of each label, float32; 0 for padding.
    """

    ids_N: Any
    owners_N: Any
    labels_BM: Any
    weights_BM: Any


class Packing(NamedTuple):
    """Static shapes of the batch of one call: S steps of B bags with M labels each, and N features.

    If a training step has several micro-batches, each of them counts as a step here.

    Attributes:
        steps: S, a multiple of `micro`.
        features: N, of all B bags together.
        bags: B.
        labels: M.
        micro: Number of micro-batches of a training step.
    """

    steps: int
    features: int
    bags: int
    labels: int
    micro: int = 1

    def spec(self) -> Bags:
        """Return the shapes and dtypes of one micro-batch, without a dimension of steps."""
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
    """Return the shapes of the batches of some examples.

    N is `settings.micro_tokens`, or less if an epoch would have fewer than about 50 training steps;
    but the longest text always fits, if it has at most `micro_tokens` features. B is 1.25 times the
    mean number of texts in N features, plus 1, but at most all texts.

    Args:
        examples: The training texts, at least one.
        features: Which features a text has.
        settings: Batch size and steps per call.
        all_labels: Whether a text comes with all its labels, or with one that is drawn each time.
    """
    micro = max(1, settings.micro_batches)
    sizes_E = features.sizes(examples.lengths_E, settings.micro_tokens)
    smallest = int(sizes_E.sum()) // (_MIN_STEPS * micro)
    size = min(settings.micro_tokens, max(smallest, int(sizes_E.max())))
    bags = int(_BAGS_SLACK * size / sizes_E.mean()) + 1
    labels = int(examples.label_counts_E.max()) if all_labels else 1
    steps = settings.steps_per_call * micro
    return Packing(steps, size, min(len(examples), bags), labels, micro)


def estimate_batches(examples: Examples, features: Features, shape: Packing) -> int:
    """Return the approximate number of calls of an epoch, rounded up.

    Args:
        examples: The training texts; long ones count as cut to N features.
        features: Which features a text has.
        shape: Shapes of a call.
    """
    total = features.sizes(examples.lengths_E, shape.features).sum()
    return -(-int(total / _FILLED) // (shape.features * shape.steps))


def plan_epoch(sizes_E: np.ndarray, shape: Packing, seed: int, epoch: int) -> np.ndarray:
    """Return the examples of each step of an epoch, (calls, S, B) int32; -1 for no example.

    Every example comes once, in a random order that depends on seed and epoch. A step takes the
    next examples until one more would exceed N features or B examples. The last call is filled up
    with steps without examples.

    Args:
        sizes_E: Number of features of each example, at most N.
        shape: Shapes of a call.
        seed: Seed of the run.
        epoch: Number of the epoch.
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
    """Return the batches of a run: `Bags` of S / micro steps, each with `micro` micro-batches.

    The result is a function of epochs and of the number of batches to skip in the first of them. A
    process always gets all micro-batches. Texts of more than N features are cut.

    Args:
        examples: The training texts; each has a word.
        features: Which features a text has.
        shape: Shapes of a call.
        weights_C: Weight of each label, above 0.
        settings: Parallelism.
        seed: Seed of the run.
    """
    sizes_E = features.sizes(examples.lengths_E, shape.features)
    make_bags = _make_packer(examples, features, shape, weights_C, seed)

    @without_autograph
    def dataset(epochs: range, first: int) -> tf.data.Dataset:
        """Return a dataset of (epoch, `Bags` with a first dimension S), for each call."""

        def epoch_calls(epoch: tf.Tensor) -> tf.data.Dataset:
            """Return a dataset of (epoch, number of the call, its examples (S, B))."""
            planned = tf.numpy_function(
                lambda epoch: plan_epoch(sizes_E, shape, seed, int(epoch)), [epoch], tf.int32
            )
            calls = tf.data.Dataset.from_tensor_slices(
                tf.ensure_shape(planned, [None, shape.steps, shape.bags])
            )
            skipped = tf.where(epoch == epochs.start, tf.constant(first, tf.int64), 0)
            numbered = calls.enumerate().skip(skipped)
            return numbered.map(lambda number, examples_SB: (epoch, number, examples_SB))

        numbers = tf.data.Dataset.range(epochs.start, epochs.stop, name="epochs")
        calls = numbers.flat_map(epoch_calls, name="epochs")
        bags = map_in_order(
            calls, lambda epoch, *call: (epoch, make_bags(epoch, *call)), settings, "bags"
        )
        return without_tuning_thread(bags.prefetch(settings.prefetch, name="ahead"))

    def epoch_batches(epochs: range, first: int) -> Iterator[tuple[int, Bags]]:
        """Yield the batches of epochs, without the `first` of the first one."""
        for epoch, bags in dataset(epochs, first):
            yield int(epoch), Bags(*(_by_micro_batch(part, shape) for part in bags))

    return epoch_batches


def _by_micro_batch(tensor: tf.Tensor, shape: Packing) -> tf.Tensor:
    """Return a tensor (S, N, ...) in the shape (S / micro, micro N, ...)."""
    _, size, *rest = tensor.shape
    return tf.reshape(tensor, (shape.steps // shape.micro, shape.micro * size, *rest))


def _make_packer(
    examples: Examples, features: Features, shape: Packing, weights_C: np.ndarray, seed: int
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Bags]:
    """Return a function (epoch, number of a call, its examples (S, B)) -> `Bags` of S steps.

    If M is 1, one label of each text is drawn at random for the epoch; else all are taken.
    """
    with tf.device("CPU"):
        tokens_M, starts_E = tf.constant(examples.tokens_M), tf.constant(examples.starts_E)
        longest = features.longest(shape.features)
        lengths_E = tf.constant(np.minimum(examples.lengths_E, longest))
        labels_N = tf.constant(examples.labels_N)
        label_starts_E = tf.constant(examples.label_starts_E)
        weights_C = tf.constant(weights_C, tf.float32)
    steps, size, bags = shape.steps, shape.features, shape.bags

    def by_step(values_F: tf.Tensor, counts_S: tf.Tensor, padding: int = 0) -> tf.Tensor:
        """Return the values of each step, (S, N), padded at the end."""
        ragged = tf.RaggedTensor.from_row_lengths(values_F, counts_S, validate=False)
        return ragged.to_tensor(padding, shape=(steps, size))

    def labels(examples_K: tf.Tensor, positions_K: tf.Tensor, seed: tf.Tensor):
        """Return label ids and weights, (S, B, M) each, of examples at positions of S x B."""
        starts_K1 = tf.gather(label_starts_E, examples_K)[:, tf.newaxis]
        counts_K1 = tf.gather(label_starts_E, examples_K + 1)[:, tf.newaxis] - starts_K1
        if shape.labels == 1:
            drawn_K1 = tf.random.stateless_uniform(tf.shape(counts_K1), seed, dtype=tf.float64)
            chosen_KM = tf.cast(drawn_K1 * tf.cast(counts_K1, tf.float64), tf.int64)
        else:
            chosen_KM = tf.range(shape.labels, dtype=tf.int64)[tf.newaxis] + 0 * starts_K1
        is_label_KM = chosen_KM < counts_K1
        labels_KM = tf.gather(labels_N, tf.where(is_label_KM, starts_K1 + chosen_KM, 0))
        weights_KM = tf.where(is_label_KM, tf.gather(weights_C, labels_KM), 0.0)
        labels_KM = tf.where(is_label_KM, labels_KM, 0)
        return tuple(
            tf.reshape(
                tf.scatter_nd(positions_K[:, tf.newaxis], values_KM, (steps * bags, shape.labels)),
                (steps, bags, shape.labels),
            )
            for values_KM in (labels_KM, weights_KM)
        )

    def pack(epoch: tf.Tensor, number: tf.Tensor, examples_SB: tf.Tensor) -> Bags:
        """Return the `Bags` of a call, (S, N) and (S, B, M), padded to N features a step."""
        flat = tf.reshape(examples_SB, [-1])
        positions_K = tf.cast(tf.where(flat >= 0)[:, 0], tf.int32)
        examples_K = tf.gather(flat, positions_K)
        starts_K, lengths_K = tf.gather(starts_E, examples_K), tf.gather(lengths_E, examples_K)
        index_M = tf.ragged.range(starts_K, starts_K + lengths_K).flat_values
        ids_F, owners_F = features.extract(
            tf.gather(tokens_M, index_M), tf.repeat(positions_K, lengths_K)
        )
        ones_F = tf.ones_like(owners_F)
        counts_P = tf.math.unsorted_segment_sum(ones_F, owners_F, steps * bags)
        counts_S = tf.reduce_sum(tf.reshape(counts_P, (steps, bags)), axis=1)
        return Bags(
            by_step(ids_F, counts_S),
            by_step(owners_F % bags, counts_S, bags),
            *labels(examples_K, positions_K, block_seed(seed, _LABEL, epoch, number)),
        )

    return pack
