"""What every optimizer must do on every table; a new rule or table is one new line here."""

import functools
import importlib
import inspect
import pkgutil
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from app import optimizers
from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.optimizers.adam import lazy_adam, lazy_adamw
from app.optimizers.base import clip_by_global_norm, clip_by_row_norm, touched, update_rows
from app.optimizers.ftrl import ftrl
from app.optimizers.sgd import momentum, sgd
from app.tables.device import DeviceTable
from app.tables.row_reads import take, unique
from app.types import Rows
from tests.reference import dense_optimizers, tables
from tests.reference import optimizers as reference

SIZE, DIM, IDS, STEPS, RATE = 12, 5, 9, 12, 0.1
CORRECT = {"correct_skipped": True}
PENALTIES = {"l1": 0.5, "l2": 0.3, "beta": 0.2, "initial": 0.01}

OPTIMIZERS = {
    "sgd": (sgd, {}),
    "momentum": (momentum, {}),
    "nesterov": (momentum, {"momentum": 0.5, "nesterov": True}),
    "adagrad": (adagrad, {}),
    "adagrad, epsilon": (adagrad, {"initial": 0.01, "epsilon": 1e-2}),
    "rowwise_adagrad": (rowwise_adagrad, {"initial": 0.01}),
    "rowwise_adagrad, power": (rowwise_adagrad, {"initial": 0.01, "power": -0.3}),
    "ftrl": (ftrl, {}),
    "ftrl, penalties": (ftrl, PENALTIES),
    "adam": (lazy_adam, {}),
    "adam, no momentum": (lazy_adam, {"beta_1": 0.0, "beta_2": 0.9, "epsilon": 1e-3}),
    "adam, amsgrad": (lazy_adam, {"amsgrad": True}),
    "adam, corrected": (lazy_adam, CORRECT | {"beta_2": 0.9}),
    "adam, amsgrad, corrected": (lazy_adam, CORRECT | {"beta_2": 0.9, "amsgrad": True}),
    "adamw": (lazy_adamw, {"weight_decay": 0.1}),
    "adamw, corrected": (lazy_adamw, CORRECT | {"beta_2": 0.9, "weight_decay": 0.1}),
}

# With the relative error that storage allows: the gap between two numbers.
TABLES = {
    "float32": (DeviceTable, tf.float32, 1e-5),
    "bfloat16": (DeviceTable, tf.bfloat16, 2**-7),
    "float16": (DeviceTable, tf.float16, 2**-10),
    "sharded": (tables.dealt, tf.float32, 1e-5),
    "cached": (tables.Chunked, tf.float32, 1e-5),
    "cached, bfloat16": (tables.Chunked, tf.bfloat16, 2**-7),
    "file": (tables.in_file, tf.float32, 1e-5),
    "dynamic": (tables.dynamic, tf.float32, 1e-5),
}
WAYS = {"eager": lambda function: function, "xla": tf.function(jit_compile=True, autograph=False)}


def make_stream(all_rows=False, steady=True):
    """STEPS of ids with repeats, a gradient for each, and the rate.

    Row 0 is never among them, and some rows of a step have gradients of zeros only, or that cancel;
    with all_rows neither. steady: one rate for all.
    """
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        ids = random.integers(1, SIZE, IDS).astype(np.int32)
        gradients = 10.0 ** random.integers(-3, 2) * random.normal(size=(IDS, DIM)).astype("f")
        gradients[ids % 4 == random.integers(4)] = 0
        if (ids == 5).sum() == 2:
            gradients[ids == 5] = gradients[ids == 5][:1] * [[1], [-1]]
        if all_rows:
            ids = np.append(ids, np.arange(SIZE, dtype=np.int32))
            gradients = random.normal(size=(len(ids), DIM)).astype("f")
        rate = RATE * random.uniform(0.5, 1.5)
        yield ids, gradients, RATE if steady else rate


def whole(ids, gradients):
    """The gradient of the whole table."""
    gradients_VD = np.zeros((SIZE, DIM), np.float32)
    np.add.at(gradients_VD, ids, gradients)
    return gradients_VD


def make_table(optimizer, kind="float32", scale=1.0):
    table, dtype, _ = TABLES[kind]
    values = scale * np.random.default_rng(1).normal(size=(SIZE, DIM))
    options = {"slots": optimizer.slots}
    return table(SIZE, DIM, lambda _: tf.constant(values, tf.float32), dtype, **options)


def make_step(optimizer, table, way="eager"):
    """An update from ids with repeats, a gradient for each, as a training step makes it."""

    def step(ids_N, gradients_ND, rate, number):
        ids_U, inverse_N = unique(ids_N)
        ids_U = table.locate(ids_U)
        rows_UD = table.gather(ids_U)
        with tf.GradientTape() as tape:
            tape.watch(rows_UD)
            loss = tf.reduce_sum(gradients_ND * take(Rows(rows_UD, inverse_N), tf.float32))
        gradients_UD = tape.gradient(loss, rows_UD)
        update_rows(optimizer.rule, table, ids_U, gradients_UD, rate, number, rows_UD)

    step = WAYS[way](step)
    return lambda ids, gradients, rate, number: step(
        tf.constant(ids, tf.int32),
        tf.constant(gradients, tf.float32),
        tf.constant(rate, tf.float32),
        tf.constant(number, tf.int64),
    )


def contents(table):
    """The rows, and the state by name."""
    parts = {"rows": table, **table.slots}
    if isinstance(table, tables.Chunked):
        table.flush()
        parts = {name: part.backing for name, part in parts.items()}
    return {name: part.gather(tf.range(SIZE)).numpy() for name, part in parts.items()}


@functools.cache
def trained(name, kind="float32", way="eager", scale=1.0, **stream):
    """What rows and state are before the first step of the stream and after every one."""
    make, options = OPTIMIZERS[name]
    optimizer = make(**options)
    table = make_table(optimizer, kind, scale)
    step = make_step(optimizer, table, way)
    history = [contents(table)]
    for number, given in enumerate(make_stream(**stream), 1):
        step(*given, number)
        history.append(contents(table))
    return history


@pytest.fixture(scope="module", autouse=True)
def in_a_folder_of_the_test(tmp_path_factory):
    """Where tables in files are."""
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("tables")))
        yield


every = pytest.mark.parametrize("name", OPTIMIZERS)
# No state, state of a number, and most state; a table treats that of the others alike.
EVERYWHERE = ("sgd", "rowwise_adagrad", "ftrl, penalties", "adam, amsgrad, corrected")
everywhere = pytest.mark.parametrize(
    ("name", "kind", "way"),
    [
        pytest.param(
            *(name, kind, way),
            marks=() if usual or name in EVERYWHERE else pytest.mark.slow,
        )
        for name in OPTIMIZERS
        for kind in TABLES
        for way in WAYS
        if (usual := (kind, way) == ("float32", "eager")) or way == "eager" or kind == "float32"
    ],
)


def test_every_rule_is_in_this_suite():
    names = [module.name for module in pkgutil.iter_modules(optimizers.__path__)]
    modules = [importlib.import_module(f"app.optimizers.{name}") for name in names]
    rules = {
        function
        for module in modules
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__annotations__.get("return") == "Optimizer"
    }
    assert len(rules) >= 7 and rules == {make for make, _ in OPTIMIZERS.values()}


def test_the_stream_has_what_it_promises():
    stream = list(make_stream())
    assert any(len(set(ids)) < len(ids) for ids, _, _ in stream)
    given = np.array([np.isin(np.arange(SIZE), ids) for ids, _, _ in stream]).T
    touched = np.array([whole(ids, gradients).any(axis=1) for ids, gradients, _ in stream]).T
    fates = ["".join(row) for row in np.where(touched, "T", np.where(given, "z", "."))]
    for fate in ("T..", "..T", "T.T", "TzT", "Tz", "TT"):
        assert any(fate in row for row in fates), fate
    assert any(row.lstrip(".").startswith("z") for row in fates)
    assert set(fates[0]) == {"."} and all("T" in row for row in fates[1:])


@everywhere
def test_it_equals_the_reference(name, kind, way):
    make, options = OPTIMIZERS[name]
    dtype, error = TABLES[kind][1:]
    before, *_, found = trained(name, kind, way, steady=False)
    rows = before["rows"].astype(np.float64)
    states = reference.train(
        functools.partial(getattr(reference, make.__name__), **options),
        rows,
        make_stream(steady=False),
        stored=lambda row: row.astype(dtype.as_numpy_dtype),
    )
    np.testing.assert_allclose(found["rows"], rows, rtol=error, atol=1e-6)
    # Few numbers are so near the middle of two that float32 and float64 round them apart.
    assert dtype == tf.float32 or (found["rows"] == rows).mean() > 0.9
    assert states.keys() == set(range(1, SIZE))
    for slot in make(**options).slots:
        for row, state in states.items():
            expected = np.broadcast_to(state[slot], found[slot][row].shape)
            np.testing.assert_allclose(found[slot][row], expected, rtol=error, atol=1e-6)


@everywhere
def test_idle_rows_and_their_state_stay_as_they_are_bit_for_bit(name, kind, way):
    history = trained(name, kind, way, steady=False)
    for (ids, gradients, _), before, after in zip(
        make_stream(), history[:-1], history[1:], strict=True
    ):
        idle = ~whole(ids, gradients).any(axis=1)
        for part in before:
            assert after[part][idle].tobytes() == before[part][idle].tobytes(), part
        # A narrow type may round a small move away.
        assert kind != "float32" or (after["rows"] != before["rows"])[~idle].any(axis=1).all()


@every
def test_no_ids_are_nothing_to_do(name):
    make, options = OPTIMIZERS[name]
    optimizer = make(**options)
    table = make_table(optimizer)
    before = contents(table)
    make_step(optimizer, table)(np.zeros([0]), np.zeros([0, DIM]), RATE, 1)
    after = contents(table)
    assert all(after[part].tobytes() == before[part].tobytes() for part in before)


@every
def test_state_is_made_with_the_table(name):
    make, options = OPTIMIZERS[name]
    optimizer = make(**options)
    table = make_table(optimizer)
    assert list(table.slots) == list(optimizer.slots)
    assert options.get("beta_1") != 0 or list(table.slots) == ["velocity"], "m is the gradient"
    narrow = {"last_step"} | ({"accumulator"} if make is rowwise_adagrad else set())
    for slot, part in table.slots.items():
        assert part.columns == (1 if slot in narrow else DIM)
        assert part.values.dtype == tf.float32


def in_tensorflow(name, start, all_rows=False, **changes):
    """What `trained` gives, of TensorFlow's dense optimizer; `changes` of the rule's options."""
    make, options = OPTIMIZERS[name]
    parts = {"rows": tf.Variable(start)}
    for slot, made in make(**options).slots.items():
        parts[slot] = tf.Variable(tf.fill(start.shape, made.initial))
    history = []
    for number, (ids, gradients, rate) in enumerate(make_stream(all_rows), 1):
        gradient = whole(ids, gradients)
        dense_optimizers.RULES[make](parts, gradient, rate, number, **options | changes)
        history.append({part: variable.numpy() for part, variable in parts.items()})
    return history


def assert_close(found, expected):
    # TensorFlow's 1 - beta, of float32 numbers, is off by 1e-5 where beta is 0.999.
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=1e-5)


DENSE = [name for name, (make, _) in OPTIMIZERS.items() if make in dense_optimizers.RULES]
DENSE.remove("adagrad, epsilon")  # TensorFlow adds it to the root, we and Keras before
# TensorFlow's FTRL is right for rows that start at 0.
STARTS = {name: 0.0 if name.startswith("ftrl") else 1.0 for name in DENSE}
STILL = [name for name in DENSE if OPTIMIZERS[name][0] in (sgd, adagrad, ftrl)]
CORRECTED = [name for name in DENSE if "correct_skipped" in OPTIMIZERS[name][1]]


@pytest.mark.parametrize(
    ("name", "all_rows"), [(name, False) for name in STILL] + [(name, True) for name in DENSE]
)
def test_it_equals_tensorflows_dense_optimizer(name, all_rows):
    before, *history = trained(name, scale=STARTS[name], all_rows=all_rows)
    dense = in_tensorflow(name, before["rows"], all_rows)
    for found, expected in zip(history, dense, strict=True):
        for part in found.keys() - {"last_step"}:
            assert_close(found[part], expected[part])


@pytest.mark.parametrize("name", CORRECTED)
def test_corrected_moments_and_moves_are_those_of_dense_adam(name):
    decay = OPTIMIZERS[name][1].get("weight_decay", 0.0)
    history, stream = trained(name), list(make_stream())
    dense = in_tensorflow(name, history[0]["rows"], weight_decay=0.0)
    dense.insert(0, {"rows": history[0]["rows"]})
    last = np.zeros([SIZE, 1])
    for number, (ids, gradients, rate) in enumerate(stream, 1):
        here = whole(ids, gradients).any(axis=1)
        for part in history[0].keys() - {"rows", "last_step"}:
            assert_close(history[number][part][here], dense[number][part][here])
        left = (1 - rate * decay) ** (number - last)
        move = history[number]["rows"] - left * history[number - 1]["rows"]
        assert_close(move[here], (dense[number]["rows"] - dense[number - 1]["rows"])[here])
        last[here] = number


@pytest.mark.parametrize(
    ("first", "gap"),
    [(1, 300), (2**24 - 3, 500), (2**24 - 3, 3), (2**24 - 1, 1), (2**24 - 3, 2**24 - 1)],
)
def test_skipped_steps_are_counted_far_beyond_float32(first, gap):
    """An update of a row at step `first`, one `gap` later, and one in the step after that."""
    options = {"correct_skipped": True, "beta_1": 0.99, "weight_decay": 0.004}
    optimizer, rate = lazy_adamw(**options), 1e-5
    row, state = np.array([1.0, -2.0]), {}
    row_1D = tf.constant([row], tf.float32)
    state_1D = {
        name: tf.fill([1, slot.columns or 2], slot.initial)
        for name, slot in optimizer.slots.items()
    }
    for number, gradient in ((first, 1.0), (first + gap, -0.1), (first + gap + 1, 0.2)):
        change_1D, state_1D = optimizer.rule(
            row_1D,
            tf.fill([1, 2], gradient),
            state_1D,
            tf.constant(rate),
            tf.constant(number, tf.int64),
        )
        row_1D += change_1D
        row, state = reference.lazy_adamw(row, state, np.full(2, gradient), rate, number, **options)
        np.testing.assert_allclose(row_1D[0], row, rtol=1e-5)
        for name in ("momentum", "velocity"):
            np.testing.assert_allclose(state_1D[name][0], state[name], rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize(("correct_skipped", "left"), [(False, -0.1), (True, 0.0)])
def test_a_decay_beyond_all_of_a_row(correct_skipped, left):
    """As Keras has it for one step; what is corrected for several can lose no more than all."""
    optimizer = lazy_adamw(weight_decay=11.0, correct_skipped=correct_skipped)
    state = {
        name: tf.fill((1, slot.columns or 2), slot.initial)
        for name, slot in optimizer.slots.items()
    }
    rows, gradients = tf.ones((1, 2)), tf.fill((1, 2), 1e-30)
    rate, step = tf.constant(0.1), tf.constant(1, tf.int64)
    change, _ = optimizer.rule(rows, gradients, state, rate, step)
    np.testing.assert_allclose(rows + change, [[left, left]], atol=1e-6)


def moved(optimizer, row, gradients, rates):
    """The row after an update with each gradient and rate."""
    row_1D = tf.constant([row])
    state = {name: tf.fill(row_1D.shape, slot.initial) for name, slot in optimizer.slots.items()}
    step = tf.constant(1, tf.int64)
    for gradient, rate in zip(gradients, rates, strict=True):
        gradient_1D = tf.fill(row_1D.shape, gradient)
        change_1D, state = optimizer.rule(row_1D, gradient_1D, state, tf.constant(rate), step)
        row_1D += change_1D
    return row_1D.numpy()[0]


def test_a_first_gradient_that_is_small_moves_a_row_a_little():
    found = moved(ftrl(), [1.0, -2.0, 0.0], [1e-4], [0.1])
    move = 0.1 * 1e-4 / 0.1**0.5  # what Adagrad makes of it
    np.testing.assert_allclose(found, [1.0 - move, -2.0 - move, -move], rtol=1e-6)


def test_a_rate_that_falls_takes_no_row_along():
    found = moved(ftrl(l2=1e-3), [1.0, -2.0, 0.0], [1e-4] * 4, [0.1, 1e-2, 1e-3, 1e-5])
    np.testing.assert_allclose(found, [1.0, -2.0, 0.0], rtol=1e-3, atol=1e-4)


def test_gradients_add_up_while_l1_outweighs_them():
    # Their squares are nothing beside the accumulator's start.
    optimizer = ftrl(l1=1.05e-4)
    for steps, expected in ((10, 0.0), (12, -0.1 * 1.5e-5 / 0.1**0.5)):
        found = moved(optimizer, [0.0, 0.0], [1e-5] * steps, [0.1] * steps)
        np.testing.assert_allclose(found, [expected] * 2, rtol=1e-4)


def test_l1_holds_a_number_that_reaches_0():
    gradients, rates = [1e-3] * 8, [0.1] * 8
    assert moved(ftrl(), [1e-3, 1.0], gradients, rates)[0] < -1e-3
    found = moved(ftrl(l1=0.01), [1e-3, 1.0], gradients, rates)
    assert found[0] == 0.0 and found[1] > 0.99


# Norms 5, 1 and 0; 12.
GRADIENTS = {"a": [[3.0, 4.0], [0.6, -0.8], [0.0, 0.0]], "b": [[0.0, 12.0, 0.0]]}


def clipped(function, limit, gradients=GRADIENTS):
    given = {name: tf.constant(rows, tf.float32) for name, rows in gradients.items()}
    return {name: rows.numpy() for name, rows in function(given, limit).items()}


def test_no_row_is_longer_than_the_limit_and_shorter_ones_stay():
    found = clipped(clip_by_row_norm, 2.0)
    np.testing.assert_allclose(found["a"][0], [1.2, 1.6], rtol=1e-6)
    assert found["a"][1:].tobytes() == np.array(GRADIENTS["a"][1:], np.float32).tobytes()
    np.testing.assert_allclose(found["b"], [[0, 2, 0]], rtol=1e-6)


def test_all_tables_together_are_no_longer_than_the_limit():
    found = clipped(clip_by_global_norm, 1.0)
    norm = np.sqrt(5**2 + 1**2 + 12**2)
    for name, rows in GRADIENTS.items():
        np.testing.assert_allclose(found[name], np.array(rows) / norm, rtol=1e-6)
    expected, _ = tf.clip_by_global_norm([GRADIENTS["a"], GRADIENTS["b"]], 1.0)
    for rows, same in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(rows, same, rtol=1e-6)


@pytest.mark.parametrize("function", [clip_by_row_norm, clip_by_global_norm])
def test_gradients_within_the_limit_stay_as_they_are_bit_for_bit(function):
    found = clipped(function, 14.0)
    for name, rows in GRADIENTS.items():
        assert found[name].tobytes() == np.array(rows, np.float32).tobytes()


@pytest.mark.parametrize("function", [clip_by_row_norm, clip_by_global_norm])
def test_gradients_of_zeros_and_of_no_rows(function):
    found = clipped(function, 1e-3, {"a": [[0.0, 0.0]], "b": np.zeros([0, 3])})
    np.testing.assert_array_equal(found["a"], [[0, 0]])
    assert found["b"].shape == (0, 3)


@pytest.mark.parametrize("function", [clip_by_row_norm, clip_by_global_norm])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(function, value):
    found = clipped(function, 1.0, {"a": [[value, 1.0]]})
    assert not np.isfinite(found["a"]).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_row_is_touched_by_any_number_but_zeros(way):
    run = WAYS[way](touched)
    gradients_UD = tf.constant([[0.0, -0.0], [0.0, np.nan], [np.inf, 0.0], [-1e-30, 0.0]])
    assert run(gradients_UD).numpy().ravel().tolist() == [False, True, True, True]
    if way == "xla":  # on a GPU, zeros that are compared with would be copied
        lowered = run.experimental_get_compiler_ir(gradients_UD)(stage="hlo")
        assert "f32[4,2]{1,0} broadcast(" not in lowered
