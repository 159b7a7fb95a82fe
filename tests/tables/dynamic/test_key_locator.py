"""Dynamic tables whose keys are looked up before the call of the train function."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints.checkpoint import Checkpoints
from app.checkpoints.workdir import Workdir
from app.errors import RunError
from app.losses.base import Part
from app.models.base import Outcome
from app.optimizers.sgd import sgd
from app.tables.base import TableSpec
from app.tables.dynamic.dynamic import DynamicTable, KeyLocator
from app.tables.dynamic.keys import KeyMap
from app.tables.initial import Uniform
from app.tables.row_reads import take
from app.tasks.recommend import recommend_job
from app.training import loop
from app.training.run import check_flags
from app.training.runner import Runner
from app.training.step import lookup_function, train_function
from tests.tasks.recommend.test_recommend_job import blocks, config_of

RATE, COLUMNS, INITIAL = 0.25, 3, Uniform(1.0, seed=3)
KEYS = np.array([*range(-1, 40), 2**63 - 1, -(2**63)])


class Squares:
    """Half the squares of the rows of a batch of ids."""

    def tables(self):
        return {"rows": TableSpec(1, COLUMNS, INITIAL, grows=True)}

    def lookups(self, batch):
        return {"rows": batch.data}

    def loss(self, batch, rows):
        found_ND = take(rows["rows"], tf.float32)
        ids_N = tf.gather(rows["rows"].ids_U, rows["rows"].inverse_N)
        with tf.control_dependencies([tf.debugging.assert_equal(ids_N, batch.data)]):
            return Outcome(0.5 * tf.reduce_sum(tf.square(found_ND)), tf.constant(1.0))


class Streamed(Squares):
    """The same rows as a part of a loss, which is given no numbers of rows."""

    def loss(self, batch, rows):
        hidden_ND = tf.ones((1, COLUMNS))
        return Outcome(0.0, tf.constant(1.0), [Part("rows", hidden_ND, 1, None, None, None, None)])


class Oracle:
    """The rules of a dynamic table in plain Python, one key after the other."""

    def __init__(self, capacity, max_age):
        self.capacity, self.max_age = capacity, max_age
        self.held = {}  # key -> row number, sightings, last step, row
        self.free, self.used, self.step, self.swept, self.evicted = [], 0, 0, 0, 0

    def call(self, ids_SN):
        """Count the ids of the steps of one call, then train on each step."""
        first, new = self.step + 1, []
        for ids_N in ids_SN.tolist():
            self.step += 1
            for key in ids_N:
                if key not in self.held:
                    self.held[key] = [None, 0, 0, INITIAL.rows(tf.constant([key]), 3).numpy()[0]]
                    new.append(key)
                self.held[key][1:3] = [self.held[key][1] + 1, self.step]
        if self.max_age and (self.step - self.swept) * 8 >= self.max_age:
            self.swept, oldest = self.step, min(first, self.step - self.max_age)
            self._drop([key for key, entry in self.held.items() if entry[2] < oldest])
        missing = len(self.held) - self.capacity
        if missing > 0:
            idle = [key for key, entry in self.held.items() if entry[2] < first]
            idle.sort(key=lambda key: [self.held[key][n] for n in (1, 2, 0)])
            self._drop(idle[: max(missing, self.capacity // 16)])
        for key in new:
            if self.free:
                self.held[key][0] = self.free.pop(0)
            else:
                self.held[key][0], self.used = self.used, self.used + 1
        for ids_N in ids_SN:
            for key, count in zip(*np.unique(ids_N, return_counts=True), strict=True):
                self.held[int(key)][3] *= 1 - RATE * count

    def _drop(self, keys):
        self.evicted += len(keys)
        self.free += sorted(self.held.pop(key)[0] for key in keys)


def make_table(capacity, **policy):
    return DynamicTable(KeyMap(capacity, **policy), COLUMNS, INITIAL)


def locator_of(model, tables, micro_batches=1):
    return KeyLocator(tables, lookup_function(model, 1, micro_batches, is_padded=True))


@pytest.mark.slow
@pytest.mark.parametrize("micro", [1, 2, 4])
@pytest.mark.parametrize("policy", [{}, {"max_age": 12}], ids=["rarest", "oldest"])
def test_a_training_step_is_one_step_of_the_map(micro, policy):
    """And each id is seen as often as the micro-batches of the step look it up."""
    random, table = np.random.default_rng(0), make_table(32, **policy)
    oracle = Oracle(32, policy.get("max_age", 0))
    locator = locator_of(Squares(), {"rows": table}, micro)
    function = train_function(Squares(), locator.tables, sgd(), 1, micro)
    for number in range(0, 60, 2):
        ids_SN = random.choice(KEYS[number % 20 :], (2, 8))
        first = tf.constant(number, tf.int64)
        function(locator.locate(tf.constant(ids_SN), first), first, tf.constant(RATE))
        oracle.call(ids_SN)
        assert contents(table) == {key: entry[:3] for key, entry in oracle.held.items()}
        expected = np.array([entry[3] for entry in oracle.held.values()])
        found = table.known.gather(tf.constant([*oracle.held], tf.int64))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)
    assert oracle.evicted > 10 and table.key_map.step == oracle.step == 60


def contents(table):
    """Key -> row number, sightings, last step."""
    keys = table.key_map
    parts = keys.keys(), keys.in_use(), keys.counts_V[keys.in_use()], keys._last_V[keys.in_use()]
    return {key: rest for key, *rest in zip(*(part.tolist() for part in parts), strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "micro"),
    [
        ({"loss": "in_batch_softmax", "optimizer": "lazy_adam"}, 1),
        ({"loss": "sampled_items", "optimizer": "lazy_adam"}, 2),
        ({"loss": "bpr", "model": "gmf", "optimizer": "rowwise_adagrad"}, 2),
    ],
    ids=["softmax", "samples in parts", "bpr in parts"],
)
def test_a_recommender_is_that_of_tables_on_the_device_bit_for_bit(tmp_path, values, micro):
    """Where every id has room. Nor does its compiled step call Python."""
    trained, functions = {"dynamic": {}, "device": {}}, {}
    for kind in ("dynamic", "device"):
        job = job_of(tmp_path, table=kind, micro_batches=micro, epochs=1, **values)[2]
        function = train_function(job.model, job.placed.staging.tables, job.optimizer, 1, micro)
        with tf.device("CPU:0"):
            for number, (_, data) in enumerate(job.data.batches(range(2), 0)):
                first = tf.constant(2 * number, tf.int64)
                inputs = job.placed.staging.locate(data, first), first, tf.constant(0.05)
                trained[kind][number] = [value.numpy() for value in function(*inputs)]
            functions[kind] = function.get_concrete_function(*inputs)
        for name, table in job.placed.tables.items():
            ids = tf.range(getattr(job.model, name, table.rows))
            for slot, part in {"": table, **table.slots}.items():
                trained[kind][name, slot] = part.gather(ids).numpy().tobytes()
    assert trained["dynamic"] == trained["device"]
    assert "ResourceGather" in operations(functions["dynamic"])
    assert not {"PyFunc", "PyFuncStateless", "EagerPyFunc"} & operations(functions["dynamic"])


def operations(function):
    """The types of all operations of a concrete function, and of the functions that it calls."""
    graph = function.graph.as_graph_def()
    inner = (node for called in graph.library.function for node in called.node_def)
    return {node.op for node in [*graph.node, *inner]}


def job_of(folder, **values):
    config = config_of(folder, blocks(), learning_rate=0.05, heldout_share=0.0, **values)
    workdir = Workdir(config.run.workdir)
    return config, workdir, recommend_job.make_job(config, workdir, False)


@pytest.mark.slow
def test_the_loop_counts_a_batch_when_it_is_trained(tmp_path, monkeypatch):
    """A checkpoint between drawing it and training it has not seen it."""
    values = {"loss": "in_batch_softmax", "table": "dynamic", "epochs": 2, "micro_batches": 2}
    config, workdir, job = job_of(tmp_path, **values)
    config = dataclasses.replace(config.run, checkpoint_minutes=0.0)
    saved, save = [], Checkpoints.save

    def watched(checkpoints, position):
        saved.append(
            (position.step, *(job.placed.tables[n].key_map.step for n in ("users", "items")))
        )
        save(checkpoints, position)

    monkeypatch.setattr(Checkpoints, "save", watched)
    with workdir.lock():
        check_flags(job, config)
        assert loop.train(job, config, workdir)
    assert sorted(set(saved)) == [(step, step, step) for step in range(0, 9, 2)]
    for name in ("users", "items"):
        assert (
            job.placed.tables[name].key_map.counts_V[job.placed.tables[name].key_map.in_use()].sum()
            == 8 * 128
        )  # the last step is filled up


class Stopping(Runner):
    """Ends a run after two calls."""

    calls = 0

    def is_stopping(self, asked):
        return self.calls == 2

    def run_steps(self, *inputs):
        self.calls += 1
        return super().run_steps(*inputs)


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_not_been_ended(tmp_path):
    ends = []
    for name, runners in (("whole", [Runner()]), ("ended", [Stopping(), Runner()])):
        values = {"loss": "in_batch_softmax", "table": "dynamic", "epochs": 2, "max_age": 8}
        values |= {"workdir": str(tmp_path / name), "micro_batches": 2}
        for runner in runners:
            config, workdir, job = job_of(tmp_path, **values)
            with workdir.lock():
                check_flags(job, config.run)
                loop.train(job, config.run, workdir, runner)
        tables = [job.placed.tables["users"], job.placed.tables["items"]]
        found = [(contents(table), table.key_map.step) for table in tables]
        rows = [store for table in tables for store in table.row_store.stores().values()]
        used = range(tables[1].key_map.used)
        ends.append((found, [store.gather(used).numpy().tobytes() for store in rows]))
    assert ends[0] == ends[1]


def test_a_call_of_more_ids_than_rows_is_refused_before_anything_changes():
    tables = {"rows": make_table(4), "more": make_table(2)}

    class Both(Squares):
        def lookups(self, batch):
            return {"rows": batch.data, "more": batch.data}

    locator, first = locator_of(Both(), tables), tf.constant(0, tf.int64)
    locator.locate(tf.constant([[1, 1], [-1, 1]]), first)
    before = {name: (contents(table), table.key_map.step) for name, table in tables.items()}
    with pytest.raises(
        RunError, match="^table 'more' has 2 rows, but the 2 steps .* need 3 differ"
    ):
        locator.locate(tf.constant([[1, 2], [3, 1]]), first)
    assert before == {name: (contents(table), table.key_map.step) for name, table in tables.items()}
    locator.locate(tf.constant([[-1, -1], [-1, -1]]), first)
    assert contents(tables["more"])[-1] == [1, 5, 4]


def test_rows_by_number_are_not_for_losses_that_stream_ids():
    locator = locator_of(Streamed(), {"rows": make_table(4)})
    function, first = (
        train_function(Streamed(), locator.tables, sgd(), 1),
        tf.constant(0, tf.int64),
    )
    with pytest.raises(AssertionError, match="streamed loss"):
        function(locator.locate(tf.constant([[1, 2]]), first), first, tf.constant(RATE))
