"""Make batches of bags of words and hashed word n-grams, the input of a text classifier."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ..settings import InputConfig
from ..system.python_functions import numpy_function
from ..text.blocks import without_autograph, without_tuning_thread
from ..types import Batches
from .bag_packing import Bags, Packing, given, pack_call
from .encoded_texts import EncodedTexts
from .features import Features
from .labelled import Examples

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
# Calls to prepare ahead for --prefetch=-1. The depth that tf.data finds by itself leaves the steps
# waiting, as calls are made one after the other.
_AHEAD = 4


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
        features: Which features a text has.
        settings: Batch size and steps per call.
        all_labels: Whether the loss scores all labels of a text at once. If not, and if no label
            has a weight of its own, one label of a text is drawn each time.
    """
    micro = max(1, settings.micro_batches)
    sizes_E = features.sizes(examples.lengths_E, settings.micro_tokens)
    limits = (steps for most, steps in _MIN_STEPS_OF.items() if settings.batch_tokens <= most)
    fewest = next(limits, _MIN_STEPS)
    smallest = int(sizes_E.sum()) // (fewest * micro)
    size = min(settings.micro_tokens, max(smallest, int(sizes_E.max())))
    if settings.batch_tokens > _SMALL:
        size = max(_fill_calls(sizes_E, size, settings.steps_per_call * micro), int(sizes_E.max()))
    bags = int(_BAGS_SLACK * size / sizes_E.mean()) + 1
    takes_all = all_labels or examples.shares_N is not None
    labels = int(examples.label_counts_E.max()) if takes_all else 1
    steps = settings.steps_per_call * micro
    is_weighted = examples.weights_E is not None or examples.shares_N is not None
    has_shares = all_labels and is_weighted
    # Two groups of rows keep two cores busy; a small step would have too many short operations.
    groups = 2 if size > _SMALL and features.rows > 1 else 1
    return Packing(steps, size, min(len(examples), bags), labels, micro, has_shares, groups)


def _fill_calls(sizes_E: np.ndarray, size: int, steps: int) -> int:
    """Return the number of features of a step with which the last call of an epoch is about full.

    It is `size` or less, and the calls are about as many as with `size`.

    Args:
        sizes_E: Number of features of each text.
        size: The most features of a step.
        steps: The steps of a call.
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
        features: Which features a text has.
        settings: Batch size.
        shape: Shapes of a call.
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
    texts: EncodedTexts,
    shape: Packing,
    weights_C: np.ndarray,
    settings: InputConfig,
    seed: int,
) -> Batches:
    """Return the batches of a run: `Bags` of S / micro steps, each with `micro` micro-batches.

    The result is a function of epochs and of the number of batches to skip in the first of them. A
    process always gets all micro-batches.

    Args:
        examples: The training texts; each has a word.
        texts: Their features, at most N of each.
        shape: Shapes of a call.
        weights_C: Weight of each label, above 0.
        settings: Parallelism.
        seed: Seed of the run.
    """
    pack = functools.partial(pack_call, examples, texts, shape, np.asarray(weights_C, np.float32))
    ahead = _AHEAD if settings.prefetch < 0 else settings.prefetch

    def epoch_batches(epochs: range, first: int) -> Iterator[tuple[int, Bags]]:
        """Yield the batches of epochs, without the `first` of the first one.

        The next one is taken in a thread: to take it from the dataset lasts as long as two steps.
        """
        plan = _Plan(texts.sizes_E, shape, seed, epochs, first)
        dataset = _make_dataset(plan, pack, shape, texts.rows, seed)
        calls = iter(without_tuning_thread(dataset.prefetch(ahead, name="ahead")))
        with concurrent.futures.ThreadPoolExecutor(1, "bags") as thread:
            waiting = thread.submit(next, calls, None)
            while (call := waiting.result()) is not None:
                waiting = thread.submit(next, calls, None)
                epoch, *parts = call
                yield int(epoch), Bags(*parts)

    return epoch_batches


@without_autograph
def _make_dataset(
    plan: _Plan, pack: Callable[..., Bags], shape: Packing, rows: int, seed: int
) -> tf.data.Dataset:
    """Return a dataset of (epoch, `Bags` with a first dimension S), for each call of a plan.

    `pack` is `pack_call` with its first arguments; `rows` is the number of feature ids.
    """
    specs = given(shape.call_spec())
    index_V = np.empty(rows, np.int32)  # not shared: two datasets may run at once

    def make(index: np.ndarray) -> list[np.ndarray]:
        """Return the epoch and the arrays of a call, in numpy: TensorFlow has no fast sort."""
        epoch, number, examples_SB = plan.call(int(index))
        draw = np.random.default_rng((seed, _LABEL, max(epoch, 0), number))
        return [np.int64(epoch), *given(pack(examples_SB, draw, index_V))]

    def make_call(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the epoch and the tensors of a call; the epoch -1 after the last call."""
        dtypes = [tf.int64, *(spec.dtype for spec in specs)]
        epoch, *parts = numpy_function(make, [index], dtypes)
        shaped = (tf.ensure_shape(p, s.shape) for p, s in zip(parts, specs, strict=True))
        return tf.ensure_shape(epoch, []), *shaped

    indices = tf.data.Dataset.counter(name="epochs")
    # Not in parallel: Python's threads would wait for one another.
    calls = indices.map(make_call, name="bags")
    return calls.take_while(lambda epoch, *bags: epoch >= 0)


class _Plan:
    """The calls of several epochs by index, planned epoch by epoch as they are needed.

    Args:
        sizes_E: Number of features of each example (see `plan_epoch`).
        shape: Shapes of a call.
        seed: Seed of the run.
        epochs: The epochs.
        first: Number of calls of the first epoch to skip.
    """

    def __init__(self, sizes_E: np.ndarray, shape: Packing, seed: int, epochs: range, first: int):
        self._plan = functools.partial(plan_epoch, sizes_E, shape, seed)
        self._empty = np.full((shape.steps, shape.bags), -1, np.int32)
        self._left, self._lock = iter(epochs), threading.Lock()
        # Epoch, index of its first call, and calls of the epochs that may still be asked for.
        self._planned: list[tuple[int, int, np.ndarray]] = []
        self._end, self._skipped = 0, first

    def call(self, index: int) -> tuple[int, int, np.ndarray]:
        """Return the epoch of a call, its number in the epoch, and its examples (S, B).

        Calls are asked for about in order: each epoch is forgotten two epochs later. After the last
        epoch the result is -1, 0 and no examples.

        Args:
            index: The number of calls before this one, without those that were skipped.
        """
        with self._lock:
            while index >= self._end:
                epoch = next(self._left, None)
                if epoch is None:
                    return -1, 0, self._empty
                calls, start = self._plan(epoch), self._end - self._skipped
                self._planned = [*self._planned[-1:], (epoch, start, calls)]
                self._end, self._skipped = start + len(calls), 0
            planned = next(one for one in reversed(self._planned) if index >= one[1])
        epoch, start, calls = planned
        return epoch, index - start, calls[index - start]
