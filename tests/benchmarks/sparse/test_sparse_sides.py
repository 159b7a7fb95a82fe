from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.benchmarks.sparse import sparse_case, sparse_sides
from app.benchmarks.sparse.sparse_sides import Case
from app.errors import RunError

BATCH = (128, 20)
IDS = BATCH[0] * BATCH[1]
STEPS = 3


class Ramp(keras.initializers.Initializer):
    """Every row another, and the same whichever way it is compiled."""

    def __call__(self, shape, dtype=None):
        size = shape[0] * shape[1]
        return tf.reshape(tf.linspace(-0.05, 0.05, size), shape)


def case(ids_SN, rows):
    random = np.random.default_rng(0)
    ids_SBT = np.asarray(ids_SN, np.int32).reshape(STEPS, *BATCH)
    return Case(rows, ids_SBT, random.random((*BATCH, 4), dtype=np.float32), Ramp())


def repeated_and_idle():
    """Ids that repeat, and rows that are touched, idle, touched again, or never touched."""
    random = np.random.default_rng(1)
    return case(random.integers(0, [[900], [500], [900]], (STEPS, IDS)), rows=1000)


def all_rows_once():
    """Where a dense optimizer and a lazy one do the same."""
    random = np.random.default_rng(2)
    return case([random.permutation(IDS) for _ in range(STEPS)], rows=IDS)


def trained(side, optimizer, given):
    made = sparse_sides.SIDES[side](optimizer, given)
    assert len(made.blocks(STEPS, 1)) == 1
    return made.gather(tf.range(given.rows)).numpy()


def agree(sides, optimizer, given):
    first, *others = (trained(side, optimizer, given) for side in sides)
    assert not np.array_equal(first, Ramp()((given.rows, 4)))
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-4, atol=1e-6)


def slow_but(fast, optimizers):
    """The optimizers; only one of them when slow tests do not run."""
    return [
        name if name == fast else pytest.param(name, marks=pytest.mark.slow) for name in optimizers
    ]


# Not ftrl: ours lets a row start where it is, TensorFlow's from 0.
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", slow_but("lazy_adam", sparse_sides.IN_FIT))
def test_ours_do_what_is_done_by_hand(optimizer):
    agree(["hand", "table", "fit"], optimizer, repeated_and_idle())


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", slow_but("ftrl", sparse_sides.IN_KERAS))
def test_keras_does_the_same_where_every_row_is_touched(optimizer):
    agree(["hand", "keras", "keras_jit"], optimizer, all_rows_once())


def test_dense_adam_also_changes_rows_that_are_idle():
    agree(["hand", "dense"], "lazy_adam", all_rows_once())
    given = repeated_and_idle()
    rows, m, v = np.array(Ramp()((given.rows, 4)), np.float64), 0.0, 0.0
    for number, ids_BT in enumerate(given.ids_SBT, 1):
        gradient = np.zeros_like(rows)
        by_vector = 2 * (rows[ids_BT] - given.target_BTD) / given.target_BTD.size
        np.add.at(gradient, ids_BT, by_vector)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        rate = sparse_sides.RATE * np.sqrt(1 - 0.999**number) / (1 - 0.9**number)
        rows = rows - rate * m / (np.sqrt(v) + 1e-7)
    np.testing.assert_allclose(trained("dense", "lazy_adam", given), rows, rtol=1e-3, atol=1e-5)


def test_every_side_has_the_optimizers_that_the_case_asks_of_it():
    by_side = {
        "table": sparse_sides.OPTIMIZERS,
        "fit": sparse_sides.IN_FIT,
        "hand": sparse_sides.sparse_by_hand.FORMULAS,
        "keras": sparse_sides.IN_KERAS,
        "keras_jit": sparse_sides.IN_KERAS,
        "dense": {"lazy_adam"},
    }
    assert by_side.keys() == sparse_sides.SIDES.keys()
    for side, optimizers in by_side.items():
        assert set(optimizers) == {
            name for name, sides in sparse_case.HELD.items() if side in sides
        }


def job(**changes):
    values = {"side": "table", "optimizer": "rowwise_adagrad", "rows": 1000, "dim": 8, "steps": 4}
    return values | {"seed": 3, "batch": BATCH} | changes


def test_a_side_returns_its_figures():
    values = sparse_sides.measure(job())
    assert values["block_steps"] == 4
    assert min(values["blocks_ms"]) <= values["step_ms"] <= max(values["blocks_ms"])
    assert values["table_bytes"] == 1000 * (8 + 1) * 4


def stand_in(blocks, changed=1.0):
    """A side whose steps take `blocks` seconds, and which changes rows by `changed` in all."""
    rows = [np.zeros((*BATCH, 2), np.float32), np.full((*BATCH, 2), changed, np.float32)]
    return lambda optimizer, given: sparse_sides.Side(
        blocks, lambda ids: tf.constant(rows.pop(0)), lambda: 5
    )


def test_a_slow_side_makes_fewer_steps_and_the_first_block_does_not_count(monkeypatch):
    def blocks(steps, count):
        return [1000.0] + [0.5 * steps] * (count - 1)

    monkeypatch.setitem(sparse_sides.SIDES, "table", stand_in(blocks))
    values = sparse_sides.measure(job(steps=100))
    assert values["block_steps"] == 6 and values["blocks_ms"] == [500.0] * 5


@pytest.mark.parametrize("changed", [0.0, np.nan])
def test_a_side_that_does_not_train_has_no_speed(monkeypatch, changed):
    monkeypatch.setitem(
        sparse_sides.SIDES, "table", stand_in(lambda steps, count: [1.0] * count, changed)
    )
    with pytest.raises(RunError, match="rowwise_adagrad, table: .* so its speed means nothing"):
        sparse_sides.measure(job())
