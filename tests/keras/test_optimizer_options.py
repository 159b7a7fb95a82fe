"""What every optimizer of Keras takes: clipping, schedules, decay, a loss scale, any variable."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, Adagrad, Ftrl, LazyAdam, LazyAdamW, RowwiseAdagrad
from tests.keras.updates import (
    RATE,
    ROWS,
    make_stream,
    make_variables,
    near,
    ours,
    shared,
    theirs,
    train,
    trained,
    whole,
)


@pytest.mark.parametrize(
    "option", [{"clipnorm": 0.5}, {"clipvalue": 0.1}, {"global_clipnorm": 0.5}, {}], ids=str
)
def test_gradients_are_clipped_as_the_dense_ones(option):
    stream = list(make_stream(scale=0.5))
    found, expected = (
        train(optimizer, make_variables(), stream, sparse)[-1]
        for optimizer, sparse in (
            (ours("sgd", **option), True),
            (theirs("sgd", **option), False),
        )
    )
    free = train(theirs("sgd"), make_variables(), stream, sparse=False)[-1]
    near(found, expected)
    for part in range(3):
        assert not option or np.abs(found[part] - free[part]).max() > 1e-2


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_momentum_and_moments_see_clipped_gradients(name):
    found, expected = (
        train(make(name, global_clipnorm=0.5), make_variables(), make_stream(True), sparse)[-1]
        for make, sparse in ((ours, True), (theirs, False))
    )
    near(found[:3], expected[:3])


@pytest.mark.parametrize(
    ("exclude", "decaying"),
    [
        (None, [True, True]),
        (lambda table: {"var_list": [table]}, [False, True]),
        (lambda table: {"var_names": ["emb"]}, [False, True]),
        (lambda table: {"var_names": ["kernel"]}, [True, False]),
    ],
    ids=["nothing", "variable", "name", "other name"],
)
def test_weights_decay_but_where_they_are_excluded(exclude, decaying):
    ends = []
    for make, sparse in ((ours, True), (theirs, False)):
        variables = make_variables()
        optimizer = make("sgd", weight_decay=0.1)
        if exclude:
            optimizer.exclude_from_weight_decay(**exclude(variables[0]))
        ends.append(train(optimizer, variables, make_stream(all_rows=True), sparse)[-1])
    near(*ends)
    plain = trained("sgd", all_rows=True)[0][-1]
    apart = [np.abs(a - b).max() > 1e-2 for a, b in zip(ends[0][:2], plain[:2], strict=True)]
    assert apart == decaying


@pytest.mark.parametrize(
    "rate",
    [
        lambda: keras.optimizers.schedules.ExponentialDecay(0.2, 3, 0.5),
        lambda: keras.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1]),
        lambda: lambda: 0.05,
    ],
)
@pytest.mark.parametrize(
    ("kind", "other"),
    [(SGD, keras.optimizers.SGD), (LazyAdam, keras.optimizers.Adam)],
)
def test_the_learning_rate_may_be_a_schedule(kind, other, rate):
    found = train(kind(rate()), make_variables(), make_stream(all_rows=True))[-1]
    near(found, train(other(rate()), make_variables(), make_stream(all_rows=True), False)[-1])


def test_the_learning_rate_may_be_set_between_steps():
    ends = []
    for make, sparse in ((ours, True), (theirs, False)):
        optimizer, variables = make("adam"), make_variables()
        for number, step in enumerate(make_stream(all_rows=True)):
            optimizer.learning_rate = 0.1 / (number + 1)
            found = train(optimizer, variables, [step], sparse)
        ends.append(found[-1])
    near(*ends)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_loss_may_be_scaled(name):
    assert ours(name, loss_scale_factor=64.0).scale_loss(2.0) == 128.0
    scaled = train(ours(name, loss_scale_factor=64.0), make_variables(), make_stream(scale=64.0))[
        -1
    ]
    near(scaled[:3], trained(name)[0][-1][:3])


@pytest.mark.parametrize("name", ["nesterov", "adagrad", "adamw, corrected"])
@pytest.mark.parametrize("columns", [(), (2, 3)], ids=["rank 1", "rank 3"])
def test_variables_of_any_rank(name, columns):
    stream = list(make_stream(all_rows=True, columns=columns))
    optimizer = ours(name)
    found = train(optimizer, make_variables((ROWS, *columns)), stream)[-1]
    expected = train(theirs(name), make_variables((ROWS, *columns)), stream, sparse=False)[-1]
    near([*found[:3], *(found[3 + i] for i in shared(optimizer))], expected)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adamw, corrected"])
def test_variables_of_tensorflow(name):
    variable = tf.Variable(make_variables()[0].numpy())
    optimizer = ours(name)
    for ids, values, _ in make_stream():
        gradient = tf.IndexedSlices(tf.constant(values), tf.constant(ids), variable.shape)
        optimizer.apply_gradients([(gradient, variable)])
    near([variable.numpy()], [trained(name)[0][-1][0]])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_table_of_few_bits_is_updated_in_float32(dtype):
    variables = make_variables(dtype=dtype)
    rows = variables[0].numpy()
    found = train(ours("sgd"), variables, make_stream(scale=0.1))[-1][0]
    for ids, values, _ in make_stream(scale=0.1):
        change = np.float32(RATE) * whole(ids, values)
        rows = np.asarray(rows.astype(np.float32) - change).astype(rows.dtype)
    np.testing.assert_array_equal(found.astype("f"), rows.astype("f"))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (LazyAdam, {"clipnorm": -1.0}, "clipnorm=-1.0: give at least 0"),
        (SGD, {"clipvalue": -0.5}, "clipvalue=-0.5: give at least 0"),
        (Adagrad, {"global_clipnorm": float("nan")}, "global_clipnorm=nan: give at least 0"),
        (LazyAdam, {"beta_1": 1.5}, "beta_1=1.5: give less than 1"),
        (LazyAdamW, {"beta_2": 1}, "beta_2=1: give less than 1"),
        (LazyAdam, {"beta_2": -0.1}, "beta_2=-0.1: give at least 0"),
        (RowwiseAdagrad, {"epsilon": -1}, "epsilon=-1: give at least 0"),
        (Adagrad, {"initial_accumulator_value": -1}, "initial_accumulator_value=-1: give at leas"),
        (LazyAdamW, {"weight_decay": -0.1}, "weight_decay=-0.1: give at least 0"),
        (Ftrl, {"beta": -2.0}, "beta=-2.0: give at least 0"),
    ],
)
def test_an_argument_out_of_range_is_refused(make, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make(0.1, **options)


def test_arguments_at_the_end_of_their_range():
    for make in (LazyAdam, LazyAdamW):
        made = make(0.1, beta_1=0, beta_2=0.0, epsilon=0, clipnorm=0.0, weight_decay=0)
        assert type(made).from_config(made.get_config()).beta_1 == 0
