"""The calls of replicas, with one of them; tests/integration/test_replicas.py has two."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.distributed.exchange import FLAGS, Exchange, key_of_size, round_up
from app.distributed.replicas import Replicas, step_programs
from app.errors import UsageError
from app.models.base import Outcome
from app.optimizers.adagrad import rowwise_adagrad
from app.settings import checks
from app.tables.base import TableSpec
from app.tables.device import DeviceTable
from app.tables.row_reads import take
from app.training.compiled_steps import Representatives
from app.training.job import Job, PlacedTables, TrainingData
from app.training.runner import Runner
from tests.reference import gpu

RATE = tf.constant(0.1)


class Rows:
    """A model whose loss is the sum of squares of the rows that a batch names."""

    dtype = tf.float32

    def __init__(self, rows):
        self._spec = TableSpec(rows, 2, tf.ones)

    def tables(self):
        return {"rows": self._spec}

    def lookups(self, batch):
        return {"rows": batch.data}

    def loss(self, batch, rows):
        taken_ND = take(rows["rows"], tf.float32)
        return Outcome(tf.reduce_sum(taken_ND**2), tf.constant(float(taken_ND.shape[0])))


@pytest.fixture
def strategy():
    return tf.distribute.MirroredStrategy(["CPU:0"])


def job_of(tables, rows, steps=1):
    """A job of two micro-batches."""
    return Job(
        model=Rows(rows),
        placed=PlacedTables(tables, "CPU:0", micro_batches=2),
        optimizer=rowwise_adagrad(),
        learning_rate=lambda done: 0.1,
        data=TrainingData(lambda epochs, first: iter(()), 1, steps, 1),
    )


def made(runner, ids_SN, rows):
    """The runner after a call, that call, and the table."""
    with runner.scope(), tf.device("CPU:0"):
        tables = {"rows": DeviceTable(rows, 2, tf.ones, slots=rowwise_adagrad().slots)}
    runner.open(job_of(tables, rows, len(ids_SN)), tables, seed=1)
    call = runner.run_steps(tf.constant(ids_SN), tf.constant(0, tf.int64), RATE)
    return runner, call, tables["rows"]


IDS_SN = np.array([[3, 5, 3, 7, 7, 9], [5, 5, 5, 5, 5, 5]], np.int32)


@pytest.mark.slow
def test_a_replica_alone_does_what_one_device_does(strategy):
    (here, one, table), (_, other, copies) = (
        made(runner, IDS_SN, 10) for runner in (Runner(), Replicas(strategy))
    )
    np.testing.assert_array_equal(table.values, copies.values)
    assert list(map(float, one)) == list(map(float, other[:2])) == [12.0, 6.0]
    assert not here.values()


def test_xla_compiles_all_of_a_step_but_the_exchange(strategy):
    runner = Replicas(strategy)
    runner.exchange.is_gpu = True
    inputs = tf.constant(IDS_SN), tf.constant(0, tf.int64), RATE
    (_, one, table), (_, other, copies) = (made(each, IDS_SN, 10) for each in (Runner(), runner))
    np.testing.assert_allclose(table.values, copies.values, rtol=1e-6)
    assert list(map(float, one)) == list(map(float, other[:2]))
    traced = runner._function.get_concrete_function(*inputs, runner.flags_F())
    calls = [op for op in traced.graph.get_operations() if "_XlaMustCompile" in op.node_def.attr]
    names = [op.node_def.attr["f"].func.name for op in calls]
    # Two programs for both steps, by turns.
    assert runner._function.is_by_xla and names == [*dict.fromkeys(names)] * 2 and len(names) == 4


def test_the_programs_of_a_step_have_no_loop_over_ids():
    tables = {"rows": DeviceTable(10, 2, tf.ones, slots=rowwise_adagrad().slots)}
    unique_rows = Representatives()
    unique_rows.prepare(tables)
    programs = step_programs(job_of(tables, 10), tables, 1, range(2), 3, unique_rows)
    step, flags_F = tf.constant(1, tf.int64), tf.zeros([FLAGS])
    first = tf.constant(IDS_SN[0]), step, flags_F
    second = tf.tile(programs[0](*first), [3]), step, RATE
    for program, inputs in zip(programs, (first, second), strict=True):
        hlo = program.experimental_get_compiler_ir(*inputs)(stage="hlo")
        assert " scatter(" in hlo and gpu.LOOP not in hlo and " sort(" not in hlo


@pytest.mark.slow
def test_bytes_exchanged_do_not_depend_on_the_rows_of_a_table(strategy):
    sent = []
    for rows in (100_000, 10_000_000):
        runner, *_ = made(Replicas(strategy), IDS_SN + rows - 10, rows)
        sent.append(runner.values())
        assert not runner.values()  # each is told once
    # Of a step the count, loss, examples and 2 flags, and 4 or 1 rows of 2 columns with their ids.
    assert sent == [{"exchanged_bytes": 4 * (5 + 2.5 * 3), "bytes_per_word": 0.0}] * 2


def test_a_replica_alone_exchanges_nothing(strategy):
    (here, *one), (replicas, *other) = (
        made(runner, IDS_SN, 10) for runner in (Runner(), Replicas(strategy, sync_steps=4))
    )
    np.testing.assert_array_equal(one[1].values, other[1].values)
    assert replicas.is_synchronized and "exchange_share" not in replicas.values()


def test_there_is_nothing_to_exchange_without_replicas():
    with pytest.raises(UsageError, match="--sync_steps=32 means nothing to --strategy=none"):
        checks.make_config({"strategy": "none", "sync_steps": 32})


def test_rows_are_written_to_every_copy_outside_of_replicas(strategy):
    with strategy.scope():
        table = DeviceTable(4, 2, tf.zeros)
    ids, rows = tf.constant([2]), tf.constant([[1.0, 2.0]])
    table.assign(ids, rows)
    table.assign(ids, table.gather(ids) + rows)
    for copy in strategy.experimental_local_results(table.values):
        np.testing.assert_array_equal(copy[2], [2.0, 4.0])
    np.testing.assert_array_equal(table.gather(ids), [[2.0, 4.0]])


@pytest.mark.parametrize("strategy", ["mirrored", "multi_worker"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"table": "host"}, "--table=host"),
        ({"table": "sharded"}, "--table=sharded"),
        ({"table": "dynamic", "cache": "none"}, "--table=dynamic"),
        ({"micro_batches": 3}, "--micro_batches=3"),
        (
            {"sync_steps": 40},
            "--sync_steps=40 is no multiple of --steps_per_call=16; give 48, or 1",
        ),
    ],
)
def test_what_replicas_cannot_do_is_refused(strategy, values, message):
    with pytest.raises(UsageError, match=message):
        checks.make_config({"strategy": strategy, **values})


# The keys and sizes of operations between replicas.


SIZES = [*range(200), *(2**k + d for k in range(8, 30) for d in (-1, 0, 1)), 999_999, 123_456_789]


def test_sizes_are_rounded_up_by_three_percent_at_most():
    for size in SIZES:
        rounded = int(round_up(tf.constant(size)))
        assert size <= rounded <= size * 33 / 32
        assert int(round_up(tf.constant(rounded))) == rounded


def test_every_size_and_operation_has_its_own_key():
    exchange = Exchange(tf.distribute.MirroredStrategy(["CPU:0"]))
    first, second = exchange.keys(2)
    (third,) = exchange.keys(1)
    sizes = {int(round_up(tf.constant(size))) for size in SIZES}
    keys = [
        int(key_of_size(key, tf.constant(size)))
        for key, size in itertools.product((first, second, third), sizes)
    ]
    assert len(set(keys)) == len(keys) == 3 * len(sizes)
    assert min(keys) >= first
