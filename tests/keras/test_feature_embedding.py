"""`FeatureEmbedding` has the tables of many features, and answers as layers made one by one."""

import gc
import itertools
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    RowwiseAdagrad,
    TableConfig,
    audit,
    prefetch_rows,
)
from app.keras.steps_program import _one_program as one_program
from app.keras.tables import table_kinds, table_variable
from app.tables.joined import StackedTable
from tests.reference.gpu import LOOP

BATCH, LENGTH, WORDS, USERS, COLUMNS = 6, 4, 40, 30, 5
RANDOM = np.random.default_rng(1)
DATA = {
    "user": RANDOM.integers(0, USERS // 2, BATCH),  # some rows repeat, and some are idle
    "texts": [RANDOM.integers(0, WORDS // 2, (BATCH, LENGTH)) for _ in range(2)],
}
WEIGHTS = {"user": None, "texts": [RANDOM.random((BATCH, LENGTH)).astype(np.float32), None]}
TARGETS = RANDOM.normal(size=(BATCH, 1)).astype(np.float32)


def configs(folder=None, users=None, **words):
    """Features in a nest: one id of a user, and two texts that share a table."""
    initializer = keras.initializers.RandomUniform(-0.1, 0.1, seed=3)
    words = {"initializer": initializer, "combiner": "sum"} | words
    if words.get("table") == "file":
        words["table_file"] = str(folder / "words.bin")
    words = TableConfig("words", WORDS, COLUMNS, **words)
    users = TableConfig("users", USERS, 3, initializer=initializer, **(users or {}))
    texts = [FeatureConfig(name, words, (None, LENGTH)) for name in ("title", "query")]
    return {"user": FeatureConfig("user", users, (BATCH,), (BATCH, 3)), "texts": texts}


def make_model(features, weighted=False, **compiled):
    keras.utils.set_random_seed(0)
    inputs = keras.tree.map_structure(lambda ids: keras.Input(ids.shape[1:], dtype="int64"), DATA)
    weights = [keras.Input((LENGTH,))] if weighted else []
    nested = {"user": None, "texts": [*weights, None]} if weighted else None
    vectors = FeatureEmbedding(features, name="features")(inputs, weights=nested)
    joined = keras.layers.Concatenate()([vectors["user"], *vectors["texts"]])
    outputs = keras.layers.Dense(1)(joined)
    model = keras.Model([*keras.tree.flatten(inputs), *weights], outputs)
    model.compile(LazyAdam(0.1), "mse", **compiled)
    return model


def fit(model, weighted=False):
    x = [*keras.tree.flatten(DATA), *([WEIGHTS["texts"][0]] if weighted else [])]
    return model.fit(x, TARGETS, epochs=3, verbose=0).history["loss"]


def state(model):
    return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]


def test_vectors_are_those_of_layers_made_one_by_one():
    layer = FeatureEmbedding(configs())
    vectors = layer(DATA, weights=WEIGHTS)
    assert list(layer.tables) == ["words", "users"] or list(layer.tables) == ["users", "words"]
    assert len(layer.trainable_variables) == 2
    words, users = (layer.tables[name].get_weights()[0] for name in ("words", "users"))
    np.testing.assert_array_equal(vectors["user"], users[DATA["user"]])
    first, second = (words[ids] for ids in DATA["texts"])
    weighted = (first * WEIGHTS["texts"][0][..., np.newaxis]).sum(1)
    np.testing.assert_allclose(vectors["texts"][0], weighted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vectors["texts"][1], second.sum(1), rtol=1e-5, atol=1e-6)
    assert type(layer.tables["words"]) is RowEmbeddingReduce


def test_a_table_without_a_combiner_gives_a_vector_for_each_id():
    words = TableConfig("words", WORDS, COLUMNS, combiner=None, mask_zero=True)
    layer = FeatureEmbedding(FeatureConfig("text", words, (None, LENGTH), (BATCH, LENGTH, COLUMNS)))
    assert type(layer.tables["words"]) is RowEmbedding
    ids = keras.Input((LENGTH,), dtype="int32")
    assert layer(ids).shape == (None, LENGTH, COLUMNS)
    assert layer.compute_output_shape((None, LENGTH)) == (None, LENGTH, COLUMNS)
    np.testing.assert_array_equal(layer(DATA["texts"][0]), layer.tables["words"](DATA["texts"][0]))
    with pytest.raises(ValueError, match="'text' has weights, and table 'words' has no combiner"):
        layer(DATA["texts"][0], WEIGHTS["texts"][0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["file", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("host", "sharded"))]
)
def test_kinds_of_tables_train_alike_and_are_saved(kind, tmp_path):
    model, device = make_model(configs(tmp_path, table=kind)), make_model(configs())
    model.set_weights(device.get_weights())  # a file has other draws of initial rows
    assert fit(model) == fit(device)
    model.save(tmp_path / "model.keras")
    before = state(model)
    del model
    gc.collect()  # its file belongs to one layer at a time
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert state(loaded) == before
    layer = loaded.get_layer("features")
    assert layer.tables["words"].table == kind and layer.tables["users"].table == "device"
    assert fit(loaded) == fit(device)


def test_the_configuration_has_each_table_once():
    layer = FeatureEmbedding(configs(users={"dtype": "bfloat16", "combiner": "mean"}), name="all")
    config = layer.get_config()
    assert len(config["tables"]) == 2
    again = FeatureEmbedding.from_config(config)
    assert again.get_config() == config and list(again.tables) == list(layer.tables)
    assert again.tables["users"].variable_dtype == "bfloat16"
    assert again(DATA)["texts"][1].shape == (BATCH, COLUMNS)


@pytest.mark.slow
def test_a_table_with_an_optimizer_of_its_own():
    """As the refusal of `TableConfig.optimizer` says."""
    model = make_model(configs(table="host"))
    other = {".*/words/embeddings": SGD(1e-4)}
    optimizers = keras.optimizers.OptimizerMap(LazyAdam(0.1), other)
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse")
    tables = model.get_layer("features").tables
    before = {name: table.get_weights()[0] for name, table in tables.items()}
    fit(model)
    change = {n: np.abs(t.get_weights()[0] - before[n]).max() for n, t in tables.items()}
    assert 0 < change["words"] < 1e-3 and change["users"] > 0.1


@pytest.mark.slow
def test_cached_rows_are_prefetched():
    model, device = make_model(configs(table="host", hot_rows=38)), make_model(configs())
    x = tuple(keras.tree.flatten(DATA))
    data = tf.data.Dataset.from_tensors((x, TARGETS)).repeat(3)
    model.fit(prefetch_rows(data, model), shuffle=False, verbose=0)
    device.fit(data, shuffle=False, verbose=0)
    for ours, theirs in zip(model.get_weights(), device.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_ragged_and_sparse_ids():
    layer = FeatureEmbedding(
        [FeatureConfig("text", TableConfig("words", WORDS, COLUMNS), (None, LENGTH))]
    )
    ragged = tf.ragged.constant([[3, 3, 5], [], [9]], dtype=tf.int64)
    (vectors,) = layer([ragged])
    assert vectors.shape == (3, COLUMNS)
    np.testing.assert_array_equal(layer([ragged.to_sparse()])[0], vectors)
    np.testing.assert_array_equal(vectors[1], np.zeros(COLUMNS))
    symbolic = layer([keras.Input((None,), dtype="int64", ragged=True)])
    assert symbolic[0].shape == (None, COLUMNS)


def keras_rs_table(**changed):
    """A table of keras_rs, by the fields of its class."""
    fields = {
        "name": "words",
        "vocabulary_size": WORDS,
        "embedding_dim": COLUMNS,
        "initializer": "uniform",
        "optimizer": "adam",
        "combiner": "mean",
        "placement": "auto",
        "max_ids_per_partition": 256,
        "max_unique_ids_per_partition": 256,
    }
    return types.SimpleNamespace(**fields | changed)


def keras_rs_feature(table, name="text", output_shape=(BATCH, COLUMNS)):
    shapes = {"input_shape": (BATCH, LENGTH), "output_shape": output_shape}
    return types.SimpleNamespace(name=name, table=table, **shapes)


def test_configurations_of_keras_rs():
    table = keras_rs_table()
    layer = FeatureEmbedding({n: keras_rs_feature(table, n) for n in ("a", "b")})
    assert list(layer.tables) == ["words"] and layer.tables["words"].combiner == "mean"
    again = FeatureEmbedding.from_config(layer.get_config())
    vectors = again(dict(zip("ab", DATA["texts"], strict=True)))
    rows = again.tables["words"].get_weights()[0]
    np.testing.assert_allclose(vectors["b"], rows[DATA["texts"][1]].mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"placement": "sparsecore"}, "table 'words': placement='sparsecore'; give 'auto', and"),
        ({"optimizer": "ftrl"}, r"table 'words': optimizer='ftrl'; .*OptimizerMap\(default, "),
        ({"optimizer": keras.optimizers.SGD()}, "table 'words': optimizer=<keras"),
        ({"combiner": "max"}, "words: combiner='max'; give one of"),
        ({"table": "disk"}, "words: table='disk'; give one of"),
        ({"table": "host", "hot_rows": 0}, "words: hot_rows=0; give a number of rows"),
        ({"vocabulary_size": 0}, "input_dim"),
    ],
)
def test_a_table_that_cannot_be_honoured(changed, message):
    with pytest.raises(ValueError, match=message):
        FeatureEmbedding({"text": keras_rs_feature(keras_rs_table(**changed))})


def test_bad_features():
    text, other = (keras_rs_feature(keras_rs_table()) for _ in range(2))
    with pytest.raises(ValueError, match="two tables are named 'words'; give features that share"):
        FeatureEmbedding([text, other])
    with pytest.raises(ValueError, match=r"feature_configs=\{\} has no feature"):
        FeatureEmbedding({})
    with pytest.raises(ValueError, match="'words' is no FeatureConfig with a TableConfig"):
        FeatureEmbedding(["words"])
    with pytest.raises(ValueError, match="no FeatureConfig .* and a shape .*'int' object is not"):
        FeatureEmbedding(FeatureConfig("text", TableConfig("words", 5, 2), 8))
    with pytest.raises(ValueError, match=r"input_shape=\(\) lacks the batch"):
        FeatureEmbedding(FeatureConfig("text", TableConfig("words", 5, 2), ()))


def test_bad_inputs():
    layer = FeatureEmbedding(configs(), name="features")
    with pytest.raises(ValueError, match=r"features: the ids do not have the structure .*'title'"):
        layer({"user": DATA["user"]})
    with pytest.raises(ValueError, match="features: the weights do not have the structure"):
        layer(DATA, weights=WEIGHTS["texts"])
    with pytest.raises(ValueError, match=r"'user' have shape \(6, 4\), and its input_shape is"):
        layer({"user": DATA["texts"][0], "texts": DATA["texts"]})


def many_features(jit_compile=False, optimizer=None, run_eagerly=False, ids=("int32",), **options):
    """A model with tables of two widths, trained on ids that repeat.

    Args:
        ids: The dtypes of the ids, of one feature after the other.
    """
    of_table = ("table", "combiner", "dtype", "initializer")
    table = {key: options.pop(key) for key in of_table if key in options}
    keras.utils.set_random_seed(0)
    sizes = {f"f{n}": (30 + n, 4 if n < 3 else 2) for n in range(5)}
    features = {
        name: FeatureConfig(name, TableConfig(name, *shape, **{"combiner": None} | table), (None,))
        for name, shape in sizes.items()
    }
    dtypes = dict(zip(sizes, itertools.cycle(ids), strict=False))
    inputs = {name: keras.Input((), dtype=dtypes[name], name=name) for name in sizes}
    vectors = FeatureEmbedding(features, name="features", **options)(inputs)
    scores = keras.layers.Dense(1)(keras.layers.Concatenate()(list(vectors.values())))
    model = keras.Model(inputs, scores)
    optimizer = optimizer or LazyAdam(0.1, global_clipnorm=0.5)
    model.compile(optimizer, "mse", jit_compile=jit_compile, run_eagerly=run_eagerly)
    return model, {name: np.arange(32) % 17 + n for n, name in enumerate(sizes)}


def fit_many(model, ids, epochs=2):
    y = np.arange(len(ids["f0"])) % 3
    model.fit(ids, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0)
    return state(model)


def has_stack(model):
    tables = model.get_layer("features").tables.values()
    return [isinstance(getattr(t.embeddings, "table", None), StackedTable) for t in tables]


@pytest.mark.parametrize(
    ("options", "optimizer"),
    [
        pytest.param({}, lambda: LazyAdam(0.1, clipnorm=0.3), marks=pytest.mark.slow),
        ({"dtype": "bfloat16"}, lambda: LazyAdam(0.1)),  # rounded at random, table by table
        pytest.param(
            {"table": "host", "combiner": "sum"},
            lambda: RowwiseAdagrad(0.1),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {},
            lambda: SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_tables_of_one_width_share_a_variable_and_train_alike(options, optimizer):
    apart, ids = many_features(optimizer=optimizer(), table_stacking=None, **options)
    shared, _ = many_features(optimizer=optimizer(), **options)
    assert has_stack(shared) == [True] * 5 and has_stack(apart) == [False] * 5
    assert fit_many(shared, ids) == fit_many(apart, ids)
    wholes = {
        table.embeddings.table.whole for table in shared.get_layer("features").tables.values()
    }
    assert sorted(whole.rows for whole in wholes) == [33 + 34, 30 + 31 + 32]
    for own, other in zip(shared.variables, apart.variables, strict=True):
        assert (own.name, own.shape, own.dtype) == (other.name, other.shape, other.dtype)


@pytest.mark.parametrize("writer", [None, pytest.param("auto", marks=pytest.mark.slow)])
def test_files_do_not_depend_on_the_sharing(writer, tmp_path):
    reader = None if writer else "auto"
    written, ids = many_features(table_stacking=writer, run_eagerly=True)
    before = fit_many(written, ids)
    written.save(tmp_path / "all.keras")
    written.save_weights(tmp_path / "all.weights.h5")
    tf.train.Checkpoint(model=written).write(tmp_path / "checkpoint")
    loaded = keras.models.load_model(tmp_path / "all.keras")
    loaded.run_eagerly = True
    assert state(loaded) == before and has_stack(loaded) == has_stack(written)
    after = fit_many(written, ids, 1)
    assert fit_many(loaded, ids, 1) == after
    for load in (
        lambda model: model.load_weights(tmp_path / "all.weights.h5"),
        lambda model: (
            tf.train.Checkpoint(model=model).read(tmp_path / "checkpoint").assert_consumed()
        ),
    ):
        model, _ = many_features(table_stacking=reader, run_eagerly=True)
        fit_many(model, ids, 1)  # it has slots, and other rows
        load(model)
        assert state(model) == before
        assert fit_many(model, ids, 1) == after


def test_a_checkpoint_before_the_first_step_has_the_rows(tmp_path):
    model, _ = many_features()
    before = model.get_weights()
    tf.train.Checkpoint(model=model).write(tmp_path / "checkpoint")
    model.set_weights([0 * rows for rows in before])
    tf.train.Checkpoint(model=model).read(tmp_path / "checkpoint")
    for rows, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_a_model_of_an_earlier_version_has_a_variable_for_each_table():
    model, _ = many_features()
    config = model.get_layer("features").get_config()
    assert config.pop("table_stacking") == "auto"
    layer = FeatureEmbedding.from_config(config)
    layer.build()
    assert all(isinstance(t.embeddings.value, tf.Variable) for t in layer.tables.values())
    with pytest.raises(ValueError, match="table_stacking='all'; give 'auto', or None"):
        FeatureEmbedding(configs(), table_stacking="all")


def test_a_table_stays_apart_if_it_is_frozen_and_slots_follow_the_optimizers():
    model, ids = many_features()
    layer = model.get_layer("features")
    copy = layer.from_config(layer.get_config() | {"frozen": ["f0"]})
    copy.build()
    assert isinstance(copy.tables["f0"].embeddings.value, tf.Variable)
    assert isinstance(copy.tables["f1"].embeddings.table, StackedTable)
    before = layer.tables["f1"].get_weights()[0]
    layer.tables["f1"].trainable = False  # after it was made
    adam, sgd = LazyAdam(0.1), SGD(0.1)
    both = keras.optimizers.OptimizerMap(adam, {".*/f2/embeddings": sgd})
    model.compile(keras.optimizers.MultiOptimizer(both), "mse", jit_compile=False)
    rows = {name: table.get_weights()[0] for name, table in layer.tables.items()}
    fit_many(model, ids)
    changed = {n: (t.get_weights()[0] != rows[n]).any() for n, t in layer.tables.items()}
    assert changed == {"f0": True, "f1": False, "f2": True, "f3": True, "f4": True}
    np.testing.assert_array_equal(layer.tables["f1"].get_weights()[0], before)
    slots = {
        slot.table.whole.rows
        for slot in adam.variables
        if "momentum" in slot.path and "emb" in slot.path
    }
    assert slots == {30, 33 + 34}


@pytest.mark.parametrize(
    ("optimizer", "jit", "options"),
    [
        (lambda: keras.optimizers.Adam(0.1), False, {}),
        *(
            pytest.param(*values, {}, marks=pytest.mark.slow)
            for values in [
                (lambda: keras.optimizers.AdamW(0.1, use_ema=True), True),
                (lambda: keras.optimizers.SGD(0.1), True),  # which scatters
                (lambda: keras.optimizers.Adagrad(0.1, gradient_accumulation_steps=2), False),
                (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)), False),
            ]
        ),
        pytest.param(
            lambda: keras.optimizers.Adam(0.1), False, {"dtype": "bfloat16"}, marks=pytest.mark.slow
        ),
    ],
)
def test_keras_own_optimizers_train_shared_tables_as_any_variable(optimizer, jit, options):
    apart, ids = many_features(jit, optimizer(), table_stacking=None, **options)
    shared, _ = many_features(jit, optimizer(), **options)
    assert has_stack(shared) == [True] * 5
    assert fit_many(shared, ids) == fit_many(apart, ids)


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_arithmetic_on_a_shared_table_is_that_on_a_variable(jit):
    found = []
    for stacking in ("auto", None):
        model, ids = many_features(table_stacking=stacking)
        layer = model.get_layer("features")
        layer.tables["f1"].enable_lora(2)
        rows = layer.tables["f0"].embeddings
        vectors = layer(model.input)
        tied = keras.ops.matmul(vectors["f0"], keras.ops.transpose(rows + 0))
        taken = keras.ops.take(rows, model.input["f0"], axis=0)
        every = [tied, taken, *vectors.values()]
        sums = [keras.ops.sum(each, axis=1, keepdims=True) for each in every]
        model = keras.Model(model.input, keras.ops.sum(keras.ops.concatenate(sums, axis=1), axis=1))
        model.compile(LazyAdam(0.1), "mse", jit_compile=jit)
        fit_many(model, ids)
        rows.assign_add(keras.ops.ones_like(rows))
        found.append(model.get_weights())
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


class WholeTable(keras.Model):
    """A model that multiplies by all rows of a table, of which Keras asks the shape first."""

    def __init__(self, features):
        super().__init__()
        self.features, self.score = features, keras.layers.Dense(1)

    def call(self, ids):
        vectors, rows = self.features(ids), self.features.tables["f0"].embeddings
        products = keras.ops.matmul(vectors["f0"], keras.ops.transpose(rows))
        return self.score(keras.ops.concatenate([products, *vectors.values()], axis=1))


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adafactor, LazyAdam])
def test_a_model_reads_a_whole_shared_table(optimizer):
    found = []
    for stacking in ("auto", None):
        trained, ids = many_features(table_stacking=stacking)
        keras.utils.set_random_seed(1)
        model = WholeTable(trained.get_layer("features"))
        model.compile(optimizer(0.1), "mse", jit_compile=False)
        model.train_on_batch(ids, np.ones((32, 1)))
        found.append(model.get_weights())
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_shared_table_is_changed_as_a_whole_or_by_rows_of_its_own():
    model, ids = many_features()
    rows, before = model.get_layer("features").tables["f0"].embeddings, model.get_weights()
    with pytest.raises(ValueError, match="no assignment to a part; assign all rows, or give Fea"):
        rows.value[0:2].assign(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="no scatter_max; assign all rows"):
        rows.value.scatter_max(tf.IndexedSlices(tf.ones([1, 4]), tf.constant([0])))
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be from 0 to 29"):
        rows.value.scatter_update(tf.IndexedSlices(tf.ones([1, 4]), tf.constant([30])))
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    rows.assign(np.ones((30, 4)).tolist())
    assert (rows.numpy() == 1).all()
    assert "share a variable with other tables" in str(audit(model, (ids, np.ones(32))))


def test_refusals_of_shared_tables():
    model, ids = many_features()
    layer, table = model.get_layer("features"), model.get_layer("features").tables["f0"]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.vectorized_map(table, tf.constant(ids["f0"])))
    gradient = tape.gradient(loss, table.embeddings.value)
    for optimizer in (LazyAdam(0.1), keras.optimizers.Adam(0.1)):
        with pytest.raises(ValueError, match=r"dense.*, or give FeatureEmbedding\(..., table_"):
            optimizer.apply([gradient], [table.embeddings])
    with pytest.raises(tf.errors.InvalidArgumentError, match="f0: ids must be from 0 to 29"):
        layer({name: own * 0 + 30 for name, own in ids.items()})
    out = {name: np.array([-1, 99]) for name in ids}
    rows = tf.function(layer, jit_compile=True, autograph=False)(out)
    for name, table in layer.tables.items():  # XLA takes the nearest row of the table
        np.testing.assert_array_equal(rows[name], table.get_weights()[0][[0, -1]])


@pytest.mark.slow
def test_a_saved_model_has_the_rows_of_shared_tables(tmp_path):
    model, ids = many_features()
    fit_many(model, ids)
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    served = loaded.serve({name: tf.constant(own, tf.int32) for name, own in ids.items()})
    np.testing.assert_allclose(served, model.predict(ids, verbose=0), rtol=1e-6)


def test_xla_updates_the_tables_of_one_width_together():
    found = []
    for jit in (False, True):
        model, ids = many_features(jit)
        model.optimizer.build(model.trainable_variables)
        step = model.train_step
        if jit:
            step = tf.function(step, autograph=False, jit_compile=True)
        batch = {name: tf.constant(own, tf.int32) for name, own in ids.items()}, tf.zeros([32, 1])
        for _ in range(3):
            step(batch)
        found.append([*model.get_weights(), *(v.numpy() for v in model.optimizer.variables)])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    program = step.experimental_get_compiler_ir(batch)
    lowered, optimized = program(stage="hlo"), program(stage="optimized_hlo")
    # Numbers of rows; for each width a sum, and the rows and both moments of all its tables.
    assert lowered.count(" scatter(") == 1 + 2 * (1 + 3) and " sort(" not in lowered
    # For each width the rows of all its tables, to look them up and once more to update them.
    assert lowered.count(" gather(") == 1 + 2 * (1 + 3)
    for rows in (30 + 31 + 32, 33 + 34):
        assert not re.findall(rf"f32\[{rows},.*? (?:copy|transpose)\(", optimized)


def steps_of_features(count, combiner, optimizer, shares_table=False):
    """What XLA makes of a call of two steps of a model with so many features of one width."""
    table = TableConfig("shared", 50, 4, combiner=combiner)
    features = {
        f"f{n}": FeatureConfig(
            f"f{n}",
            table if shares_table else TableConfig(f"t{n}", 30 + n, 4, combiner=combiner),
            (None, 3),
        )
        for n in range(count)
    }
    inputs = {name: keras.Input((3,), dtype="int32", name=name) for name in features}
    vectors = FeatureEmbedding(features)(inputs).values()
    model = keras.Model(inputs, keras.layers.Dense(1)(sum(vectors)))
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    size = [2, 16] if combiner else [2, 16, 3]
    data = {name: tf.zeros([2, 16, 3], tf.int32) for name in features}, tf.zeros([*size, 1])
    return one_program(model.train_step).experimental_get_compiler_ir(data)


@pytest.mark.parametrize(
    ("combiner", "optimizer", "shares_table"),
    [
        (None, SGD, False),
        *(
            pytest.param(combiner, LazyAdam, shares_table, marks=pytest.mark.slow)
            for combiner, shares_table in ((None, False), ("mean", False), ("sum", True))
        ),
    ],
)
def test_a_step_of_26_features_reads_and_writes_as_one_of_one_feature(
    combiner, optimizer, shares_table
):
    counts = []
    for features in (1, 26):
        program = steps_of_features(features, combiner, optimizer(0.1), shares_table)
        lowered = program(stage="hlo")
        counts.append([lowered.count(f" {each}(") for each in ("gather", "scatter", "while")])
        assert " sort(" not in lowered and lowered.count(LOOP) == 1
    assert counts[0] == counts[1]
    if optimizer is SGD:  # to compile it takes longer than all the rest
        return
    rows = 50 if shares_table else sum(range(30, 30 + features))
    optimized = program(stage="optimized_hlo")
    assert f"f32[{rows},4]" in optimized
    assert not re.findall(rf"f32\[{rows},4\]\S* (?:copy|transpose)\(", optimized)


def test_xla_updates_a_table_with_a_constraint_apart():
    ids = {name: keras.Input((), dtype="int32", name=name) for name in "ab"}
    limits = {"a": keras.constraints.MaxNorm(0.1, axis=1), "b": None}
    rows = [RowEmbedding(9, 4, "ones", embeddings_constraint=limits[n])(ids[n]) for n in "ab"]
    model = keras.Model(ids, keras.layers.Add()(rows))
    model.compile(SGD(0.1), "mse", jit_compile=True)
    model.train_on_batch({name: np.arange(8) for name in "ab"}, np.zeros((8, 4)))
    norms = [np.linalg.norm(rows_VD[:8], axis=1).max() for rows_VD in model.get_weights()]
    assert norms[0] < 0.11 and norms[1] > 1


@pytest.mark.slow
@pytest.mark.parametrize("table", ["device", "host"])
def test_ids_of_several_dtypes_under_xla(table):
    models = [
        many_features(True, SGD(0.1), table=table, ids=ids)
        for ids in (("int32", "float32", "int64", "uint8"), ("int32",))
    ]
    mixed, alike = (fit_many(*each) for each in models)
    assert has_stack(models[0][0]) == [True] * 5 and mixed == alike


def test_rows_of_float64_keep_their_precision():
    model, ids = many_features(dtype="float64")
    layer, rows = model.get_layer("features"), np.full((30, 4), 1 + 1e-12)
    layer.tables["f0"].set_weights([rows])
    np.testing.assert_array_equal(layer.tables["f0"].get_weights()[0], rows)
    np.testing.assert_array_equal(layer(ids)["f0"], rows[ids["f0"]])


@pytest.mark.parametrize(
    ("initializer", "shared"), [("uniform", False), (keras.initializers.Constant(0.1), True)]
)
def test_large_initial_rows_are_not_made_twice(initializer, shared, monkeypatch):
    """A table whose rows depend on its shape is one of its own; others are made part by part."""
    made, whole = [], table_kinds._initial

    def counted(layer):
        return lambda shape: made.append(shape[0]) or whole(layer)(shape)

    def parts(rows, _):
        return (slice(start, min(start + 7, rows)) for start in range(0, rows, 7))

    monkeypatch.setattr(table_kinds, "_MADE_TWICE", 100)
    monkeypatch.setattr(table_kinds, "_initial", counted)
    monkeypatch.setattr(table_kinds, "row_slices", parts)
    options = {"dtype": "bfloat16", "initializer": initializer}
    model, apart = many_features(**options)[0], many_features(table_stacking=None, **options)[0]
    assert has_stack(model) == [shared] * 5 and made == [7] * 5 * shared
    for ours, theirs in zip(model.get_weights(), apart.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("is_near", [True, False])
def test_a_look_up_in_host_memory_beside_a_gpu_reads_each_row_once(is_near, monkeypatch):
    monkeypatch.setattr(table_variable, "host_is_near", lambda: is_near)
    model, ids = many_features(table="host")
    rows, read = model.get_layer("features").tables["f1"].embeddings, []
    gather = StackedTable.gather
    monkeypatch.setattr(
        StackedTable, "gather", lambda own, i: read.append(len(i)) or gather(own, i)
    )
    found = rows.look_up(tf.constant(ids["f1"]))
    assert read == [len(ids["f1"]) if is_near else len(set(ids["f1"]))]
    np.testing.assert_array_equal(found, rows.numpy()[ids["f1"]])


def test_a_checkpoint_copies_the_rows_of_one_shared_table_to_the_host(monkeypatch, tmp_path):
    model, _ = many_features()
    copied, identity = [], tf.identity
    monkeypatch.setattr(tf, "identity", lambda x: copied.append(tuple(x.shape)) or identity(x))
    tf.train.Checkpoint(model.get_layer("features").tables["f1"]).write(tmp_path / "checkpoint")
    assert copied == [(31, 4)]
