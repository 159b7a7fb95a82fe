"""What bounds a run, measured: the input alone, the steps alone, and both together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import tensorflow as tf

from ..errors import RunError
from ..training.job import Job
from ..training.step import train_function

_HELD = 8  # batches that the steps alone go round, so that they do not touch the same rows only
_LONGEST = 6  # times the seconds asked for, to come to an epoch that reads a cache
_SHARED = 0.8  # of the slower one, below which they cannot run side by side
_MANY = 1_000_000  # epochs: more than can be read meanwhile


class Live(NamedTuple):
    """Speeds in words a second, as the corpus counts words, or in what the job counts.

    first_epoch: of the input alone while it reads the corpus for the first time. input: of the
    input alone in later epochs, or as `first_epoch` where none was reached. step, both: of steps on
    batches at hand, and of steps that wait for their input. waiting: the share of the time of both
    that was spent waiting for input. bytes_per_word: what is sent to the device. bound: `input` or
    `step`, whichever is slower alone. ratio: the other's speed over its.
    """

    first_epoch: float
    input: float
    step: float
    both: float
    waiting: float
    bytes_per_word: float
    bound: str
    ratio: float


def measure(job: Job, seed: int, seconds: float) -> Live:
    """Measures for so many seconds each. Trains the job's tables. RunError for an empty epoch."""
    words = job.words / job.expected_batches  # of a batch
    function = train_function(job.model, job.tables, job.optimizer, seed, job.micro_batches)
    step = itertools.count(step=job.steps_per_batch)
    rate = tf.constant(job.learning_rate(0.0), tf.float32)

    def train(batch: tf.Tensor) -> float:
        """The loss, once the device has come so far; float() waits for it."""
        with tf.device(job.device):
            return float(function(batch, tf.constant(next(step), tf.int64), rate)[0])

    with closing(job.batches(range(_MANY), 0)) as batches:
        held = [batch for _, batch in itertools.islice(batches, _HELD)]
    if not held:
        raise RunError("the corpus gives no batch; name files that hold more text")
    train(held[0])  # which compiles it
    first, later = _drained(job, seconds)
    again = itertools.cycle(held)
    alone = _rate(lambda: train(next(again)), seconds)
    with closing(job.batches(range(_MANY), 0)) as batches:
        for _ in range(_HELD):
            train(next(batches)[1])
        waited = _Waited(batches)
        both = _rate(lambda: train(next(waited)), seconds)
    speeds = {"input": later * words, "step": alone * words}
    bound, other = sorted(speeds, key=lambda name: speeds[name])
    return Live(
        first_epoch=first * words,
        input=later * words,
        step=alone * words,
        both=both * words,
        waiting=waited.share(),
        bytes_per_word=sum(_bytes(tensor) for tensor in tf.nest.flatten(held[0])) / words,
        bound=bound,
        ratio=speeds[other] / speeds[bound],
    )


def _bytes(tensor: tf.Tensor) -> int:
    return tensor.dtype.size * int(tf.size(tensor))


def text(found: Live, unit: str) -> str:
    """The measurement as a person reads it. unit: what the job counts, such as `words`."""
    names = {"input": "the input", "step": "the step"}
    other = "step" if found.bound == "input" else "input"
    verdict = f"{names[found.bound]} bounds the run: "
    verdict += f"{names[other]} alone is {found.ratio:.1f} times as fast"
    if found.bound == "step" and found.first_epoch < found.step:
        verdict += "; in the first epoch the input does"
    reached = found.both / min(found.input, found.step)
    if found.bound == "step" and reached < _SHARED:
        verdict += f"; but both share the processor: together they reach {reached:.0%} of that"
    return "\n".join(
        (
            f"input alone       {found.input:>12,.0f} {unit}/s"
            f" (in the first epoch {found.first_epoch:,.0f})",
            f"step alone        {found.step:>12,.0f} {unit}/s",
            f"both              {found.both:>12,.0f} {unit}/s, "
            f"waiting for input {found.waiting:.1%}",
            f"to the device     {found.bytes_per_word:>12.2f} bytes a {unit.removesuffix('s')}",
            f"verdict           {verdict}",
        )
    )


class _Waited:
    """Batches, with the time that each takes to come."""

    def __init__(self, batches: Iterator[tuple[int, tf.Tensor]]):
        self._batches, self._waited, self._began = batches, 0.0, time.perf_counter()

    def __next__(self) -> tf.Tensor:
        began = time.perf_counter()
        _, batch = next(self._batches)
        self._waited += time.perf_counter() - began
        return batch

    def share(self) -> float:
        """Of the time since the beginning."""
        return self._waited / (time.perf_counter() - self._began)


def _drained(job: Job, seconds: float) -> tuple[float, float]:
    """Batches a second of the first epoch, and of the later ones if any is come to.

    Without the first batch, for which the pipeline is built.
    """
    counts, times = [0, 0], [0.0, 0.0]
    with closing(job.batches(range(_MANY), 0)) as batches:
        next(batches)
        started = at = time.perf_counter()
        for epoch, _ in batches:
            later = min(epoch, 1)
            counts[later] += 1
            times[later] += time.perf_counter() - at
            at = time.perf_counter()
            if times[1] >= seconds or at - started >= _LONGEST * seconds:
                break
    first, other = (count / max(spent, 1e-9) for count, spent in zip(counts, times, strict=True))
    return first or other, other or first


def _rate(call: Callable[[], object], seconds: float) -> float:
    """Calls a second."""
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        call()
        calls += 1
    return calls / (time.perf_counter() - began)
