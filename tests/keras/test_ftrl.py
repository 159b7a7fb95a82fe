"""FTRL by row: Keras' numbers for rows that start at 0, the paper's for any rows."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import Ftrl
from tests.keras.updates import RATE, identical, make_stream, make_variables, near, train, whole
from tests.reference import optimizers as reference

OPTIONS = [
    {},
    {"l2_regularization_strength": 0.1, "beta": 0.5},
    {"l1_regularization_strength": 0.3, "l2_regularization_strength": 0.1},
]
every = pytest.mark.parametrize("options", OPTIONS, ids=str)


def zeros_first(is_table):
    variables = make_variables()
    variables[0].assign(tf.zeros_like(variables[0]))
    variables[0].is_table = is_table
    return variables


@pytest.mark.parametrize("is_table", [False, True])
@every
def test_rows_that_start_at_zero_are_those_of_keras(options, is_table):
    found = train(Ftrl(RATE, **options), zeros_first(is_table), make_stream())[-1]
    stock = keras.optimizers.Ftrl(RATE, **options)
    expected = train(stock, zeros_first(False), make_stream(), sparse=False)[-1]
    near(found[:1], expected[:1])
    identical(found[1:3], expected[1:3])
    l1 = options.get("l1_regularization_strength")
    assert len(found) == len(expected) - (is_table and not l1)  # no linear
    assert not l1 or (found[0] == 0).any()


@pytest.mark.parametrize("sparse", [False, True])
@every
def test_rows_and_slots_are_those_of_the_paper(options, sparse):
    variables, optimizer = make_variables(), Ftrl(RATE, **options)
    variables[0].is_table = True
    before = variables[0].numpy()
    stream = list(make_stream())
    found = train(optimizer, variables, stream, sparse)[-1][0]
    rule = functools.partial(
        reference.ftrl,
        l1=options.get("l1_regularization_strength", 0.0),
        l2=2 * options.get("l2_regularization_strength", 0.0),
        beta=options.get("beta", 0.0),
    )
    rows = before.astype(np.float64)
    states = reference.train(rule, rows, [(ids, values, RATE) for ids, values, _ in stream])
    near([found], [rows])
    for slot, variable in optimizer.row_slots(0).items():
        for row, state in states.items():
            np.testing.assert_allclose(variable[row], state[slot], rtol=1e-5, atol=1e-5)
    idle = ~np.any([whole(ids, values).any(axis=1) for ids, values, _ in stream], axis=0)
    assert idle.any() and found[idle].tobytes() == before[idle].tobytes()


@pytest.mark.parametrize(
    "option", [{"learning_rate_power": -0.3}, {"l2_shrinkage_regularization_strength": 0.1}]
)
def test_arguments_that_rows_do_not_have_are_refused(option):
    with pytest.raises(ValueError, match=f"{min(option)}={min(option.values())}: .* leave it out"):
        Ftrl(RATE, **option)
