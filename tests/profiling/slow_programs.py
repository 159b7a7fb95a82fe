"""Slow programs of Keras, and each as the advice of `lexrow profile` changes it.

    python -m tests.profiling.slow_programs [NAME ...]

records a profile of each program, follows each change that it proposes, and prints the gain that
was promised beside the gain of the second epoch, the median of three turns.
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from app import keras as lexrow
from app.profiling import profiles
from app.profiling.profile_report import Diagnosis, diagnose

WAIT = 2e-3  # seconds that a program waits for each example
BATCH = 32
TURNS = 3

# The changes by the begin of what `lexrow profile` proposes.
CHANGES = {
    "cache()": "cache",
    "batch()": "batch",
    "map(num_parallel_calls=16": "unbounded",
    "num_parallel_calls": "parallel",
    "shuffle()": "shuffle",
    "prefetch": "prefetch",
    "steps_per_execution": "steps",
    "a batch of 4 times": "examples",
    "lexrow.keras.RowEmbedding": "rows",
}


class Program(NamedTuple):
    """A model, its data, and the steps that are recorded of its first epoch."""

    model: keras.Model
    data: tf.data.Dataset
    window: tuple[int, int] = (22, 42)
    optimizer: Any = "adam"


def dense() -> keras.Model:
    """Return a small model."""
    layers = [keras.layers.Dense(width, "relu") for width in (64, 64)]
    return keras.Sequential([keras.Input((32,)), *layers, keras.layers.Dense(1)])


def arrays(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return examples and targets."""
    random = np.random.default_rng(0)
    return random.random((count, 32), np.float32), random.random((count, 1), np.float32)


def examples(count: int) -> tf.data.Dataset:
    """Return a dataset of examples and targets in memory."""
    return tf.data.Dataset.from_tensor_slices(arrays(count))


def python(function: Callable) -> Callable:
    """Return a map function that calls a Python function of examples and targets."""

    def call(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        one, two = tf.numpy_function(function, [x, y], [tf.float32, tf.float32])
        return tf.ensure_shape(one, x.shape), tf.ensure_shape(two, y.shape)

    return call


def wait(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wait, as for a file or a network, for an example or for a batch."""
    time.sleep(WAIT)
    return x, y


def standardize(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute in Python on an example, or on a batch of them."""
    for _ in range(20):
        x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3)
    return x.astype(np.float32), y


def heavy(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute with operations of TensorFlow on an example, or on a batch of them."""
    images = tf.reshape(tf.repeat(x, 512, axis=-1), [-1, 128, 128])
    for _ in range(4):
        images = tf.linalg.matmul(images, images) / 128.0
    means = tf.reduce_mean(images, [1, 2], keepdims=True) * 1e-6
    return tf.reshape(tf.reshape(x, [-1, 1, 32]) + means, tf.shape(x)), y


def noisy(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Add noise; tf.data does not run a function that draws in parallel by itself."""
    x, y = heavy(x, y)
    return x + tf.random.uniform([32]) * 1e-6, y


def batched(data: tf.data.Dataset, change: str) -> tf.data.Dataset:
    """Return batches, and a prefetch if it is the change."""
    data = data.batch(BATCH * 4 if change == "examples" else BATCH)
    return data.prefetch(tf.data.AUTOTUNE) if change == "prefetch" else data


def mapped(
    data: tf.data.Dataset, function: Callable, change: str, shuffle: int = 0
) -> tf.data.Dataset:
    """Return the batches of a map, and of a shuffle behind it."""
    if change == "batch":
        data = data.shuffle(shuffle) if shuffle else data
        return data.batch(BATCH, drop_remainder=True).map(function)
    if change == "shuffle":
        return batched(data.shuffle(shuffle).map(function), change)
    calls: dict[str, dict[str, Any]] = {
        "parallel": {"num_parallel_calls": tf.data.AUTOTUNE},
        "unbounded": {"num_parallel_calls": 16, "use_unbounded_threadpool": True},
    }
    data = data.map(function, **calls.get(change, {}))
    data = data.cache() if change == "cache" else data
    return batched(data.shuffle(shuffle) if shuffle else data, change)


def small_batches(change: str) -> Program:
    """Train a small model on small batches of arrays."""
    data = batched(examples(16_000), change)
    return Program(dense(), data.cache() if change == "cache" else data, (100, 160))


def generator(change: str, prefetch: bool) -> Program:
    """Read examples from a Python generator that waits for each."""
    x, y = arrays(800)

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for example in zip(x, y, strict=True):
            yield wait(*example)

    if change == "unbounded":
        data = mapped(examples(800), python(wait), change)
    else:
        shape = (tf.TensorSpec((32,)), tf.TensorSpec((1,)))
        data = tf.data.Dataset.from_generator(generate, output_signature=shape)
        data = batched(data.cache() if change == "cache" else data, change)
    return Program(dense(), data.prefetch(tf.data.AUTOTUNE) if prefetch else data, (5, 20))


def python_map(change: str) -> Program:
    """Map a Python function that computes over examples."""
    data = mapped(examples(1600), python(standardize), change)
    return Program(dense(), data.prefetch(tf.data.AUTOTUNE))


def waiting_map(change: str) -> Program:
    """Shuffle behind a Python function that waits for each example; record the first steps."""
    return Program(dense(), mapped(examples(800), python(wait), change, 800), (1, 20))


def serial_map(change: str) -> Program:
    """Map operations of TensorFlow, one call at a time."""
    return Program(dense(), mapped(examples(1600), noisy, change))


def shuffle_after_map(change: str) -> Program:
    """Shuffle behind a map of TensorFlow's operations; record the first steps."""
    return Program(dense(), mapped(examples(1600), heavy, change, 1600), (1, 30))


def bare(change: str) -> Program:
    """Wait for each batch as long as a step takes, without the prefetch that tf.data adds."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    calls = {"num_parallel_calls": 16, "use_unbounded_threadpool": True}
    data = batched(examples(6_400), change if change == "examples" else "")
    data = data.map(python(wait), **calls if change == "unbounded" else {})
    data = data.cache() if change == "cache" else data
    data = data.prefetch(tf.data.AUTOTUNE) if change == "prefetch" else data
    return Program(dense(), data.with_options(options), (50, 110))


def embeddings(change: str, rows: int, columns: int) -> Program:
    """Train an embedding table with Adam, which updates it as a whole."""
    random = np.random.default_rng(0)
    ids, y = random.integers(rows, size=(1_600, 10)), random.random((1_600, 1), np.float32)
    data = batched(tf.data.Dataset.from_tensor_slices((ids, y)), change)
    is_row = change == "rows"
    table = (lexrow.RowEmbedding if is_row else keras.layers.Embedding)(rows, columns)
    pool = keras.layers.GlobalAveragePooling1D()
    model = keras.Sequential(
        [keras.Input((10,), dtype="int32"), table, pool, keras.layers.Dense(1)]
    )
    return Program(model, data, (10, 40), lexrow.LazyAdam() if is_row else "adam")


PROGRAMS: dict[str, Callable[[str], Program]] = {
    "small_batches": small_batches,
    "generator": functools.partial(generator, prefetch=False),
    "generator_prefetch": functools.partial(generator, prefetch=True),
    "python_map": python_map,
    "waiting_map": waiting_map,
    "serial_map": serial_map,
    "shuffle_after_map": shuffle_after_map,
    "bare": bare,
    "small_table": functools.partial(embeddings, rows=3_200, columns=32),
    "dense_adam": functools.partial(embeddings, rows=100_000, columns=64),
}


def build(name: str, change: str = "") -> Program:
    """Return a program, compiled, as a change makes it."""
    program = PROGRAMS[name](change)
    steps = 16 if change == "steps" else 1
    program.model.compile(program.optimizer, "mse", steps_per_execution=steps)
    return program


def record(name: str, folder: Path) -> Path:
    """Record a profile of a program below a folder; return its own folder."""
    program = build(name)
    board = keras.callbacks.TensorBoard(str(folder), profile_batch=program.window)
    program.model.fit(program.data, shuffle=False, verbose=0, callbacks=[board])
    return profiles.find_newest(folder)


def seconds(program: Program) -> float:
    """Return the seconds of the second epoch of a program."""
    times: list[float] = []
    now = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: times.append(time.perf_counter()),
        on_epoch_end=lambda *_: times.append(time.perf_counter()),
    )
    program.model.fit(program.data, shuffle=False, verbose=0, epochs=2, callbacks=[now])
    return times[3] - times[2]


def follow(name: str, diagnosis: Diagnosis) -> list[tuple[str, float, float]]:
    """Return for each proposed change what it is, the promised gain, and the measured one."""
    changes = {
        change.what: (changed, change.speedup or 1.0)
        for change in diagnosis.changes
        for begin, changed in CHANGES.items()
        if change.what.startswith(begin)
    }
    programs = {"": build(name)} | {what: build(name, c) for what, (c, _) in changes.items()}
    times: dict[str, list[float]] = {what: [] for what in programs}
    for _ in range(TURNS):
        for what, program in programs.items():
            times[what].append(seconds(program))
    middle = {what: statistics.median(found) for what, found in times.items()}
    return [(what, gain, middle[""] / middle[what]) for what, (_, gain) in changes.items()]


def main(names: list[str]) -> None:
    """Print the table."""
    for name in names or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            diagnosis = diagnose(record(name, Path(folder)), None)
        print(f"{name}: {diagnosis.division.verdict}, {diagnosis.milliseconds:.3g} ms", flush=True)
        for what, promised, measured in follow(name, diagnosis):
            print(f"    {promised:6.2f} {measured:6.2f}  {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
