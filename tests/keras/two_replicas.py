"""Trains on one device and on two that mirror each other; a process of its own, as a test runs it.

Prints, as JSON by optimizer, how far the two ends are apart, how far the replicas are, and what
operations of the step give a result as large as a table. By kind of table, how far losses, rows and
slots are apart where the replicas share the table, and whether what was saved is what was trained.
Of steps that `compile_steps` has compiled, how far losses, rows and slots are apart, and what
operations are in the programs of XLA and outside of them.
"""

import contextlib
import itertools
import json
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowEmbedding,
    RowEmbeddingReduce,
    RowwiseAdagrad,
    TableConfig,
    compile_steps,
)
from app.keras.steps_program import _step_of_replica
from app.system.graphs import called_graphs
from tests.keras import softmax_models, table_models
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


def make_scaled():
    """A model that trains three steps in a call, and one at the end of an epoch."""
    model = make_model(SGD(0.1))
    model.compile(LossScaleOptimizer(LazyAdam(0.1)), "mse", steps_per_execution=3)
    return model


def make_output():
    """A model with an output layer."""
    return softmax_models.make_model("classes", LazyAdam(0.1), mask=False)[0]


def make_data():
    """In each global batch the replicas have rows in common, and each has some of its own."""
    random = np.random.default_rng(0)
    x = random.integers(0, 20, (4 * BATCH, LENGTH)).astype(np.int32)
    return x, random.normal(size=(4 * BATCH, 1)).astype(np.float32)


def make_tables():
    """A model with six tables, whose optimizer clips, and with a metric."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((LENGTH,), dtype="int32")
    bags = RowEmbeddingReduce(ROWS + 1, COLUMNS, name="words")(inputs)
    configs = [TableConfig(f"table{n}", ROWS + n, COLUMNS) for n in range(5)]
    features = [FeatureConfig(config.name, config, (None, LENGTH)) for config in configs]
    vectors = [bags, *FeatureEmbedding(features)([inputs] * len(features))]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(vectors)))
    model.compile(LazyAdam(0.1, global_clipnorm=100.0), "mse", metrics=["mae"])
    return model


def programs(model, batch, strategy):
    """The types of operations outside of what XLA compiles in a step, those inside, its parts."""
    step = _step_of_replica(model)
    run = tf.function(lambda b: strategy.run(step, (b,)), autograph=False)
    outside, inside, found = set(), set(), []

    def walk(graph, is_inside):
        for operation in graph.get_operations():
            (inside if is_inside else outside).add(operation.type)
            for called in called_graphs(operation):
                by_xla = not is_inside and "_XlaMustCompile" in operation.node_def.attr
                found.extend([called.name] * by_xla)
                walk(called, is_inside or by_xla)

    walk(run.get_concrete_function(batch).graph, False)
    return {"outside": sorted(outside), "inside": sorted(inside), "programs": len(found)}


def trained(make, data, scope, compiled=False):
    with scope:
        model = make()
    if compiled:
        compile_steps(model)
    x, y = data
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    model.logged = [np.array(values) for values in history.values()]
    return model, [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def apart(found, expected):
    """How far two lists of arrays are apart."""
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(ours - theirs).max(initial=0)) for ours, theirs in pairs)


def compare(make, data, name, batch, rows, strategy, compiled=False):
    """Of a model and its data: the name of the layer with the table, specs of a batch, its rows."""
    one, expected = trained(make, data, contextlib.nullcontext())
    model, found = trained(make, data, strategy.scope(), compiled)
    if compiled:
        if model.steps_per_execution > 1:  # which fails on CPUs without `compile_steps`
            again, same = one, expected
        else:
            again, same = trained(make, data, strategy.scope())
        return {
            "apart": max(apart(found, expected), apart(model.logged, one.logged)),
            "uncompiled": max(apart(found, same), apart(model.logged, again.logged)),
            **programs(model, batch, strategy),
        }
    parts = model.get_layer(name).trainable_variables[0].value.values
    step = tf.function(lambda b: strategy.run(model.train_step, (b,)), autograph=False)
    return {
        "apart": apart(found, expected),
        "replicas": [bool((part.numpy() == parts[0].numpy()).all()) for part in parts],
        "whole": as_large_as(step.get_concrete_function(batch), rows),
    }


SHARED_OPTIMIZERS = {
    "sgd": lambda: SGD(0.1, momentum=0.9, weight_decay=0.1),
    "lazy_adam": lambda: LazyAdam(0.1),
    "adagrad": lambda: Adagrad(0.1),
    "lazy_adamw": lambda: LossScaleOptimizer(LazyAdamW(0.1)),
}
# The last of the batches is half as large as the others.
EXAMPLES = (
    table_models.IDS[: -table_models.BATCH // 2],
    table_models.TARGETS[: -table_models.BATCH // 2],
)
SHARED = [
    *(("host", name) for name in (*SHARED_OPTIMIZERS, "features", "classes", "tied")),
    *(("file", name) for name in ("lazy_adam", "features", "samples")),
    *(("sharded", name) for name in ("adagrad", "features", "classes", "adaptive")),
    ("device", "features"),
    ("dynamic", "lazy_adam"),
]
NUMBERS = itertools.count()  # of files; one that belongs to a loaded model is removed with it


def _place(kind, folder):
    """The arguments of a layer with a table of a kind."""
    file = {"table_file": str(folder / f"rows{next(NUMBERS)}.bin")} if kind == "file" else {}
    return {"table": kind, **file}


def make_features(kind, folder):
    """A model with two tables, one of which reduces its rows and serves two features."""
    options = {"initializer": "ones"}
    one, other = (
        TableConfig(
            name, table_models.ROWS, 3, combiner=combiner, **options, **_place(kind, folder)
        )
        for name, combiner in (("one", "mean"), ("other", None))
    )
    configs = [
        FeatureConfig(str(number), table, (None, table_models.LENGTH))
        for number, table in enumerate((one, other, one))
    ]
    inputs = keras.Input((table_models.LENGTH,), dtype="int64")
    flipped = keras.ops.flip(inputs, axis=1) % 11
    vectors = FeatureEmbedding(configs)([inputs, inputs, flipped])
    flat = [keras.layers.Flatten()(each) for each in vectors]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(flat)))
    model.compile(LazyAdam(0.1), "mse")
    return model


def make_shared(kind, name, folder):
    """A model with a table of a kind: an embedding, or an output layer; and its data."""
    keras.utils.set_random_seed(0)
    if name in SHARED_OPTIMIZERS:
        layer = table_models.make_layer(kind, folder)
        return table_models.make_model(layer, SHARED_OPTIMIZERS[name]()), EXAMPLES
    if name == "features":
        return make_features(kind, folder), EXAMPLES
    options = _place(kind, folder)
    words = RowEmbedding(WORDS, 6, table=kind, name="words") if name == "tied" else None
    options |= {"tied_to": "words"} if words else {}
    layer = "classes" if name == "tied" else name
    model = softmax_models.make_model(layer, LazyAdam(0.1), False, options, words)[0]
    x, y = planted()
    return model, ([x[:24], y[:24] % WORDS], y[:24] % WORDS)


def share(kind, name, folder, strategy):
    """Train on one device and on two that share the table; then save, load and go on."""

    def values(model):
        variables = [*model.variables, *model.optimizer.variables]
        return [v.numpy().astype("f") for v in variables]

    def fit(model, data):
        return model.fit(*data, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history[
            "loss"
        ]

    ends = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            model, data = make_shared(kind, name, folder)
        ends.append([np.array(fit(model, data)), *values(model)])
    if name not in ("lazy_adam", "samples"):
        return {"apart": apart(*ends)}
    path = folder / f"{kind} {name}.keras"
    model.save(path)
    with strategy.scope():
        loaded = keras.models.load_model(path)
    same = all(map(np.array_equal, values(model), values(loaded)))
    return {"apart": apart(*ends), "loaded": same and fit(loaded, data) == fit(model, data)}


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batch = tf.TensorSpec([BATCH // 2, LENGTH], tf.int32), tf.TensorSpec([BATCH // 2, 1])
    found = {
        name: compare(lambda m=make: make_model(m()), make_data(), "words", batch, ROWS, strategy)
        for name, make in CASES.items()
    }
    with tf.device("CPU:1"):  # a program of the device that is current, not of the first
        model = make_model(LazyAdam(0.1))
        model.compile(LazyAdam(0.1), "mse", jit_compile=True)
        elsewhere = model.fit(*make_data(), verbose=0).history["loss"][0]
    x, y = planted()
    compiled = {
        name: compare(make, make_data(), "words", batch, ROWS, strategy, compiled=True)
        for name, make in (
            ("constraint", lambda: make_model(CASES["rowwise_adagrad"]())),
            ("six tables", make_tables),
            ("calls of three steps", make_scaled),
        )
    }
    data, ids = ([x, y % WORDS], y % WORDS), tf.TensorSpec([None, 6], tf.int32)
    batch = (ids, ids), ids
    compiled["output layer"] = compare(make_output, data, "out", batch, WORDS, strategy, True)
    found["class_softmax"] = compare(make_output, data, "out", batch, WORDS, strategy)
    with tempfile.TemporaryDirectory() as folder:
        shared = {
            f"{kind} {name}": share(kind, name, pathlib.Path(folder), strategy)
            for kind, name in SHARED
        }
    results = {"mirrored": found, "shared": shared, "compiled": compiled, "elsewhere": elsewhere}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
