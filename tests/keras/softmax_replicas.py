"""Trains an output layer on one device and on two that mirror each other; a process of its own.

Prints, as JSON, how far the two ends are apart, and what of a step is as large as the table.
"""

from __future__ import annotations

import contextlib
import json

import numpy as np
import tensorflow as tf

from app.keras import LazyAdam
from tests.keras.graphs import as_large_as
from tests.keras.softmax_models import WORDS, make_model, planted


def trained(scope):
    with scope:
        model, _, _ = make_model("classes", LazyAdam(0.1), mask=False)
    x, y = planted()
    y %= WORDS
    model.fit([x, y], y, batch_size=10, epochs=3, shuffle=False, verbose=0)
    return model, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    _, expected = trained(contextlib.nullcontext())
    model, found = trained(strategy.scope())
    apart = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    ids = tf.TensorSpec([None, 6], tf.int32)
    step = tf.function(lambda b: strategy.run(model.train_step, (b,)), autograph=False)
    whole = as_large_as(step.get_concrete_function(((ids, ids), ids)), WORDS)
    print(json.dumps({"apart": apart, "whole": whole}))


if __name__ == "__main__":
    main()
