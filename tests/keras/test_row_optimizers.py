"""The optimizers' numbers: those of Keras' dense optimizers, where these are defined to agree."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    Ftrl,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowEmbedding,
    RowwiseAdagrad,
    add_gradients,
)
from tests.keras import table_models as models
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


# Whose state of a table is by row.
BY_ROW = ["corrected", "adamw, corrected", "rowwise"]


def gradient_of(table, ids, values, kind):
    """The gradient of the table: that of its rows, of the whole, or of both together."""
    if kind == "sparse":
        return tf.IndexedSlices(tf.constant(values), tf.constant(ids), table.shape)
    if kind == "dense":
        return tf.constant(whole(ids, values))
    half = len(ids) // 2
    with tf.GradientTape() as tape:
        rows = tf.gather(table.value, ids[:half])
        total = tf.reduce_sum(rows * values[:half])
        total += tf.reduce_sum(table.value * whole(ids[half:], values[half:]))
    return tape.gradient(total, table.value)


def end(optimizer, kinds, variables=None):
    """The table after the stream, with gradients of these kinds by turns."""
    table = (variables or make_variables())[0]
    table.is_table = True
    for step, (ids, values, _) in enumerate(make_stream()):
        optimizer.apply([gradient_of(table, ids, values, kinds[step % len(kinds)])], [table])
    return table.numpy()


def by_the_paper(name):
    _, _, rule, options = (KINDS | {"rowwise": ROWWISE})[name]
    rows = make_variables()[0].numpy().astype(np.float64)
    stream = ((ids, values, RATE) for ids, values, _ in make_stream())
    reference.train(functools.partial(rule, **options), rows, stream)
    return rows


@pytest.mark.parametrize("kinds", [["dense"], ["mixed"], ["sparse", "dense", "mixed"]], ids=str)
@pytest.mark.parametrize("name", BY_ROW)
def test_state_by_row_follows_its_rule_whatever_the_gradient(name, kinds):
    near([end(ours(name), kinds)], [by_the_paper(name)])


@pytest.mark.parametrize("kind", ["dense", "mixed"])
@pytest.mark.parametrize("name", [name for name in KINDS if name not in BY_ROW])
def test_other_tables_get_the_numbers_of_keras(name, kind):
    near([end(ours(name), [kind])], [end(theirs(name), ["dense"])])


@pytest.mark.parametrize("name", BY_ROW)
def test_a_table_of_few_bits(name):
    nearest = {"rounding": "nearest"}  # draws depend on the order of the rows
    found = end(ours(name, **nearest), ["dense"], make_variables(dtype="bfloat16"))
    np.testing.assert_allclose(found.astype("f"), by_the_paper(name), atol=0.1)
    np.testing.assert_array_equal(
        found, end(ours(name, **nearest), ["sparse"], make_variables(dtype="bfloat16"))
    )


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["sgd", "corrected", "rowwise"])
def test_what_is_given_may_be_read_once_only(name, scaled):
    scale = 64.0 if scaled else 1.0
    variables = make_variables()
    variables[0].is_table = name == "rowwise"
    optimizer = inner = ours(name)
    if scaled:
        optimizer = LossScaleOptimizer(inner, initial_scale=scale)
    for ids, values, dense in make_stream(scale=scale):
        gradients = [gradient_of(variables[0], ids, values, "sparse"), *map(tf.constant, dense)]
        optimizer.apply((each for each in gradients), (each for each in variables))
    near([each.numpy() for each in variables], trained(name)[0][-1][:3])


# FTRL by row: Keras' numbers for rows that start at 0, the paper's for any rows.


FTRL_OPTIONS = [
    {},
    {"l2_regularization_strength": 0.1, "beta": 0.5},
    {"l1_regularization_strength": 0.3, "l2_regularization_strength": 0.1},
]
every_option = pytest.mark.parametrize("options", FTRL_OPTIONS, ids=str)


def zeros_first(is_table):
    variables = make_variables()
    variables[0].assign(tf.zeros_like(variables[0]))
    variables[0].is_table = is_table
    return variables


@pytest.mark.parametrize("is_table", [False, True])
@every_option
def test_rows_of_ftrl_that_start_at_zero_are_those_of_keras(options, is_table):
    found = train(Ftrl(RATE, **options), zeros_first(is_table), make_stream())[-1]
    stock = keras.optimizers.Ftrl(RATE, **options)
    expected = train(stock, zeros_first(False), make_stream(), sparse=False)[-1]
    near(found[:1], expected[:1])
    identical(found[1:3], expected[1:3])
    l1 = options.get("l1_regularization_strength")
    assert len(found) == len(expected) - (is_table and not l1)  # no linear
    assert not l1 or (found[0] == 0).any()


@pytest.mark.parametrize("sparse", [False, True])
@every_option
def test_rows_and_slots_of_ftrl_are_those_of_the_paper(options, sparse):
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


# Gradients of several steps added up: by the optimizer row by row, or by hand.


ACCUMULATING = {"gradient_accumulation_steps": 3}


def tables():
    variables = make_variables()
    variables[0].is_table = True
    return variables


@pytest.mark.parametrize("option", [{}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}], ids=str)
@pytest.mark.parametrize("make", [SGD, Adagrad])
def test_rows_are_those_of_a_dense_accumulation(make, option):
    stream = list(make_stream())
    found = train(make(RATE, **ACCUMULATING, **option), tables(), stream)
    stock = getattr(keras.optimizers, make.__name__)(RATE, **ACCUMULATING, **option)
    expected = train(stock, make_variables(), stream, sparse=False)
    for one, other in zip(found, expected, strict=True):
        for part in range(3):
            np.testing.assert_allclose(one[part], other[part], rtol=1e-6, atol=1e-6)
    assert found[0][0].tobytes() == found[1][0].tobytes() != found[2][0].tobytes()


def test_lazy_adam_is_that_of_the_mean_gradient():
    stream = list(make_stream())[:6]
    found = train(LazyAdam(RATE, **ACCUMULATING), tables(), stream)[-1][0]
    variables, optimizer = tables(), LazyAdam(RATE)
    for start in (0, 3):
        gradient = sum(whole(ids, values) for ids, values, _ in stream[start : start + 3]) / 3
        rows = np.flatnonzero(gradient.any(axis=1))
        gradient = tf.IndexedSlices(gradient[rows], rows, gradient.shape)
        optimizer.apply([gradient], variables[:1])
    near([found], [variables[0].numpy()])


def test_only_rows_with_a_gradient_are_stored():
    optimizer, variables = LazyAdam(RATE, **ACCUMULATING), tables()
    stream = list(make_stream())[:3]
    sizes = []
    for step in stream:
        train(optimizer, variables, [step])
        sizes.append(int(tf.size(optimizer._accumulated_gradients[0].ids)))
    first, second = (set(ids) for ids, *_ in stream[:2])
    assert sizes == [len(first), len(first | second), 0]
    assert not any("embeddings_gradient" in variable.path for variable in optimizer.variables)


def accumulated(kind, folder, make=LazyAdam, way=models.fit, **compiled):
    model = models.make_model(
        models.make_layer(kind, folder), make(0.1, gradient_accumulation_steps=2), **compiled
    )
    way(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [{"run_eagerly": True}, {"steps_per_execution": 2}], ids=str)
def test_ways_to_compile(compiled, tmp_path):
    ours, usual = (accumulated("device", tmp_path, **each) for each in (compiled, {}))
    near([ours.get_weights()[0]], [usual.get_weights()[0]])


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["keras", "checkpoint"])
def test_a_run_saved_between_updates_goes_on(saved, tmp_path):
    model = accumulated("device", tmp_path, way=models.fit_batches)  # 5 batches: one is accumulated
    assert tf.size(model.optimizer._accumulated_gradients[0].ids) > 0
    if saved == "keras":
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
    else:
        tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
        loaded = accumulated("device", tmp_path)
        tf.train.Checkpoint(loaded).read(str(tmp_path / "checkpoint")).assert_consumed()
    for each in (model, loaded):
        models.fit(each)
    assert models.state(loaded) == models.state(model)


@pytest.mark.slow
def test_what_cannot_be_accumulated_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"embeddings, which XLA cannot compile; use .*=False"):
        accumulated("device", tmp_path, jit_compile=True)
    with pytest.raises(ValueError, match=r"embeddings that have a gradient, .* is dense"):
        train(LazyAdam(RATE, **ACCUMULATING), tables(), make_stream(), sparse=False)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        layer = RowEmbedding(4, 2)
        layer.build()
        with pytest.raises(ValueError, match="embeddings in one process, .* MirroredStrategy"):
            LazyAdam(RATE, **ACCUMULATING).build(layer.trainable_variables)


def test_gradients_added_by_hand():
    rows = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([1, 2]), (5, 3))
    more = tf.IndexedSlices(2 * tf.ones((1, 3)), tf.constant([2], tf.int64), (5, 3))
    expected = tf.convert_to_tensor(rows) + tf.convert_to_tensor(more)
    found = add_gradients(rows, more)
    assert isinstance(found, tf.IndexedSlices) and len(found.indices) == 3
    np.testing.assert_array_equal(tf.convert_to_tensor(found), expected)
    np.testing.assert_array_equal(add_gradients(rows, tf.convert_to_tensor(more)), expected)
    np.testing.assert_array_equal(add_gradients(tf.ones(2), tf.ones(2)), [2.0, 2.0])
    assert add_gradients(None, rows) is rows is add_gradients(rows, None)
    assert add_gradients(None, None) is None
    variable = keras.Variable(tf.ones((5, 3)), name="rows")
    SGD(1.0).apply([found], [variable])
    np.testing.assert_array_equal(variable.numpy(), 1.0 - expected)
