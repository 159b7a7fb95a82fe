import dataclasses
import errno

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints.table_checkpoints import Checkpoints
from app.checkpoints.workdir import Workdir
from app.errors import DamagedError, RunError
from app.losses.base import Part
from app.models.base import Outcome
from app.models.row_lists import RowLists
from app.optimizers.sgd import sgd
from app.tables import arrays, row_files
from app.tables.base import Slot, TableSpec
from app.tables.dynamic.dynamic import DynamicTable, KeyLocator, RowStore
from app.tables.dynamic.keys import INT64, STRING, KeyMap
from app.tables.initial import Constant, Uniform
from app.tables.row_reads import take
from app.tasks.recommend import recommend_job
from app.training import loop
from app.training.run import check_flags
from app.training.runner import Runner
from app.training.step import lookup_function, train_function
from app.types import UniqueIds
from tests.tasks.recommend.test_recommend_job import blocks, config_of

UNIFORM = Uniform(1.0, seed=3)


def make(capacity=10, columns=3, slots=None, **policy):
    return DynamicTable(KeyMap(capacity, **policy), columns, UNIFORM, slots=slots)


def ids(*keys):
    return tf.constant(keys, tf.int64)


def first(*keys):
    """Initial rows."""
    return UNIFORM.rows(ids(*keys), 3).numpy()


def counts(table):
    return table.key_map.counts_V[table.key_map.in_use()].tolist()


def test_a_key_has_its_initial_row_until_it_is_written():
    table = make()
    far = 2**63 - 1, -(2**63)
    np.testing.assert_array_equal(table.gather(ids(*far)), first(*far))
    np.testing.assert_array_equal(table.gather(ids(7, far[1], 7)), first(7, far[1], 7))
    table.assign(ids(9, 7), tf.ones((2, 3)))  # 9 is new
    table.assign(ids(7, 5), table.gather(ids(7, 5)) + 1.0)
    expected = np.concatenate([first(far[0]), [[1] * 3, [2] * 3], first(5) + 1])
    np.testing.assert_array_equal(table.gather(ids(far[0], 9, 7, 5)), expected)
    assert len(table.key_map) == 5 and (table.rows, table.columns) == (10, 3)
    assert table.gather(ids()).shape == (0, 3)


def test_strings_are_keys():
    table = make(kind=STRING, min_sightings=2)
    words = tf.constant(["a", "b", "a"])
    rows = table.gather(words).numpy()
    np.testing.assert_array_equal(rows[0], rows[2])
    assert (rows[0] != rows[1]).any() and len(table.key_map) == 1
    np.testing.assert_array_equal(table.gather(words), rows)
    np.testing.assert_array_equal(table.known.gather(tf.constant(["b", "c"]))[:1], rows[1:2])
    gather = tf.function(table.gather, autograph=False)
    gather = gather.get_concrete_function(tf.TensorSpec([None], tf.string))
    np.testing.assert_array_equal(gather(words), rows)
    assert counts(table) == [6, 3]


def test_slots_of_new_keys_start_as_they_are_to():
    table = make(capacity=2, slots={"velocity": Slot(2, 0.5)})
    table.gather(ids(1))
    slot = table.slots["velocity"]
    assert (slot.rows, slot.columns) == (2, 2)
    keys = ids(1, 2)
    np.testing.assert_array_equal(slot.gather(keys), np.full((2, 2), 0.5))
    slot.assign(keys, tf.ones((2, 2)))
    table.gather(ids(1, 3))  # 2 goes
    np.testing.assert_array_equal(slot.gather(ids(1, 3)), [[1, 1], [0.5, 0.5]])


def test_located_keys_are_not_looked_up_again():
    table = make(slots={"velocity": Slot(1, 0.0)})
    keys, slot = ids(4, 5), table.slots["velocity"]
    located = table.locate(keys)
    table.assign(located, table.gather(located))
    slot.assign(located, slot.gather(located))
    table.assign(table.locate(located), tf.ones((2, 3)))
    assert table.key_map.step == 1 and counts(table) == [1, 1]
    table.gather(keys)
    table.assign(keys, tf.ones((2, 3)))
    assert table.key_map.step == 3 and counts(table) == [3, 3]


def test_a_row_that_was_looked_up_may_be_anothers_by_now():
    table = make(capacity=2)
    gather = tf.function(table.gather, autograph=False).get_concrete_function(ids(0, 0))
    keys, others = ids(1, 2), ids(3, 4)
    table.assign(keys, tf.ones((2, 3)))
    gather(others)  # is not traced now
    np.testing.assert_array_equal(table.gather(keys), first(1, 2))


def train_steps(table, slot, batches):
    for keys_U in map(table.locate, batches):
        rows_UD = table.gather(keys_U)
        state = slot.gather(keys_U)
        table.assign(keys_U, rows_UD * 0.9 + 1.0)
        slot.assign(keys_U, state * 0.7 + 1.0)


@pytest.mark.slow
def test_a_graph_does_as_eager_code_step_after_step():
    """With far more keys than rows, and steps of one call that TensorFlow could run at once."""
    random = np.random.default_rng(0)
    calls = [[random.choice(40, 8, replace=False) for _ in range(6)] for _ in range(12)]
    eager, graph = (make(12, slots={"count": Slot(1, 0.0)}) for _ in range(2))
    slots = [table.slots["count"] for table in (eager, graph)]

    @tf.function(autograph=False)
    def train(keys_SU):
        train_steps(graph, slots[1], tf.unstack(keys_SU))

    train = train.get_concrete_function(tf.TensorSpec((6, 8), tf.int64))
    for call in calls:
        train(tf.constant(np.array(call), tf.int64))
        train_steps(eager, slots[0], [ids(*keys) for keys in call])
        assert graph.key_map.keys().tolist() == eager.key_map.keys().tolist()
    rows = eager.key_map.in_use()
    assert counts(graph) == counts(eager)
    for name in ("values", "count"):
        pair = [
            table.row_store if name == "values" else table.row_store.slots[name]
            for table in (eager, graph)
        ]
        np.testing.assert_array_equal(pair[0].gather(rows), pair[1].gather(rows))


def test_survivors_stay_as_they_are_bit_for_bit():
    table = make(640)
    keys = ids(*range(640))
    table.assign(keys, tf.random.stateless_normal((640, 3), (1, 2)))
    before = table.gather(keys).numpy()
    table.gather(ids(*range(600)))  # seen more often
    new = table.gather(ids(*range(1000, 1030))).numpy()
    np.testing.assert_array_equal(new, first(*range(1000, 1030)))
    kept = table.key_map.rows(np.arange(640)) >= 0
    assert kept[:600].all() and kept.sum() == 600
    kept_ids = tf.constant(np.arange(640)[kept])
    np.testing.assert_array_equal(table.known.gather(kept_ids), before[kept])


def test_keys_that_are_not_admitted_read_their_initial_row_and_keep_nothing():
    table = make(min_sightings=2, slots={"count": Slot(1, 0.25)})
    slot = table.slots["count"]
    table.gather(ids(1))
    keys = table.locate(ids(1, 2))
    np.testing.assert_array_equal(table.gather(keys), first(1, 2))
    table.assign(keys, tf.ones((2, 3)))
    slot.assign(keys, slot.gather(keys) + 1.0)
    assert table.key_map.keys().tolist() == [1]
    np.testing.assert_array_equal(table.known.gather(ids(1, 2)), [[1] * 3, *first(2)])
    np.testing.assert_array_equal(slot.gather(keys), [[1.25], [0.25]])
    np.testing.assert_array_equal(table.gather(ids(2)), first(2))


def test_unknown_keys_read_their_initial_row_and_are_not_counted():
    table = make()
    table.assign(ids(1, 2), tf.constant([[1.0, 2, 3], [3, 4, 5]]))
    np.testing.assert_array_equal(table.known.gather(ids(5, 1)), [first(5)[0], [1, 2, 3]])
    assert table.key_map.step == 1 and table.key_map.keys().tolist() == [1, 2]


def test_errors_in_a_graph_end_with_their_words():
    table = make(capacity=2)
    call = tf.function(table.gather, autograph=False)
    with pytest.raises(tf.errors.OpError, match="--table_gb"):
        call.get_concrete_function(tf.TensorSpec([3], tf.int64))(ids(1, 2, 3))
    with pytest.raises(RunError, match="--table_gb"):
        table.gather(ids(1, 2, 3))
    with pytest.raises(TypeError, match="keys are string, where the table has int64 keys"):
        table.gather(tf.constant(["a"]))


def test_memory_is_that_of_rows_that_were_in_use():
    rows = 10**7
    table = make(rows, columns=100, slots={"velocity": Slot(100, 0.0)})
    empty = table.bytes()
    table.gather(ids(*range(5)))
    assert table.bytes() == empty + 5 * 100 * 4 * 2
    assert table.key_map.bytes() == empty == pytest.approx(rows * 32, rel=0.01)
    with open("/proc/self/statm") as file:  # 8 GB of rows and slots
        assert int(file.read().split()[1]) * 4096 < 4e9
    assert table.is_finite()
    table.assign(ids(3), tf.fill((1, 100), np.nan))
    assert not table.is_finite()


HALF = {"dtype": tf.bfloat16, "rounding": "stochastic", "slot_dtype": tf.bfloat16}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "storage"), [(INT64, {}), (STRING, {}), (INT64, HALF)])
def test_all_goes_on_after_a_revert_as_it_would_have(kind, storage, tmp_path):
    random = np.random.default_rng(0)
    names = np.arange(40) if kind == INT64 else np.array([f"w{i}".encode() for i in range(40)])
    batches = [tf.constant(random.choice(names, 8, replace=False)) for _ in range(45)]

    def begin():
        keys = KeyMap(12, kind, min_sightings=2, max_age=30)
        table = DynamicTable(keys, 3, UNIFORM, slots={"velocity": Slot(3, 0.0)}, **storage)
        return table, table.slots["velocity"]

    through, other = begin(), begin()
    train_steps(*through, batches[:30])
    through[0].snapshot(tmp_path)
    through[0].commit([tmp_path])
    train_steps(*other, batches[35:40])
    other[0].restore(tmp_path)
    for batch in batches[30:]:
        for pair in (through, other):
            train_steps(*pair, [batch])
        for found, expected in zip(other, through, strict=True):
            np.testing.assert_array_equal(found.gather(batch), expected.gather(batch))
    found, expected = other[0].key_map, through[0].key_map
    assert found.keys().tolist() == expected.keys().tolist()
    assert found.counts_V.tolist() == expected.counts_V.tolist()


def test_a_snapshot_in_many_parts(monkeypatch, tmp_path):
    monkeypatch.setattr("app.tables.arrays._PART_BYTES", 7 * 4)
    monkeypatch.setattr(arrays, "_BLOCK_BYTES", 50)
    table, other = make(100), make(100)
    table.assign(ids(*range(60)), tf.random.stateless_normal((60, 3), (1, 2)))
    table.snapshot(tmp_path)
    other.restore(tmp_path)
    np.testing.assert_array_equal(
        other.row_store.gather(range(60)), table.row_store.gather(range(60))
    )
    assert other.is_finite()
    np.testing.assert_array_equal(
        row_files.read([tmp_path / "values"], tmp_path), table.row_store.gather(range(60))
    )


def test_a_snapshot_without_its_slots(tmp_path):
    table, other = make(slots={"count": Slot(1, 0.0)}), make()
    table.gather(ids(1, 2))
    table.snapshot(tmp_path)
    other.restore(tmp_path)  # to look at rows, no state is needed
    assert other.key_map.keys().tolist() == [1, 2]
    with pytest.raises(RunError, match="holds no 'moment'; give"):
        make(slots={"moment": Slot(1, 0.0)}).restore(tmp_path)
    with pytest.raises(RunError, match=r"values has shape \(2, 3\), where \(\d+, 4\) is asked for"):
        make(columns=4).restore(tmp_path)


def test_damage_and_a_full_disk_are_told(monkeypatch, tmp_path):
    table = make()
    table.gather(ids(1, 2))
    table.snapshot(tmp_path)
    for path in (tmp_path / "values", tmp_path / "values.json", tmp_path / "keys" / "counts"):
        data = path.read_bytes()
        for wrong in (data[:-5], data[:5] + bytes([data[5] ^ 64]) + data[6:]):
            path.write_bytes(wrong)
            with pytest.raises(DamagedError):
                make().restore(tmp_path)
        path.write_bytes(data)
    make().restore(tmp_path)

    def full(path, parts):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(arrays, "write", full)
    with pytest.raises(OSError, match="No space"):
        table.snapshot(tmp_path / "second")


def test_several_tables_may_share_a_map_by_row_number():
    keys = KeyMap(4)
    pair = [RowStore(keys, 3, UNIFORM), RowStore(keys, 2, Constant(0.0), {"count": Slot(1, 0.5)})]
    slot = pair[1].slots["count"]
    seen = keys.see(np.array([8, 5]), np.array([1, 2]), 1)
    for store in pair:
        store.admit(seen.new_rows, keys.hashes(seen.new_keys))
    np.testing.assert_array_equal(pair[0].gather(seen.rows_U), first(8, 5))
    np.testing.assert_array_equal(pair[1].gather(seen.rows_U), np.zeros((2, 2)))
    np.testing.assert_array_equal(slot.gather(seen.rows_U), np.full((2, 1), 0.5))
    np.testing.assert_array_equal(RowStore(keys, 3, UNIFORM).gather(seen.rows_U), first(8, 5))


# Keys that are looked up before the call of the train function.
RATE, COLUMNS = 0.25, 3
KEYS = np.array([-2, *range(40), 2**63 - 1, -(2**63)])


class Squares:
    """Half the squares of the rows of a batch of ids."""

    def tables(self):
        return {"rows": TableSpec(1, COLUMNS, UNIFORM, grows=True)}

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
                    self.held[key] = [None, 0, 0, UNIFORM.rows(tf.constant([key]), 3).numpy()[0]]
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
    return DynamicTable(KeyMap(capacity, **policy), COLUMNS, UNIFORM)


def locator_of(model, tables, micro_batches=1):
    return KeyLocator(tables, lookup_function(model, 1, micro_batches))


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
        ({"loss": "bpr", "optimizer": "rowwise_adagrad"}, 2),
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
    locator.locate(tf.constant([[1, 1], [-2, 1]]), first)
    before = {name: (contents(table), table.key_map.step) for name, table in tables.items()}
    with pytest.raises(
        RunError, match="^table 'more' has 2 rows, but the 2 steps .* need 3 differ"
    ):
        locator.locate(tf.constant([[1, 2], [3, 1]]), first)
    assert before == {name: (contents(table), table.key_map.step) for name, table in tables.items()}
    locator.locate(tf.constant([[-2, -2], [-2, -2]]), first)
    assert contents(tables["more"])[-2] == [1, 5, 4]


def test_padding_is_not_counted():
    """Neither after unique ids, whose room differs between devices, nor after lists of rows."""
    lists = RowLists(np.array([7, 8, 9, 7], np.int32), np.array([0, 3, 4]), 10, is_static=True)

    class Both(Squares):
        def lookups(self, batch):
            ids_N, count = batch.data
            return {"rows": UniqueIds(ids_N, count), "more": lists.lookups(ids_N[:1])}

    for room in (3, 5):
        tables = {"rows": make_table(4), "more": make_table(4)}
        ids_SN = np.zeros((2, room), np.int32)
        ids_SN[:, :2] = [[0, 1], [1, 2]]
        data = tf.constant(ids_SN), tf.constant([[1], [2]])
        located = locator_of(Both(), tables).locate(data, tf.constant(0, tf.int64))
        assert contents(tables["rows"]) == {0: [0, 1, 1], 1: [1, 1, 2], 2: [2, 1, 2]}
        assert {key: seen for key, (_, seen, _) in contents(tables["more"]).items()} == {
            7: 2,
            8: 1,
            9: 1,
        }
        np.testing.assert_array_equal(located.rows["rows"][:, :2], [[0, 0], [1, 2]])


def test_rows_by_number_are_not_for_losses_that_stream_ids():
    locator = locator_of(Streamed(), {"rows": make_table(4)})
    function, first = (
        train_function(Streamed(), locator.tables, sgd(), 1),
        tf.constant(0, tf.int64),
    )
    with pytest.raises(AssertionError, match="streamed loss"):
        function(locator.locate(tf.constant([[1, 2]]), first), first, tf.constant(RATE))
