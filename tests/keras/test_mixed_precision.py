"""float16 and bfloat16 models with tables, and the loss scale of float16."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import LazyAdam, LossScaleOptimizer, RowEmbedding
from tests.keras.models import BATCH, fit, make_data, make_model, near
from tests.reference.dense_embedding import DenseEmbedding

half = pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)


def first_batch():
    (left, right), y = make_data()
    return (left[:BATCH], right[:BATCH]), y[:BATCH]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])
def test_the_state_of_a_narrow_table_is_float32(dtype):
    """float16 has no second moment this small, and bfloat16 cannot let it fall."""
    rows = {}
    for policy in ("float32", dtype):
        layer = RowEmbedding(5, 4, embeddings_initializer="ones", dtype=policy)
        layer.build()
        optimizer = LazyAdam(1e-2)
        optimizer.build(layer.trainable_variables)

        @tf.function(autograph=False)
        def move(slope, optimizer=optimizer, layer=layer):
            gradient = tf.IndexedSlices(slope, [2], [5, 4])
            optimizer.apply([gradient], layer.trainable_variables)

        for step in range(200):
            move(tf.constant(1e-3 if step < 100 else -1e-4, policy, (1, 4)))
        assert {slot.dtype for slot in optimizer._momentums + optimizer._velocities} == {"float32"}
        rows[policy] = layer.get_weights()[0][2].astype("float32")
    np.testing.assert_allclose(rows[dtype], rows["float32"], atol=0.2)


def held(model):
    return {v.path: v.numpy() for v in (*model.variables, *model.optimizer.variables)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)],
    indirect=True,
)
def test_it_trains_as_the_dense_model_in_the_same_precision(policy):
    ours, theirs = LazyAdam(0.02), keras.optimizers.Adam(0.02)
    if policy == "mixed_float16":
        ours, theirs = LossScaleOptimizer(ours), keras.optimizers.LossScaleOptimizer(theirs)
    models = make_model(ours), make_model(theirs, DenseEmbedding, run_eagerly=True)
    before = models[0].get_weights()[0]
    losses = [fit(model, epochs=4).history["loss"] for model in models]
    assert models[0].optimizer is ours  # not wrapped once more
    assert models[0].get_layer("words").compute_dtype == policy.removeprefix("mixed_")
    assert models[0].get_layer("words").embeddings.dtype == "float32"
    assert np.abs(models[0].get_weights()[0] - before).max() > 0.1
    near(*models, error=1e-2)
    np.testing.assert_allclose(*losses, rtol=1e-2)


@pytest.mark.slow
@half
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_step_that_overflows_is_skipped_and_halves_the_scale(policy, run_eagerly):
    optimizer = LossScaleOptimizer(LazyAdam(0.1), initial_scale=256.0, dynamic_growth_steps=2)
    model = make_model(optimizer, run_eagerly=run_eagerly)
    x, y = first_batch()
    model.train_on_batch(x, y)
    before = held(model)
    model.train_on_batch(x, np.full_like(y, 1e6))
    after = held(model)
    changed = {path for path in before if after[path].tobytes() != before[path].tobytes()}
    assert changed == {f"{optimizer.name}/{v}" for v in ("dynamic_scale", "step_counter")}
    assert optimizer.dynamic_scale.numpy() == 128.0
    for _ in range(2):
        model.train_on_batch(x, y)
    assert optimizer.dynamic_scale.numpy() == 256.0  # grown again
    assert (model.get_weights()[0] != before["words/embeddings"]).any(axis=1).all()


@half
def test_overflow_in_one_table_alone_is_seen(policy):
    optimizer = LossScaleOptimizer(LazyAdam(0.1))
    variables = [keras.Variable(tf.ones([4, 2])), keras.Variable(tf.ones([2]))]
    for number, bad in enumerate((np.inf, np.nan, 1.0)):
        gradient = tf.IndexedSlices(
            tf.constant([[1.0, bad], [1.0, 1.0]]), tf.constant([1, 1]), [4, 2]
        )
        optimizer.apply([gradient, tf.ones([2])], variables)
        assert int(optimizer.iterations) == (number == 2)
        moved = [bool((v.numpy() != 1).any()) for v in variables]
        assert moved == [number == 2] * 2
