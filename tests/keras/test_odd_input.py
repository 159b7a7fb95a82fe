"""Arguments and input that cannot be are refused by the name of the layer; empty input is fine."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding, RowEmbedding, RowEmbeddingReduce, prefetch_rows
from tests.keras import table_models as models

KINDS = ("device", *models.KINDS)
every_kind = pytest.mark.parametrize("kind", KINDS)
STRINGS = r"words: the ids are string, .*StringLookup .*keras\.DynamicEmbedding\(6, 'string'\)"


@every_kind
def test_ids_that_are_strings(kind, tmp_path):
    layer = models.make_layer(kind, tmp_path, name="words")
    for ids in (tf.constant(["a"]), np.array(["a"]), keras.Input((3,), dtype="string")):
        with pytest.raises(ValueError, match=STRINGS):
            layer(ids)
    with pytest.raises(ValueError, match="words: the ids are complex128, where the layer takes"):
        layer(tf.constant([1j]))


def test_strings_to_combine():
    layer = RowEmbeddingReduce(5, 6, name="words")
    for ids in (tf.constant([["a"]]), keras.Input((3,), dtype="string")):
        with pytest.raises(ValueError, match=STRINGS):
            layer(ids)


@pytest.mark.parametrize("own", ["int64", "string"])
def test_keys_of_another_dtype(own):
    layer = DynamicEmbedding(3, own, name="users")
    for other in {"int64", "string", "float32"} - {own}:
        keys = tf.constant(["1"]) if other == "string" else tf.constant([1], other)
        for given in (keys, keras.Input((), dtype=other)):
            match = f"users: the keys are {other}, where the layer has {own} keys; give these"
            with pytest.raises(ValueError, match=match):
                layer(given)
    with pytest.raises(ValueError, match="users: the keys are a sparse tensor; give ragged keys"):
        layer(tf.sparse.from_dense(["a"] if own == "string" else [1]))


def test_keys_whose_dtype_keras_guesses():
    model = keras.Sequential([DynamicEmbedding(3, "int64", name="users")])
    with pytest.raises(ValueError, match=r"users: .* needs keras.Input\(..., dtype='int64'\)"):
        model.build((None, 2))


@pytest.mark.parametrize("value", [0, -3, 2.5, "7", True, None])
def test_sizes_that_are_no_positive_integers(value):
    names = (
        ("output_dim", "min_count") if value is None else ("output_dim", "capacity", "min_count")
    )
    for name in names:
        with pytest.raises(
            ValueError, match=rf"^users: {name}={value!r}; give an integer from 1 to"
        ):
            DynamicEmbedding(**{"output_dim": 3, "name": "users"} | {name: value})
    if value is not None:
        with pytest.raises(ValueError, match=rf"^words: hot_rows={value!r}; give a number of rows"):
            RowEmbedding(5, 3, table="host", hot_rows=value, name="words")


def test_other_arguments_of_a_table_of_keys():
    with pytest.raises(ValueError, match="users: max_age=-1; give an integer from 0 to"):
        DynamicEmbedding(3, max_age=-1, name="users")
    with pytest.raises(ValueError, match="users: min_count=256; give an integer from 1 to 255"):
        DynamicEmbedding(3, min_count=256, name="users")
    for initializer in (
        "glorot_uniform",
        keras.initializers.Constant(np.ones(3)),
        keras.initializers.RandomUniform(seed=keras.random.SeedGenerator(1)),
    ):
        with pytest.raises(
            ValueError, match=r"^users: embeddings_initializer=.* makes whole tables"
        ):
            DynamicEmbedding(3, embeddings_initializer=initializer, name="users")


@pytest.mark.slow
def test_a_cache_with_room_for_more_rows_than_there_are(tmp_path):
    ours, device = (
        models.make_model(models.make_layer(kind, tmp_path, **options))
        for kind, options in (("host", {"hot_rows": 10 * models.ROWS}), ("device", {}))
    )
    models.fit(ours, prefetch_rows(models.data(), ours))
    models.fit(device)
    assert models.state(ours) == models.state(device)


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("compiled", [{}, {"run_eagerly": True}, {"jit_compile": True}])
def test_an_empty_batch_trains_nothing(kind, compiled, tmp_path):
    if kind not in ("device", "host") and "jit_compile" in compiled:
        pytest.skip("Keras does not compile it")
    check_empty(models.make_model(models.make_layer(kind, tmp_path), **compiled), np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("key_dtype", ["int64", "string"])
def test_an_empty_batch_of_keys_trains_nothing(key_dtype):
    layer = DynamicEmbedding(models.COLUMNS, key_dtype, capacity=5)
    check_empty(models.make_model(layer, dtype=key_dtype), object)


def check_empty(model, dtype):
    before = model.get_weights()
    empty = np.zeros((0, models.LENGTH), dtype)
    if dtype is object:
        empty = tf.zeros(empty.shape, model.layers[0].key_dtype)
    model.train_on_batch(empty, models.TARGETS[:0])
    assert model.predict_on_batch(empty).shape == (0, 1)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_an_empty_batch_is_prefetched(tmp_path):
    model = models.make_model(models.make_layer("host", tmp_path, hot_rows=9))
    empty = tf.data.Dataset.from_tensors((models.IDS[:0], models.TARGETS[:0]))
    for batch in prefetch_rows(empty, model):
        model.train_on_batch(*batch)
    assert list(prefetch_rows(models.data().take(0), model)) == []
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)


@every_kind
def test_ragged_rows_without_ids(kind, tmp_path):
    layer = models.make_layer(kind, tmp_path)
    rows = layer(tf.ragged.constant([[1], [], [2, 3]], dtype=tf.int64))
    np.testing.assert_array_equal(rows.values, models.WEIGHTS[[1, 2, 3]])
    assert rows.row_lengths().numpy().tolist() == [1, 0, 2]
    nothing = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int64), [0, 0])
    assert layer(nothing).shape == (2, None, models.COLUMNS)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_nothing_combines_to_zeros(combiner):
    layer = RowEmbeddingReduce(9, 3, combiner=combiner)
    for ids, count in (
        (tf.zeros((0, 4), tf.int64), 0),
        (tf.zeros((2, 0), tf.int64), 2),
        (tf.ragged.constant([[], []], dtype=tf.int64), 2),
        (tf.sparse.from_dense(tf.zeros((2, 3), tf.int64)), 2),
    ):
        np.testing.assert_array_equal(layer(ids), np.zeros((count, 3)))


IDS = tf.constant([[1, 2], [3, 4]])
RAGGED, SPARSE = tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[1, 0], [2, 3]])


@pytest.mark.parametrize(
    ("ids", "weights", "words"),
    [
        (IDS, tf.ones((2, 3)), r"have shape \(2, 3\), the ids have shape \(2, 2\); give each id"),
        (IDS, tf.ones(4), r"have shape \(4,\), the ids"),
        (IDS, tf.ragged.constant([[1.0], [2.0]]), "are a ragged tensor, the ids are a dense one"),
        (SPARSE, tf.ones((2, 2)), "are a dense tensor, the ids are a sparse one"),
        (IDS, tf.constant([["a", "b"]]), "are strings; give numbers"),
        (RAGGED, tf.ragged.constant([[1.0, 2.0], [3.0]]), "are not at the places of the ids; give"),
        (RAGGED, tf.ragged.constant([[1.0], [2.0, 3.0, 4.0]]), "are not at the places of the ids"),
        (SPARSE, tf.sparse.from_dense([[1.0, 2.0], [0.0, 3.0]]), "are not at the places"),
        (SPARSE, tf.sparse.from_dense([[1.0, 2.0], [4.0, 3.0]]), "are not at the places"),
    ],
)
def test_weights_that_are_not_those_of_the_ids(ids, weights, words):
    layer = RowEmbeddingReduce(9, 3, name="bag")
    error = tf.errors.InvalidArgumentError if "places" in words else ValueError
    with pytest.raises(error, match=f"bag: the weights {words}"):
        layer(ids, weights)


def test_weights_of_another_length_in_a_graph():
    layer = RowEmbeddingReduce(9, 3, name="bag")
    unknown = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None])
    call = tf.function(lambda *args: layer(*args), autograph=False, input_signature=unknown)
    np.testing.assert_array_equal(call(IDS, tf.ones((2, 2))), layer(IDS))
    for shape in ((2, 3), (4, 1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="bag: the weights are not at"):
            call(IDS, tf.ones(shape))


@pytest.mark.parametrize(
    "ids", [tf.ragged.constant([[[1], [2]]]), tf.sparse.from_dense([[[1]]]), tf.constant(3)]
)
def test_ids_with_too_many_or_too_few_axes(ids):
    with pytest.raises(
        ValueError, match=r"bag: the ids are a \w+ tensor of shape .*; the last axis"
    ):
        RowEmbeddingReduce(9, 3, name="bag")(ids)
