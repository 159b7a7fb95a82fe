"""The optimizers' numbers: those of Keras' dense optimizers, where these are defined to agree."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.keras.updates import (
    KINDS,
    RATE,
    ROWS,
    ROWWISE,
    identical,
    make_stream,
    make_variables,
    near,
    ours,
    shared,
    theirs,
    train,
    trained,
    trained_by_keras,
    whole,
)
from tests.reference import optimizers as reference

every = pytest.mark.parametrize("name", KINDS)


def test_the_stream_has_what_it_promises():
    stream = list(make_stream())
    given = np.array([np.isin(np.arange(ROWS), ids) for ids, _, _ in stream]).T
    touched = np.array([whole(ids, values).any(axis=1) for ids, values, _ in stream]).T
    assert any(len(set(ids)) < len(ids) for ids, _, _ in stream)
    fates = ["".join(row) for row in np.where(touched, "T", np.where(given, "z", "."))]
    assert set(fates[0]) == {"."} and all("T" in fate for fate in fates[1:])
    assert any("T.T" in fate for fate in fates) and any("z" in fate for fate in fates)


@every
def test_it_is_the_dense_optimizer_where_all_rows_are_touched(name):
    history, optimizer = trained(name, all_rows=True)
    found = [*history[-1][:3], *(history[-1][3 + i] for i in shared(optimizer))]
    near(found, trained_by_keras(name, all_rows=True)[-1])


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_sgd_and_adagrad_are_the_dense_optimizer_on_any_rows(name):
    near(trained(name)[0][-1], trained_by_keras(name)[-1])


@pytest.mark.parametrize("name", [*KINDS, "rowwise"])
def test_rows_and_slots_are_those_of_the_paper(name):
    history, optimizer = trained(name)
    _, _, rule, options = (KINDS | {"rowwise": ROWWISE})[name]
    rows = make_variables()[0].numpy().astype(np.float64)
    stream = ((ids, values, RATE) for ids, values, _ in make_stream())
    states = reference.train(functools.partial(rule, **options), rows, stream)
    near([history[-1][0]], [rows])
    for slot, variable in optimizer.row_slots(0).items():
        for row, state in states.items():
            expected = np.broadcast_to(state[slot], variable.shape[1:])
            np.testing.assert_allclose(variable[row], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*KINDS, "rowwise"])
def test_idle_rows_and_their_slots_stay_as_they_are_bit_for_bit(name):
    history, optimizer = trained(name)
    paths = [v.path for v in optimizer.variables]
    slots = [3 + i for i, path in enumerate(paths) if "embeddings" in path]
    assert len(slots) == len(optimizer.row_slots(0))
    steps = zip(list(make_stream())[1:], history[:-1], history[1:], strict=True)
    for (ids, values, _), before, after in steps:
        idle = ~whole(ids, values).any(axis=1)
        for part in (0, *slots):
            assert after[part][idle].tobytes() == before[part][idle].tobytes()
        assert (after[0] != before[0])[~idle].any(axis=1).all()


@pytest.mark.parametrize("name", [*KINDS, "rowwise"])
def test_tables_side_by_side_are_trained_as_each_alone(name):
    tables = [make_variables()[0], make_variables()[0]]
    for table in tables:
        table.is_table = name == "rowwise"
    optimizer = ours(name)
    optimizer.build(tables[::-1])
    for step, ((ids, values, _), (other, *_)) in enumerate(
        zip(make_stream(), make_stream(all_rows=True), strict=True)
    ):
        gradients = [
            tf.IndexedSlices(tf.constant(values), tf.constant(ids), tables[0].shape),
            tf.IndexedSlices(tf.ones([len(other), 3]), tf.constant(other), tables[0].shape),
        ]
        # Each is the second one in half of the steps.
        turn = slice(None, None, -1 if step % 2 else 1)
        optimizer.apply(gradients[turn], tables[turn])
    near([tables[0].numpy()], [trained(name)[0][-1][0]])


@pytest.mark.parametrize("name", ["sgd", "adamw, corrected"])
def test_a_constraint_leaves_idle_rows_as_they_are(name):
    variables = make_variables()
    variables[0].constraint = keras.constraints.UnitNorm(axis=1)
    before = variables[0].numpy()
    first = next(make_stream())
    after = train(ours(name), variables, [first])[0][0]
    idle = ~whole(*first[:2]).any(axis=1)
    assert idle[np.unique(first[0])].any()  # one is in the batch, with a gradient of zeros
    assert after[idle].tobytes() == before[idle].tobytes()
    np.testing.assert_allclose(np.linalg.norm(after[~idle], axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", [*KINDS, "rowwise"])
def test_dense_variables_get_the_numbers_of_keras_to_the_last_bit(name):
    history, optimizer = trained(name)
    expected = trained_by_keras(name)
    for found, other in zip(history, expected, strict=True):
        identical(found[1:3], other[1:3])
    found = [optimizer.variables[i] for i in shared(optimizer)]
    slots = [v.numpy() for v in found if "embeddings" not in v.path]
    names = [v.path.partition("/")[2] for v in found]
    kept = [i for i, name in enumerate(names) if "embeddings" not in name]
    identical(slots, [expected[-1][3 + i] for i in kept])


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, {}) for name in KINDS]
    + [("nesterov", {"use_ema": True, "ema_overwrite_frequency": 2})]
    + [("adamw, corrected", {"gradient_accumulation_steps": 2, "clipnorm": 0.5})],
    ids=str,
)
def test_without_a_row_sparse_gradient_it_is_keras_own_class_to_the_last_bit(name, option):
    optimizer = ours(name, **option)
    found = train(optimizer, make_variables(), make_stream(), sparse=False)[-1]
    expected = trained_by_keras(name)[-1]
    if option:
        expected = train(theirs(name, **option), make_variables(), make_stream(), False)[-1]
    identical([*found[:3], *(found[3 + i] for i in shared(optimizer))], expected)
