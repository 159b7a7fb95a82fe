"""Slow programs of Keras, each with a cause that `lexrow profile` is to name."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from app.profiling import profiles

WAIT = 2e-3  # seconds that a program waits for each example
BATCH = 32


class Program(NamedTuple):
    """A model, its data, and the steps that are recorded of its first epoch."""

    model: keras.Model
    data: tf.data.Dataset
    window: tuple[int, int] = (22, 42)


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
    """Compute in Python on an example."""
    for _ in range(20):
        x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3)
    return x.astype(np.float32), y


def heavy(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute with operations of TensorFlow on an example."""
    images = tf.reshape(tf.repeat(x, 512, axis=-1), [-1, 128, 128])
    for _ in range(4):
        images = tf.linalg.matmul(images, images) / 128.0
    means = tf.reduce_mean(images, [1, 2], keepdims=True) * 1e-6
    return tf.reshape(tf.reshape(x, [-1, 1, 32]) + means, tf.shape(x)), y


def noisy(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Add noise; tf.data does not run a function that draws in parallel by itself."""
    x, y = heavy(x, y)
    return x + tf.random.uniform([32]) * 1e-6, y


def generator(prefetch: bool) -> Program:
    """Read examples from a Python generator that waits for each."""
    x, y = arrays(800)
    data = tf.data.Dataset.from_generator(
        lambda: (wait(*example) for example in zip(x, y, strict=True)),
        output_signature=(tf.TensorSpec((32,)), tf.TensorSpec((1,))),
    ).batch(BATCH)
    return Program(dense(), data.prefetch(tf.data.AUTOTUNE) if prefetch else data, (5, 20))


def mapped(count: int, function: Callable, shuffle: bool = False, **window: Any) -> Program:
    """Map a function over examples, and shuffle behind it; then the first steps are recorded."""
    data = examples(count).map(function)
    return Program(dense(), (data.shuffle(count) if shuffle else data).batch(BATCH), **window)


def python_map() -> Program:
    """Map a Python function that computes over examples, and prefetch."""
    program = mapped(1600, python(standardize))
    return program._replace(data=program.data.prefetch(tf.data.AUTOTUNE))


def bare() -> Program:
    """Wait for each batch as long as a step takes, without the prefetch that tf.data adds."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    data = examples(6_400).batch(BATCH).map(python(wait))
    return Program(dense(), data.with_options(options), (50, 110))


def embeddings(rows: int, columns: int) -> Program:
    """Train an embedding table with Adam, which updates it as a whole."""
    random = np.random.default_rng(0)
    ids, y = random.integers(rows, size=(1_600, 10)), random.random((1_600, 1), np.float32)
    table, pool = keras.layers.Embedding(rows, columns), keras.layers.GlobalAveragePooling1D()
    layers = [keras.Input((10,), dtype="int32"), table, pool, keras.layers.Dense(1)]
    data = tf.data.Dataset.from_tensor_slices((ids, y)).batch(BATCH)
    return Program(keras.Sequential(layers), data, (10, 40))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "small_batches": lambda: Program(dense(), examples(16_000).batch(BATCH), (100, 160)),
    "generator": functools.partial(generator, prefetch=False),
    "generator_prefetch": functools.partial(generator, prefetch=True),
    "python_map": python_map,
    "waiting_map": functools.partial(mapped, 800, python(wait), True, window=(1, 20)),
    "serial_map": functools.partial(mapped, 1600, noisy),
    "shuffle_after_map": functools.partial(mapped, 1600, heavy, True, window=(1, 30)),
    "bare": bare,
    "small_table": functools.partial(embeddings, rows=3_200, columns=32),
    "dense_adam": functools.partial(embeddings, rows=100_000, columns=64),
}


def record(name: str, folder: Path) -> Path:
    """Record a profile of a program below a folder; return its own folder."""
    program = PROGRAMS[name]()
    program.model.compile("adam", "mse")
    board = keras.callbacks.TensorBoard(str(folder), profile_batch=program.window)
    program.model.fit(program.data, shuffle=False, verbose=0, callbacks=[board])
    return profiles.find_newest(folder)
