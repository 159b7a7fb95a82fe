import pytest

from app.profiling.advice import advise
from app.profiling.division import LongWaits
from app.profiling.operations import INPUT, Operation, Run, Work
from app.profiling.stages import Pipeline, Stage
from tests.profiling.test_advice import divided, stage

CACHE = "cache() after the slowest stage"
PREFETCH = "prefetch(tf.data.AUTOTUNE) at the end"
AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"
UNBOUNDED = "map(num_parallel_calls=16, use_unbounded_threadpool=True)"
GENERATED = f"{UNBOUNDED}, with the work of the generator in it"
BATCH = "batch() before the map"
SHUFFLE = "shuffle() before the slowest stage"
STEPS = "steps_per_execution=16 in model.compile"
EXAMPLES = "a batch of 4 times the examples"

AHEAD = Stage("", "Prefetch", 0, 0.0, 0.0)
BATCHED = Stage("", "Batch", 0, 0.0, 0.0, batch=32)
SHUFFLED = Stage("", "Shuffle", 0, 0.0, 0.0)
WAITING = divided(input=0.75, device_compute=0.25)
COMPUTING = divided(device_compute=0.9, launch=0.1)


def ran(kind, seconds, part=INPUT):
    return Run("f/Call", kind, part, False, 0.0, seconds * 1e6, seconds)


PYTHON = [ran("PyFunc", 0.08), ran("Cast", 0.01)]
GRAPH = [ran("PyFunc", 0.01), ran("MatMul", 0.08)]


def work(*operations, large=True):
    """Of the name, the type, the part and the seconds of each operation."""
    total = sum(seconds for *_, seconds in operations)
    found = [
        Operation(*key, 9, seconds, seconds / total, seconds / total if large else 0.0)
        for key, seconds in ((key, seconds) for *key, seconds in operations)
    ]
    return Work(found, {INPUT: sum(o.share for o in found if o.part == INPUT)})


def asked(division, slowest=None, runs=(), done=None, later=(AHEAD, BATCHED)):
    pipeline = Pipeline(list(later), slowest) if slowest else None
    changes = advise(division, pipeline, runs, done or Work([], {}), None, 2)
    return {change.what: change.speedup for change in changes}


def gains(**by_name):
    names = {name.lower(): value for name, value in globals().items() if isinstance(value, str)}
    return {names[name]: pytest.approx(gain) for name, gain in by_name.items()}


def test_a_map_of_operations():
    """9 batches of 32 are 288 calls of 30 microseconds, of the 90 ms of the steps."""
    serial, calls = stage("f", "Map", 0), 288 * 3e-5 / 0.09
    assert asked(WAITING, serial, GRAPH) == gains(
        cache=4, autotune=2, batch=1 / (1 - calls * 31 / 32)
    )
    # Where the operations of a call take long, batches save nothing.
    slow = WAITING._replace(milliseconds=100.0)
    assert asked(slow, serial._replace(seconds=0.9), GRAPH) == gains(cache=4, autotune=2)
    # Some run in parallel already, by themselves or as asked for.
    for parallel in (stage("f", tunes=True), stage("f", parallelism=2)):
        assert AUTOTUNE not in asked(WAITING, parallel, GRAPH)


@pytest.mark.parametrize("kind", ["PyFunc", "EagerPyFunc"])
def test_a_map_that_calls_python(kind):
    runs = [ran(kind, 0.08), ran("Cast", 0.01)]
    expected = gains(cache=4, unbounded=4, batch=1 / (1 - 0.75 * 31 / 32))
    assert asked(WAITING, stage("f", "Map", 0), runs) == expected
    changes = advise(WAITING, Pipeline([AHEAD], stage("f", "Map", 0)), runs, Work([], {}), None, 2)
    (unbounded,) = (change for change in changes if change.what == UNBOUNDED)
    assert unbounded.condition == "the Python function of Map(f) waits (files, a network)"
    assert changes[-1] == unbounded and not any(change.condition for change in changes[:-1])
    # It has as many calls at the same time already.
    assert UNBOUNDED not in asked(WAITING, stage("f", parallelism=16), runs)


def test_a_generator():
    """No map, so that there is nothing to batch before it."""
    assert asked(WAITING, stage("", "Generator", 0), PYTHON) == gains(cache=4, generated=4)


def test_prefetch_is_proposed_only_where_nothing_is_ahead_and_never_for_more_than_it_overlaps():
    generator, bare = stage("", "Generator", 0), (BATCHED,)
    assert asked(WAITING, generator, PYTHON, later=bare)[PREFETCH] == pytest.approx(4 / 3)
    almost = divided(input=0.97, device_compute=0.03)
    assert PREFETCH not in asked(almost, generator, PYTHON, later=bare)
    for ahead in ("Prefetch", "ParallelMap", "MapAndBatch", "ParallelBatch", "ParallelInterleave"):
        last = Stage("", ahead, 2, 0.0, 0.0)
        assert PREFETCH not in asked(WAITING, generator, PYTHON, later=(last, BATCHED))


def test_a_cache_that_is_filled_or_keeps_random_numbers():
    cached = Stage("", "MemoryCache", 0, 0.0, 0.0)
    found = asked(WAITING, stage("f", "Map", 0), GRAPH, later=(AHEAD, BATCHED, cached))
    assert found == {"profile_batch=(START, STOP) of a later epoch": 4.0}
    assert asked(WAITING, cached, GRAPH) == {}
    runs = [*GRAPH, ran("RandomUniform", 0.001)]
    changes = advise(WAITING, Pipeline([AHEAD], stage("f", "Map", 0)), runs, Work([], {}), None, 2)
    (why,) = (change.why for change in changes if change.what == CACHE)
    assert why.endswith("the same in each epoch, its random numbers too")


def test_a_shuffle_behind_the_slowest_stage():
    """Before it, the slowest stage runs beside the steps: at most as long as these compute."""
    slowest, later = stage("f", "Map", 0), (AHEAD, BATCHED, SHUFFLED)
    waiting = divided(input=0.75, device_compute=0.25)._replace(long_waits=LongWaits([0], 1.0, 0.7))
    assert asked(waiting, slowest, GRAPH, later=later)[SHUFFLE] == pytest.approx(4 / 3)
    only = divided(input=0.97, device_compute=0.03)._replace(long_waits=LongWaits([0], 1.0, 0.97))
    assert SHUFFLE not in asked(only, slowest, GRAPH, later=later)
    assert SHUFFLE not in asked(waiting, slowest, GRAPH)
    assert SHUFFLE not in asked(WAITING, slowest, GRAPH, later=later)


def test_small_steps():
    """A larger batch saves what the optimizer does, too."""
    small = divided(device_compute=0.4, launch=0.2, host_compute=0.4)
    fixed = {"steps": 1 / (1 - 0.4 * 15 / 16), "examples": 1 / (1 - 0.6 * 3 / 4)}
    assert asked(small) == gains(**fixed)
    done = work(("adam/Mul", "Mul", "", 3.0), ("dense/MatMul", "MatMul", "", 1.0), large=False)
    assert asked(small, None, (), done) == gains(**fixed | {"examples": 1 / (1 - 0.9 * 3 / 4)})
    # A few percent are worth a word.
    assert asked(divided(host_compute=0.1, device_compute=0.9))[STEPS] < 1.2
    # Several steps a call already: each asks for a batch.
    several = [ran("IteratorGetNext", 0.001, "")] * 9 * 16
    assert asked(small, None, several) == gains(examples=fixed["examples"])
    # The input needs its time all the same.
    busy = stage("f", "Map", 0)._replace(seconds=0.08)
    limited = asked(small, busy, GRAPH)
    assert limited[STEPS] == limited[EXAMPLES] == pytest.approx(90 / 80)


def adam(scope, large=True):
    """The operations of 9 steps, as recorded of 400,000 x 64 with Adam."""
    return work(
        (f"{scope}/UnsortedSegmentSum", "UnsortedSegmentSum", "", 3.0),
        (f"{scope}/Mul", "Mul", "", 2.0),
        (f"{scope}/Sub", "Sub", "", 1.5),
        (f"{scope}/AssignAddVariableOp", "AssignAddVariableOp", "", 0.7),
        (f"{scope}/AssignSubVariableOp", "AssignSubVariableOp", "", 0.3),
        ("words/MatMul", "MatMul", "loss", 0.5),
        large=large,
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
def test_an_optimizer_that_updates_a_large_table(scope, name):
    what = f"lexrow.keras.RowEmbedding with lexrow.keras.{name}"
    assert asked(COMPUTING, None, (), adam(scope))[what] == pytest.approx(1 / (1 - 7.5 / 8 * 0.9))
    change = advise(COMPUTING, None, [], adam(scope), None, 2)[0]
    assert "lexrow.keras.audit(model, batch)" in change.why and "94%" in change.why


def test_an_optimizer_that_updates_rows_or_small_variables_or_no_table():
    dense = work(("adam/Mul", "Mul", "", 9.0), ("dense/MatMul", "MatMul", "loss", 1.0))
    for done in (adam("lazy_adam"), adam("adam", large=False), dense):
        assert not any("RowEmbedding" in what for what in asked(COMPUTING, None, (), done))


def test_an_update_that_xla_compiled():
    done = work(
        ("adam/UnsortedSegmentSum", "wrapped_broadcast", "", 4.0),
        ("adam/AssignAddVariableOp", "multiply_add_fusion", "", 2.0),
        ("words/MatMul", "gemm_fusion", "", 2.0),
    )
    what = "lexrow.keras.RowEmbedding with lexrow.keras.LazyAdam"
    assert asked(COMPUTING, None, (), done)[what] == pytest.approx(1 / (1 - 6 / 8 * 0.9))
