"""Measure the speed of the input alone, of the steps alone, and of both together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import tensorflow as tf

from ..errors import RunError
from ..training.job import Job
from ..training.step import train_function

_BATCHES = 8  # batches that the steps alone use in turn, so that their rows differ
_LONGEST = 6  # times the given seconds, the longest time to reach an epoch that reads a cache
_SHARED = 0.8  # of the slower speed; below this, input and steps share the processor
_MANY_EPOCHS = 1_000_000  # more than can be read during a measurement


class Live(NamedTuple):
    """Speeds in words a second, or in the job's unit.

    Attributes:
        first_epoch: The input alone, while it reads the corpus for the first time.
        input: The input alone in later epochs; equal to `first_epoch` if none was reached.
        step: The steps alone, on batches in memory.
        both: The steps with their input.
        waiting: The share of the time of `both` in which steps wait for input.
        bytes_per_word: The bytes that are sent to the device for a word.
        bound: `input` or `step`, the slower one alone.
        ratio: The speed of the faster one over the speed of the slower one.
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
    """Measure the speed of a job's input alone, its steps alone, and both; this trains its tables.

    The steps use the learning rate of the start of the training.

    Args:
        seconds: The time of each of three measurements. The input alone may take six times as long,
            to reach the second epoch.

    Raises:
        RunError: The corpus gives no batch.
    """
    words = job.data.epoch_size / job.data.expected_batches  # of a batch
    function = train_function(
        *(job.model, job.placed.tables, job.optimizer, seed, job.placed.micro_batches),
        by_xla="GPU" in job.placed.device,
    )
    step = itertools.count(step=job.data.steps_per_batch)
    rate = tf.constant(job.learning_rate(0.0), tf.float32)

    def train(batch: tf.Tensor) -> float:
        """Train on a batch, and return its loss once the device has computed it."""
        with tf.device(job.placed.device):
            return float(function(batch, tf.constant(next(step), tf.int64), rate)[0])

    with closing(job.data.batches(range(_MANY_EPOCHS), 0)) as batches:
        kept = [batch for _, batch in itertools.islice(batches, _BATCHES)]
    if not kept:
        raise RunError("the corpus gives no batch; name files that hold more text")
    train(kept[0])  # compiles the function
    first, later = _measure_input(job, seconds)
    cycle = itertools.cycle(kept)
    alone, _ = _measure_rate(lambda: train(next(cycle)), seconds)
    with closing(job.data.batches(range(_MANY_EPOCHS), 0)) as batches:
        for _ in range(_BATCHES):
            train(next(batches)[1])
        waited = 0.0

        def train_next() -> None:
            """Train on the next batch, and add the time of the wait for it to `waited`."""
            nonlocal waited
            asked = time.perf_counter()
            _, batch = next(batches)
            waited += time.perf_counter() - asked
            train(batch)

        both, spent = _measure_rate(train_next, seconds)
    speeds = {"input": later * words, "step": alone * words}
    bound, faster = sorted(speeds, key=lambda name: speeds[name])
    sent = sum(part.dtype.size * int(tf.size(part)) for part in tf.nest.flatten(kept[0]))
    return Live(
        first_epoch=first * words,
        input=later * words,
        step=alone * words,
        both=both * words,
        waiting=waited / spent,
        bytes_per_word=sent / words,
        bound=bound,
        ratio=speeds[faster] / speeds[bound],
    )


def text(rates: Live, unit: str) -> str:
    """Return the speeds and a verdict, the slower one of input and step, as five lines of text."""
    names = {"input": "the input", "step": "the step"}
    faster = "step" if rates.bound == "input" else "input"
    verdict = f"{names[rates.bound]} bounds the run: "
    verdict += f"{names[faster]} alone is {rates.ratio:.1f} times as fast"
    if rates.bound == "step" and rates.first_epoch < rates.step:
        verdict += "; in the first epoch the input bounds it"
    reached = rates.both / min(rates.input, rates.step)
    if rates.bound == "step" and reached < _SHARED:
        verdict += f"; both share the processor: together they reach {reached:.0%} of that speed"
    return "\n".join(
        (
            f"input alone       {rates.input:>12,.0f} {unit}/s"
            f" (in the first epoch {rates.first_epoch:,.0f})",
            f"step alone        {rates.step:>12,.0f} {unit}/s",
            f"both              {rates.both:>12,.0f} {unit}/s, "
            f"waiting for input {rates.waiting:.1%}",
            f"to the device     {rates.bytes_per_word:>12.2f} bytes a {unit.removesuffix('s')}",
            f"verdict           {verdict}",
        )
    )


def _measure_input(job: Job, seconds: float) -> tuple[float, float]:
    """Return the batches a second of the input alone, in the first epoch and in later epochs.

    Both rates are equal if only one of them was measured. Later epochs are measured for the given
    seconds, but everything ends after six times as long. The first batch does not count, as the
    pipeline is built for it.
    """
    counts, times = [0, 0], [0.0, 0.0]
    with closing(job.data.batches(range(_MANY_EPOCHS), 0)) as batches:
        next(batches)
        start = last = time.perf_counter()
        for epoch, _ in batches:
            later = min(epoch, 1)
            counts[later] += 1
            times[later] += time.perf_counter() - last
            last = time.perf_counter()
            if times[1] >= seconds or last - start >= _LONGEST * seconds:
                break
    first, other = (count / max(spent, 1e-9) for count, spent in zip(counts, times, strict=True))
    return first or other, other or first


def _measure_rate(call: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Call a function for some seconds; return the calls a second, and the seconds it took."""
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        call()
        calls += 1
    spent = time.perf_counter() - began
    return calls / spent, spent
