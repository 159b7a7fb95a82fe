"""What cannot be row by row is refused, or warned about, in words; small tables are let be."""

from __future__ import annotations

import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, Adagrad, LazyAdam, LazyAdamW, LossScaleOptimizer, RowwiseAdagrad
from app.keras.optimizers import row_sparse
from app.keras.tables import table_warnings
from tests.keras.models import BATCH, LENGTH, make_data, make_model

# NumPy 2 says so wherever TensorFlow's values become arrays, as they do in Keras 3.12.
NUMPY = "__array__ implementation doesn't accept a copy keyword"
ALL = pytest.mark.parametrize("kind", [SGD, Adagrad, RowwiseAdagrad, LazyAdam, LazyAdamW])


@pytest.fixture(params=["large", "small"])
def large(request, monkeypatch):
    """Whether the tables of the model count as large."""
    if request.param == "large":
        monkeypatch.setattr(row_sparse, "_LARGE", 4 * 13 * 4)  # the bytes of "words"
    return request.param == "large"


def step(model, x=None, y=None):
    """The warnings of one traced step, on data for make_model or those given."""
    if x is None:
        (left, right), y = make_data()
        x, y = (left[:BATCH], right[:BATCH]), y[:BATCH]
    with told() as caught:
        model.train_on_batch(x, y)
    return {str(warning.message) for warning in caught}


@contextlib.contextmanager
def told():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", NUMPY)
        yield caught


def only(found, large, *words):
    if large:
        assert len(found) == 1 and all(word in min(found) for word in words), found
        assert "\n" not in min(found)
    else:
        assert found == set()


@ALL
@pytest.mark.parametrize("rate", [0.0, -0.1, float("nan")])
def test_a_learning_rate_that_is_not_positive_is_refused(kind, rate):
    with pytest.raises(ValueError, match=rf"^learning_rate={rate:g}: give a positive number$"):
        kind(rate)


@pytest.mark.parametrize(
    ("option", "embedding"),
    [
        ({"use_ema": True}, None),
        ({"use_ema": True}, keras.layers.Embedding),
        ({"gradient_accumulation_steps": 2}, keras.layers.Embedding),
    ],
)
def test_what_keeps_a_second_whole_table_is_refused(option, embedding):
    optimizer = LazyAdam(0.1, name="mine", **option)
    model = make_model(optimizer, **({"embedding": embedding} if embedding else {}))
    before = model.get_weights()[0]
    with pytest.raises(ValueError, match=f"mine: {min(option)} .* words/embeddings") as raised:
        step(model)
    assert "leave it out" in str(raised.value)
    assert not optimizer.built and model.get_weights()[0].tobytes() == before.tobytes()


@pytest.fixture
def large_for_keras(large, monkeypatch):
    if large:
        monkeypatch.setattr(table_warnings, "LARGE", 4 * 13 * 4)
    return large


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Adam", "SGD", "Adagrad"])
def test_a_stock_optimizer_of_a_large_table_is_warned_of_once(kind, large_for_keras):
    model = make_model(getattr(keras.optimizers, kind)(0.1))
    only(step(model), large_for_keras, f"keras.optimizers.{kind} ", "words/embeddings (208 bytes)")
    assert step(model, *tail(4)) == set()


def tail(count):
    """A batch of another size, for which the step is traced again."""
    (left, right), y = make_data()
    return (left[:count], right[:count]), y[:count]


def test_a_stock_optimizer_in_a_loop_or_a_loss_scale_is_warned_of(large_for_keras):
    for optimizer in (
        keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)),
        keras.optimizers.Adam(0.1),
    ):
        model, ((left, right), _) = make_model(optimizer), make_data()
        table = model.get_layer("words").embeddings
        gradient = tf.IndexedSlices(tf.ones((1, 4)), tf.constant([1]), (13, 4))
        with told() as caught:
            model([left, right])
            optimizer.build([table])
            assert not caught
            optimizer.apply_gradients([(gradient, table)])
        only({str(each.message) for each in caught}, large_for_keras, "keras.optimizers.Adam ")


def scaled_later():
    optimizer = SGD(0.1)
    optimizer.loss_scale_factor = 8.0
    return optimizer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (lambda: LazyAdam(0.1), {}),
        (lambda: LossScaleOptimizer(LazyAdam(0.1)), {}),
        (lambda: LazyAdam(0.1, loss_scale_factor=8.0), {}),
        (scaled_later, {}),
        # Under XLA nothing is copied.
        (lambda: keras.optimizers.SGD(0.1), {"jit_compile": True}),
        (lambda: SGD(0.1), {"jit_compile": True, "embedding": keras.layers.Embedding}),
    ],
)
def test_what_needs_no_warning(optimizer, options, monkeypatch):
    monkeypatch.setattr(table_warnings, "LARGE", 1)
    monkeypatch.setattr(row_sparse, "_LARGE", 1)
    assert step(make_model(optimizer(), **options)) == set()


@pytest.mark.parametrize(
    "scale", [lambda plain: plain, pytest.param(LossScaleOptimizer, marks=pytest.mark.slow)]
)
def test_a_large_table_of_a_plain_embedding_is_warned_of(large, scale):
    model = make_model(scale(SGD(0.1)), keras.layers.Embedding)
    only(step(model), large, "words/embeddings (208 bytes)", "RowEmbedding", "audit")


def test_a_dense_gradient_of_a_large_table_is_warned_of(large):
    """Here by a regularizer, which a plain Embedding may have."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    table = keras.layers.Embedding(13, 4, name="words", embeddings_regularizer="l2")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(table(inputs))))
    model.compile(SGD(0.1), "mse")
    found = step(model, np.ones([2, LENGTH], np.int32), np.ones([2, 1]))
    only(found, large, "words/embeddings is dense", "13 rows", "audit")


def test_a_constraint_on_whole_columns_of_a_large_table_is_warned_of(large):
    constraint = keras.constraints.UnitNorm(axis=0)
    model = make_model(SGD(0.1), keras.layers.Embedding, constraint=constraint)
    found = step(model)
    assert any("UnitNorm of words/embeddings" in text for text in found) == large


def test_a_large_kernel_is_not_taken_for_a_table(monkeypatch):
    monkeypatch.setattr(row_sparse, "_LARGE", 1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(50), keras.layers.Dense(1)])
    model.compile(LazyAdam(0.1), "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.train_on_batch(np.ones([2, 3]), np.ones([2, 1]))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="Keras 3.12 has none")
def test_an_optimizer_of_several_is_no_loss_scale(monkeypatch):
    monkeypatch.setattr(row_sparse, "_LARGE", 1)
    monkeypatch.setattr(table_warnings, "LARGE", 1)
    tables, others = LazyAdam(0.1), keras.optimizers.Adam(0.1)
    split = keras.optimizers.MultiOptimizer(
        lambda variable: tables if variable.name == "embeddings" else others
    )
    model = make_model(split)
    table = model.get_layer("words").embeddings
    before = table.numpy()
    assert step(model) == set()
    assert np.abs(table.numpy() - before).max() > 0
