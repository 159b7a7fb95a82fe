"""Trains on one device and on two that mirror each other; a process of its own, as a test runs it.

Prints, as JSON by optimizer, how far the two ends are apart, how far the replicas are, and what
operations of the step give a result as large as a table.
"""

import contextlib
import json

import keras
import numpy as np
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowEmbedding,
    RowwiseAdagrad,
)
from tests.keras import softmax_models
from tests.keras.graphs import as_large_as
from tests.keras.softmax_models import WORDS, planted

ROWS, COLUMNS, LENGTH, BATCH = 97, 3, 4, 8
CASES = {
    "sgd": lambda: SGD(0.1, momentum=0.9, weight_decay=0.1),
    "adagrad": lambda: Adagrad(0.1),
    "rowwise_adagrad": lambda: RowwiseAdagrad(0.1),
    "lazy_adam": lambda: LazyAdam(0.1, correct_skipped=True, amsgrad=True),
    "lazy_adamw": lambda: LossScaleOptimizer(LazyAdamW(0.1)),
}


def make_model(optimizer):
    """The table serves two inputs, and its rows are kept at length 1."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((LENGTH,), dtype="int32")
    table = RowEmbedding(
        ROWS, COLUMNS, name="words", embeddings_constraint=keras.constraints.UnitNorm(axis=1)
    )
    flat = keras.layers.Flatten()(table(inputs))
    mean = keras.layers.GlobalAveragePooling1D()(table(keras.ops.flip(inputs, axis=1)))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([flat, mean])))
    model.compile(optimizer, "mse")
    return model


def make_output():
    """A model with an output layer."""
    return softmax_models.make_model("classes", LazyAdam(0.1), mask=False)[0]


def make_data():
    """In each global batch the replicas have rows in common, and each has some of its own."""
    random = np.random.default_rng(0)
    x = random.integers(0, 20, (4 * BATCH, LENGTH)).astype(np.int32)
    return x, random.normal(size=(4 * BATCH, 1)).astype(np.float32)


def trained(make, data, scope):
    with scope:
        model = make()
    x, y = data
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return model, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def compare(make, data, name, batch, rows, strategy):
    """Of a model and its data: the name of the layer with the table, specs of a batch, its rows."""
    _, expected = trained(make, data, contextlib.nullcontext())
    model, found = trained(make, data, strategy.scope())
    parts = model.get_layer(name).trainable_variables[0].value.values
    step = tf.function(lambda b: strategy.run(model.train_step, (b,)), autograph=False)
    return {
        "apart": max(
            float(np.abs(ours - theirs).max()) for ours, theirs in zip(found, expected, strict=True)
        ),
        "replicas": [bool((part.numpy() == parts[0].numpy()).all()) for part in parts],
        "whole": as_large_as(step.get_concrete_function(batch), rows),
    }


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batch = tf.TensorSpec([BATCH // 2, LENGTH], tf.int32), tf.TensorSpec([BATCH // 2, 1])
    found = {
        name: compare(lambda m=make: make_model(m()), make_data(), "words", batch, ROWS, strategy)
        for name, make in CASES.items()
    }
    x, y = planted()
    data, ids = ([x, y % WORDS], y % WORDS), tf.TensorSpec([None, 6], tf.int32)
    batch = (ids, ids), ids
    found["class_softmax"] = compare(make_output, data, "out", batch, WORDS, strategy)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
