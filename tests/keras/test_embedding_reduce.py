"""`RowEmbeddingReduce` equals a weighted sum of the rows, and so does its gradient."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, LazyAdam, RowEmbeddingReduce

ROWS, COLUMNS = 30, 5
IDS = np.random.default_rng(1).integers(0, ROWS, (4, 7))
WEIGHTS = np.random.default_rng(2).uniform(size=IDS.shape).astype(np.float32)


def make_layer(combiner, **options):
    layer = RowEmbeddingReduce(ROWS, COLUMNS, combiner=combiner, **options)
    layer.build()
    return layer


def expected(rows, ids, weights, combiner):
    vectors = tf.reduce_sum(tf.gather(rows, ids) * weights[..., tf.newaxis], axis=-2)
    if combiner == "mean":
        vectors /= tf.reduce_sum(weights, axis=-1, keepdims=True)
    if combiner == "sqrtn":
        vectors /= tf.sqrt(tf.reduce_sum(weights**2, axis=-1, keepdims=True))
    return vectors


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("jit", [False, True])
def test_vectors_and_gradients_equal_dense_autodiff(combiner, jit):
    layer = make_layer(combiner, mask_zero=True)
    weights, rows = tf.Variable(WEIGHTS), tf.Variable(layer.get_weights()[0])

    @tf.function(jit_compile=jit)
    def ours():
        with tf.GradientTape() as tape:
            vectors = layer(IDS, weights)
            loss = tf.reduce_sum(vectors**2)
        by_row, by_weight = tape.gradient(loss, [layer.embeddings.value, weights])
        assert isinstance(by_row, tf.IndexedSlices)
        return vectors, tf.convert_to_tensor(by_row), by_weight

    with tf.GradientTape() as tape:
        vectors = expected(rows, IDS, tf.where(IDS == 0, 0.0, weights), combiner)
        loss = tf.reduce_sum(vectors**2)
    dense = [vectors, *map(tf.convert_to_tensor, tape.gradient(loss, [rows, weights]))]
    for one, other in zip(ours(), dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_that_xla_computed_are_applied_outside_of_it(jit):
    layer, optimizer = make_layer("sum"), SGD(0.1)

    @tf.function(jit_compile=jit, autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(IDS) ** 2)
        return tape.gradient(loss, layer.embeddings.value)

    rows = layer.get_weights()[0]
    with tf.GradientTape() as tape:
        tape.watch(rows := tf.constant(rows))
        loss = tf.reduce_sum(tf.reduce_sum(tf.gather(rows, IDS), axis=1) ** 2)
    changed = rows - 0.1 * tf.convert_to_tensor(tape.gradient(loss, rows))
    optimizer.apply([gradient()], layer.trainable_variables)
    np.testing.assert_allclose(layer.get_weights()[0], changed, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint32", "int16"])
def test_ids_of_other_dtypes_in_a_compiled_step(dtype):
    rows = {}
    for jit in (False, True):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((7,), dtype=dtype)
        model = keras.Model(inputs, RowEmbeddingReduce(ROWS, COLUMNS)(inputs))
        model.compile(LazyAdam(0.1), "mse", jit_compile=jit)
        model.fit(IDS.astype(dtype), np.zeros((4, COLUMNS)), epochs=2, verbose=0)
        rows[jit] = model.get_weights()[0]
    np.testing.assert_allclose(rows[True], rows[False], atol=1e-5)


def test_the_forms_of_ids_agree():
    layer = make_layer("mean")
    ragged = tf.ragged.constant([[1, 2], [], [3, 3, 4]], dtype=tf.int64)
    weights = tf.ragged.constant([[0.5, 2.0], [], [1.0, 2.0, 3.0]])
    vectors = layer(ragged, weights)
    np.testing.assert_array_equal(vectors[1], np.zeros(COLUMNS))
    np.testing.assert_array_equal(vectors, layer(ragged.to_sparse(), weights.to_sparse()))
    dense = layer(ragged.to_tensor(), weights.to_tensor())
    np.testing.assert_allclose(vectors, dense, rtol=1e-6)
    mask = tf.sequence_mask([2, 0, 3])
    np.testing.assert_allclose(layer(ragged), layer(ragged.to_tensor(), mask=mask), rtol=1e-6)


def test_more_axes():
    layer = make_layer("sum")
    ids = IDS.reshape(2, 2, 7)
    np.testing.assert_array_equal(layer(ids), tf.reshape(layer(IDS), (2, 2, COLUMNS)))


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_one_id_for_each_example(combiner):
    layer, ids = make_layer(combiner), IDS[:, 0]
    rows = layer.get_weights()[0][ids]
    np.testing.assert_array_equal(layer(ids), rows)
    np.testing.assert_allclose(layer(ids), layer(ids[:, np.newaxis]), rtol=1e-6)
    weighted = rows * WEIGHTS[:, :1] if combiner == "sum" else rows
    np.testing.assert_allclose(layer(ids, WEIGHTS[:, 0]), weighted, rtol=1e-6)
    masked = layer(ids, mask=np.array([True, False, True, True]))
    np.testing.assert_allclose(masked, rows * [[1], [0], [1], [1]], rtol=1e-6)
    assert layer(keras.Input((), dtype="int32")).shape == (None, COLUMNS)
    padded = make_layer(combiner, mask_zero=True)
    np.testing.assert_array_equal(padded(np.array([0, 3]))[0], np.zeros(COLUMNS))
    assert padded(np.zeros(0, np.int64)).shape == (0, COLUMNS)


@pytest.mark.slow
def test_it_trains_in_a_functional_model_and_is_saved(tmp_path):
    inputs = keras.Input((None,), dtype="int64")
    layer = RowEmbeddingReduce(ROWS, COLUMNS, table="host", combiner="sqrtn")
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    assert model.output_shape == (None, 1)
    model.compile(LazyAdam(0.1), loss="mse")
    losses = model.fit(IDS, np.ones((4, 1)), epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[1].combiner == "sqrtn"
    np.testing.assert_array_equal(loaded(IDS), model(IDS))


def test_no_tensor_has_a_row_for_each_id():
    layer = make_layer("mean")

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids))
        return tape.gradient(loss, layer.trainable_variables)

    graph = step.get_concrete_function(tf.TensorSpec(IDS.shape, tf.int64)).graph
    shapes = {
        tuple(out.shape) for op in graph.get_operations() for out in op.outputs if out.shape.rank
    }
    assert not {(*IDS.shape, COLUMNS), (IDS.size, COLUMNS)} & shapes


@pytest.mark.parametrize("shape", [(3, 2), (1, 1), (1, 6), (2, 2), (6,)])
def test_a_mask_of_another_shape_is_refused(shape):
    layer, ids = make_layer("sum"), tf.constant([[1, 2, 3], [4, 0, 1]])
    with pytest.raises(ValueError, match="mask have shape .*, the ids have shape \\(2, 3\\)"):
        layer(ids, mask=tf.ones(shape, tf.bool))
    call = tf.function(lambda ids, mask: layer(ids, mask=mask), autograph=False)
    unknown = tf.TensorSpec(None, tf.int32), tf.TensorSpec(None, tf.bool)
    concrete = call.get_concrete_function(*unknown)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="mask are not at the places of the ids"
    ):
        concrete(ids, tf.ones(shape, tf.bool))


def test_masks_of_all_forms_and_of_numbers():
    layer, ragged = make_layer("sum"), tf.ragged.constant([[1, 2, 3], [], [4, 1]])
    mask = tf.ragged.constant([[1, 0, 1], [], [0, 1]])
    expected = layer(tf.ragged.constant([[1, 3], [], [1]]))
    np.testing.assert_array_equal(layer(ragged, mask=mask), expected)
    np.testing.assert_array_equal(layer(ragged, mask=tf.cast(mask, tf.bool)), expected)
    np.testing.assert_array_equal(layer(ragged.to_tensor(), mask=mask.to_tensor()), expected)
