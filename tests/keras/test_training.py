"""Models with tables are trained in every way that Keras has, to the numbers of the dense one."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowEmbedding,
    RowwiseAdagrad,
)
from tests.keras.graphs import as_large_as
from tests.keras.models import (
    BATCH,
    COLUMNS,
    LENGTH,
    PLACES,
    WORDS,
    fit,
    make_data,
    make_model,
    near,
)
from tests.reference.dense_embedding import DenseEmbedding

OPTIONS = {"weight_decay": 0.1, "global_clipnorm": 0.5, "clipnorm": None}
STEP = (
    (tf.TensorSpec([BATCH, LENGTH], tf.int32), tf.TensorSpec([BATCH, LENGTH], tf.int32)),
    tf.TensorSpec([BATCH, 1]),
)


def batches():
    (left, right), y = make_data()
    for _ in range(2):
        for start in range(0, len(y), BATCH):
            part = slice(start, start + BATCH)
            yield (left[part], right[part]), y[part]


@functools.cache
def trained_by_keras(kind=keras.optimizers.AdamW, policy=None, **options):
    """A model whose gradients are all dense."""
    model = make_model(kind(0.05, **options or OPTIONS), DenseEmbedding, run_eagerly=True)
    fit(model)
    return model


def on_batches(model):
    for x, y in batches():
        model.train_on_batch(x, y)


def in_a_loop(model):
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for x, y in batches():
        step(x, y)


def from_a_dataset(model):
    """Whose batches are of a size that the trace does not know."""
    x, y = make_data()
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    model.fit(data, epochs=2, shuffle=False, verbose=0)


@pytest.mark.parametrize(
    ("run", "compiled"),
    [
        (fit, {}),
        (fit, {"run_eagerly": True}),
        (fit, {"steps_per_execution": 2}),
        (fit, {"jit_compile": True}),
        (on_batches, {}),
        (in_a_loop, {}),
        (from_a_dataset, {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value.__name__,
)
def test_every_way_to_train_gives_the_numbers_of_the_dense_model(run, compiled):
    model = make_model(LazyAdamW(0.05, **OPTIONS), **compiled)
    assert model.jit_compile == ("jit_compile" in compiled)
    run(model)
    assert int(model.optimizer.iterations) == 6
    near(model, trained_by_keras())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "other", "options"),
    [
        (SGD, keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
        (Adagrad, keras.optimizers.Adagrad, {"clipvalue": 0.01}),
        (LazyAdam, keras.optimizers.Adam, {"amsgrad": True, "clipnorm": 0.1}),
    ],
)
def test_every_optimizer_fits_as_that_of_keras(kind, other, options):
    model = make_model(kind(0.05, **options), run_eagerly=True)
    history = fit(model).history["loss"]
    near(model, trained_by_keras(other, **options))
    assert history[1] < history[0]


@pytest.mark.slow
def test_predictions_and_scores_are_those_of_keras():
    x, y = make_data()
    ours, theirs = make_model(SGD(0.1)), make_model("sgd", keras.layers.Embedding)
    np.testing.assert_array_equal(ours.predict(x, verbose=0), theirs.predict(x, verbose=0))
    assert ours.evaluate(x, y, verbose=0) == theirs.evaluate(x, y, verbose=0)


@pytest.mark.slow
def test_callbacks_set_the_learning_rate():
    def callback():
        return keras.callbacks.LearningRateScheduler(lambda epoch: 0.05 / (epoch + 1))

    ours = make_model(LazyAdamW(1.0, **OPTIONS))
    theirs = make_model(keras.optimizers.AdamW(1.0, **OPTIONS), DenseEmbedding, run_eagerly=True)
    rates = [fit(m, callbacks=[callback()]).history["learning_rate"] for m in (ours, theirs)]
    np.testing.assert_allclose(rates, [[0.05, 0.025]] * 2)
    near(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.1),
        lambda: SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1, clipnorm=1.0),
        lambda: Adagrad(0.1, clipvalue=1.0),
        lambda: RowwiseAdagrad(0.1, global_clipnorm=1.0),
        lambda: LazyAdam(0.1, amsgrad=True, correct_skipped=True, loss_scale_factor=8.0),
        lambda: LazyAdamW(0.1),
        lambda: LossScaleOptimizer(LazyAdamW(0.1)),
    ],
    ids=["SGD", "momentum", "Adagrad", "RowwiseAdagrad", "LazyAdam", "LazyAdamW", "scaled"],
)
def test_a_step_makes_nothing_as_large_as_a_table(make):
    model = make_model(make(), words=97, constraint=keras.constraints.UnitNorm(axis=1))
    step = tf.function(model.train_step, autograph=False).get_concrete_function(STEP)
    assert as_large_as(step, 97) == []


def test_a_step_of_keras_does_make_something_as_large_as_a_table():
    model = make_model("sgd", keras.layers.Embedding, words=97)
    step = tf.function(model.train_step, autograph=False).get_concrete_function(STEP)
    assert as_large_as(step, 97)


@pytest.mark.slow
def test_row_wise_adagrad_keeps_one_number_a_row():
    model = make_model(RowwiseAdagrad(0.1, name="a"), run_eagerly=True)
    fit(model)
    shapes = {v.path: tuple(v.shape) for v in model.optimizer.variables}
    assert shapes["a/words_embeddings_accumulator"] == (WORDS, 1)
    assert shapes["a/places_embeddings_accumulator"] == (PLACES, 1)
    kernel = model.get_layer("scores").kernel
    assert shapes["a/scores_kernel_accumulator"] == tuple(kernel.shape)


def test_slots_are_named_as_by_keras():
    paths = []
    for optimizer in (LazyAdam(0.1, name="a"), keras.optimizers.Adam(0.1, name="a")):
        model = make_model(optimizer, run_eagerly=True)
        model.train_on_batch(*next(batches()))
        paths.append([variable.path for variable in optimizer.variables])
    assert paths[0] == paths[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "run_eagerly"),
    [
        ("non_neg", True),
        (keras.constraints.UnitNorm(axis=1), False),
        (keras.constraints.MaxNorm(0.05, axis=1), True),
    ],
)
def test_constraints_are_kept_by_the_rows_of_the_batch(constraint, run_eagerly):
    ours = make_model(SGD(0.1), constraint=constraint, run_eagerly=run_eagerly)
    theirs = make_model("sgd", DenseEmbedding, constraint=constraint, run_eagerly=True)
    theirs.optimizer.learning_rate = 0.1
    for model in (ours, theirs):
        fit(model)
    near(ours, theirs)
    table = ours.get_layer("words").embeddings
    assert table.constraint is ours.get_layer("words").embeddings_constraint
    before = table.numpy()
    ones = np.ones([1, LENGTH], np.int32)
    ours.train_on_batch((ones, ones), np.ones([1, 1]))
    idle = np.arange(WORDS) != 1
    assert table.numpy()[idle].tobytes() == before[idle].tobytes()
    assert (table.numpy()[1] != before[1]).any()


@pytest.mark.slow
def test_a_plain_embedding_is_trained_right():
    model = make_model(Adagrad(0.05), keras.layers.Embedding)
    fit(model)
    near(model, trained_by_keras(keras.optimizers.Adagrad, epsilon=1e-7))


@pytest.mark.slow
def test_a_plain_embedding_keeps_a_constraint_on_columns():
    constraint = keras.constraints.UnitNorm(axis=0)
    models = [
        make_model(optimizer, embedding, constraint=constraint, run_eagerly=True)
        for optimizer, embedding in (
            (SGD(0.1), keras.layers.Embedding),
            (keras.optimizers.SGD(0.1), DenseEmbedding),
        )
    ]
    for model in models:
        fit(model)
    near(*models)


@pytest.mark.slow
def test_one_dense_use_of_a_shared_table_makes_it_dense_and_right():
    """The table that gives the inputs is also the output layer's kernel."""
    ends = []
    for optimizer, embedding in (
        (SGD(0.5), RowEmbedding),
        (keras.optimizers.SGD(0.5), DenseEmbedding),
    ):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((LENGTH,), dtype="int32")
        table = embedding(WORDS, COLUMNS)
        rows = keras.layers.GlobalAveragePooling1D()(table(inputs))

        class Scores(keras.layers.Layer):
            def __init__(self, table):
                super().__init__()
                self.table = table

            def call(self, rows):
                return keras.ops.matmul(rows, keras.ops.transpose(self.table.embeddings))

        model = keras.Model(inputs, Scores(table)(rows))
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        (left, _), _ = make_data()
        model.fit(left, left[:, 0], batch_size=BATCH, shuffle=False, verbose=0)
        ends.append(model)
    near(*ends)
