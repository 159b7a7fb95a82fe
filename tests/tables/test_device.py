import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf

from app.tables.base import Slot
from app.tables.device import DeviceTable, VariableRows, compute_in_graph
from app.tables.id_checks import check_ids, failed_check, require
from app.tables.initial import (
    Constant,
    FirstColumns,
    LastColumn,
    Uniform,
    _rows_function,
    compiled_rows,
)
from app.tables.rounding import round_stochastically, round_under_xla
from app.tables.row_reads import rows_to_read, sum_rows, take, unique, unique_by_representative
from app.types import Rows

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)


ONE = {"accumulator": Slot(1, 0.25)}


@pytest.fixture
def table():
    return DeviceTable(6, 2, lambda shape: tf.constant(ROWS), slots=ONE)


def all_rows(table):
    return table.gather(tf.range(table.rows)).numpy()


def test_it_starts_as_its_initial_values_which_are_made_once():
    shapes = []

    def initial(shape):
        shapes.append(shape)
        return tf.ones(shape)

    table = DeviceTable(6, 2, initial)
    assert shapes == [(6, 2)]
    assert (table.rows, table.columns) == (6, 2)
    np.testing.assert_array_equal(all_rows(table), np.ones((6, 2)))


def test_a_compiled_function_never_reads_the_whole_table(table):
    @tf.function
    def touch(ids):
        table.assign(ids, table.gather(ids))

    operations = {op.type for op in touch.get_concrete_function(tf.range(3)).graph.get_operations()}
    assert {"ResourceGather", "ResourceScatterUpdate"} <= operations
    assert "ReadVariableOp" not in operations


def test_slots_are_tables_of_the_same_rows_by_name(table):
    slot = table.slots["accumulator"]
    assert (slot.rows, slot.columns) == (6, 1)
    assert slot.values.device == table.values.device
    np.testing.assert_array_equal(all_rows(slot), np.full((6, 1), 0.25, np.float32))
    both = DeviceTable(6, 2, tf.zeros, slots={**ONE, "moment": Slot(0, 0.0)}).slots
    assert {name: slot.columns for name, slot in both.items()} == {"accumulator": 1, "moment": 2}


def test_a_checkpoint_of_a_table_holds_its_slots(table, tmp_path):
    table.slots["accumulator"].assign(tf.constant([2]), tf.constant([[7.0]]))
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "saved"))

    other = DeviceTable(6, 2, tf.zeros, slots={"accumulator": Slot(1, 0.0)})
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    np.testing.assert_array_equal(all_rows(other), ROWS)
    expected = np.array([[0.25], [0.25], [7], [0.25], [0.25], [0.25]], np.float32)
    np.testing.assert_array_equal(all_rows(other.slots["accumulator"]), expected)


HALVES = [tf.bfloat16, tf.float16]
halves = pytest.mark.parametrize("dtype", HALVES)


def make_half(dtype=tf.bfloat16, rounding="stochastic", **options):
    slots = {"moment": Slot(20, 0.0)}
    return DeviceTable(300, 20, tf.ones, dtype, slots, rounding=rounding, **options)


@halves
def test_small_changes_add_up_only_where_rounding_is_stochastic(dtype):
    # An eighth of the distance to the next number, 64 times: eight numbers up.
    change, steps = float(2 ** {tf.bfloat16: -10, tf.float16: -13}[dtype]), 64
    changes_UD, ids = tf.fill((300, 20), change), tf.range(300)
    ended = {}
    for rounding in ("nearest", "stochastic"):
        table = make_half(dtype, rounding)

        @tf.function(autograph=False)
        def step(table=table):
            table.assign(ids, table.gather(ids) + changes_UD)

        train = step.get_concrete_function()
        for _ in range(steps):
            train()
        ended[rounding] = all_rows(table)
    assert (ended["nearest"] == 1).all()
    moved = (ended["stochastic"] - 1) / change
    # Of each step the variance is 1/8 x 7/8 of the distance squared, which is 8 changes.
    error = 8 * np.sqrt(steps * 1 / 8 * 7 / 8)
    assert abs(moved.mean() - steps) < 5 * error / np.sqrt(moved.size)
    assert 0.9 < moved.std() / error < 1.1


def test_rows_that_are_written_as_they_are_stay_bit_for_bit():
    table = make_half()
    ids = tf.range(300)
    table.assign(ids, tf.random.stateless_normal((300, 20), [1, 2]))
    before = all_rows(table)
    table.assign(ids, table.gather(ids))
    assert all_rows(table).tobytes() == before.tobytes()
    assert int(table.writes) == 2


def test_writes_and_tables_are_rounded_apart():
    def written(table, count):
        found = []
        for _ in range(count):
            table.assign(tf.range(300), tf.fill((300, 20), 1 + 2.0**-8))
            found.append(all_rows(table) > 1)
        return np.array(found)

    one = written(make_half(seed=1), 20)
    two = written(make_half(seed=2), 1)
    slot = written(make_half(slot_dtype=tf.bfloat16, seed=1).slots["moment"], 1)
    assert one[0].mean() == pytest.approx(0.5, abs=0.05)
    for other in (one[1], two[0], slot[0]):
        assert (one[0] == other).mean() == pytest.approx(0.5, abs=0.05)
    # Of 20 writes every number has its own: as many ups as of a coin.
    assert one.sum(axis=0).var() == pytest.approx(20 / 4, rel=0.2)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_run_goes_on_with_the_draws_that_follow(rounding, tmp_path):
    def train(table, steps):
        for _ in range(steps):
            for part in (table, table.slots["moment"]):
                part.assign(tf.range(300), part.gather(tf.range(300)) + 2.0**-10)

    whole, half, resumed = (make_half(rounding=rounding, slot_dtype=tf.float16) for _ in range(3))
    train(whole, 4)
    train(half, 2)
    path = tf.train.Checkpoint(table=half).write(str(tmp_path / "saved"))
    train(resumed, 1)
    tf.train.Checkpoint(table=resumed).read(path).assert_consumed()
    train(resumed, 2)
    for ours, theirs in ((resumed, whole), (resumed.slots["moment"], whole.slots["moment"])):
        assert all_rows(ours).tobytes() == all_rows(theirs).tobytes()
    keys = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    counters = {key for key in keys if "writes" in key}
    stem = "writes/.ATTRIBUTES/VARIABLE_VALUE"
    expected = {f"table/{stem}", f"table/slots/moment/{stem}"}
    assert counters == (expected if rounding == "stochastic" else set())


def test_slots_are_stored_as_asked_but_for_single_numbers():
    slots, half = {"moment": Slot(0, 0.25), **ONE}, tf.bfloat16
    table = DeviceTable(300, 20, tf.ones, half, slot_dtype=half, slots=slots)
    assert table.slots["moment"].values.dtype == half
    assert table.slots["accumulator"].values.dtype == tf.float32
    assert table.bytes() == 300 * (20 * 2 * 2 + 4)
    np.testing.assert_array_equal(all_rows(table.slots["moment"]), np.full((300, 20), 0.25))


@halves
def test_half_of_float32_starts_as_that_rounded(dtype):
    initial = Uniform(0.5, 7)
    expected = initial((50, 3)).numpy().astype(dtype.as_numpy_dtype).astype(np.float32)
    np.testing.assert_array_equal(all_rows(DeviceTable(50, 3, initial, dtype)), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda number: Uniform(0.5, number),
        lambda number: LastColumn(Constant(number / 4), tf.range(99.0)),
        lambda number: FirstColumns(lambda: number * tf.ones((99, 2)), Constant(0.0)),
        lambda number: LastColumn(Uniform(number / 4, 2), tf.range(99.0)),
    ],
)
def test_the_rows_of_the_next_table_are_made_by_the_same_function(make):
    """TensorFlow keeps some of every function that calls one of XLA: 118 kB of this one."""
    ids, function = tf.range(25, dtype=tf.int64), _rows_function(3, tf.float16)
    first = compiled_rows(make(1), ids, 3, tf.float16)
    before = function.experimental_get_tracing_count()
    second = compiled_rows(make(2), ids + 70, 3, tf.float16)
    assert function.experimental_get_tracing_count() == before > 0
    np.testing.assert_array_equal(second, tf.cast(make(2).rows(ids + 70, 3), tf.float16))
    assert (second.numpy() != first.numpy()).any()


TYPES = [tf.bfloat16, tf.float16]
every = pytest.mark.parametrize("dtype", TYPES)


def rounded(values, dtype, *seed):
    given = tf.constant(np.atleast_2d(np.asarray(values, np.float32)))
    return round_stochastically(given, dtype, tf.constant(seed or (1, 2), tf.int64)).numpy()


def neighbours(values, dtype):
    """The numbers of the type below and above each, found among all 65,536."""
    with np.errstate(invalid="ignore"):
        every = np.arange(65_536, dtype=np.uint16).view(dtype.as_numpy_dtype).astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    above = np.searchsorted(every, values)
    return every[above - 1], every[above]


@every
def test_what_the_type_can_hold_stays_bit_for_bit(dtype):
    held = np.arange(65_536, dtype=np.uint16).view(dtype.as_numpy_dtype).reshape(-1, 64)
    with np.errstate(invalid="ignore"):
        values = held.astype(np.float32)
    found = rounded(values, dtype)
    nan = np.isnan(values)
    assert (found.view(np.uint16) == held.view(np.uint16))[~nan].all()
    assert np.isnan(found.astype(np.float32)[nan]).all() and nan.any()


@every
def test_a_number_becomes_a_neighbour_and_is_right_on_average(dtype):
    random = np.random.default_rng(0)
    draws, least = 20_000, {tf.bfloat16: -132, tf.float16: -25}[dtype]
    # Of every exponent, signs and subnormal numbers among them; two seeds give other columns.
    exponents = np.arange(least, 16)
    values = np.ldexp(random.uniform(0.5, 1, len(exponents)), exponents).astype(np.float32)
    values *= random.choice([-1, 1], len(values)).astype(np.float32)
    found = rounded(np.tile(values, (draws, 1)), dtype).astype(np.float64)
    below, above = neighbours(values.astype(np.float64), dtype)
    assert ((found == below) | (found == above)).all()
    expected = (values - below) / (above - below)
    up = (found == above).mean(axis=0)
    error = np.sqrt(expected * (1 - expected) / draws)
    assert (abs(up - expected) < 5 * error + 1e-12).all()
    # Numbers of a row, and of a column, are rounded independently of each other.
    apart = (found - values) / (above - below)
    assert abs(np.corrcoef(apart.T) - np.eye(len(values))).max() < 6 / np.sqrt(draws)
    assert np.var(apart.mean(axis=1)) == pytest.approx(
        np.mean(error**2) * draws / len(values), rel=0.1
    )


@pytest.mark.parametrize(("dtype", "beyond"), [(tf.float16, 65_530.0), (tf.bfloat16, 3.4e38)])
def test_nothing_is_rounded_beyond_the_largest(dtype, beyond):
    largest = float(dtype.max)
    found = rounded(np.full((100, 3), [beyond, -beyond, np.inf]), dtype).astype(np.float32)
    np.testing.assert_array_equal(found, np.full((100, 3), [largest, -largest, np.inf], np.float32))


def test_what_float16_has_no_room_for_is_infinite():
    found = rounded([65_536.0, -1e30], tf.float16).astype(np.float32)
    np.testing.assert_array_equal(found, [[np.inf, -np.inf]])


def test_a_number_far_below_the_smallest_float16_is_kept_on_average():
    found = rounded(np.full((4_000, 500), 2.0**-34), tf.float16).astype(np.float64)
    assert set(np.unique(found)) == {0.0, 2.0**-24}
    assert found.mean() == pytest.approx(2.0**-34, rel=0.12)  # five standard deviations


@every
def test_a_seed_is_a_draw(dtype):
    values = np.random.default_rng(0).normal(size=(40, 30))
    found = rounded(values, dtype, 5, 1).astype(np.float32)
    assert (found == rounded(values, dtype, 5, 1)).all()
    for other in ((5, 2), (6, 1)):
        same = (found == rounded(values, dtype, *other)).mean()
        assert 0.6 < same < 0.73  # by chance, two thirds


@every
def test_any_number_of_rows(dtype):
    for count in (0, 1, 513):
        assert rounded(np.ones((count, 3)), dtype).shape == (count, 3)


@every
def test_under_xla_unique_ids_are_rounded_right_on_average(dtype):
    @tf.function(autograph=False, jit_compile=True)
    def rounded(ids, seed):
        ids_U, _ = tf.unique(ids)  # a number of rows that XLA does not know
        rows_UD = tf.tile(tf.cast(ids_U, tf.float32)[:, tf.newaxis], (1, 400)) + 2.0**-10
        return ids_U, tf.cast(round_under_xla(rows_UD, dtype, seed, ids_U), tf.float32)

    ids = tf.concat([tf.range(16, 48), tf.range(16, 48)], axis=0)
    ids_U, found = rounded(ids, tf.constant([3, 4], tf.int64))
    apart = found.numpy() - ids_U.numpy()[:, np.newaxis]
    assert found.shape == (32, 400) and (apart >= 0).all()
    assert apart.mean() == pytest.approx(2.0**-10, rel=0.6)  # five standard deviations
    assert len(np.unique(apart > 0, axis=0)) > 16  # rows are not rounded alike
    _, same = rounded(ids, tf.constant([3, 4], tf.int64))
    _, other = rounded(ids, tf.constant([3, 5], tf.int64))
    assert (same.numpy() == found.numpy()).all() and (other.numpy() != found.numpy()).any()


IDS = np.array([[7, 2, 7], [5, 2, 7]], np.int32)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_distinct_ids_come_in_order_of_appearance_with_everyones_place(dtype):
    ids_U, inverse_N = unique(tf.constant(IDS, dtype))
    assert ids_U.dtype == dtype and inverse_N.dtype == tf.int32
    np.testing.assert_array_equal(ids_U, [7, 2, 5])
    np.testing.assert_array_equal(ids_U.numpy()[inverse_N], IDS.ravel())


@tf.function(autograph=False, jit_compile=True, input_signature=[tf.TensorSpec([None], tf.int64)])
def compiled_unique(ids_N):
    """Return `unique` of all ids, of its result, and of the positive ids."""
    ids_U, inverse_N = unique(ids_N)
    positive_P = tf.boolean_mask(ids_N, ids_N > 0)
    return (ids_U, inverse_N), unique(ids_U), (positive_P, *unique(positive_P))


@pytest.mark.parametrize("size", [0, 1, 2, 50])
def test_xla_pads_distinct_ids_with_a_number_that_is_no_row(size):
    ids = np.random.default_rng(size).integers(-5, 20, size)
    (ids_U, inverse_N), (again_U, again_N), (positive_P, known_U, known_P) = [
        [each.numpy() for each in part] for part in compiled_unique(tf.constant(ids))
    ]
    expected = np.unique(ids)
    np.testing.assert_array_equal(ids_U, [*expected, *np.full(size - len(expected), tf.int64.max)])
    np.testing.assert_array_equal(ids_U[inverse_N], ids)
    np.testing.assert_array_equal(again_U, ids_U)
    np.testing.assert_array_equal(again_U[again_N], ids_U)
    np.testing.assert_array_equal(positive_P, ids[ids > 0])
    np.testing.assert_array_equal(known_U[: len(np.unique(positive_P))], np.unique(positive_P))
    np.testing.assert_array_equal(known_U[known_P], positive_P)


@pytest.mark.parametrize("ids", [[7, 2, 7, 5], [1], []])
def test_ids_to_read_are_those_of_rows_under_xla(ids):
    run = tf.function(rows_to_read, autograph=False, jit_compile=True)
    ids_U, inverse_N = run(tf.constant(ids, tf.int32))
    assert set(ids_U.numpy()) == set(ids)
    np.testing.assert_array_equal(ids_U.numpy()[inverse_N], ids)
    assert len(set(inverse_N.numpy())) == len(set(ids))


@pytest.mark.parametrize("size", [None, 6])
def test_static_shapes_stay_static_under_xla(size):
    run = tf.function(unique, autograph=False, jit_compile=True)
    traced = run.get_concrete_function(tf.TensorSpec([size], tf.int32))
    assert [each.shape.as_list() for each in traced.outputs] == [[size], [size]]


@pytest.mark.parametrize(
    "dtype", [tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64]
)
def test_ids_of_every_dtype_under_xla(dtype):
    run = tf.function(unique, autograph=False, jit_compile=True)
    ids_U, inverse_N = run(tf.constant([127, 3, 127], dtype))
    assert ids_U.numpy().tolist() == [3, 127, max(tf.int32.max, dtype.max)]
    np.testing.assert_array_equal(inverse_N, [1, 0, 1])


@pytest.mark.parametrize("repeats", [1, 20])
def test_the_gradient_is_that_of_dense_autodiff(repeats):
    random = np.random.default_rng(0)
    table = tf.constant(random.normal(size=(10, 4)), tf.float32)
    ids = tf.constant(random.permutation(np.tile(IDS.ravel(), repeats)))
    weights = tf.constant(random.normal(size=(len(ids), 4)), tf.float32)

    with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(weights * tf.gather(table, ids) ** 2)
    dense = tf.convert_to_tensor(tape.gradient(loss, table))

    ids_U, inverse_N = unique(ids)
    values_UD = tf.gather(table, ids_U)
    with tf.GradientTape() as tape:
        tape.watch(values_UD)
        loss = tf.reduce_sum(weights * take(Rows(values_UD, inverse_N), tf.float32) ** 2)
    found = tape.gradient(loss, values_UD)
    assert found.shape == values_UD.shape
    np.testing.assert_allclose(found, tf.gather(dense, ids_U), rtol=1e-5, atol=1e-5)


def test_low_precision_rows_have_float32_gradients():
    ids_U, inverse_N = unique(tf.ones([1000], tf.int32))
    values_UD = tf.constant([[1.0, 1 / 3]])
    with tf.GradientTape() as tape:
        tape.watch(values_UD)
        taken = take(Rows(values_UD, inverse_N), tf.bfloat16)
        loss = tf.reduce_sum(tf.cast(taken, tf.float32))
    assert taken.dtype == tf.bfloat16 and taken.shape == (1000, 2)
    # A sum in bfloat16 would stop at 256.
    np.testing.assert_array_equal(tape.gradient(loss, values_UD), [[1000, 1000]])


def test_sums_by_representatives_are_those_of_sorted_ids_bit_for_bit():
    rows, sizes, columns = (7, 50), (64, 200), 3
    generator = np.random.default_rng(3)
    # Some ids are out of range.
    ids = [generator.integers(-1, v + 1, n, np.int32) for v, n in zip(rows, sizes, strict=True)]
    values = [generator.normal(size=(n, columns)).astype(np.float32) for n in sizes]
    indices = tf.Variable(generator.integers(0, 9, sum(rows)).astype(np.uint32))  # not cleared
    places = range(rows[0]), range(rows[0], sum(rows))

    @tf.function(jit_compile=True)
    def sums(by_representative):
        found = [unique(ids_N) for ids_N in ids]
        if by_representative:
            tables = [tf.constant(ids_N) for ids_N in ids]
            found = unique_by_representative(tables, places, indices)
        return [
            (ids_U, sum_rows(tf.constant(values_ND), inverse_N, len(values_ND)))
            for (ids_U, inverse_N), values_ND in zip(found, values, strict=True)
        ]

    for (found_U, found_UD), (ids_U, sums_UD), ids_N, count in zip(
        sums(True), sums(False), ids, rows, strict=True
    ):
        expected = np.intersect1d(ids_N, np.arange(count))
        is_row, is_sorted = found_U.numpy() < count, np.isin(ids_U.numpy(), expected)
        order = np.argsort(found_U.numpy()[is_row])
        np.testing.assert_array_equal(found_U.numpy()[is_row][order], expected)
        np.testing.assert_array_equal(ids_U.numpy()[is_sorted], expected)
        np.testing.assert_array_equal(found_UD.numpy()[is_row][order], sums_UD.numpy()[is_sorted])
        assert np.isin(found_U.numpy()[~is_row], np.iinfo(np.int32).max).all()


# Numbers that every type holds.
DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}


@pytest.fixture(params=DTYPES)
def rows(request):
    return VariableRows(tf.Variable(tf.constant(ROWS, DTYPES[request.param])))


def test_a_row_that_is_not_there_is_refused_on_a_cpu(rows):
    with tf.device("CPU:0"):
        cpu = VariableRows(tf.Variable(rows.values))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"6 is not in \[0, 6\)"):
            cpu.gather(tf.constant([6]))


def test_what_is_drawn_is_what_was_asked_for_without_a_word(caplog):
    """TensorFlow logs a warning when five functions are traced one after another."""
    values = [
        compute_in_graph(
            lambda seed=seed: tf.random.stateless_uniform((3, 2), [seed, 1], -2.0, 2.0)
        )
        for seed in range(8)
    ]
    for seed, value in enumerate(values):
        expected = tf.random.stateless_uniform((3, 2), [seed, 1], -2.0, 2.0)
        assert value.numpy().tobytes() == expected.numpy().tobytes()
    assert caplog.records == []


def test_threads_that_draw_at_once_leave_constant_folding_as_it_was():
    drawing, left = threading.Event(), threading.Event()

    def first():
        drawing.set()
        assert left.wait(60)
        return tf.random.stateless_uniform((3,), [1, 2])

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(compute_in_graph, first)
        assert drawing.wait(60)
        compute_in_graph(lambda: tf.random.stateless_uniform((3,), [1, 2]) + options_are_usual())
        left.set()
        drawn.result()
    options_are_usual()


def options_are_usual():
    assert tf.config.optimizer.get_experimental_options().get("constant_folding", True)
    return 0.0


CHECKED = 100
BOTH = pytest.mark.parametrize("dtype", [tf.int32, tf.int64])


def eager(ids):
    return check_ids(ids, CHECKED, "words")


def compiled(ids):
    return tf.function(eager, autograph=False)(ids)


WAYS = pytest.mark.parametrize("way", [eager, compiled])


@WAYS
@BOTH
@pytest.mark.parametrize(
    "ids", [[0, 99], [[5, 5], [5, 5]], [], np.zeros([2, 0]), 7], ids=lambda ids: str(np.shape(ids))
)
def test_ids_that_are_rows_come_back_as_they_are(way, dtype, ids):
    found = way(tf.constant(ids, dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, ids)


@WAYS
@BOTH
@pytest.mark.parametrize(
    ("ids", "smallest", "largest"),
    [
        ([3, 100, 5], 100, 100),
        ([3, -1, 5], -1, -1),
        ([[100, -7], [2**31 - 1, 99]], -7, 2**31 - 1),
        ([-5, -5, -5], -5, -5),
        (-(2**31), -(2**31), -(2**31)),
    ],
)
def test_the_smallest_and_the_largest_id_that_are_not_are_named(way, dtype, ids, smallest, largest):
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        way(tf.constant(ids, dtype))
    assert (
        "words: ids must be from 0 to 99; the smallest id out of range is "
        f"{smallest} and the largest {largest}"
    ) in " ".join(str(raised.value).replace("'", "").replace("[", "").replace("]", "").split())


def test_a_table_that_int32_cannot_count():
    ids = tf.constant([0, 2**31 - 1], tf.int32)
    np.testing.assert_array_equal(check_ids(ids, 3 * 10**9, "words"), ids)
    ids = tf.constant([0, 3 * 10**9], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2999999999"):
        check_ids(ids, 3 * 10**9, "words")


@BOTH
def test_code_compiled_by_xla_checks_nothing_and_takes_the_nearest_row(dtype):
    values = tf.Variable(tf.range(float(CHECKED)))

    @tf.function(jit_compile=True, autograph=False)
    def read(ids):
        return tf.gather(values, check_ids(ids, CHECKED, "words"))

    np.testing.assert_array_equal(read(tf.constant([3, -1, 100], dtype)), [3, 0, 99])


@pytest.mark.parametrize("graph", [False, True])
def test_values_that_fit_a_condition_come_back_as_they_are(graph):
    def fits(value):
        return require(value > 2, "words: give more than 2", value)

    way = tf.function(fits, autograph=False) if graph else fits
    assert way(tf.constant(3)) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="words: give more than 2"):
        way(tf.constant(2))


def test_the_message_of_the_check_that_failed():
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        compiled(tf.constant([3, -1, 100]))
    message = failed_check(raised.value)
    assert message.startswith("words: ids must be from 0 to 99; the smallest id out of range")
    assert message.endswith("is -1 and the largest 100")
    assert failed_check(tf.errors.InvalidArgumentError(None, None, "another [error]")) is None
