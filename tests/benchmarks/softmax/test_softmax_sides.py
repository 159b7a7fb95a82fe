from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.benchmarks.softmax import softmax_sides
from app.config import ModelConfig
from app.errors import RunError
from app.losses.classes.class_softmax import ClassSoftmax

WORDS, TARGETS, DIM = 95, 12, 4
IN_FLOAT32 = {"loss": "class_softmax", "compute_dtype": "float32"}


@pytest.fixture
def tens(monkeypatch):
    """Gives ours the classes that the peer has: of ten words, the last one of five."""

    def make(settings, wanted):
        return ClassSoftmax(len(wanted.counts_V), wanted.columns, [np.r_[0:95:10, 95]])

    monkeypatch.setattr(softmax_sides.outputs, "make_loss", make)


def trained(side, steps=3, **given):
    """A side after some steps on the same batches, and the loss of each."""
    case = softmax_sides.make_case(WORDS, TARGETS, DIM, seed=5)
    made = softmax_sides.SIDES[side](case, ModelConfig(**given))
    step = softmax_sides.compiled(made.step, made.tables, TARGETS)
    batches = itertools.islice(softmax_sides._batches(case, 5), steps)
    return made, [float(step(*batch)) for batch in batches]


def values(side, name):
    return side.tables[name].values.numpy()


@pytest.mark.slow
def test_a_copy_for_each_target_does_what_grouping_does(tens):
    copies, copies_losses = trained("copies")
    ours, losses = trained("ours", **IN_FLOAT32)
    np.testing.assert_allclose(copies_losses, losses, rtol=1e-5)
    for name in ("shift", "classes"):
        np.testing.assert_allclose(values(copies, name), values(ours, name), rtol=1e-4, atol=1e-6)
    words = values(copies, "output")
    assert len(words) == 100 and not words[WORDS:].any()  # to whole classes
    np.testing.assert_allclose(words[:WORDS], values(ours, "output"), rtol=1e-4, atol=1e-6)


def test_the_dense_peer_is_a_softmax_with_adagrad():
    side, losses = trained("dense")
    case = softmax_sides.make_case(WORDS, TARGETS, DIM, seed=5)
    rows_VD, sums_VD = np.zeros((WORDS, DIM)), np.full((WORDS, DIM), 0.1)
    shift_D, sum_1 = np.zeros(DIM), 0.1
    for (targets_N, _), loss in zip(softmax_sides._batches(case, 5), losses, strict=False):
        hidden_ND = case.hidden_ND.numpy().astype(np.float64) + shift_D
        exponents_NV = np.exp(hidden_ND @ rows_VD.T)
        error_NV = exponents_NV / exponents_NV.sum(axis=1, keepdims=True)
        each = np.arange(TARGETS), targets_N.numpy()
        assert loss == pytest.approx(-np.log(error_NV[each]).sum(), rel=1e-5)
        error_NV[each] -= 1
        by_shift_D, by_rows_VD = (error_NV @ rows_VD).sum(axis=0), error_NV.T @ hidden_ND
        sum_1 += np.mean(by_shift_D**2)
        shift_D = shift_D - softmax_sides.RATE * by_shift_D / np.sqrt(sum_1)
        sums_VD += by_rows_VD**2
        rows_VD = rows_VD - softmax_sides.RATE * by_rows_VD / np.sqrt(sums_VD)
    np.testing.assert_allclose(values(side, "output"), rows_VD, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(values(side, "shift")[0], shift_D, rtol=1e-4, atol=1e-6)


def test_batches_are_new_at_each_step_and_the_same_for_every_side():
    case = softmax_sides.make_case(1000, 5000, 2, seed=1)
    (first, one), (second, two) = itertools.islice(softmax_sides._batches(case, 1), 2)
    (again, _) = next(softmax_sides._batches(case, 1))
    assert (int(one), int(two)) == (1, 2)
    assert np.array_equal(first, again) and not np.array_equal(first, second)
    share = case.counts_V[0] / case.counts_V.sum()
    assert np.mean(first.numpy() == 0) == pytest.approx(share, abs=0.02)
    assert 900 < first.numpy().max() < 1000 and case.counts_V[-1] == 10


@pytest.mark.slow
def test_what_a_step_moves_is_count_traffic(tens):
    case = softmax_sides.make_case(WORDS, TARGETS, DIM, seed=5)
    side = softmax_sides.SIDES["ours"](case, ModelConfig(**IN_FLOAT32))
    batch = tf.constant([0, 3, 7, 94, 94, 12] * 2), tf.constant(1, tf.int64)
    traffic = softmax_sides._count_traffic(side, itertools.repeat(batch))
    rows = 10 + 10 + 5 + 10  # of classes 0, 1 and 9, and the classes
    slots = rows
    moved = 4 * (rows * DIM + slots)
    assert traffic == {"rows": rows, "read_bytes": moved, "written_bytes": moved}


def job(**changes):
    values = {"side": "ours", "settings": {"loss": "class_softmax", "classes": 10}}
    values |= {
        "compute_dtype": "bfloat16",
        "words": WORDS,
        "targets": TARGETS,
        "dim": DIM,
        "steps": 3,
        "seed": 3,
    }
    return values | changes


@pytest.mark.slow
def test_a_side_returns_its_figures():
    values = softmax_sides.measure(job())
    assert len(values["steps_ms"]) == 3
    assert min(values["steps_ms"]) <= values["step_ms"] <= max(values["steps_ms"])
    assert values["table_bytes"] == 4 * (DIM + 1) * (WORDS + 10 + 1)
    assert values["rows"] <= WORDS + 10 and values["device_peak_bytes"] is None


def stand_in(result, change=1.0):
    """A side whose step does nothing but change the shift and give `result`."""

    def make(case, settings):
        side = softmax_sides.SIDES["dense"](case, settings)

        def step(tables, targets_N, number):
            tables["shift"].assign(tf.constant([0]), tf.fill((1, DIM), change))
            return tf.constant(result)

        return side._replace(step=step)

    return make


def test_a_slow_side_makes_fewer_steps(monkeypatch):
    clock = itertools.count(step=7.0)
    monkeypatch.setattr(softmax_sides.time, "perf_counter", lambda: next(clock))
    monkeypatch.setitem(softmax_sides.SIDES, "stand-in", stand_in(0.0))
    values = softmax_sides.measure(job(side="stand-in", settings={}, steps=50))
    assert values["steps_ms"] == [7000.0] * 3 and values["rows"] == WORDS


@pytest.mark.parametrize("change", [0.0, np.nan])
def test_a_side_that_gives_no_gradient_has_no_speed(monkeypatch, change):
    monkeypatch.setitem(softmax_sides.SIDES, "stand-in", stand_in(0.0, change))
    with pytest.raises(RunError, match="stand-in: the hidden vectors got no finite gradient"):
        softmax_sides.measure(job(side="stand-in", settings={}))
