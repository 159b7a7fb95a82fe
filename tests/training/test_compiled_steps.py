"""Calls that XLA compiles to one program, against the same calls without XLA, on a CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from app.system.xla import CompiledIfPossible
from app.tables.device import ON_HOST
from app.training.step import train_function
from tests.integration import gpu_jobs
from tests.integration.gpu_jobs import CLASSIFY, RECOMMEND, WORDS, named
from tests.integration.replicas import write_data
from tests.reference import gpu

STEPS = 3
HOST = {"table": "host", "hot_rows": "5", "stage_steps": STEPS}
SUBWORDS = {"min_ngram": 2, "max_ngram": 4, "ngram_buckets": 500}
COMPILED = [
    WORDS,
    WORDS | {"model": "cbow", "optimizer": "lazy_adam", "clip_row_norm": 0.1},
    WORDS | {"loss": "sampled_softmax", "sampler": "unigram", "micro_batches": 2},
    RECOMMEND,
    RECOMMEND | {"loss": "bpr"},
]
COMPILED_SELDOM = [
    WORDS | {"loss": "nce"},
    WORDS | {"table": "dynamic"},
    WORDS | HOST | {"optimizer": "lazy_adam"},
    RECOMMEND | {"table": "dynamic"},
    WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"},
    RECOMMEND | {"loss": "sampled_items"},
    RECOMMEND | {"loss": "bpr", "model": "neumf"},
]
# What XLA lacks for the steps that it cannot compile yet. The list may only become shorter.
REFUSED = [
    (WORDS | SUBWORDS, "RaggedGather"),
    (CLASSIFY, "SparseTensorToCSRSparseMatrix"),
    (WORDS | {"loss": "class_softmax"}, "UniqueWithCounts"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def make(data, folder, values, by_xla):
    values = {"steps_per_call": STEPS, "compute_dtype": "float32"} | values
    job, config, _ = gpu_jobs.made(data, folder, values)
    batch = gpu_jobs.first_batch(job, config)
    made = job.model, job.placed.staging.tables, job.optimizer, 1, job.placed.micro_batches
    arguments = batch, tf.constant(5, tf.int64), tf.constant(0.3)
    return train_function(*made, by_xla=by_xla), arguments, job


def train(data, folder, values, by_xla):
    """The result of two calls, and the tables after them."""
    function, arguments, job = make(data, folder, values, by_xla)
    function(*arguments)
    loss, examples = function(*arguments)
    tables = {
        f"{name} {number}": variable.numpy().astype("f")
        for name, table in job.placed.staging.tables.items()
        for number, variable in enumerate(table.variables)
    }
    return float(loss), float(examples), tables


@pytest.mark.parametrize(
    "values",
    [*COMPILED, *(pytest.param(values, marks=pytest.mark.slow) for values in COMPILED_SELDOM)],
    ids=named,
)
def test_a_compiled_call_trains_as_one_that_is_not(data, tmp_path, values):
    loss, examples, tables = train(data, tmp_path / "with", values, by_xla=True)
    expected_loss, expected_examples, expected = train(data, tmp_path / "without", values, False)
    assert examples == expected_examples
    # Rows in half precision may be rounded to the neighbour, and a ReLU may be just above 0.
    tolerance = 0.02 if "table_dtype" in values else 5e-3 if "neumf" in values.values() else 3e-4
    np.testing.assert_allclose(loss, expected_loss, rtol=tolerance)
    assert tables.keys() == expected.keys()
    for name, found in tables.items():
        np.testing.assert_allclose(found, expected[name], tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("values", [WORDS, RECOMMEND, WORDS | HOST], ids=named)
def test_a_compiled_call_is_one_loop_over_its_steps(data, tmp_path, values):
    function, arguments, job = make(data, tmp_path, values, by_xla=True)
    graph = function.get_concrete_function(*arguments).graph
    program = function.chosen.experimental_get_compiler_ir(*arguments)
    lowered = program(stage="hlo")
    assert lowered.count(gpu.LOOP) == 1, "and none over ids"
    assert " sort(" not in lowered
    optimized = program(stage="optimized_hlo")
    assert f'"known_trip_count":{{"n":"{STEPS - 1}"}}' in optimized
    for table in job.placed.staging.tables.values():
        shape = re.escape(f"f32[{table.rows},{table.columns}]")
        assert not re.findall(rf"{shape}\S* (?:copy|transpose)\(", optimized)
    captured = {id(handle) for handle, _ in graph.captures}
    read = [variable.name for variable in graph.variables if id(variable.handle) in captured]
    assert read and not [name for name in read if name.startswith(ON_HOST)]


def test_calls_of_several_epochs_are_one_trace(data, tmp_path):
    function, (batch, *_), job = make(data, tmp_path, WORDS, by_xla=True)
    function.get_concrete_function(batch, tf.constant(0, tf.int64), tf.constant(0.3))
    first = 0
    for _, batch in job.data.batches(range(3), 0):
        function(batch, tf.constant(first, tf.int64), tf.constant(0.3 / (first + 1)))
        first += STEPS
    assert first > 3 * STEPS and function.chosen.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    "values", [{"table": "sharded"}, HOST | SUBWORDS, HOST | {"loss": "softmax"}], ids=named
)
def test_a_step_on_tables_elsewhere_is_not_compiled(data, tmp_path, values, caplog):
    function, arguments, job = make(data, tmp_path, WORDS | values, by_xla=True)
    # Without a GPU, a streamed table is as near as a cache.
    for table in job.placed.tables.values():
        table.device = "GPU:0" if values.get("loss") else table.device
    function.get_concrete_function(*arguments)
    (message,) = [r.getMessage() for r in caplog.records if "XLA" in r.getMessage()]
    elsewhere = "output" if values.get("loss") else "input"
    assert message.endswith(f"not all rows of table '{elsewhere}' are on the device of the steps")
    assert isinstance(function, CompiledIfPossible) and function.chosen._jit_compile is None


@pytest.mark.parametrize(("values", "operation"), REFUSED, ids=named)
def test_a_step_that_xla_refuses_is_made_without_it(data, tmp_path, values, operation, caplog):
    found = train(data, tmp_path / "with", values, by_xla=True)
    warnings = [r.getMessage() for r in caplog.records if r.getMessage().startswith("XLA cannot")]
    assert len(warnings) == 1 and warnings[0].endswith(f"it has no {operation}")
    expected = train(data, tmp_path / "without", values, by_xla=False)
    assert found[:2] == expected[:2]
    for name, values_VD in found[2].items():
        np.testing.assert_array_equal(values_VD, expected[2][name])
