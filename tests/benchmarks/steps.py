"""Measure training steps in the process of a side: seconds of blocks, memory, and random ids."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from app.errors import RunError

TIMED_BLOCKS = 5
# A slow side makes fewer steps, such that a block takes about this time.
_BLOCK_SECONDS = 3.0
_FEWEST_STEPS = 3


def fit_seconds(
    model: keras.Model, batches: tf.data.Dataset, epochs: int, steps: int
) -> list[float]:
    """Train by keras.fit with its usual progress bar, and return the seconds of each epoch."""
    ends: list[float] = []

    def mark(*_: Any) -> None:
        ends.append(time.perf_counter())

    clock = keras.callbacks.LambdaCallback(on_train_begin=mark, on_epoch_end=mark)
    model.fit(batches, epochs=epochs, steps_per_epoch=steps, callbacks=[clock], shuffle=False)
    return np.diff(ends).tolist()


def call_seconds(train: Callable[[], tf.Tensor], steps: int, count: int) -> list[float]:
    """Call `train` for each step of some blocks, and return the seconds of each block.

    A block waits for the device at its end only.

    Args:
        train: Makes the next step, and returns its loss.
        steps: Steps of a block.
        count: The number of blocks.
    """
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        for _ in range(steps):
            loss = train()
        loss.numpy()  # waits for the device
        seconds.append(time.perf_counter() - start)
    return seconds


def measure_blocks(blocks: Callable[[int, int], list[float]], most: int) -> dict[str, Any]:
    """Train until the speed is known, and return the time of a step.

    A first block, which compiles and uses memory for the first time, does not count, and neither do
    the six steps before it, whose time decides how many steps a block has.

    Args:
        blocks: Called as `blocks(steps, count)`; trains `count` blocks of `steps` steps, and
            returns the seconds of each block.
        most: The most steps of a block; it has fewer if they take longer than about 3 s.

    Returns:
        `step_ms` (the median over five blocks), `blocks_ms` (of each), `block_steps`, and
        `device_peak_bytes` (of a GPU, else None).
    """
    guess = blocks(_FEWEST_STEPS, 2)[-1] / _FEWEST_STEPS
    steps = min(most, max(_FEWEST_STEPS, round(_BLOCK_SECONDS / guess)))
    _, *seconds = blocks(steps, 1 + TIMED_BLOCKS)
    blocks_ms = [1000 * block / steps for block in seconds]
    return {
        "step_ms": statistics.median(blocks_ms),
        "blocks_ms": blocks_ms,
        "block_steps": steps,
        "device_peak_bytes": gpu_peak_bytes(),
    }


def check_changed(name: str, before: np.ndarray, after: np.ndarray) -> None:
    """Raise RunError unless all vectors of a batch changed, and to finite numbers.

    The speed of a side that does not train means nothing.
    """
    changed = (before != after).any(axis=-1) & np.isfinite(after).all(axis=-1)
    if not changed.all():
        raise RunError(
            f"{name}: {changed.sum()} of {changed.size} vectors of a batch changed to finite "
            "numbers; so its speed means nothing"
        )


def state_bytes(variables: Sequence[Any]) -> int:
    """Return the bytes of variables of TensorFlow or Keras."""
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def split_processor() -> None:
    """Make two logical devices of the processor, if there is no GPU, before any tensor."""
    if not tf.config.list_physical_devices("GPU"):
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, halves)


def gpu_peak_bytes() -> int | None:
    """Return the most memory of the first GPU that TensorFlow has used; None without a GPU."""
    if not tf.config.list_logical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]
