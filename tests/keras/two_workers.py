"""Trains in two processes that mirror each other, each of which runs this; a test starts them.

Prints, as JSON by kind of table and name of the model, the losses, rows and slots; the initial rows
of tables without a seed; and the message of a table that cannot be mirrored.
"""

import contextlib
import json
import os
import pathlib
import sys

import keras
import tensorflow as tf

IS_WORKER = "TF_CONFIG" in os.environ
if IS_WORKER:  # before anything starts the devices of TensorFlow
    STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
else:
    STRATEGY = tf.distribute.get_strategy()

from app.keras import DynamicEmbedding, RowEmbedding  # noqa: E402
from tests.keras import softmax_models, two_replicas  # noqa: E402

CASES = [
    ("device", "lazy_adam"),
    ("host", "lazy_adam"),
    ("host", "classes"),
    ("file", "samples"),
    ("sharded", "adagrad"),
    ("dynamic", "lazy_adam"),
    *((kind, "features") for kind in ("device", "host", "file", "sharded")),
]


def train(kind, name, folder):
    """Train by a loop: `fit` of Keras 3.15 fails with several processes, whatever the layers."""
    with STRATEGY.scope() if IS_WORKER else contextlib.nullcontext():
        model, (x, y) = two_replicas.make_shared(kind, name, folder)

    def step(x, y):
        with tf.GradientTape() as tape:
            found = model(x, training=True)
            loss = tf.reduce_mean(found if name in softmax_models.LAYERS else (found - y) ** 2)
            loss /= STRATEGY.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function(autograph=False)
    def run(x, y):
        return STRATEGY.reduce("SUM", STRATEGY.run(step, args=(x, y)), axis=None)

    x = tuple(x) if isinstance(x, list) else x
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(two_replicas.BATCH)
    if IS_WORKER:
        batches = STRATEGY.experimental_distribute_dataset(batches)
    losses = [float(run(*batch)) for batch in batches]
    values = [v.numpy().astype("f") for v in (*model.variables, *model.optimizer.variables)]
    return [losses, *(value.tolist() for value in values)]


def initial_rows():
    """The rows of tables without a seed, which each process draws by itself."""
    keras.utils.set_random_seed(os.getpid())
    with STRATEGY.scope():
        hosts = [RowEmbedding(9, 2, name, table="host") for name in ("uniform", "orthogonal")]
        layers = [*hosts, DynamicEmbedding(2)]
        return [layer(tf.range(9, dtype=tf.int64)).numpy().tolist() for layer in layers]


def refusal():
    """The message of a table with strings."""
    try:
        with STRATEGY.scope():
            DynamicEmbedding(2, "string", name="words").build()
    except ValueError as error:
        return str(error)


def main():
    folder = pathlib.Path(sys.argv[1])
    trained = {f"{kind} {name}": train(kind, name, folder) for kind, name in CASES}
    print(json.dumps({"trained": trained, "initial": initial_rows(), "refused": refusal()}))


if __name__ == "__main__":
    main()
