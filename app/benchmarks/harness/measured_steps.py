"""Train a side in its own process: its tables, the seconds of epochs, and a GPU's memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...models.base import Model
from ...optimizers.base import Optimizer
from ...tables.device import DeviceTable

TIMED_BLOCKS = 5
# A slow side makes fewer steps, such that a block takes about this time.
_BLOCK_SECONDS = 3.0
_FEWEST_STEPS = 3


def make_tables(model: Model, optimizer: Optimizer) -> dict[str, DeviceTable]:
    """Return new tables for a model on the current device, with the slots of an optimizer.

    Args:
        model: The model.
        optimizer: Gives the slots of the trained tables. Other tables have no slots.
    """
    return {
        name: DeviceTable(
            spec.rows, spec.columns, spec.initial, slots=optimizer.slots if spec.trained else {}
        )
        for name, spec in model.tables().items()
    }


def fit_seconds(
    model: keras.Model, batches: tf.data.Dataset, epochs: int, steps: int | None = None
) -> list[float]:
    """Train by keras.fit with its usual progress bar, and return the seconds of each epoch.

    Args:
        model: The compiled model.
        batches: The batches, in order: fit cannot shuffle a dataset.
        epochs: The number of epochs.
        steps: Steps of an epoch; None for all batches.
    """
    ends: list[float] = []

    def mark(*_: Any) -> None:
        """Add the time to `ends`."""
        ends.append(time.perf_counter())

    clock = keras.callbacks.LambdaCallback(on_train_begin=mark, on_epoch_end=mark)
    model.fit(batches, epochs=epochs, steps_per_epoch=steps, callbacks=[clock], shuffle=False)
    return np.diff(ends).tolist()


def measure_blocks(blocks: Callable[[int, int], list[float]], most: int) -> dict[str, Any]:
    """Train until the speed is known, and return the time of a step.

    A first block, which compiles and uses memory for the first time, does not count, and neither do
    the six steps before it, whose time decides how many steps a block has.

    Args:
        blocks: Called as `blocks(steps, count)`; trains `count` blocks of `steps` steps, and
            returns the seconds of each block.
        most: The most steps of a block; it has fewer if they take longer than about 3 s.

    Returns:
        `step_ms` (the median over five blocks), `blocks_ms` (of each) and `block_steps`.
    """
    guess = blocks(_FEWEST_STEPS, 2)[-1] / _FEWEST_STEPS
    steps = min(most, max(_FEWEST_STEPS, round(_BLOCK_SECONDS / guess)))
    _, *seconds = blocks(steps, 1 + TIMED_BLOCKS)
    blocks_ms = [1000 * block / steps for block in seconds]
    return {"step_ms": statistics.median(blocks_ms), "blocks_ms": blocks_ms, "block_steps": steps}


def split_processor() -> None:
    """Make two logical devices of the processor, if there is no GPU.

    Call this before TensorFlow makes its first tensor.
    """
    if not tf.config.list_physical_devices("GPU"):
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        processor = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(processor, halves)


def gpu_peak_bytes() -> int | None:
    """Return the most memory of the first GPU that TensorFlow has used; None without a GPU."""
    if not tf.config.list_logical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]
