"""Gradients of several steps added up: by the optimizer row by row, or by hand."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, Adagrad, LazyAdam, RowEmbedding, add_gradients
from tests.keras import table_models as models
from tests.keras.updates import RATE, make_stream, make_variables, near, train, whole

STEPS = {"gradient_accumulation_steps": 3}


def tables():
    variables = make_variables()
    variables[0].is_table = True
    return variables


@pytest.mark.parametrize("option", [{}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}], ids=str)
@pytest.mark.parametrize("make", [SGD, Adagrad])
def test_rows_are_those_of_a_dense_accumulation(make, option):
    stream = list(make_stream())
    found = train(make(RATE, **STEPS, **option), tables(), stream)
    stock = getattr(keras.optimizers, make.__name__)(RATE, **STEPS, **option)
    expected = train(stock, make_variables(), stream, sparse=False)
    for ours, theirs in zip(found, expected, strict=True):
        for part in range(3):
            np.testing.assert_allclose(ours[part], theirs[part], rtol=1e-6, atol=1e-6)
    assert found[0][0].tobytes() == found[1][0].tobytes() != found[2][0].tobytes()


def test_lazy_adam_is_that_of_the_mean_gradient():
    stream = list(make_stream())[:6]
    found = train(LazyAdam(RATE, **STEPS), tables(), stream)[-1][0]
    variables, optimizer = tables(), LazyAdam(RATE)
    for start in (0, 3):
        gradient = sum(whole(ids, values) for ids, values, _ in stream[start : start + 3]) / 3
        rows = np.flatnonzero(gradient.any(axis=1))
        gradient = tf.IndexedSlices(gradient[rows], rows, gradient.shape)
        optimizer.apply([gradient], variables[:1])
    near([found], [variables[0].numpy()])


def test_only_rows_with_a_gradient_are_stored():
    optimizer, variables = LazyAdam(RATE, **STEPS), tables()
    stream = list(make_stream())[:3]
    sizes = []
    for step in stream:
        train(optimizer, variables, [step])
        sizes.append(int(tf.size(optimizer._accumulated_gradients[0].ids)))
    first, second = (set(ids) for ids, *_ in stream[:2])
    assert sizes == [len(first), len(first | second), 0]
    assert not any("embeddings_gradient" in variable.path for variable in optimizer.variables)


def trained(kind, folder, make=LazyAdam, way=models.fit, **compiled):
    model = models.make_model(
        models.make_layer(kind, folder), make(0.1, gradient_accumulation_steps=2), **compiled
    )
    way(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [{"run_eagerly": True}, {"steps_per_execution": 2}], ids=str)
def test_ways_to_compile(compiled, tmp_path):
    ours, usual = (trained("device", tmp_path, **each) for each in (compiled, {}))
    near([ours.get_weights()[0]], [usual.get_weights()[0]])


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["keras", "checkpoint"])
def test_a_run_saved_between_updates_goes_on(saved, tmp_path):
    model = trained("device", tmp_path, way=models.fit_batches)  # 5 batches: one is accumulated
    assert tf.size(model.optimizer._accumulated_gradients[0].ids) > 0
    if saved == "keras":
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    else:
        tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
        loaded = trained("device", tmp_path)
        tf.train.Checkpoint(loaded).read(str(tmp_path / "checkpoint")).assert_consumed()
    for each in (model, loaded):
        models.fit(each)
    assert models.state(loaded) == models.state(model)


@pytest.mark.slow
def test_what_cannot_be_accumulated_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"embeddings, which XLA cannot compile; use .*=False"):
        trained("device", tmp_path, jit_compile=True)
    with pytest.raises(ValueError, match=r"embeddings that have a gradient, .* is dense"):
        train(LazyAdam(RATE, **STEPS), tables(), make_stream(), sparse=False)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        layer = RowEmbedding(4, 2)
        layer.build()
        with pytest.raises(ValueError, match="embeddings in one process, .* MirroredStrategy"):
            LazyAdam(RATE, **STEPS).build(layer.trainable_variables)


def test_gradients_added_by_hand():
    rows = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([1, 2]), (5, 3))
    more = tf.IndexedSlices(2 * tf.ones((1, 3)), tf.constant([2], tf.int64), (5, 3))
    expected = tf.convert_to_tensor(rows) + tf.convert_to_tensor(more)
    found = add_gradients(rows, more)
    assert isinstance(found, tf.IndexedSlices) and len(found.indices) == 3
    np.testing.assert_array_equal(tf.convert_to_tensor(found), expected)
    np.testing.assert_array_equal(add_gradients(rows, tf.convert_to_tensor(more)), expected)
    np.testing.assert_array_equal(add_gradients(tf.ones(2), tf.ones(2)), [2.0, 2.0])
    assert add_gradients(None, rows) is rows is add_gradients(rows, None)
    assert add_gradients(None, None) is None
    variable = keras.Variable(tf.ones((5, 3)), name="rows")
    SGD(1.0).apply([found], [variable])
    np.testing.assert_array_equal(variable.numpy(), 1.0 - expected)
