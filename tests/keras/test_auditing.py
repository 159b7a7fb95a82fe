import collections

import numpy as np
import pytest
import tensorflow as tf

from app.assembly.learning import OPTIMIZERS
from app.keras import auditing
from app.keras.auditing import Finding, Findings, instead, source_line
from app.optimizers.adagrad import adagrad
from app.settings import OptimizerConfig
from app.system.graphs import executed, number, shape_of
from app.system.loops import creation_stack
from app.tables.device import DeviceTable, VariableRows, named_variables
from app.training.step import train_function
from tests.reference.batches import make_model, make_tokens

SHAPE = (50, 4)
TABLE = 50 * 4 * 4  # bytes
IDS = [3, 7]


def make(shape=SHAPE):
    return tf.Variable(tf.ones(shape))


def found(function, least_bytes=TABLE, compiled=False, **variables):
    """By table and operation: how many tables' bytes are read and written."""
    traced = tf.function(function, autograph=False, jit_compile=compiled).get_concrete_function()
    findings = audit(traced, variables, least_bytes)
    return {(finding.variable, finding.operation): finding.bytes / TABLE for finding in findings}


def audit(traced, variables, least_bytes, tables=None):
    """The operations on some variables or all, with the lines that make them."""

    def explain(_, operation, __):
        return source_line(creation_stack(operation), lambda path: False), instead(operation)

    return auditing.Walk(traced, variables, least_bytes).findings(tables or {*variables}, explain)


def gather(v):
    return tf.raw_ops.ResourceGather(resource=v.handle, indices=IDS, dtype=v.dtype)


def scatter(v):
    VariableRows(v).assign(tf.constant(IDS), tf.zeros((2, SHAPE[1])))


def strided(v):
    v[2:4].assign(tf.zeros((2, SHAPE[1])))


def sparse_apply(v):
    tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=v.handle,
        accum=make().handle,
        lr=0.1,
        epsilon=1e-7,
        grad=tf.zeros((2, SHAPE[1])),
        indices=IDS,
    )


def gather_many(v):
    return tf.raw_ops.ResourceGatherNd(resource=v.handle, indices=[[3], [7]], dtype=v.dtype)


def scatter_many(v):
    v.scatter_nd_add([[3], [7]], tf.zeros((2, SHAPE[1])))


ROW_BY_ROW = [gather, gather_many, scatter, scatter_many, strided, sparse_apply]


def address(tensor):
    return np.asarray(memoryview(tensor)).__array_interface__["data"][0]


@pytest.mark.parametrize("by_row", ROW_BY_ROW)
def test_tensorflow_copies_what_is_read_once_rows_were_touched(by_row):
    with tf.device("CPU:0"):
        v = make()
        one, other = v.read_value(), v.read_value()
        assert address(one) == address(other)
        del one, other
        by_row(v)
        one, other = v.read_value(), v.read_value()
        assert address(one) != address(other)


@pytest.mark.parametrize("by_row", [gather, gather_many, scatter, scatter_many, strided])
def test_a_read_beside_rows_is_a_copy_and_rows_alone_are_not(by_row):
    v = make()
    assert found(lambda: by_row(v), v=v) == {}
    assert found(lambda: (by_row(v), tf.gather(v.read_value(), IDS)), v=v) == {
        ("v", "ReadVariableOp"): 2
    }


def test_a_read_that_is_the_variables_own_buffer_is_free():
    v = make()
    assert found(lambda: tf.gather(v.read_value(), IDS), v=v) == {}


@pytest.mark.parametrize("look", [tf.shape, tf.size, tf.rank, lambda value: None])
def test_a_read_that_looks_at_no_number_is_free(look):
    v = make()
    assert found(lambda: (scatter(v), look(v.read_value()))[1], v=v) == {}


def test_xla_copies_nothing_to_read():
    v = make()
    both = lambda: (scatter(v), tf.gather(v.read_value(), IDS))[1]  # noqa: E731
    assert found(both, compiled=True, v=v) == {}
    inner = tf.function(both, jit_compile=True, autograph=False)
    assert found(lambda: inner(), v=v) == {}
    assert found(both, v=v) != {}


def test_what_computes_with_a_table_reads_and_writes_it():
    v = make()
    assert found(lambda: tf.square(v), v=v) == {("v", "Square"): 2}
    assert found(lambda: tf.reduce_sum(v), v=v) == {("v", "Sum"): 1}
    assert found(lambda: v + tf.sqrt(v), v=v) == {("v", "Sqrt"): 2, ("v", "AddV2"): 3}
    assert found(lambda: tf.cast(v, tf.bool), v=v) == {("v", "Cast"): 1.25}
    assert found(lambda: tf.matmul(tf.ones((1, 4)), v, transpose_b=True), v=v) == {
        ("v", "MatMul"): 1
    }


def test_views_are_free_and_what_follows_them_is_not():
    v = make()
    assert found(lambda: tf.gather(tf.reshape(v, [100, 2]), IDS), v=v) == {}
    assert found(lambda: tf.reduce_sum(tf.reshape(tf.identity(v), [-1])), v=v) == {("v", "Sum"): 1}
    assert found(lambda: tf.reduce_max(tf.transpose(v)), v=v) == {
        ("v", "Transpose"): 2,
        ("v", "Max"): 1,
    }


def test_large_parts_count_and_small_ones_do_not():
    v, half = make(), TABLE // 2
    assert found(lambda: tf.reduce_sum(v[:2]), half, v=v) == {}
    assert found(lambda: tf.identity(v[10:]), half, v=v) == {("v", "StridedSlice"): 1.6}


@pytest.mark.parametrize(
    ("write", "operation", "alone", "beside_rows"),
    [
        (lambda v: v.assign(tf.zeros(SHAPE)), "AssignVariableOp", 1, 2),
        (lambda v: v.assign_add(tf.zeros(SHAPE)), "AssignAddVariableOp", 3, 5),
        (lambda v: v.assign_sub(tf.zeros(SHAPE)), "AssignSubVariableOp", 3, 5),
        (
            lambda v: tf.raw_ops.ResourceApplyGradientDescent(
                var=v.handle, alpha=0.1, delta=tf.zeros(SHAPE)
            ),
            "ResourceApplyGradientDescent",
            3,
            5,
        ),
    ],
)
def test_a_write_of_the_whole_copies_it_first_where_rows_are_touched(
    write, operation, alone, beside_rows
):
    v = make()
    assert found(lambda: (write(v), None)[1], v=v)["v", operation] == alone
    assert found(lambda: (scatter(v), write(v), None)[-1], v=v)["v", operation] == beside_rows


def densified(v):
    rows = tf.IndexedSlices(tf.ones((2, SHAPE[1])), tf.constant(IDS), tf.constant(SHAPE))
    return tf.convert_to_tensor(rows)


def test_a_densified_gradient_is_found():
    v = make()
    assert found(lambda: tf.reduce_all(tf.math.is_finite(densified(v))), v=v) == {
        ("v", "UnsortedSegmentSum"): 1,
        ("v", "IsFinite"): 1.25,
        ("v", "All"): 0.25,
    }
    assert found(
        lambda: tf.tensor_scatter_nd_add(tf.zeros(SHAPE), [[3]], tf.ones((1, 4))), v=v
    ) == {("v", "TensorScatterAdd"): 2}


def test_a_dense_gradient_belongs_to_the_table_that_it_changes():
    one, other = make(), make()
    assert found(lambda: (other.assign_sub(0.1 * densified(other)), None)[1], a=one, b=other) == {
        ("b", "UnsortedSegmentSum"): 1,
        ("b", "Mul"): 2,
        ("b", "AssignSubVariableOp"): 3,
    }


def in_condition(act):
    return tf.cond(tf.random.uniform([]) < 0.5, act, lambda: tf.constant(0.0))


def in_switch(act):
    chosen = tf.random.uniform([], maxval=2, dtype=tf.int32)
    return tf.switch_case(chosen, [lambda: tf.constant(0.0), act])


def in_loop(act):
    return tf.while_loop(lambda n, _: n < 3, lambda n, _: (n + 1, act()), [0, 0.0])[1]


def in_function(act):
    return tf.function(lambda: tf.function(act, autograph=False)(), autograph=False)()


def in_compiled_function(act):
    return tf.function(act, autograph=False, jit_compile=True)()


@pytest.mark.parametrize(
    "wrapped", [in_condition, in_switch, in_loop, in_function, in_compiled_function]
)
def test_functions_that_are_called_are_searched(wrapped):
    v = make()

    def act():
        v.assign_add(tf.zeros(SHAPE))
        return tf.reduce_sum(v)

    with_state = found(lambda: wrapped(act), v=v)
    assert with_state["v", "AssignAddVariableOp"] == 3 and with_state["v", "Sum"] == 1
    without_state = found(lambda: wrapped(lambda: tf.reduce_sum(tf.square(densified(v)))), v=v)
    assert without_state.keys() >= {("v", "UnsortedSegmentSum"), ("v", "Square"), ("v", "Sum")}


def test_a_gradient_that_comes_into_a_branch_row_by_row_is_found_there():
    v = make()

    def step():
        rows = tf.IndexedSlices(tf.random.normal((2, 4)), tf.constant(IDS), tf.constant(SHAPE))
        return in_condition(lambda: tf.reduce_sum(tf.convert_to_tensor(rows)))

    assert found(step, v=v) == {("v", "UnsortedSegmentSum"): 1, ("v", "Sum"): 1}


def test_what_does_not_run_is_not_found():
    v = make()

    def step():
        tf.square(v)
        return tf.gather(v, IDS)

    assert found(step, v=v) == {}


def test_smaller_tables_and_other_variables_are_left_out():
    v, kernel = make(), make()

    def step():
        return tf.reduce_sum(v) + tf.reduce_sum(kernel)

    assert found(step, v=v, kernel=kernel) == {("v", "Sum"): 1, ("kernel", "Sum"): 1}
    assert found(step, TABLE + 1, v=v, kernel=kernel) == {}
    traced = tf.function(step).get_concrete_function()
    names = {"v": v, "kernel": kernel}
    assert {f.variable for f in audit(traced, names, TABLE, {"v"})} == {"v"}


def test_operations_of_one_kind_and_cause_are_added_up_heaviest_first():
    v = make()

    def step():
        return sum(tf.reduce_sum(tf.square(v)) for _ in range(3)), tf.reduce_max(v)

    findings = audit(tf.function(step).get_concrete_function(), {"v": v}, TABLE)
    assert [(f.operation, f.count, f.bytes) for f in findings] == [
        ("Square", 3, 6 * TABLE),
        ("Sum", 3, 3 * TABLE),
        ("Max", 1, TABLE),
    ]
    assert Findings(findings).total == 10 * TABLE
    assert findings[0].shape == SHAPE and "test_auditing.py" in findings[0].cause


def test_a_table_is_a_variable_whose_single_rows_are_touched():
    values = {name: make() for name in ("gathered", "read", "written", "kernel")}

    def step():
        scatter(values["written"])
        looked_up = tf.gather(2 * values["read"], IDS) + gather(values["gathered"])
        return tf.matmul(looked_up, values["kernel"], transpose_b=True)

    traced = tf.function(step).get_concrete_function()
    assert auditing.Walk(traced, values, TABLE).by_row() == {"gathered", "read", "written"}


def test_a_distributed_table_is_found_in_its_replica():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        v = make()
    assert found(lambda: strategy.run(lambda: tf.reduce_sum(v.read_value())), v=v) == {
        ("v", "Sum"): 1
    }


def test_a_loaded_function_is_searched(tmp_path):
    module = tf.Module()
    module.v = make()
    square = lambda: tf.reduce_sum(tf.square(module.v))  # noqa: E731
    module.total = tf.function(square, input_signature=[])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert found(lambda: loaded.total(), v=loaded.v) == {("v", "Square"): 2, ("v", "Sum"): 1}


SIZE, DIM = 40, 6
COUNTS = np.ones(SIZE)


class WholeTable(DeviceTable):
    """What no table may be: one that gives rows by way of all of them."""

    def gather(self, ids_U):
        return tf.gather(2.0 * self.values, ids_U) / 2.0


def audited(name, optimizer, kind=DeviceTable):
    """The findings of two steps, and how often these were traced in all."""
    slots = optimizer.slots
    tables = {table: kind(SIZE, DIM, tf.zeros, slots=slots) for table in ("input", "output")}
    function = train_function(make_model(name, COUNTS), tables, optimizer, seed=1)
    tokens_SBL = tf.stack([make_tokens(range(SIZE), seed=number) for number in range(2)])
    inputs = tokens_SBL, tf.constant(0, tf.int64), tf.constant(0.1)
    variables = {
        ".".join([name, *(part for part in path if part not in ("slots", "values"))]): variable
        for name, table in tables.items()
        for path, variable in named_variables(table)
    }
    # A slot of one column counts too.
    findings = audit(function.get_concrete_function(*inputs), variables, 4 * SIZE)
    function(*inputs)
    return findings, function.experimental_get_tracing_count()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_step_touches_a_whole_table_and_each_is_traced_once(optimizer):
    made = OPTIMIZERS[optimizer](OptimizerConfig(optimizer=optimizer))
    assert audited("skipgram", made) == ((), 1)


def test_nor_does_a_step_of_the_other_model():
    assert audited("cbow", adagrad(0.1)) == ((), 1)


def test_a_table_that_is_read_whole_is_found_in_every_step():
    findings, _ = audited("skipgram", adagrad(0.1), WholeTable)
    read = {(f.variable, f.operation): f.count for f in findings}
    assert read["input", "Mul"] == read["output", "Mul"] == 2
    assert read["input", "ReadVariableOp"] == read["output", "ReadVariableOp"] == 2
    assert all("test_auditing.py" in finding.cause for finding in findings)


Frame = collections.namedtuple("Frame", "filename lineno name")


def finding(kind, size, cause, instead, count=1):
    return Finding("words", (1000, 16), kind, cause, size, count, instead)


def test_a_report_is_aligned_and_names_each_remedy_once():
    findings = Findings(
        [
            finding("UnsortedSegmentSum", 3_250_000_000, "Adam 'adam'", "LazyAdam", count=2),
            finding("ReadVariableOp", 1_500_000, "Embedding 'words'", "RowEmbedding"),
            finding("Sqrt", 128_000, "Adam 'adam'", "LazyAdam"),
        ]
    )
    assert str(findings).splitlines() == [
        "4 operations on whole tables, 3.25 GB read and written:",
        "    3.25 GB  2 x  UnsortedSegmentSum  words 1,000 x 16  Adam 'adam'",
        "    1.50 MB  1 x  ReadVariableOp      words 1,000 x 16  Embedding 'words'",
        "  128.00 kB  1 x  Sqrt                words 1,000 x 16  Adam 'adam'",
        "use instead:",
        "  Adam 'adam': LazyAdam",
        "  Embedding 'words': RowEmbedding",
    ]
    assert findings.total == 3_251_628_000


def test_nothing_found_is_false_and_says_so():
    findings = Findings()
    findings.least_bytes = 16 << 20
    assert not findings and findings.total == 0
    assert str(findings) == "no operation on a whole table of 16.78 MB or more"


def test_the_source_is_the_innermost_line_that_is_not_foreign():
    stack = [
        Frame("/code/train.py", 9, "main"),
        Frame("/code/model/layers.py", 30, "call"),
        Frame("/lib/keras/ops.py", 5, "take"),
        Frame(tf.__file__, 1, "gather"),
    ]
    assert source_line(stack, lambda path: False) == "lib/keras/ops.py:5 take"
    assert source_line(stack, lambda path: "keras" in path) == "code/model/layers.py:30 call"
    assert source_line(stack[2:], lambda path: "keras" in path) == "lib/keras/ops.py:5 take"
    assert source_line(stack[3:], lambda path: False).startswith("TensorFlow")


def test_an_explanation_tells_the_way_by_row():
    v = tf.Variable(tf.ones((4, 2)))
    graph = tf.function(lambda: v.assign_add(tf.sqrt(v))).get_concrete_function().graph
    remedies = {"ReadVariableOp": "tf.gather", "Sqrt": "IndexedSlices", "AssignAdd": "Scatter"}
    for kind, remedy in remedies.items():
        operation = next(o for o in graph.get_operations() if o.type.startswith(kind))
        assert remedy in instead(operation)
        cause = source_line(creation_stack(operation), lambda path: False)
        assert "tests/keras/test_auditing.py:" in cause


def traced(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs).graph


def test_what_neither_results_nor_effects_depend_on_does_not_run():
    v = tf.Variable(1.0)

    def step(x):
        tf.sqrt(x)
        v.assign_add(tf.square(x))
        return tf.exp(x)

    types = [operation.type for operation in executed(traced(step, tf.TensorSpec([])))]
    assert {"Square", "AssignAddVariableOp", "Exp"} <= set(types)
    assert "Sqrt" not in types and types.index("Square") < types.index("AssignAddVariableOp")


def test_shapes_come_from_numbers_outside_the_function():
    def step(dimensions, ids):
        filled = tf.fill(dimensions, 1.0)
        summed = tf.math.unsorted_segment_sum(
            tf.ones((2, 3)), ids, tf.cast(dimensions[0], tf.int64)
        )
        return filled, summed, tf.sqrt(filled)

    graph = traced(step, tf.TensorSpec([2], tf.int32), tf.TensorSpec([2], tf.int32))
    filled, summed, root = graph.outputs
    filled, summed, root = filled.op.inputs[0], summed.op.inputs[0], root.op.inputs[0]
    known = {graph.inputs[0].name: np.array([5, 3])}
    assert shape_of(filled, known) == (5, 3) and shape_of(filled, {}) is None
    assert shape_of(summed, known) == (5, 3) and shape_of(summed, {}) is None
    assert shape_of(root, known) is None


def test_a_number_is_a_constant_an_argument_or_an_element_of_one():
    def step(sizes, x):
        return tf.constant([7, 8]), tf.cast(sizes, tf.int64)[1], sizes + 1, x, tf.range(100)

    graph = traced(step, tf.TensorSpec([2], tf.int32), tf.TensorSpec([]))
    known = {graph.inputs[0].name: np.array([5, 3])}
    constant, element, computed, real, long = (number(t, known) for t in graph.outputs)
    assert constant.tolist() == [7, 8] and element == 3
    assert computed is None and real is None and long is None
