"""`DynamicEmbedding` gives keys rows as they are trained, and trains them as any table."""

import copy
import io
import pickle
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding, LazyAdam
from tests.keras import table_models as models


def make_model(key_dtype="int64", optimizer=None, **options):
    options = {"capacity": 40, "embeddings_initializer": "zeros"} | options
    layer = DynamicEmbedding(models.COLUMNS, key_dtype, **options)
    return models.make_model(layer, optimizer, key_dtype)


def keys(key_dtype, ids=models.IDS):
    return ids * 10**12 - 7 if key_dtype == "int64" else models.strings(ids)


def test_a_look_up_makes_no_row():
    model = make_model()
    model.evaluate(models.data(keys("int64")), verbose=0)
    model.predict(keys("int64"), verbose=0)
    assert len(model.layers[0].key_map) == 0
    assert model.count_params() == models.LENGTH * models.COLUMNS + 1


@pytest.mark.slow
def test_keys_get_a_row_when_they_were_trained_often_enough():
    model = make_model(min_count=3)
    batch = np.array([[1, 1, 2, 3]]), np.zeros((1, 1))
    for expected in (0, 0, 3):
        model.train_on_batch(*batch)
        assert len(model.layers[0].key_map) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("eviction", "kept"), [("lfu", [0, 1]), ("lru", [6, 7])])
def test_the_rule_of_eviction(eviction, kept, tmp_path):
    """Keys 0 and 1 are seen in the most steps, 6 and 7 in the last one."""
    model = make_model(capacity=8, optimizer=LazyAdam(0.1), eviction=eviction)
    for keys_1L in (*[[0, 1, 0, 1]] * 3, [2, 3, 4, 5], [4, 5, 6, 7]):
        model.train_on_batch(np.array([keys_1L]), np.ones((1, 1)))
    layer = model.layers[0]
    before = layer(np.arange(8)).numpy()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for trained in (model, loaded):
        trained.train_on_batch(np.array([[100, 101, 102, 103]]), np.ones((1, 1)))
    assert models.state(loaded) == models.state(model)
    assert loaded.layers[0].eviction == eviction
    np.testing.assert_array_equal(loaded.layers[0].key_map.keys(), layer.key_map.keys())
    in_use = layer.key_map.keys().tolist()
    assert set(kept) < set(in_use) and len(in_use) == 8
    survivors = [key for key in in_use if key < 100]
    np.testing.assert_array_equal(layer(np.array(survivors)), before[survivors])


@pytest.mark.parametrize("key_dtype", ["int64", "string"])
@pytest.mark.parametrize("min_count", [1, 2])
def test_a_table_takes_the_bytes_that_it_may(key_dtype, min_count):
    allowed = 3_000_000
    layer = DynamicEmbedding(16, key_dtype, max_bytes=allowed, min_count=min_count)
    layer.build()
    new = np.arange(layer.capacity)
    if key_dtype == "string":  # of 12 bytes
        new = np.array([b"%12d" % key for key in new], object)
    for _ in range(min_count):
        layer.embeddings.table.see(new, np.ones(len(new), int))
    assert len(layer.key_map) == layer.capacity
    choice = 24 * layer.capacity  # while rows are chosen to be evicted
    assert layer.embeddings.table.bytes() + choice == pytest.approx(allowed, rel=1e-3)
    again = DynamicEmbedding.from_config(layer.get_config())
    assert again.capacity == layer.capacity and again.max_bytes == allowed
    assert DynamicEmbedding(16, max_bytes=allowed, capacity=9).capacity == 9


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["keras", "checkpoint"])
@pytest.mark.parametrize("key_dtype", ["int64", "string"])
def test_a_run_that_is_saved_goes_on_as_if_it_had_never_stopped(key_dtype, saved, tmp_path):
    options = {"embeddings_initializer": "uniform", "min_count": 2}
    model, other = (make_model(key_dtype, **options) for _ in range(2))
    batches = models.data(keys(key_dtype))
    models.fit(model, batches)
    if saved == "keras":
        model.save(tmp_path / "model.keras")
        other = keras.models.load_model(tmp_path / "model.keras")
        unknown = tf.constant(keys(key_dtype, np.array([[1000, 1, 2, 1001]])))
        np.testing.assert_array_equal(other(unknown), model(unknown))
    else:
        tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
        other.optimizer.build(other.trainable_variables)
        tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint")).assert_consumed()
    assert models.state(other) == models.state(model)
    for each in (model, other):
        models.fit(each, batches)
    assert models.state(other) == models.state(model)


def test_ragged_keys():
    layer = DynamicEmbedding(3, "string", capacity=5)
    rows = layer(tf.ragged.constant([["a", "b"], [], ["c"]]))
    assert rows.shape == (3, None, 3)
    np.testing.assert_array_equal(rows.values, layer(tf.constant(["a", "b", "c"])))


@pytest.mark.slow
def test_a_batch_with_more_keys_than_rows():
    model = make_model(capacity=3)
    with pytest.raises(tf.errors.OpError, match="rows are full .*: give a greater capacity"):
        model.train_on_batch(np.arange(4)[np.newaxis], np.ones((1, 1)))
    assert len(model.layers[0].key_map) == 0


def test_bad_arguments():
    with pytest.raises(ValueError, match="key_dtype='float'; give 'int64' or 'string'"):
        DynamicEmbedding(3, "float")
    with pytest.raises(ValueError, match="users: eviction='fifo'; give 'lfu' or 'lru'"):
        DynamicEmbedding(3, eviction="fifo", name="users")
    with pytest.raises(ValueError, match="users: max_bytes=9, and a row with its key takes 68"):
        DynamicEmbedding(3, max_bytes=9, name="users")
    with (
        tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match="users has its rows in each .* of CentralStorage"),
    ):
        DynamicEmbedding(3, name="users")(tf.constant([1]))


COPIES = {
    "as they are": lambda arrays: arrays,
    "deepcopy": copy.deepcopy,
    "np.array": lambda arrays: [np.array(array) for array in arrays],
    "pickle": lambda arrays: pickle.loads(pickle.dumps(arrays)),
    "scaled rows": lambda arrays: [arrays[0], *(0.5 * array for array in arrays[1:])],
    "all scaled": lambda arrays: [0.5 * array for array in arrays],
}


@pytest.mark.parametrize("key_dtype", ["int64", pytest.param("string", marks=pytest.mark.slow)])
def test_rows_of_other_keys_are_refused_in_every_copy(key_dtype):
    model = make_model(key_dtype, capacity=4)
    ids = np.resize(np.repeat(np.arange(4), models.LENGTH), models.IDS.shape)
    models.fit(model, models.data(keys(key_dtype, ids)))
    copies = {name: make(model.get_weights()) for name, make in COPIES.items()}
    for name, weights in copies.items():
        if name != "all scaled":  # which scales the keys, too
            model.set_weights(weights)
            np.testing.assert_array_equal(model.get_weights()[1], weights[1])
    for _ in range(3):  # evicts the keys of all rows
        models.fit(model, models.data(keys(key_dtype, ids + 100)))
    before = model.get_weights()
    for weights in copies.values():
        assert weights[1].shape == before[1].shape
        with pytest.raises(ValueError, match="rows belong to other keys than the layer has now; "):
            model.set_weights(weights)
    for array, same in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(array, same)


def test_a_copy_of_a_layer_that_is_built_or_not():
    layer = DynamicEmbedding(2, embeddings_initializer="ones")
    other = copy.deepcopy(layer)
    assert not other.built
    assert not other.weights
    model = models.make_model(layer)
    models.fit(model)
    other = copy.deepcopy(layer)
    for array, same in zip(other.get_weights(), layer.get_weights(), strict=True):
        np.testing.assert_array_equal(array, same)


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda keys: keys[:-30], "are damaged: File is not a zip file"),
        (lambda keys: npz(counts=np.zeros(3, np.uint8)), r"cannot be read: keys.json is missing"),
        (
            lambda keys: npz(**{"keys.json": np.frombuffer(b"[7]", np.uint8)}),
            r"cannot be read: keys.json is damaged: it holds",
        ),
    ],
)
def test_a_checkpoint_whose_keys_are_hostile(make, message):
    layer = DynamicEmbedding(2, name="users")
    models.fit(models.make_model(layer, run_eagerly=True))
    before = layer.get_weights()
    with pytest.raises(ValueError, match=f"^users: the .*{message}.*; .*of this model$") as caught:
        layer._keys.deserialize(make(layer._keys.serialize()))
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(layer.get_weights()[0], before[0])


def test_a_checkpoint_before_the_first_step_has_no_rows(tmp_path):
    layers = DynamicEmbedding(2, name="users"), DynamicEmbedding(2, name="users")
    for layer in layers:
        layer.build()
    tf.train.Checkpoint(layers[0]).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(layers[1]).read(str(tmp_path / "checkpoint")).assert_consumed()
    assert tuple(layers[1].embeddings.shape) == (0, 2)


def test_a_checkpoint_writes_no_file_outside_of_its_folder(tmp_path, monkeypatch):
    layer = DynamicEmbedding(2, name="users")
    models.fit(models.make_model(layer, run_eagerly=True))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    outside = {str(tmp_path / "absolute"): np.zeros(5, np.uint8)}
    outside.update({f"{'../' * ups}relative": np.zeros(5, np.uint8) for ups in (1, 2)})
    with np.load(io.BytesIO(layer._keys.serialize())) as files:
        layer._keys.deserialize(npz(**files, **outside))
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]
    assert len(layer.key_map) == len(np.unique(models.IDS))
