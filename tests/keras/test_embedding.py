"""RowEmbedding is keras.layers.Embedding: weights, rows, masks, gradients."""

import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, RowEmbedding, Softmax
from tests.keras.graphs import as_large_as
from tests.reference.dense_embedding import DenseEmbedding

ROWS, COLUMNS = 97, 4
IDS = np.array([[3, 0, 96, 3], [0, 7, 7, 7]], np.int32)
POLICIES = ("float32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16")


def pair(other=keras.layers.Embedding, **options):
    """A RowEmbedding and another layer of the same weights."""
    layers = RowEmbedding(ROWS, COLUMNS, **options), other(ROWS, COLUMNS, **options)
    for layer in layers:
        layer.build()
    layers[1].set_weights(layers[0].get_weights())
    return layers


def same(ours, theirs):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    np.testing.assert_array_equal(tf.cast(ours, tf.float32), tf.cast(theirs, tf.float32))


def near(ours, theirs, error=1e-6):
    np.testing.assert_allclose(ours, theirs, rtol=error, atol=error)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "initializer",
    [
        "uniform",
        "zeros",
        keras.initializers.RandomUniform(-2, 3, seed=1),
        keras.initializers.RandomNormal(1.0, 2.0, seed=1),
        keras.initializers.TruncatedNormal(seed=1),
        keras.initializers.GlorotUniform(seed=1),
        keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal", seed=1),
        keras.initializers.Constant(0.3),
        keras.initializers.Constant(np.arange(COLUMNS)),
        keras.initializers.Orthogonal(seed=1),
        lambda shape, dtype=None: tf.cast(tf.reshape(tf.range(ROWS * COLUMNS), shape), dtype),
    ],
    ids=lambda made: made if isinstance(made, str) else type(made).__name__,
)
def test_the_initial_values_are_those_of_keras(initializer, dtype):
    values = []
    for layer in (RowEmbedding, keras.layers.Embedding):
        keras.utils.set_random_seed(0)
        made = layer(ROWS, COLUMNS, initializer, dtype=dtype)
        made.build()
        values.append(made.embeddings)
    same(*(tf.convert_to_tensor(value) for value in values))


@pytest.mark.parametrize("weights", [np.full([ROWS, COLUMNS], 7.0), [np.ones([ROWS, COLUMNS])]])
def test_weights_can_be_given(weights):
    layer = RowEmbedding(ROWS, COLUMNS, weights=weights)
    np.testing.assert_array_equal(layer.get_weights()[0], np.squeeze(weights))


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_those_of_keras_in_the_same_dtype(policy):
    ours, theirs = pair(dtype=policy)
    assert ours.variable_dtype == theirs.variable_dtype
    same(ours(IDS), theirs(IDS))


@pytest.mark.parametrize("shape", [(8,), (2, 4), (2, 2, 2), (2, 0), (0, 4), (0,), ()])
def test_ids_of_any_shape(shape):
    ids = tf.reshape(IDS.ravel()[: np.prod(shape, dtype=int)], shape)
    ours, theirs = pair()
    same(ours(ids), theirs(ids))
    assert ours.compute_output_shape(shape) == theirs.compute_output_shape(shape)


@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    + ["bfloat16", "float16", "float32", "float64"],
)
def test_ids_of_any_dtype(dtype):
    ours, theirs = pair()
    same(ours(tf.cast(IDS, dtype)), theirs(IDS))


def test_ragged_and_sparse_ids():
    ours, theirs = pair()
    ragged = tf.ragged.constant([[3, 0], [], [96, 96, 1]], dtype=tf.int32)
    found = ours(ragged)
    assert isinstance(found, tf.RaggedTensor)
    same(found.values, theirs(ragged).values)
    np.testing.assert_array_equal(found.row_splits, ragged.row_splits)
    sparse = tf.sparse.from_dense([[3, 0, 5], [0, 0, 96]])
    same(ours(sparse), theirs(sparse))


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_ragged_and_sparse_inputs_of_a_model(kind):
    x = {
        "ragged": tf.ragged.constant([[3, 0], [96]], dtype=tf.int32),
        "sparse": tf.sparse.from_dense([[3, 0, 5], [0, 0, 96]]),
    }[kind]
    found = []
    for layer in pair():
        inputs = keras.Input((None,), dtype="int32", **{kind: True})
        found.append(keras.Model(inputs, layer(inputs))(x))
    assert type(found[0]) is type(found[1])
    same(*(getattr(value, "flat_values", value) for value in found))


def test_masks_reach_a_recurrent_layer():
    ours, theirs = pair(mask_zero=True)
    recurrent = keras.layers.LSTM(3)
    found = []
    for layer in (ours, theirs):
        np.testing.assert_array_equal(layer.compute_mask(IDS), IDS != 0)
        found.append(keras.Sequential([keras.Input((4,), dtype="int32"), layer, recurrent])(IDS))
    same(*found)
    padded = np.concatenate([IDS[:1], np.zeros_like(IDS[:1])], axis=1)
    near(recurrent(ours(padded)), found[0][:1])
    unmasked, _ = pair()
    assert unmasked.compute_mask(IDS) is None and not unmasked.supports_masking


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_the_gradient_is_row_sparse_and_that_of_the_dense_layer(policy):
    ours, dense = pair(DenseEmbedding, dtype=policy)
    gradients = []
    for layer in (ours, dense):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.cast(layer(IDS), tf.float32) + 1.0))
        gradients.append(tape.gradient(loss, layer.embeddings.value))
    assert isinstance(gradients[0], tf.IndexedSlices)
    assert gradients[0].values.shape == (IDS.size, COLUMNS)
    near(tf.convert_to_tensor(gradients[0]), gradients[1], 1e-5 if policy == "float32" else 1e-2)


def test_activity_is_regularized_as_by_keras():
    ours, theirs = pair(activity_regularizer="l2")
    for layer in (ours, theirs):
        layer(IDS)
    assert len(ours.losses) == 1
    near(ours.losses[0], theirs.losses[0])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_low_rank_adaptation(policy):
    options = {"lora_rank": 2, "lora_alpha": 3.0, "dtype": policy}
    ours, dense = pair(DenseEmbedding, **options)
    theirs = pair(**options)[1]
    random = np.random.default_rng(0)
    weights = [random.normal(size=weight.shape) for weight in ours.weights]
    for layer in (ours, dense, theirs):
        layer.set_weights(weights)
    error = 1e-6 if policy == "float32" else 2e-2
    assert ours(IDS).dtype == theirs(IDS).dtype
    near(tf.cast(ours(IDS), "float32"), tf.cast(theirs(IDS), "float32"), error)
    gradients = []
    for layer in (ours, dense):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(layer(IDS), tf.float32) ** 2)
        names = [variable.name for variable in layer.trainable_variables]
        assert names == ["lora_embeddings_a", "lora_embeddings_b"]
        gradients.append(tape.gradient(loss, [v.value for v in layer.trainable_variables]))
    assert isinstance(gradients[0][0], tf.IndexedSlices)
    for found, expected in zip(*gradients, strict=True):
        near(tf.convert_to_tensor(found), expected, 1e-5 if policy == "float32" else 5e-2)


def test_it_is_not_quantized_behind_its_back():
    layer = RowEmbedding(ROWS, COLUMNS)
    layer.build()
    with pytest.raises(NotImplementedError, match="RowEmbedding"):
        layer.quantize("int8")


class Outer(keras.layers.Layer):
    """A layer that has another, as a model does, and casts variables under mixed precision."""

    def __init__(self, inner, **options):
        super().__init__(**options)
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_whole_table_is_never_read(policy):
    found = {}
    for layer in pair(dtype=policy, mask_zero=True):
        outer = Outer(layer, dtype=policy)
        traced = tf.function(outer.__call__, autograph=False).get_concrete_function(IDS)
        found[type(layer).__name__] = as_large_as(traced, ROWS)
    assert found["RowEmbedding"] == []
    assert "ReadVariableOp" in found["Embedding"]  # the test would see it


def test_layers_within_layers_are_built_when_first_called():
    inputs = keras.Input((4,), dtype="int32")
    model = keras.Model(inputs, Outer(RowEmbedding(ROWS, COLUMNS))(inputs))
    assert model(IDS).shape == (2, 4, COLUMNS)
    assert [tuple(v.shape) for v in model.trainable_variables] == [(ROWS, COLUMNS)]


def test_stateless_calls_take_the_weights_that_they_are_given():
    layer = RowEmbedding(ROWS, COLUMNS)
    layer.build()
    given = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype("f")
    found, _ = layer.stateless_call([given], [], IDS)
    np.testing.assert_array_equal(found, given[IDS])


MANY, FEW = 100, 2


@pytest.fixture(scope="module")
def model():
    model = keras.Sequential(
        [keras.Input((3,), dtype="int64"), RowEmbedding(MANY, FEW, name="words")]
    )
    model.compile(SGD(0.1), "mse")
    return model


def fit(model, ids):
    model.fit(ids, np.ones([len(ids), 3, FEW]), verbose=0)


WAYS = {
    "eager": lambda model, ids: model.layers[-1](ids),
    "predict": lambda model, ids: model.predict(ids, verbose=0),
    "fit": fit,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("ids", "smallest", "largest"),
    [
        ([[3, 100, 5]], 100, 100),
        ([[3, -1, 5]], -1, -1),
        ([[100, -7, 2**40], [0, 99, 50]], -7, 2**40),
    ],
)
def test_ids_that_are_no_rows_are_named_and_nothing_is_trained(model, way, ids, smallest, largest):
    before = [variable.numpy() for variable in model.variables]
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        WAYS[way](model, np.array(ids))
    text = " ".join(re.sub(r"[\[\]']", "", str(raised.value)).split())
    assert (
        "words: ids must be from 0 to 99; the smallest id out of range is "
        f"{smallest} and the largest {largest}"
    ) in text
    for value, variable in zip(before, model.variables, strict=True):
        assert value.tobytes() == variable.numpy().tobytes()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("ids", [[1.0, 2.5], [np.nan, 0.0], [-0.5, 1.0]])
def test_float_ids_are_to_be_whole_numbers(ids, compiled):
    layer = RowEmbedding(MANY, FEW, name="words")
    layer.build()
    call = tf.function(layer.__call__, autograph=False) if compiled else layer
    np.testing.assert_array_equal(call(tf.constant([5.0])), layer.get_weights()[0][[5]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="words: ids .* whole numbers"):
        call(tf.constant(ids))


@pytest.mark.parametrize(
    ("dtype", "counted"),
    [("bfloat16", 2**8), ("float16", 2**11), ("float32", 2**24)],
)
def test_float_ids_are_refused_where_they_cannot_tell_rows_apart(dtype, counted):
    layer = RowEmbedding(counted, 1, embeddings_initializer="zeros")
    assert layer(tf.constant([counted - 1], dtype)).shape == (1, 1)
    layer = RowEmbedding(counted + 1, 1, embeddings_initializer="zeros", name="words")
    with pytest.raises(
        ValueError, match=rf"words: the ids are {dtype}, .* up to {counted:,}, .* integers"
    ):
        layer(tf.constant([0], dtype))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("float32", 2**33), ("float64", 2**32 + 1), ("uint32", 2**32 - 1), ("uint64", 2**32 + 1)],
)
def test_large_ids_are_not_cut_to_32_bits(dtype, number):
    layer = RowEmbedding(MANY, FEW)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"from 0 to 99.* is {number} and"):
        layer(tf.constant([number], dtype))


def test_ids_beyond_int64_are_not_named_as_negative_ones():
    message = f"the smallest id out of range is {2**63 - 1} and the largest {2**63 - 1}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        RowEmbedding(MANY, FEW)(np.array([2**64 - 1], np.uint64))


def test_a_regularizer_is_refused_with_what_to_use_instead():
    with pytest.raises(ValueError, match=r"^words: embeddings_regularizer .* 100 rows .*LazyAdamW"):
        RowEmbedding(MANY, FEW, embeddings_regularizer="l2", name="words")


@pytest.mark.parametrize(
    "constraint",
    [
        "unit_norm",
        keras.constraints.MaxNorm(1.0, axis=0),
        keras.constraints.MinMaxNorm(axis=[0, 1]),
        lambda table: table,
    ],
)
def test_a_constraint_that_is_not_by_row_is_refused_with_what_to_use_instead(constraint):
    with pytest.raises(ValueError, match=r"^words: embeddings_constraint=.* 100 rows .* axis=1"):
        RowEmbedding(MANY, FEW, embeddings_constraint=constraint, name="words")


@pytest.mark.parametrize(
    "constraint",
    [
        "non_neg",
        keras.constraints.UnitNorm(axis=1),
        keras.constraints.MaxNorm(1.0, axis=-1),
        keras.constraints.MinMaxNorm(axis=[1]),
    ],
)
def test_constraints_by_row_are_taken(constraint):
    layer = RowEmbedding(MANY, FEW, embeddings_constraint=constraint)
    layer.build()
    assert layer.embeddings.constraint is layer.embeddings_constraint is not None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Keras 3.12 refuses none")
def test_bad_sizes_are_refused_as_by_keras():
    for sizes in ((0, 2), (2, -1), (2.0, 3)):
        with pytest.raises(ValueError, match="must be a positive integer"):
            RowEmbedding(*sizes)


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    for make in (lambda: RowEmbedding(MANY, FEW), lambda: SGD(0.1), lambda: Softmax(3)):
        with pytest.raises(ValueError, match="not on jax; set KERAS_BACKEND=tensorflow"):
            make()


@pytest.mark.parametrize("jit", [True, False])
def test_where_there_is_a_gpu_xla_makes_the_vector_of_a_wrong_id_nan(jit, monkeypatch):
    """There Keras compiles by XLA unless it is told not to, and XLA runs no check."""
    gpu = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpu)
    layer = RowEmbedding(3, 2)
    layer.build()
    function = tf.function(layer.call, jit_compile=jit, autograph=False)
    right = function(tf.constant([[0, 2]]))
    np.testing.assert_array_equal(right[0], layer.get_weights()[0][[0, 2]])
    if jit:
        wrong = function(tf.constant([[-1, 1, 3]])).numpy()
        assert np.isnan(wrong).all(axis=2).tolist() == [[True, False, True]]
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 2"):
            function(tf.constant([[-1, 1, 3]]))
