from __future__ import annotations

import pytest

from app.profiling.advice import advise
from app.profiling.long_waits import LongWaits
from app.profiling.operations import INPUT, Operation, Work
from tests.profiling.test_advice import WAITING, divided, stage

CACHE, PREFETCH = ("cache() after the slowest stage", 4.0), ("prefetch(tf.data.AUTOTUNE)", 4.0)
PARALLEL = ("num_parallel_calls=tf.data.AUTOTUNE", 2.0)
IN_PYTHON = ("batch() before the map, or TensorFlow operations in it", None)
COMPUTING = divided(device_compute=0.9, launch=0.1)
SMALL = divided(device_compute=0.6, launch=0.4)


def work(*operations):
    """Of the name, the type, the part and the seconds of each operation."""
    total = sum(seconds for *_, seconds in operations)
    found = [Operation(*key, 9, seconds, seconds / total) for *key, seconds in operations]
    return Work(found, {INPUT: sum(o.share for o in found if o.part == INPUT)}, 0.0)


def asked(division, slowest=None, done=None, waits=None):
    changes = advise(division, slowest, done or Work([], {}, 0.0), None, 2, waits)
    return [(change.what, change.speedup) for change in changes]


@pytest.mark.parametrize(
    ("slowest", "expected"),
    [
        (stage("f", "Map", 0), [PARALLEL]),
        (stage("f"), [CACHE, PREFETCH]),
        (stage("f", "FlatMap", 0), [CACHE, PREFETCH]),
        (None, [CACHE, PREFETCH]),
    ],
)
def test_of_a_pipeline(slowest, expected):
    assert asked(WAITING, slowest) == expected


@pytest.mark.parametrize("kind", ["PyFunc", "EagerPyFunc"])
def test_of_a_map_that_calls_python(kind):
    """More calls at a time do not make it faster, and no gain is promised."""
    python = work(("f/Call", kind, INPUT, 8.0), ("Cast", "Cast", INPUT, 1.0), ("x", "Mul", "", 1.0))
    assert asked(WAITING, stage("f", "Map", 0), python) == [IN_PYTHON, CACHE]
    assert asked(WAITING, stage("f"), python) == [IN_PYTHON, CACHE]
    assert asked(WAITING, stage("f", "FlatMap", 0), python) == [CACHE, PREFETCH]
    little = work(("f/Call", kind, INPUT, 1.0), ("Cast", "Cast", INPUT, 8.0))
    assert asked(WAITING, stage("f", "Map", 0), little) == [PARALLEL]


def adam(scope, seconds=1.0):
    """The operations of 9 steps, as recorded of 400,000 x 64 with Adam."""
    return work(
        (f"{scope}/UnsortedSegmentSum", "UnsortedSegmentSum", "", 3.0 * seconds),
        (f"{scope}/Mul", "Mul", "", 2.0 * seconds),
        (f"{scope}/Sub", "Sub", "", 1.5 * seconds),
        (f"{scope}/AssignAddVariableOp", "AssignAddVariableOp", "", 0.7 * seconds),
        (f"{scope}/AssignSubVariableOp", "AssignSubVariableOp", "", 0.3 * seconds),
        ("words/MatMul", "MatMul", "loss", 0.5 * seconds),
    )


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ("adam", "LazyAdam"),
        ("cond/then/adamw", "LazyAdamW"),
        ("adagrad", "Adagrad"),
        ("SGD", "SGD"),
        ("rmsprop", "LazyAdam"),
    ],
)
def test_of_an_optimizer_that_updates_a_large_variable(scope, name):
    ((what, speedup),) = asked(COMPUTING, None, adam(scope))
    assert what == f"app.keras.RowEmbedding with app.keras.{name}"
    assert speedup == pytest.approx(1 / (1 - 7.5 / 8 * 0.9))
    (change,) = advise(COMPUTING, None, adam(scope), None, 2)
    assert "app.keras.audit(model)" in change.why and "94%" in change.why


def test_of_an_optimizer_that_updates_rows_or_small_variables():
    assert asked(COMPUTING, None, adam("lazy_adam")) == []
    assert asked(COMPUTING, None, adam("adam", 1e-3)) == []
    heavy = ("loss/MatMul", "MatMul", "loss", 100.0)
    rest = [(o.name, o.kind, o.part, o.seconds) for o in adam("adam").operations]
    assert asked(COMPUTING, None, work(heavy, *rest)) == []


def test_of_steps_that_mostly_start_operations():
    get_next = ("IteratorGetNext", "IteratorGetNext", "", 0.5)
    done = work(get_next, ("dense/MatMul", "MatMul", "loss", 0.5))
    ((what, speedup),) = asked(SMALL, None, done)
    assert what == "steps_per_execution=16 in model.compile"
    assert speedup == pytest.approx(1 / (1 - 0.7 * 15 / 16))
    assert asked(COMPUTING, None, work(("dense/MatMul", "MatMul", "loss", 0.5))) == []


def test_of_a_step_that_xla_compiled():
    call = ("StatefulPartitionedCall", "StatefulPartitionedCall", "", 9.0)
    done = work(call, ("dense/MatMul", "MatMul", "", 1.0))
    ((what, speedup),) = asked(COMPUTING, None, done)
    assert what.startswith("app.keras.audit(model)") and speedup is None
    assert asked(COMPUTING, None, work(call, ("dense/MatMul", "MatMul", "", 9.0))) == []


def test_of_waits_before_the_first_step_of_an_epoch():
    waits = LongWaits([0, 0], 8.0, 0.7, True)
    assert asked(WAITING, stage("f", "Map", 0), None, waits) == [
        ("shuffle(buffer_size) with a smaller buffer, and before the map", None)
    ]
    ((what, speedup),) = asked(WAITING, None, None, waits._replace(shuffles=False))
    assert what.startswith("cache()") and speedup is None
    # Most of the waiting is in other steps.
    assert asked(WAITING, None, None, waits._replace(share=0.3)) == [CACHE, PREFETCH]
