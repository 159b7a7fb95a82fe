"""What RowEmbedding refuses: ids that are no rows, and what would read the whole table."""

from __future__ import annotations

import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, RowEmbedding, Softmax

ROWS, COLUMNS = 100, 2


@pytest.fixture(scope="module")
def model():
    model = keras.Sequential(
        [keras.Input((3,), dtype="int64"), RowEmbedding(ROWS, COLUMNS, name="words")]
    )
    model.compile(SGD(0.1), "mse")
    return model


def fit(model, ids):
    model.fit(ids, np.ones([len(ids), 3, COLUMNS]), verbose=0)


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
    layer = RowEmbedding(ROWS, COLUMNS, name="words")
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
    layer = RowEmbedding(ROWS, COLUMNS)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"from 0 to 99.* is {number} and"):
        layer(tf.constant([number], dtype))


def test_ids_beyond_int64_are_not_named_as_negative_ones():
    message = f"the smallest id out of range is {2**63 - 1} and the largest {2**63 - 1}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        RowEmbedding(ROWS, COLUMNS)(np.array([2**64 - 1], np.uint64))


def test_a_regularizer_is_refused_with_what_to_use_instead():
    with pytest.raises(ValueError, match=r"^words: embeddings_regularizer .* 100 rows .*LazyAdamW"):
        RowEmbedding(ROWS, COLUMNS, embeddings_regularizer="l2", name="words")


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
        RowEmbedding(ROWS, COLUMNS, embeddings_constraint=constraint, name="words")


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
    layer = RowEmbedding(ROWS, COLUMNS, embeddings_constraint=constraint)
    layer.build()
    assert layer.embeddings.constraint is layer.embeddings_constraint is not None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Keras 3.12 refuses none")
def test_bad_sizes_are_refused_as_by_keras():
    for sizes in ((0, 2), (2, -1), (2.0, 3)):
        with pytest.raises(ValueError, match="must be a positive integer"):
            RowEmbedding(*sizes)


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    for make in (lambda: RowEmbedding(ROWS, COLUMNS), lambda: SGD(0.1), lambda: Softmax(3)):
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
