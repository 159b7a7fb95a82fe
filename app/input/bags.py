"""Make batches of bags of words and hashed word n-grams, the input of a text classifier."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..settings import InputConfig
from ..system.python_functions import from_generator
from ..types import Batches
from .blocks import take_ahead, without_autograph, without_tuning_thread
from .features import EncodedTexts, Examples, Features, intervals

_LABEL = 13  # a stream of random numbers (see `input.token_rows`)
# A step has space for this many times the average number of bags.
_BAGS_SLACK = 1.25
# An epoch has about this many steps or more: with fewer, 5 epochs of few texts learn less. Steps of
# at most 4,096 and 8,192 features are the defaults of older workdirs, which are resumed with the
# steps that they had.
_MIN_STEPS, _MIN_STEPS_OF = 13, {4096: 50, 8192: 25}
# A step above this size is shortened so that the last call is full. Earlier versions did not do
# that: if one of their runs is resumed within an epoch, some texts of that epoch come twice and
# some not at all.
_SMALL = 4096
_SMALL_FILLED = 0.99  # the assumed share of such a step that is not padding
# Where ids have only the space that they need, that is a multiple of this share of the features,
# and above the unique ids of a call by this factor: each size is a program for XLA.
_SIZES, _ROOM = 16, 1.125
# Calls to prepare ahead for --prefetch=-1. The depth that tf.data finds by itself leaves the steps
# waiting, as calls are made one after the other.
_AHEAD = 4


class Bags(NamedTuple):
    """The batch of a step: the features of B texts, at most N.

    The unique ids of a step are in one or two partitions, for as many cores (see `UniqueIds`). The
    mean of the rows of a text's features is a sum of products with sparse matrices (B, U), one for
    each partition of U ids. A matrix has an entry for each feature of each text: how often the text
    has the feature, as a share of all its features. Entries are in order, by text and then by id;
    the partitions follow one another, then padding.

    Attributes:
        ids_N: The unique ids of words and n-grams, int32, partition after partition, each
            ascending; then zeros.
        counts_P2: The number of unique ids of each partition, U, int32, at least 1; and its number
            of entries.
        entries_N2: The text of each entry, and the index of its id in its partition, int32.
        shares_N: The share of each entry in the mean of its text, float32.
        labels_BM: Labels of each text, int32; 0 for padding.
        weights_BM: Weight of each label, float32; 0 for padding.
        text_weights_B: Weight of each text, float32; only for texts with weights and losses that
            score all labels of a text (`Packing.has_shares`).
        shares_BM: How much of the text's weight each label has, float32; as the one before.
    """

    ids_N: Any
    counts_P2: Any
    entries_N2: Any
    shares_N: Any
    labels_BM: Any
    weights_BM: Any
    text_weights_B: Any = ()
    shares_BM: Any = ()


class Packing(NamedTuple):
    """Static shapes of the batch of one call: S steps of B bags with M labels each, and N features.

    If a training step has several micro-batches, each of them counts as a step here.

    Attributes:
        steps: S, a multiple of `micro`.
        features: N, of all B bags together.
        bags: B.
        labels: M.
        micro: Number of micro-batches of a training step.
        has_shares: Whether the bags have `text_weights_B` and `shares_BM`.
        partitions: P, the number of partitions of unique ids, 1 or 2.
    """

    steps: int
    features: int
    bags: int
    labels: int
    micro: int = 1
    has_shares: bool = False
    partitions: int = 1

    def spec(self, of_call: bool = False) -> Bags:
        """Return the shapes and dtypes of one micro-batch, without a dimension of steps.

        Args:
            of_call: Whether to return those of a call, (S / micro, micro N, ...).
        """
        steps, micro = ([self.steps // self.micro], self.micro) if of_call else ([], 1)
        features, labels = [micro * self.features], [micro * self.bags, self.labels]
        parts = [
            (features, tf.int32),
            ([micro * self.partitions, 2], tf.int32),
            ([*features, 2], tf.int32),
            (features, tf.float32),
            (labels, tf.int32),
            (labels, tf.float32),
        ]
        if self.has_shares:
            parts += [(labels[:1], tf.float32), (labels, tf.float32)]
        return Bags(*(tf.TensorSpec([*steps, *shape], dtype) for shape, dtype in parts))


def make_packing(
    examples: Examples, features: Features, settings: InputConfig, all_labels: bool
) -> Packing:
    """Return the shapes of the batches of some examples.

    N is `settings.micro_tokens`, or less if an epoch would have fewer than about 13 training steps
    (25 if `settings.batch_tokens` is at most 8,192, 50 if at most 4,096), or if the last call of an
    epoch would have many empty steps; but the longest text always fits, if it has at most
    `micro_tokens` features. B is 1.25 times the mean number of texts in N features, plus 1, but at
    most all texts.

    Args:
        examples: The training texts, at least one.
        all_labels: Whether the loss scores all labels of a text at once. If not, and if no label
            has a weight of its own, one label of a text is drawn each time.
    """
    micro = max(1, settings.micro_batches)
    sizes_E = features.sizes(examples.lengths_E, settings.micro_tokens)
    limits = (steps for most, steps in _MIN_STEPS_OF.items() if settings.batch_tokens <= most)
    smallest = int(sizes_E.sum()) // (next(limits, _MIN_STEPS) * micro)
    size = min(settings.micro_tokens, max(smallest, int(sizes_E.max())))
    if settings.batch_tokens > _SMALL:
        size = max(_fill_calls(sizes_E, size, settings.steps_per_call * micro), int(sizes_E.max()))
    bags = int(_BAGS_SLACK * size / sizes_E.mean()) + 1
    takes_all = all_labels or examples.shares_N is not None
    labels = int(examples.label_counts_E.max()) if takes_all else 1
    steps = settings.steps_per_call * micro
    has_shares = all_labels and (examples.weights_E is not None or examples.shares_N is not None)
    # Two partitions of rows keep two cores busy; a small step would have too many short operations.
    partitions = 2 if size > _SMALL and features.rows > 1 else 1
    return Packing(steps, size, min(len(examples), bags), labels, micro, has_shares, partitions)


def _fill_calls(sizes_E: np.ndarray, size: int, steps: int) -> int:
    """Return the number of features of a step with which the last call of an epoch is about full.

    It is `size` or less, and the calls are about as many as with `size`.

    Args:
        sizes_E: Number of features of each text.
        size: The most features of a step.
    """
    total, gap = sizes_E.sum(), _mean_gap(sizes_E)
    calls = -(-total // (steps * (size - gap)))
    return min(size, int(total / (calls * steps) + 1.5 * gap) + 1)


def _mean_gap(sizes_E: np.ndarray) -> float:
    """Return the expected number of features that a step has left where no further text fits."""
    return float((sizes_E * (sizes_E - 1.0)).sum() / (2 * sizes_E.sum()))  # long texts end more


def estimate_batches(
    examples: Examples, features: Features, settings: InputConfig, shape: Packing
) -> int:
    """Return the approximate number of calls of an epoch, rounded up.

    The learning rate of a resumed run depends on it. So the estimate for older workdirs, with
    smaller steps, has not changed.

    Args:
        examples: The training texts; long ones count as cut to N features.
    """
    sizes_E = features.sizes(examples.lengths_E, shape.features)
    if settings.batch_tokens <= _SMALL:
        return -(-int(sizes_E.sum() / _SMALL_FILLED) // (shape.features * shape.steps))
    return int(-(-sizes_E.sum() // (shape.steps * (shape.features - _mean_gap(sizes_E)))))


def plan_epoch(sizes_E: np.ndarray, shape: Packing, seed: int, epoch: int) -> np.ndarray:
    """Return the examples of each step of an epoch, (calls, S, B) int32; -1 for no example.

    Every example comes once, in a random order that depends on seed and epoch. A step takes the
    next examples until one more would exceed N features or B examples. The last call is filled up
    with steps without examples.

    Args:
        sizes_E: Number of features of each example, at most N.
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
    texts: EncodedTexts,
    shape: Packing,
    weights_C: np.ndarray,
    settings: InputConfig,
    seed: int,
    is_tight: bool = False,
) -> Batches:
    """Return the batches of a run: `Bags` of S / micro steps, each with `micro` micro-batches.

    The result is a function of epochs and of the number of batches to skip in the first of them. A
    process always gets all micro-batches.

    Args:
        examples: The training texts; each has a word.
        texts: Their features, at most N of each.
        weights_C: Weight of each label, above 0.
        is_tight: Whether `ids_N` has about the space that the unique ids need, for steps that read
            and update rows for the padding, too: XLA's. It has N else.
    """
    ahead, specs = settings.prefetch, shape.spec(of_call=True)
    if is_tight:
        specs = specs._replace(ids_N=tf.TensorSpec([specs.ids_N.shape[0], None], tf.int32))
    how = examples, texts, shape, np.asarray(weights_C, np.float32), seed, is_tight

    @without_autograph
    def make_dataset(epochs: range, first: int) -> tf.data.Dataset:
        """Return a dataset of (epoch, `Bags`) for each call."""
        # In one thread: Python's threads would wait for one another.
        signature = tf.TensorSpec([], tf.int64), specs
        dataset = from_generator(lambda: _Packer(*how).calls(epochs, first), signature, name="bags")
        return dataset.prefetch(_AHEAD if ahead < 0 else ahead, name="ahead")

    def epoch_batches(epochs: range, first: int) -> Iterator[tuple[int, Bags]]:
        """Yield the batches of epochs, without the `first` of the first one.

        The next one is taken in a thread: to take it from the dataset lasts as long as two steps.
        """
        calls = iter(without_tuning_thread(make_dataset(epochs, first)))
        for epoch, data in take_ahead(functools.partial(next, calls, None), "bags"):
            yield int(epoch), data

    return epoch_batches


@dataclasses.dataclass
class _Packer:
    """Makes the calls of a run in numpy: TensorFlow has no fast sort.

    The fields are the arguments of `make_batches`.
    """

    examples: Examples
    texts: EncodedTexts
    shape: Packing
    weights_C: np.ndarray
    seed: int
    is_tight: bool

    def __post_init__(self) -> None:
        """Make memory for a number for each feature id, which each step overwrites."""
        self._index_V = np.empty(self.texts.rows, np.int32)

    def calls(self, epochs: range, first: int) -> Iterator[tuple[np.int64, Bags]]:
        """Yield (epoch, `Bags`) for each call of epochs, but the `first` of the first one."""
        sizes_E, shape = self.texts.sizes_E, self.shape
        size = shape.features
        if self.is_tight:  # a resumed run begins with the size and the program of the first call
            size = _size_of_ids(self._pack(0, 0, plan_epoch(sizes_E, shape, self.seed, 0)), shape)
        for epoch in epochs:
            planned_KSB = plan_epoch(sizes_E, shape, self.seed, epoch)
            for number in range(first if epoch == epochs.start else 0, len(planned_KSB)):
                call = self._pack(epoch, number, planned_KSB)
                if _count_ids(call, shape) > size:
                    size = _size_of_ids(call, shape)
                ids_SN = call.ids_N.reshape(-1, shape.features)[:, :size]
                yield np.int64(epoch), call._replace(ids_N=ids_SN.reshape(len(call.ids_N), -1))

    def _pack(self, epoch: int, number: int, planned_KSB: np.ndarray) -> Bags:
        """Return a call of an epoch.

        Args:
            planned_KSB: The texts of each step of each call, -1 for none.
        """
        is_text_SB = planned_KSB[number] >= 0
        examples_K = planned_KSB[number][is_text_SB]
        draw = np.random.default_rng((self.seed, _LABEL, epoch, number))
        features = self._pack_features(is_text_SB, examples_K)
        call = Bags(*features, *self._pack_labels(is_text_SB, examples_K, draw))
        specs = self.shape.spec(of_call=True)
        return tf.nest.map_structure(lambda part, spec: part.reshape(spec.shape), call, specs)

    def _pack_features(
        self, is_text_SB: np.ndarray, examples_K: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return the first four parts of `Bags` of S steps, (S, ...), of texts at given places."""
        texts, index_V, partitions = self.texts, self._index_V, self.shape.partitions
        steps, features = len(is_text_SB), self.shape.features
        ids_SN = np.zeros((steps, features), np.int32)
        counts_SP2 = np.zeros((steps, partitions, 2), np.int32)
        entries_SN2 = np.empty((steps, features, 2), np.int32)
        shares_SN = np.empty((steps, features), np.float32)
        ends_S = np.cumsum(is_text_SB.sum(axis=1)).tolist()
        # The arrays of one step fit the processor's caches.
        for step, (first, stop) in enumerate(itertools.pairwise([0, *ends_S])):
            starts_K = texts.starts_E[examples_K[first:stop]]
            sizes_K = texts.starts_E[examples_K[first:stop] + 1] - starts_K
            owners_N, index_N = intervals(starts_K, sizes_K)
            ids_N, count = texts.ids_F[index_N], len(index_N)
            # One entry represents all of its id. `np.unique` would sort all: twice the time.
            index_V[ids_N] = entry_N = np.arange(count, dtype=np.int32)
            unique_U = np.sort(ids_N[index_V[ids_N] == entry_N])
            # No partition is empty; rows without an entry do not change.
            if len(unique_U) < partitions:
                unique_U = np.union1d(unique_U, np.arange(partitions, dtype=np.int32))
            index_V[unique_U] = np.arange(len(unique_U), dtype=np.int32)
            # Neighbours go to different partitions: low ids are the most frequent ones.
            ids_P = [unique_U[partition::partitions] for partition in range(partitions)]
            rows_N = index_V[ids_N]
            # There are 1 or 2 partitions.
            rows_N, partition_N = rows_N >> partitions - 1, rows_N & partitions - 1
            entries_P = [np.flatnonzero(partition_N == number) for number in range(partitions)]
            counts_SP2[step] = [*zip(map(len, ids_P), map(len, entries_P), strict=True)]
            ids_SN[step, : len(unique_U)] = np.concatenate(ids_P)
            order_N, texts_K = np.concatenate(entries_P), np.flatnonzero(is_text_SB[step])
            entries_SN2[step, :count, 0] = texts_K[owners_N[order_N]]
            entries_SN2[step, :count, 1] = rows_N[order_N]
            shares_SN[step, :count] = texts.shares_F[index_N[order_N]]
            entries_SN2[step, count:] = 0
            shares_SN[step, count:] = 0
        return ids_SN, counts_SP2, entries_SN2, shares_SN

    def _pack_labels(
        self, is_text_SB: np.ndarray, examples_K: np.ndarray, draw: np.random.Generator
    ) -> list[np.ndarray]:
        """Return the parts of `Bags` from `labels_BM` on, (S, B, ...), of texts at given places.

        If M is 1, one label of each text is drawn at random; else all are taken.
        """
        examples, shape = self.examples, self.shape
        starts_K1 = examples.label_starts_E[examples_K, np.newaxis]
        counts_K1 = examples.label_starts_E[examples_K + 1, np.newaxis] - starts_K1
        if shape.labels == 1:
            chosen_KM = (draw.random(counts_K1.shape) * counts_K1).astype(np.int64)
        else:
            chosen_KM = np.arange(shape.labels)[np.newaxis]
        is_label_KM = chosen_KM < counts_K1
        index_KM = np.where(is_label_KM, starts_K1 + chosen_KM, 0)
        labels_KM = np.where(is_label_KM, examples.labels_N[index_KM], 0)
        shares_KM = is_label_KM.astype(np.float32)
        if examples.shares_N is not None:
            shares_KM *= examples.shares_N[index_KM]
        text_weights_K = np.ones(len(examples_K), np.float32)
        if examples.weights_E is not None:
            text_weights_K = examples.weights_E[examples_K]
            shares_KM *= text_weights_K[:, np.newaxis]
        parts = [labels_KM.astype(np.int32), self.weights_C[labels_KM] * shares_KM]
        if shape.has_shares:
            parts += [text_weights_K, shares_KM]
        return [_scatter(part, is_text_SB) for part in parts]


def _count_ids(call: Bags, shape: Packing) -> int:
    """Return the most unique ids of a micro-batch of a call."""
    return call.counts_P2[..., 0].reshape(-1, shape.partitions).sum(axis=1).max()


def _size_of_ids(call: Bags, shape: Packing) -> int:
    """Return the size of `ids_N` of a micro-batch with room for those of a call, at most N."""
    share = -(-shape.features // _SIZES)
    return min(shape.features, -(-int(_ROOM * _count_ids(call, shape)) // share) * share)


def _scatter(part_K: np.ndarray, is_text_SB: np.ndarray) -> np.ndarray:
    """Return an array (S, B, ...) with the parts of the texts at their places, and 0 elsewhere."""
    part_SB = np.zeros((*is_text_SB.shape, *part_K.shape[1:]), part_K.dtype)
    part_SB[is_text_SB] = part_K
    return part_SB
