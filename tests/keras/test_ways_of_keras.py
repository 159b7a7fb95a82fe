"""What Keras does to a gradient or a variable on its way is done to every kind of table."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    DynamicEmbedding,
    FeatureConfig,
    FeatureEmbedding,
    Ftrl,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowEmbedding,
    RowEmbeddingReduce,
    RowwiseAdagrad,
    TableConfig,
)
from tests.keras import table_models as models
from tests.keras.models import dtype_policy
from tests.keras.table_models import (
    BATCH,
    COLUMNS,
    IDS,
    LENGTH,
    ROWS,
    TARGETS,
    fit_batches,
    fit_in_tape,
)

FAR = ("host", "file", "sharded", "dynamic", "strings")
START = keras.initializers.Constant(0.5)
OptimizerMap, MultiOptimizer = keras.optimizers.OptimizerMap, keras.optimizers.MultiOptimizer
TheirScale = keras.optimizers.LossScaleOptimizer


class Halve(keras.callbacks.Callback):
    """Assigns weights after each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        layer = self.model.layers[0]
        layer.set_weights([w * 0.5 if w.dtype.kind == "f" else w for w in layer.get_weights()])


# Name -> the optimizer, and the arguments of `trained`.
WAYS = {
    "scaled": (lambda: SGD(0.1), {"policy": "mixed_float16"}),
    "scaled_by_keras": (lambda: TheirScale(LazyAdam(0.1), initial_scale=8.0), {}),
    "scale_skips": (
        lambda: TheirScale(LazyAdam(0.1), initial_scale=2.0**20),
        {"policy": "mixed_float16"},
    ),
    "scaled_multi": (
        lambda: TheirScale(MultiOptimizer(OptimizerMap(SGD(0.1), {".*dense/.*": LazyAdam(0.1)}))),
        {},
    ),
    "scaled_made": (lambda: TheirScale(MultiOptimizer(lambda _: SGD(0.1))), {}),
    "scale_factor": (lambda: SGD(0.1, loss_scale_factor=16.0), {}),
    "bfloat16": (lambda: LazyAdam(0.1), {"policy": "mixed_bfloat16"}),
    "multi": (lambda: MultiOptimizer(OptimizerMap(LazyAdam(0.1), {".*dense/.*": SGD(0.1)})), {}),
    "multi_made": (lambda: MultiOptimizer(lambda _: LazyAdam(0.1)), {}),
    "clipnorm": (lambda: SGD(0.1, clipnorm=0.01), {}),
    "clipvalue": (lambda: SGD(0.1, clipvalue=0.001), {}),
    "global_clipnorm": (lambda: LazyAdam(0.1, global_clipnorm=0.01), {}),
    "momentum": (lambda: SGD(0.1, momentum=0.9, nesterov=True), {}),
    "rowwise": (lambda: RowwiseAdagrad(0.1, initial_accumulator_value=0.2), {}),
    "corrected": (lambda: LazyAdam(0.1, correct_skipped=True, amsgrad=True), {}),
    "weight_decay": (lambda: LazyAdamW(0.1, weight_decay=0.1), {}),
    "accumulation": (lambda: LazyAdam(0.1, gradient_accumulation_steps=2), {}),
    "rate_of_callback": (
        lambda: SGD(0.1),
        {"callbacks": [keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (1 + epoch))]},
    ),
    "weights_of_callback": (lambda: LazyAdam(0.1), {"callbacks": [Halve()]}),
    "schedule": (
        lambda: LazyAdam(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
        {},
    ),
    "eager": (lambda: LazyAdam(0.1), {"run_eagerly": True}),
    "steps_per_execution": (lambda: LazyAdam(0.1), {"steps_per_execution": 3}),
    "batches": (lambda: LazyAdam(0.1), {"way": "batches"}),
    "tape": (lambda: LazyAdam(0.1), {"way": "tape"}),
    "adagrad": (lambda: Adagrad(0.1), {}),
    "ftrl": (lambda: Ftrl(0.1, l1_regularization_strength=0.01), {}),
    "accumulation_in_tape": (
        lambda: LazyAdam(0.1, gradient_accumulation_steps=2),
        {"way": "tape"},
    ),
    "scaled_accumulation": (
        lambda: TheirScale(LazyAdam(0.1, gradient_accumulation_steps=2), initial_scale=8.0),
        {},
    ),
    "constraint": (lambda: LazyAdam(0.1), {"layer": {"embeddings_constraint": "non_neg"}}),
    "half": (lambda: LazyAdam(0.01), {"layer": {"dtype": "float16"}}),
    "bfloat16_table": (lambda: LazyAdam(0.01), {"layer": {"dtype": "bfloat16"}}),
}
# Each of the other cases is a run like these, by another path of Keras.
QUICK = {("scaled", "strings"), ("scaled", "file"), ("scaled_made", "host"), ("tape", "file")}
CASES = [
    pytest.param(way, kind, marks=() if (way, kind) in QUICK else pytest.mark.slow)
    for way, (_, options) in WAYS.items()
    for kind in FAR
    # Keys have no constraint, rows in float32, and sums of gradients only of integers.
    if not (kind in ("dynamic", "strings") and "layer" in options)
    if not (kind == "strings" and "accumulation" in way)
]


def make_table(kind, folder, **options):
    options = {"embeddings_initializer": START, "name": "words"} | options
    if kind in ("dynamic", "strings"):
        key_dtype = "int64" if kind == "dynamic" else "string"
        return DynamicEmbedding(COLUMNS, key_dtype, capacity=ROWS, **options)
    if kind == "file":
        options["table_file"] = str(folder / f"rows{len(list(folder.iterdir()))}.bin")
    return RowEmbedding(ROWS, COLUMNS, table=kind, **options)


def make_model(layer, optimizer, **compiled):
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense(1, name="dense", dtype="float32")
    inputs = keras.Input((LENGTH,), dtype=getattr(layer, "key_dtype", "int64"))
    model = keras.Sequential([inputs, layer, keras.layers.Flatten(), dense])
    model.compile(optimizer, loss="mse", **compiled)
    return model


def trained(layer_of, optimizer, policy="float32", way="fit", callbacks=(), ids=IDS, **compiled):
    with dtype_policy(policy):
        model = make_model(layer_of(), optimizer(), **compiled)
        if getattr(model.layers[0], "key_dtype", None) == "string":
            ids = tf.strings.as_string(ids)
        batches = tf.data.Dataset.from_tensor_slices((tf.constant(ids), TARGETS)).batch(BATCH)
        if way == "fit":
            model.fit(batches, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
        else:
            {"batches": fit_batches, "tape": fit_in_tape}[way](model, batches)
    return model


def rows_of(model, name="words"):
    """The rows of the ids in use, whatever the kind of the table."""
    return rows_of_layer(model.get_layer(name))


def rows_of_layer(layer):
    table, ids = layer.embeddings, np.unique(IDS)
    ids = tf.strings.as_string(ids) if getattr(layer, "key_dtype", None) == "string" else ids
    found = table.look_up(ids) if hasattr(table, "look_up") else tf.gather(table.value, ids)
    return tf.cast(found, tf.float32).numpy()


def everything_else(model):
    """The other weights, and what the optimizers count."""
    scale = getattr(model.optimizer, "dynamic_scale", None)
    weights = [*model.get_layer("dense").get_weights(), model.optimizer.iterations.numpy()]
    return [w.tobytes() for w in weights] + ([] if scale is None else [float(scale)])


@pytest.mark.parametrize(("way", "kind"), CASES)
def test_every_kind_trains_as_the_device(way, kind, tmp_path):
    optimizer, options = WAYS[way]
    layer = options.get("layer", {})
    options = {name: value for name, value in options.items() if name != "layer"}
    ours, device = (
        trained(lambda k=k: make_table(k, tmp_path, **layer), optimizer, **options)
        for k in (kind, "device")
    )
    if kind in models.KINDS:  # whose rows and slots have the order of the ids
        assert models.state(ours) == models.state(device)
    else:
        assert len(ours.layers[0].key_map) == len(np.unique(IDS))
    rows = rows_of(ours)
    assert rows.tobytes() == rows_of(device).tobytes()
    assert everything_else(ours) == everything_else(device)
    assert np.isfinite(rows).all() and (rows != 0.5).any()


@pytest.mark.slow
@pytest.mark.parametrize("maker", ["feature", "reduce"])
@pytest.mark.parametrize("kind", ["host", "file", "sharded"])
def test_layers_of_tables_train_as_on_the_device_under_a_loss_scale(maker, kind, tmp_path):
    found = []
    for each in (kind, "device"):
        model = trained(
            lambda k=each: MAKERS[maker](k, tmp_path), lambda: SGD(0.1), policy="mixed_float16"
        )
        layer = model.layers[0]
        found.append(rows_of_layer(layer.tables["words"] if maker == "feature" else layer))
    assert found[0].tobytes() == found[1].tobytes() and (found[0] != 0.5).any()


def quick_for(*quick, of):
    """Return a mark for tests of kinds of tables that are quick only for some of them."""
    return pytest.mark.parametrize(
        "kind", [pytest.param(k, marks=() if k in quick else pytest.mark.slow) for k in of]
    )


@quick_for("dynamic", of=["device", *FAR[:-1]])
def test_keras_own_loss_scale_becomes_ours(kind, tmp_path):
    with dtype_policy("mixed_float16"):
        model = make_model(make_table(kind, tmp_path), LazyAdam(0.1))
        assert type(model.optimizer) is TheirScale  # until the first step
        model.train_on_batch(IDS[:BATCH], TARGETS[:BATCH])
    assert type(model.optimizer) is LossScaleOptimizer
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(model.optimizer))
    assert type(copy) is LossScaleOptimizer and type(copy.inner_optimizer) is LazyAdam


# How a layer is frozen: at its making, before and after it is built.
FREEZE = {
    "made": lambda make: make(trainable=False),
    "before": lambda make: _frozen(make(), built=False),
    "after": lambda make: _frozen(make(), built=True),
}


def _frozen(layer, built):
    if built:
        layer.build((None, LENGTH))
    layer.trainable = False
    return layer


def _feature(kind, folder, **options):
    file = {"table_file": str(folder / "feature.bin")} if kind == "file" else {}
    table = TableConfig("words", ROWS, COLUMNS, START, combiner=None, table=kind, **file)
    return FeatureEmbedding(FeatureConfig("ids", table, (None, LENGTH)), **options)


def _reduce(kind, folder, **options):
    file = {"table_file": str(folder / "reduce.bin")} if kind == "file" else {}
    return RowEmbeddingReduce(
        ROWS, COLUMNS, embeddings_initializer=START, table=kind, **file, **options
    )


MAKERS = {"plain": make_table, "feature": _feature, "reduce": _reduce}
FROZEN = [
    pytest.param(maker, kind, how, marks=() if how == "made" else pytest.mark.slow)
    for maker in MAKERS
    for kind in ("device", *FAR[:-1])
    for how in FREEZE
    if kind != "dynamic" or maker == "plain"
]


@pytest.mark.parametrize(("maker", "kind", "how"), FROZEN)
def test_a_frozen_table_is_not_trained(maker, kind, how, tmp_path):
    layer = FREEZE[how](lambda **options: MAKERS[maker](kind, tmp_path, **options))
    model = make_model(layer, SGD(0.1))
    model.train_on_batch(IDS[:BATCH], TARGETS[:BATCH])
    assert [v.path.split("dense/")[-1] for v in model.trainable_variables] == ["kernel", "bias"]
    table = layer.tables["words"] if maker == "feature" else layer
    assert (rows_of_layer(table) == 0.5).all()
    config = type(layer).from_config(layer.get_config() | {"name": "copy"})
    assert not config.trainable
    if maker == "feature":
        assert not config.tables["words"].trainable
    layer.trainable = True
    assert len(model.trainable_variables) == 3


@quick_for("file", of=["device", *FAR])
def test_an_average_of_all_rows_is_refused(kind, tmp_path):
    model = make_model(make_table(kind, tmp_path), LazyAdam(0.1, use_ema=True))
    ids = tf.strings.as_string(IDS) if kind == "strings" else IDS
    with pytest.raises(ValueError, match="use_ema would read and write every row of .*leave it"):
        model.train_on_batch(ids[:BATCH], TARGETS[:BATCH])


ATTRIBUTES = ("trainable", "name", "path", "dtype", "autocast", "regularizer", "constraint", "ndim")


@pytest.mark.parametrize("kind", ["host", "file", "sharded", "dynamic"])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_attributes_of_a_variable_are_those_of_keras(kind, policy, tmp_path):
    stock = keras.layers.Embedding(ROWS, COLUMNS, name="words", dtype=policy)
    ours = make_table(kind, tmp_path, dtype=policy)
    copy = type(ours).from_config(ours.get_config())
    for layer in (stock, ours, copy):
        layer.build((None, LENGTH))
    theirs = stock.embeddings
    for layer in (ours, copy):
        for name in ATTRIBUTES:
            assert getattr(layer.embeddings, name, None) == getattr(theirs, name, None), name
        assert (layer.dtype, layer.compute_dtype, layer.variable_dtype, layer.autocast) == (
            *(stock.dtype, stock.compute_dtype, stock.variable_dtype),
            stock.autocast,
        )


@quick_for("dynamic", of=["device", "host", "dynamic"])
def test_a_checkpoint_has_the_slots_of_a_multi_optimizer(kind, tmp_path):
    def make():
        inner = {".*words/.*": LazyAdam(0.1)}
        optimizer = MultiOptimizer(OptimizerMap(keras.optimizers.Adam(0.1), inner))
        return make_model(make_table(kind, tmp_path), optimizer)

    model, other = make(), make()
    for at in range(0, 3 * BATCH, BATCH):
        model.train_on_batch(IDS[at : at + BATCH], TARGETS[at : at + BATCH])
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "c"))
    other.train_on_batch(IDS[:BATCH], TARGETS[:BATCH])
    restored = tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    restored.assert_existing_objects_matched()
    for each in (model, other):
        each.train_on_batch(IDS[-BATCH:], TARGETS[-BATCH:])
    assert rows_of(model).tobytes() == rows_of(other).tobytes()
    assert everything_else(model) == everything_else(other)
