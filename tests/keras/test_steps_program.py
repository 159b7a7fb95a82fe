"""`compile_steps` trains as Keras does, with all steps of a call in one program."""

import contextlib
import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    DynamicEmbedding,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    LossScaleOptimizer,
    RowEmbedding,
    RowEmbeddingReduce,
    Softmax,
    TableConfig,
    compile_steps,
    prefetch_rows,
)
from app.keras.steps_program import _are_alike as are_alike
from app.keras.steps_program import _one_program as one_program
from app.system.xla import under_xla
from app.tables.cached import cached_rows_only
from tests.keras import table_models as models
from tests.reference.gpu import LOOP

ROWS, COLUMNS, STEPS, BATCH = 29, 4, 3, 6
IDS = np.random.default_rng(2).integers(0, ROWS, (BATCH * 7, 5), np.int32)
TARGETS = np.random.default_rng(3).normal(size=(len(IDS), 1)).astype(np.float32)


def make_model(**compiled):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), dtype="int32")
    vectors = keras.layers.Flatten()(RowEmbedding(ROWS, COLUMNS)(inputs))
    outputs = keras.layers.Dense(1)(keras.layers.Dropout(0.3, seed=1)(vectors))
    model = keras.Model(inputs, outputs)
    options = {"steps_per_execution": STEPS, "jit_compile": True} | compiled
    model.compile(LazyAdam(0.05), "mse", metrics=["mae"], **options)
    return model


# Seven batches: two calls of three steps, and a step that runs by itself.
def test_fit_gives_the_numbers_of_keras():
    found = []
    for compiled in (False, True):
        model = make_model()
        if compiled:
            compile_steps(model)
        weights = np.linspace(0, 2, len(IDS))
        history = model.fit(IDS, TARGETS, BATCH, 2, sample_weight=weights, shuffle=False, verbose=0)
        variables = [*model.variables, *model.optimizer.variables]
        found.append([*history.history.values(), *(v.numpy() for v in variables)])
        assert int(model.optimizer.iterations) == 2 * 7
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_only_the_batches_of_a_whole_call_that_are_alike_are_stacked():
    def optional(*shape):
        return tf.experimental.Optional.from_value((tf.zeros(shape), tf.zeros(shape[:1])))

    first = tf.zeros([6, 5]), tf.zeros([6])
    none = tf.experimental.Optional.empty(optional(6, 5).element_spec)
    assert are_alike(first, [optional(6, 5)] * 2, None)
    assert not are_alike(first, [optional(6, 5), optional(2, 5)], None)
    assert not are_alike(first, [optional(6, 5), none], None)


def test_a_call_is_one_loop_with_a_known_number_of_steps():
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    data = tf.zeros([STEPS, BATCH, 5], tf.int32), tf.zeros([STEPS, BATCH, 1])
    program = one_program(model.train_step).experimental_get_compiler_ir(data)
    lowered, optimized = program(stage="hlo"), program(stage="optimized_hlo")
    assert lowered.count(LOOP) == 1 and " sort(" not in lowered
    assert f'"known_trip_count":{{"n":"{STEPS - 1}"}}' in optimized
    assert not re.findall(rf"f32\[{ROWS},{COLUMNS}\]\S* (?:copy|transpose)\(", optimized)


@pytest.mark.parametrize("compiled", [{"steps_per_execution": 1}, {"jit_compile": False}])
def test_a_model_compiled_otherwise_is_refused(compiled):
    with pytest.raises(ValueError, match="compile_steps needs a model compiled with"):
        compile_steps(make_model(**compiled))


def test_a_layer_of_another_package_is_judged_by_keras():
    for by_xla, refused in (True, contextlib.nullcontext()), (False, pytest.raises(ValueError)):
        model = make_model(jit_compile=by_xla)
        model.layers[2].supports_jit = False  # after `compile`, as where a layer is built
        with refused as error:
            compile_steps(model)
    assert str(error.value).endswith(
        f"needs layers that XLA can compile, not {model.layers[2].name}"
    )


def test_hot_rows_without_a_cache_are_no_reason_to_compile():
    model = hot_model("host", None)
    with pytest.raises(ValueError, match="compile_steps needs a model compiled with .* a GPU"):
        compile_steps(model)
    model.compile(LazyAdam(0.1), "mse", steps_per_execution=STEPS, jit_compile=True)
    compile_steps(model)
    model.compile(LazyAdam(0.1), "mse", steps_per_execution=STEPS, jit_compile=False)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"out of range is\] \[{models.ROWS}\]"
    ):
        fit_hot(model, hot_data(np.full_like(HOT_IDS, models.ROWS)))


def leave_out_variables(optimizer):
    """Let steps call `apply` with gradients alone, as an optimizer that is built allows."""
    optimizer.apply_gradients = lambda pairs: optimizer.apply([each for each, _ in pairs])


OF_REPLICAS = {
    "lexrow": lambda: LazyAdam(0.1),
    "loss scale": lambda: LossScaleOptimizer(LazyAdam(0.1)),
    "Keras": lambda: keras.optimizers.Adagrad(0.1, global_clipnorm=0.01, weight_decay=0.1),
    "several": lambda: keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.1), {".*/embeddings": LazyAdam(0.1)})
    ),
}


@pytest.mark.parametrize(
    ("optimizer", "steps"),
    [("lexrow", 1), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in OF_REPLICAS)],
)
def test_replicas_train_by_two_programs_a_step_as_without(optimizer, steps):
    """With one replica: the number of devices is fixed for the life of a process."""
    found = []
    for compiled in (False, True):
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            keras.utils.set_random_seed(0)
            layer, options = RowEmbedding(models.ROWS, 3), {}
            if compiled:
                options["steps_per_execution"] = steps
            model = counted(models.make_model(layer, OF_REPLICAS[optimizer](), **options))
            model.optimizer.build(model.trainable_variables)
        if compiled:
            compile_steps(model)
            leave_out_variables(model.optimizer)
        found.append([models.fit(model), *numbers(model)])
        assert model.by_xla.numpy() == compiled * model.optimizer.iterations.numpy()
    assert_close(*found)


def sharing(layer=None, optimizer="lexrow>LazyAdam", **options):
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layer or RowEmbedding(9, 2)])
    model.compile(optimizer, "mse", **options)
    return model


# What is not compiled under a strategy. This may only become shorter.
REFUSED_SHARING = {
    # XLA has no exchange between the devices of a program, and `evaluate` would want one, too.
    "a program of all replicas": (lambda: sharing(jit_compile=True), "with jit_compile=False"),
    # Keras adds rows that repeat wrongly, and those of such a layer repeat in a program.
    "an optimizer of Keras": (
        lambda: sharing(RowEmbeddingReduce(9, 2, name="words"), "adam"),
        "lexrow.keras, .*, for words",
    ),
    # It is not on the device of each replica, and a program reads nothing else. Beside a GPU, a
    # cache would have to be in all devices.
    "a table that replicas share": (
        lambda: sharing(RowEmbedding(9, 2, table="host", name="words")),
        "not words: under a strategy a table must be table='device'",
    ),
}


@pytest.mark.parametrize("name", REFUSED_SHARING)
def test_what_replicas_cannot_compile_is_refused(name):
    make, message = REFUSED_SHARING[name]
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = make()
    with pytest.raises(ValueError, match=f"compile_steps .*{message}"):
        compile_steps(model)


def test_a_strategy_of_another_kind_and_a_step_with_two_updates_are_refused():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = sharing()
    with pytest.raises(ValueError, match="needs tf.distribute.MirroredStrategy, not OneDevice"):
        compile_steps(model)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = sharing()
    with tf.distribute.get_strategy().scope():
        model.compile(model.optimizer, "mse")
    with pytest.raises(ValueError, match="needs compile.. and its optimizer within strategy.scope"):
        compile_steps(model)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = sharing()
    model.train_step = lambda data: {}
    compile_steps(model)
    with pytest.raises(ValueError, match="applies gradients once under a strategy, not 0 times"):
        model.fit(np.zeros([2, 3], np.int32), np.zeros([2, 3, 2]), verbose=0)


# Models with a cache on the device, which XLA compiles for batches whose rows are all cached.

# All 13 batches need 48 rows, the last one is shorter; a call of three steps needs at most 32.
HOT_IDS = np.concatenate([models.IDS, models.IDS[::-1] + 34, models.IDS[:21] + 17])
HOT_TARGETS = np.random.default_rng(4).normal(size=(len(HOT_IDS), 1)).astype(np.float32)
HOT_ROWS = 32


def hot_data(ids=HOT_IDS):
    return tf.data.Dataset.from_tensor_slices((ids, HOT_TARGETS[: len(ids)])).batch(models.BATCH)


def hot_model(kind, folder, steps=3, hot_rows=HOT_ROWS):
    options = {} if kind == "device" else {"hot_rows": hot_rows}
    layer = models.make_layer(kind, folder, **options)
    return models.make_model(layer, steps_per_execution=steps, jit_compile=False)


def counted(model):
    """Let `by_xla` of a model count the steps that XLA compiled."""
    by_xla, train_step = tf.Variable(0, trainable=False), model.train_step

    def count(data):
        by_xla.assign_add(int(under_xla()))
        return train_step(data)

    model.train_step, model.by_xla = count, by_xla
    return model


def numbers(model):
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


def assert_close(ours, expected):
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def fit_hot(model, data, epochs=2, **options):
    return model.fit(data, epochs=epochs, shuffle=False, verbose=0, **options).history


@functools.cache
def expected_numbers(batches):
    model = counted(hot_model("device", None))
    losses = fit_hot(model, hot_data().take(batches))["loss"]
    assert not model.by_xla.numpy()
    return losses, numbers(model)


@pytest.mark.usefixtures("far_host")
@pytest.mark.parametrize(
    ("kind", "steps", "batches"),
    [
        ("host", 1, 12),  # all alike
        *(
            pytest.param(*case, 13, marks=pytest.mark.slow)
            for case in (
                ("host", 1),
                ("host", 3),
                ("file", 3),
                ("file", 1),
                ("sharded", 1),
                ("sharded", 3),
            )
        ),
    ],
)
def test_steps_on_cached_rows_give_the_numbers_of_a_table_on_the_device(
    kind, steps, batches, tmp_path
):
    model = counted(hot_model(kind, tmp_path, steps))
    compile_steps(model)
    losses = fit_hot(model, prefetch_rows(hot_data().take(batches), model, 6))["loss"]
    # The first step makes the slots.
    assert model.by_xla.numpy() == model.optimizer.iterations.numpy() == 2 * batches
    expected_losses, expected = expected_numbers(batches)
    assert_close([losses, *numbers(model)], [expected_losses, *expected])
    assert np.count_nonzero(model.layers[0].embeddings.table.cache_map._ids_C >= 0) == HOT_ROWS


@pytest.mark.slow
@pytest.mark.usefixtures("far_host")
@pytest.mark.parametrize("kind", ["host", "file", "sharded"])
@pytest.mark.parametrize("steps", [1, 3])
def test_steps_that_are_not_prefetched_in_between(kind, steps, tmp_path):
    """Other training, validation in the middle of an epoch, a stopped `fit`, saving, loading."""

    def train(model, data):
        found = [fit_hot(model, data, steps_per_epoch=6, validation_data=hot_data(HOT_IDS[8:60]))]
        model.train_on_batch(models.IDS[:8] + 25, models.TARGETS[:8])
        stop = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", batch > 4)
        )
        found.append(fit_hot(model, data, callbacks=[stop]))
        model.save_weights(tmp_path / "saved.weights.h5")
        found.append(fit_hot(model, hot_data(models.ROWS - 1 - HOT_IDS)))
        model.load_weights(tmp_path / "saved.weights.h5")
        found.append(fit_hot(model, data))
        return [value for history in found for values in history.values() for value in values]

    ours, device = counted(hot_model(kind, tmp_path, steps)), hot_model("device", None, steps)
    compile_steps(ours)
    results = train(ours, prefetch_rows(hot_data(), ours, 6)), train(device, hot_data())
    assert_close([*results[0], *numbers(ours)], [*results[1], *numbers(device)])
    assert ours.by_xla.numpy() >= 12 + 6 + 26  # all that were prefetched


def two_tables(kind, folder):
    """A layer that is called twice, one that combines rows, and features that share a table."""
    options = {} if kind == "device" else {"table": kind, "hot_rows": 40}

    def file(name):
        return {"table_file": str(folder / name)} if kind == "file" else {}

    keras.utils.set_random_seed(0)
    initial = keras.initializers.RandomUniform(seed=2)
    left, right = (keras.Input((2,), dtype="int64", name=name) for name in ("left", "right"))
    words = RowEmbedding(models.ROWS, 3, initial, **options, **file("words"))
    bags = RowEmbeddingReduce(models.ROWS, 3, initial, **options, **file("bags"))
    shared = TableConfig("shared", models.ROWS, 3, initial, **options, **file("shared"))
    features = FeatureEmbedding([FeatureConfig(str(n), shared, (None, 2)) for n in range(2)])
    parts = [words(left), words(right), bags(left), *features([left, right])]
    vectors = keras.layers.Concatenate()([keras.layers.Flatten()(part) for part in parts])
    model = keras.Model([left, right], keras.layers.Dense(1)(vectors))
    model.compile(LazyAdam(0.1), "mse", steps_per_execution=3, jit_compile=False)
    return counted(model)


@pytest.mark.slow
@pytest.mark.usefixtures("far_host")
@pytest.mark.parametrize("kind", ["host", "file", "sharded"])
def test_tables_that_are_updated_together(kind, tmp_path):
    data = hot_data().map(lambda ids, targets: ((ids[:, :2], ids[:, 2:]), targets))
    ours, device = (two_tables(each, tmp_path) for each in (kind, "device"))
    ours.set_weights(device.get_weights())  # a file draws other initial rows
    compile_steps(ours)
    losses = fit_hot(ours, prefetch_rows(data, ours, 6)), fit_hot(device, data)
    assert ours.by_xla.numpy() == 26
    found = [sorted((v.path, v.numpy().tolist()) for v in m.variables) for m in (ours, device)]
    assert_close(
        [losses[0]["loss"], *(value for _, value in found[0])],
        [losses[1]["loss"], *(value for _, value in found[1])],
    )


@pytest.mark.usefixtures("far_host")
def test_a_step_on_cached_rows_takes_nothing_from_host_memory(tmp_path):
    model = hot_model("file", tmp_path, hot_rows=37)
    model.optimizer.build(model.trainable_variables)

    def train_step(data):
        with cached_rows_only():
            return model.train_step(data)

    program = one_program(train_step)
    data = tf.zeros([3, 8, 4], tf.int64), tf.zeros([3, 8, 1])
    traced, table = program.get_concrete_function(data), model.layers[0].embeddings.table
    used = {id(tensor) for tensor, _ in traced.graph.captures}
    assert used.isdisjoint(id(v.handle) for v in (table._positions_V.read(), table._writes))
    lower = program.experimental_get_compiler_ir(data)
    lowered, optimized = lower(stage="hlo"), lower(stage="optimized_hlo")
    assert lowered.count(LOOP) == 1 and " sort(" not in lowered and "custom-call" not in lowered
    assert '"known_trip_count":{"n":"2"}' in optimized
    table_shaped = re.findall(rf"\[(?:37|{models.ROWS})[],]\S* (\S+)\(", optimized)
    assert "scatter" in table_shaped and {"copy", "transpose"}.isdisjoint(table_shaped)


# Why a model is not compiled. This may only become shorter.
REFUSED = {
    "host without hot_rows": "XLA reads no host memory from a GPU",
    "file without hot_rows": "Python reads a file",
    "sharded without hot_rows": "the shapes of shards are dynamic",
    "dynamic": "Python looks keys up",
    "output layer on the host": "it has no hot_rows",
    "output layer tied to hot_rows": "prefetch_rows does not load the rows that it reads",
}


def refused(name, folder):
    table = name.split()[0]
    options = {"table_file": str(folder / "rows.bin")} if table == "file" else {}
    if table == "dynamic":
        return [DynamicEmbedding(2, name="words")]
    if table == "output":
        rows = RowEmbedding(9, 2, table="host", hot_rows=5)
        options = {"tied_to": rows} if "tied" in name else {"table": "host"}
        return [rows, Softmax(9, name="words", **options)]
    return [RowEmbedding(9, 2, table=table, name="words", **options)]


@pytest.mark.usefixtures("far_host")
@pytest.mark.parametrize("name", REFUSED)
def test_what_xla_cannot_compile_is_refused(name, tmp_path):
    model = keras.Sequential(refused(name, tmp_path))
    model.compile(LazyAdam(0.1), "mse", steps_per_execution=2)
    reason = "tied_to= names" if "tied" in name else "on a GPU"
    with pytest.raises(ValueError, match=f"layers that XLA can compile, not words: {reason}"):
        compile_steps(model)
