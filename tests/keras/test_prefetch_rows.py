"""Layers with hot rows, with and without `prefetch_rows`, train as a table on the device does."""

import functools
import logging
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    TableMetrics,
    check_inputs,
    prefetch_rows,
)
from app.keras.optimizers import row_sparse
from app.keras.tables import table_kinds
from app.tables.device import DeviceTable
from tests.keras import table_models as models

OPTIMIZERS = {
    "sgd": lambda: SGD(0.1),
    "adagrad": lambda: Adagrad(0.1),
    "adam": lambda: LazyAdam(0.1),
}
WAYS = {
    "fit": (models.fit, {}),
    "several": (models.fit, {"steps_per_execution": 3}),
    "loop": (models.fit_in_tape, {}),
}
# All batches need 48 rows, and a call of three steps needs at most 32.
IDS = np.concatenate([models.IDS, models.IDS[::-1] + 34, models.IDS + 17])
TARGETS = np.random.default_rng(4).normal(size=(len(IDS), 1)).astype(np.float32)
HOT_ROWS = 32
KINDS = ["host", "file", pytest.param("sharded", marks=pytest.mark.slow)]

pytestmark = pytest.mark.usefixtures("far_host")


def data():
    return tf.data.Dataset.from_tensor_slices((tf.constant(IDS), TARGETS)).batch(models.BATCH)


def make_model(kind, folder, optimizer=LazyAdam, hot_rows=HOT_ROWS, **compiled):
    options = {} if kind == "device" else {"hot_rows": hot_rows}
    layer = models.make_layer(kind, folder, **options)
    return models.make_model(layer, optimizer(), **compiled)


def batches_of(model, steps=6):
    return prefetch_rows(data(), model, steps)


def cache_map(model):
    return model.layers[0].embeddings.table.cache_map


@functools.cache
def state_on_the_device(optimizer, way):
    train, compiled = WAYS[way]
    model = make_model("device", None, OPTIMIZERS[optimizer], **compiled)
    train(model, data())
    return models.state(model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("optimizer", "way"),
    [
        ("sgd", "fit"),
        ("adagrad", "several"),
        ("adam", "fit"),
        ("adam", "several"),
        ("adam", "loop"),
    ],
)
@pytest.mark.parametrize("prefetched", [True, False])
def test_rows_and_slots_are_those_of_the_device_bit_for_bit(
    kind, optimizer, way, prefetched, tmp_path
):
    if not prefetched and (optimizer, way) != ("adam", "several"):
        pytest.skip("the other ways read the same table")
    train, compiled = WAYS[way]
    model = make_model(kind, tmp_path, OPTIMIZERS[optimizer], **compiled)
    train(model, batches_of(model) if prefetched else data())
    assert models.state(model) == state_on_the_device(optimizer, way)
    cached = np.count_nonzero(cache_map(model)._ids_C >= 0)
    assert cached == (HOT_ROWS if prefetched else 0)


def test_host_memory_has_no_cache_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(table_kinds, "host_is_near", lambda: True)
    model, dataset = make_model("host", tmp_path), data()
    assert isinstance(model.layers[0].embeddings.table, DeviceTable)
    assert prefetch_rows(dataset, model) is dataset
    assert prefetch_rows(dataset, make_model("device", tmp_path)) is dataset


def test_steps_find_their_rows_in_the_cache(tmp_path):
    model = make_model("host", tmp_path, steps_per_execution=3)
    table = model.layers[0].embeddings.table
    model.fit(batches_of(model), epochs=1, shuffle=False, verbose=0)  # makes the slots
    before = table.version()
    model.fit(batches_of(model), epochs=2, shuffle=False, verbose=0)
    assert table.version() == before


@pytest.mark.slow
def test_metrics_of_the_caches(tmp_path, monkeypatch):
    monkeypatch.setattr(row_sparse, "LARGE", 1)  # no warning says that the table is read whole
    folder, steps = tmp_path / "logs", len(list(data()))
    callbacks = [TableMetrics(), keras.callbacks.TensorBoard(folder)]

    def logs(model):
        model.optimizer.build(model.trainable_variables)
        options = {"epochs": 2, "shuffle": False, "verbose": 0, "callbacks": callbacks}
        return model.fit(batches_of(model), **options).history

    large = logs(make_model("host", tmp_path, hot_rows=models.ROWS))
    row_bytes = 4 * 3 * models.COLUMNS  # with two moments
    assert large["cache_rows"] == [48, 48] and large["cache_evictions"] == [0, 0]
    assert large["cache_bytes"] == [48 * row_bytes / steps, 0]
    assert 0 < large["cache_hit_rate"][0] < 1 and large["cache_hit_rate"][1] == 1
    small = logs(make_model("host", tmp_path))
    assert small["cache_rows"] == [HOT_ROWS, HOT_ROWS] and min(small["cache_evictions"]) > 0
    events = b"".join(path.read_bytes() for path in folder.rglob("events*"))
    assert b"epoch_cache_hit_rate" in events
    device = make_model("device", tmp_path)
    assert "cache_rows" not in device.fit(data(), callbacks=callbacks, shuffle=False).history


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_other_steps_in_between(kind, tmp_path):
    """Validation, training without prefetching, and a loop that is left in the middle."""

    def train(model, batches):
        models.fit(model, batches)
        for number, (ids, targets) in enumerate(batches):
            model.train_on_batch(ids, targets)
            if number == 4:
                break
            if number % 2:
                model.train_on_batch(models.IDS[:8] + 25, models.TARGETS[:8])
        losses = model.fit(
            batches,
            epochs=2,
            shuffle=False,
            verbose=0,
            validation_data=models.data(models.IDS + 30),
        )
        return losses.history

    ours, device = (make_model(k, tmp_path) for k in (kind, "device"))
    assert train(ours, batches_of(ours)) == train(device, data())
    assert models.state(ours) == models.state(device)


@pytest.mark.slow
def test_two_datasets_of_one_model_take_turns(tmp_path):
    ours, device = (make_model(k, tmp_path) for k in ("host", "device"))
    for model in (ours, device):
        pairs = [
            prefetch_rows(dataset, model, 3) if model is ours else dataset
            for dataset in (data(), models.data())
        ]
        for first, second in zip(*pairs, strict=False):
            model.train_on_batch(*first)
            model.train_on_batch(*second)
    assert models.state(ours) == models.state(device)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_saved_and_loaded_in_the_middle_of_an_epoch(kind, tmp_path):
    ours, device = (make_model(k, tmp_path) for k in (kind, "device"))
    for number, batch in enumerate(batches_of(ours)):
        ours.train_on_batch(*batch)
        if number == 7:
            ours.save(tmp_path / "model.keras")
            ours.save_weights(tmp_path / "all.weights.h5")
            before = models.state(ours)
        if number == 8:  # the rows of the next batches were loaded before
            ours.load_weights(tmp_path / "all.weights.h5")
            assert models.state(ours) == before
    for number, batch in enumerate(data()):
        if number != 8:
            device.train_on_batch(*batch)
    assert models.state(ours) == models.state(device)
    if kind == "host":
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert loaded.layers[0].hot_rows == HOT_ROWS
        assert models.state(loaded) == before


class Plain(keras.Model):
    """A subclassed model, which Keras builds when it is first called."""

    def __init__(self, layer):
        super().__init__()
        self.embedding, self.pool = layer, keras.layers.GlobalAveragePooling1D()
        self.dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(3))

    def call(self, inputs):
        return self.dense(self.pool(self.embedding(inputs)))


def sequential(layer):
    return keras.Sequential(Plain(layer).layers)


@pytest.mark.parametrize("make", [Plain, pytest.param(sequential, marks=pytest.mark.slow)])
def test_a_model_that_is_not_built_yet(make):
    read = []
    batches = tf.data.Dataset.from_generator(
        lambda: iter(read.append(1) or data()),
        output_signature=(tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None, 1])),
    ).apply(tf.data.experimental.assert_cardinality(models.STEPS * 3))
    losses = []
    for kind in ("device", "host"):
        initial = keras.initializers.RandomUniform(seed=2)
        options = {} if kind == "device" else {"hot_rows": models.ROWS}
        model = make(RowEmbedding(models.ROWS, 6, initial, table=kind, **options))
        model.compile(LazyAdam(0.1), "mse")
        dataset = prefetch_rows(batches, model, 6)
        assert not read  # nothing of the dataset is used up
        losses.append(models.fit(model, dataset))
        read.clear()
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_cache_too_small_for_a_step(tmp_path):
    model = make_model("host", tmp_path, hot_rows=3)
    message = (
        r"embeddings: one call of steps \(1\) needs 1[0-9] rows, and hot_rows=3; give the layer"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        models.fit(model, batches_of(model))


def test_no_stage_may_follow(tmp_path):
    model = make_model("host", tmp_path)
    for wrong in (
        lambda: batches_of(model).prefetch(2),
        lambda: batches_of(model).map(lambda *batch: batch),
        lambda: model.fit(batches_of(model), class_weight={0: 1.0}, shuffle=False, verbose=0),
    ):
        with pytest.raises(ValueError, match="must be the last stage"):
            wrong()
    with pytest.raises(ValueError, match="steps=0; give a positive number"):
        prefetch_rows(data(), model, 0)


def test_bad_hot_rows():
    with pytest.raises(ValueError, match="hot_rows=5 needs table='host', 'file' or 'sharded'"):
        RowEmbedding(5, 2, hot_rows=5)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [r.message for r in caplog.records if r.name.endswith("table_warnings")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", [models.fit, models.fit_in_tape, models.fit_batches])
def test_without_prefetch_rows_one_line_names_it(kind, train, lines, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path, hot_rows=9))
    for _ in range(2):
        train(model)
    (line,) = lines()
    assert "embeddings: hot_rows is given, but" in line
    assert "keras.prefetch_rows(dataset, model)" in line


@pytest.mark.slow
def test_one_line_names_all_tables_of_a_model(lines):
    inputs = keras.Input((3,), dtype="int64")
    layers = [RowEmbedding(9, 2, table="host", hot_rows=5, name=name) for name in ("one", "two")]
    model = keras.Model(inputs, layers[0](inputs) + layers[1](inputs))
    model.compile(LazyAdam(0.1), "mse")
    ids = models.IDS[:4, :3] % 9
    model.fit(ids, layers[0](ids), verbose=0)
    (line,) = lines()
    assert line.startswith("one/embeddings, two/embeddings: ")


@pytest.mark.slow
def test_nothing_is_said_with_prefetch_rows_or_without_a_cache(lines, tmp_path):
    model = models.make_model(models.make_layer("host", tmp_path, hot_rows=40))
    models.fit(model, prefetch_rows(models.data(), model))
    models.fit(model)  # the user knows it
    models.fit(models.make_model(models.make_layer("host", tmp_path)))
    cold = models.make_model(models.make_layer("host", tmp_path, hot_rows=40))
    cold.evaluate(models.data(), verbose=0)
    assert lines() == []


# `check_inputs` refuses ids that have no row where XLA would train another row.


WRONG_IDS = models.IDS.copy()
WRONG_IDS[1, 2], WRONG_IDS[3, 0] = models.ROWS, -7  # in the first batch


def make_checked(kind, folder, **options):
    layer = models.make_layer(kind, folder, name="words", **options)
    return models.make_model(layer, jit_compile=kind == "device" or None)


def state(model):
    """All but the number of steps, which TensorFlow may count before it takes the batch."""
    variables = [*model.variables, *model.optimizer.variables]
    return [v.numpy().tobytes() for v in variables if v.name != "iteration"]


def refuse(model, batches):
    """Nothing is trained, and the error names the layer and the wrong ids."""
    before = state(model)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        models.fit(model, batches)
    text = " ".join(re.sub(r"[\[\]']", "", str(raised.value)).split())
    message = "words: ids must be from 0 to 49; the smallest id out of range is -7 and the largest"
    assert f"{message} {models.ROWS}" in text
    assert state(model) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", *models.KINDS])
def test_wrong_ids_are_refused_before_a_step(kind, tmp_path):
    model = make_checked(kind, tmp_path)
    model.optimizer.build(model.trainable_variables)
    refuse(model, check_inputs(models.data(WRONG_IDS), model))
    models.fit(model, check_inputs(models.data(), model))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_prefetched_batches_are_checked_as_well(kind, tmp_path):
    model = make_checked(kind, tmp_path, hot_rows=40)
    model.optimizer.build(model.trainable_variables)
    refuse(model, prefetch_rows(models.data(WRONG_IDS), model))
    models.fit(model, prefetch_rows(models.data(), model))


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "nearest"), [(models.ROWS, models.ROWS - 1), (-3, 0)])
def test_without_the_check_xla_reads_another_row_and_trains_none(wrong, nearest, tmp_path):
    """The reason for the check."""
    model = make_checked("device", tmp_path)
    wrong, nearest = (np.full((8, models.LENGTH), i) for i in (wrong, nearest))
    np.testing.assert_array_equal(model.predict(wrong), model.predict(nearest))
    dense = model.layers[-1].get_weights()[0]
    model.train_on_batch(wrong, models.TARGETS[:8])
    assert (model.layers[-1].get_weights()[0] != dense).all()
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)


@pytest.mark.parametrize("dress", [check_inputs, prefetch_rows])
@pytest.mark.parametrize("form", ["pair", "alone", "named", "weighted"])
def test_batches_are_those_of_the_dataset(form, dress, tmp_path):
    forms = {
        "pair": lambda x, y: (x, y),
        "alone": lambda x, y: x,
        "named": lambda x, y: {"ids": x},
        "weighted": lambda x, y: ({"ids": x}, y, y),
    }
    inputs = keras.Input((models.LENGTH,), dtype="int64", name="ids")
    layer = models.make_layer("host", tmp_path, hot_rows=40)
    model = keras.Model({"ids": inputs}, layer(inputs))
    model.compile(LazyAdam(0.1), "mse")
    dataset = models.data().map(forms[form])
    names_inputs = {"pair": lambda batch: {"ids": batch[0]}, "alone": lambda x: {"ids": x}}
    dressed = dress(dataset, model, inputs=names_inputs.get(form))
    assert dressed.element_spec == dataset.element_spec
    assert dressed.cardinality() == dataset.cardinality()
    for ours, theirs in zip(dressed, dataset, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.slow
def test_every_input_and_layer_is_checked():
    left, right = (keras.Input((3,), dtype="int32", name=name) for name in ("left", "right"))
    words = RowEmbedding(5, 2, name="words")
    bag = RowEmbeddingReduce(9, 2, name="bag")(right)
    model = keras.Model([left, right], [words(left), words(right), bag])
    model.compile(LazyAdam(0.1), "mse")
    for name, wrong in (("words", ([[0, 5, 1]], [[0, 1, 2]])), ("bag", ([[0, 1, 2]], [[0, 9, 1]]))):
        dataset = tf.data.Dataset.from_tensors((tuple(map(tf.constant, wrong)),))
        with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be from 0 to") as raised:
            list(check_inputs(dataset, model))
        assert name in str(raised.value)


def test_a_model_that_is_not_built_is_built_by_the_check():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.words = RowEmbedding(models.ROWS, 2, name="words")

        def call(self, ids):
            return self.words(ids)

    model = Model()
    assert len(list(check_inputs(models.data(), model))) == models.STEPS
    assert model.words.built


@pytest.mark.parametrize("dress", [check_inputs, prefetch_rows])
def test_batches_of_another_form_are_refused(dress, tmp_path):
    model = models.make_model(models.make_layer("host", tmp_path, hot_rows=9))
    named = models.data().map(lambda x, y: ({"left": x, "right": x}, y))
    for dataset in (named, models.data().unbatch(), models.data(models.strings())):
        with pytest.raises(ValueError, match=r"inputs of sequential\w* are .*; give inputs=, a"):
            dress(dataset, model)
    with pytest.raises(ValueError, match=r"dataset is a tuple; make it a tf\.data\.Dataset"):
        dress((models.IDS, models.TARGETS), model)
    with pytest.raises(ValueError, match="^model is int; give a Model of Keras"):
        dress(models.data(), 3)
    if dress is prefetch_rows:
        model = models.make_model(models.make_layer("file", tmp_path, hot_rows=9))
        again = prefetch_rows(models.data(), model).repeat(2)
        with pytest.raises(ValueError, match="^dataset is one of prefetch_rows already; prefetch_"):
            prefetch_rows(again, model)
