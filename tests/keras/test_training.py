"""Models with tables are trained in every way that Keras has, to the numbers of the dense one."""

import contextlib
import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, Adagrad, LazyAdam, LazyAdamW, LossScaleOptimizer, RowwiseAdagrad
from app.keras.optimizers import row_sparse
from app.keras.tables import table_warnings
from tests.keras.models import BATCH, LENGTH, WORDS, fit, make_data, make_model, near
from tests.reference.dense_embedding import DenseEmbedding

OPTIONS = {"weight_decay": 0.1, "global_clipnorm": 0.5, "clipnorm": None}


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
        pytest.param(fit, {}, marks=pytest.mark.slow),
        pytest.param(fit, {"run_eagerly": True}, marks=pytest.mark.slow),
        (fit, {"steps_per_execution": 2}),
        (fit, {"jit_compile": True}),
        pytest.param(on_batches, {}, marks=pytest.mark.slow),
        (in_a_loop, {}),
        pytest.param(from_a_dataset, {}, marks=pytest.mark.slow),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value.__name__,
)
def test_every_way_to_train_gives_the_numbers_of_the_dense_model(run, compiled):
    model = make_model(LazyAdamW(0.05, **OPTIONS), **compiled)
    assert model.jit_compile == ("jit_compile" in compiled)
    run(model)
    assert int(model.optimizer.iterations) == 6
    near(model, trained_by_keras())


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


# What cannot be row by row is refused, or warned about, in words; small tables are let be.


# NumPy 2 says so wherever TensorFlow's values become arrays, as they do in Keras 3.12.
NUMPY = "__array__ implementation doesn't accept a copy keyword"
ALL = pytest.mark.parametrize("kind", [SGD, Adagrad, RowwiseAdagrad, LazyAdam, LazyAdamW])


@pytest.fixture(params=["large", "small"])
def large(request, monkeypatch):
    """Whether the tables of the model count as large."""
    if request.param == "large":
        monkeypatch.setattr(row_sparse, "LARGE", 4 * 13 * 4)  # the bytes of "words"
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
    monkeypatch.setattr(row_sparse, "LARGE", 1)
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
    monkeypatch.setattr(row_sparse, "LARGE", 1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(50), keras.layers.Dense(1)])
    model.compile(LazyAdam(0.1), "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.train_on_batch(np.ones([2, 3]), np.ones([2, 1]))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(keras.optimizers, "MultiOptimizer"), reason="Keras 3.12 has none")
def test_an_optimizer_of_several_is_no_loss_scale(monkeypatch):
    monkeypatch.setattr(row_sparse, "LARGE", 1)
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
