"""A small model with one table of any kind, and batches in which rows repeat and most are idle."""

import keras
import numpy as np
import tensorflow as tf

from app.keras import DynamicEmbedding, LazyAdam, RowEmbedding

ROWS, COLUMNS, LENGTH, BATCH, STEPS = 50, 6, 4, 8, 5
KINDS = ("host", "file", "sharded")
IDS = np.random.default_rng(1).integers(0, ROWS // 3, (BATCH * STEPS, LENGTH))
TARGETS = np.random.default_rng(2).normal(size=(BATCH * STEPS, 1)).astype(np.float32)
WEIGHTS = np.random.default_rng(3).normal(size=(ROWS, COLUMNS)).astype(np.float32)


def make_layer(kind, folder, **options):
    """A layer with `WEIGHTS`; a dynamic one has no rows yet."""
    if kind == "dynamic":
        return DynamicEmbedding(COLUMNS, capacity=ROWS, **options)
    if kind == "hot":
        kind, options = "host", {"hot_rows": 40} | options
    if kind == "file":
        options["table_file"] = str(folder / f"rows{len(list(folder.iterdir()))}.bin")
    layer = RowEmbedding(ROWS, COLUMNS, table=kind, **options)
    layer.build()
    layer.set_weights([WEIGHTS])
    return layer


def make_model(layer, optimizer=None, dtype="int64", **compiled):
    """Of the same dense weights whatever the layer."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((LENGTH,), dtype=dtype)
    model = keras.Sequential([inputs, layer, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(optimizer or LazyAdam(0.1), loss="mse", **compiled)
    return model


def data(ids=IDS):
    return tf.data.Dataset.from_tensor_slices((tf.constant(ids), TARGETS)).batch(BATCH)


def strings(ids=IDS):
    return np.array([[f"key {i}" for i in row] for row in ids], object)


def fit(model, batches=None):
    return model.fit(batches or data(), epochs=2, shuffle=False, verbose=0).history["loss"]


def fit_in_tape(model, batches=None):
    """Trains by a loop of the user's own."""

    @tf.function
    def step(ids, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ids) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for ids, targets in batches or data():
        step(ids, targets)


def fit_batches(model, batches=None):
    for ids, targets in batches or data():
        model.train_on_batch(ids, targets)


def state(model):
    return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]
