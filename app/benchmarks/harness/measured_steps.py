"""Train a side in its own process: its tables, the seconds of epochs, and a GPU's memory."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...models.base import Model
from ...optimizers.base import Optimizer
from ...tables.device import DeviceTable


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


def gpu_peak_bytes() -> int | None:
    """Return the most memory of the first GPU that TensorFlow has used; None without a GPU."""
    if not tf.config.list_logical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]
