import dataclasses
import itertools
import tracemalloc
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import memory_plan, placing, storage
from app.checkpoints import stored
from app.checkpoints.checkpoint import Position
from app.checkpoints.table_checkpoints import Checkpoints
from app.checkpoints.workdir import Workdir
from app.errors import RunError, UsageError
from app.losses.base import Predictions
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.one_vs_all import OneVsAll
from app.losses.tree.hierarchical_softmax import HierarchicalSoftmax
from app.models.row_lists import SubwordRows
from app.optimizers.adagrad import rowwise_adagrad
from app.settings import Config, CorpusConfig, InputConfig, OptimizerConfig, RunConfig, TableConfig
from app.settings.flag_values import from_names
from app.system import machine
from app.system.xla import under_xla
from app.tables import memory, sharded
from app.tables.base import Slot, TableSpec
from app.tables.device import DeviceTable, InPlace
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.dynamic.dynamic import DynamicTable
from app.tables.initial import Uniform
from app.tables.memory import FILE, HOST
from app.tables.prefetch import Prefetcher
from app.tasks.words import words_job
from app.training.step import train_step
from app.types import NgramRule
from tests.reference.batches import MODELS, WINDOW, make_model, make_tokens

WORDS, DIM, STEPS = 30_000, 50, 2
COUNTS = np.arange(WORDS, 0, -1)
TOKENS = tf.TensorSpec([4, 8 + 2 * WINDOW], tf.int32)
ROW = (DIM + 1) * 4  # bytes of a row with its slot
OTHERS = 10_000_000  # bytes that the program takes
FEW_HOT = {"table": "host", "hot_rows": "5"}


@pytest.fixture
def limit(monkeypatch):
    """Call it with the bytes that are free, and those of a GPU."""

    def set_to(free, gpu=0):
        monkeypatch.setattr(machine, "free_bytes", lambda: int(free / 0.95) + 1)
        monkeypatch.setattr(machine, "resident_bytes", lambda: 0)
        monkeypatch.setattr(memory_plan, "gpu_bytes", lambda name: int(gpu / 0.95) + 1)
        monkeypatch.setattr(memory_plan, "_RUN", OTHERS)
        monkeypatch.setattr(memory_plan, "step_bytes", lambda *_: 0)

    return set_to


def config(optimizer="rowwise_adagrad", seed=1, **table):
    return Config(
        input=InputConfig(steps_per_call=STEPS),
        optimizer=OptimizerConfig(optimizer=optimizer),
        table=TableConfig(**table),
        run=RunConfig(seed=seed),
    )


def batches():
    for batch in range(50):
        seeds = [[batch, step] for step in range(STEPS)]
        yield 0, tf.constant(np.stack([make_tokens(range(WORDS), seed=seed) for seed in seeds]))


def decide(config, device="CPU:0"):
    model = make_model("skipgram", COUNTS, DIM)
    return memory_plan.plan(model, batches, TOKENS, config, device)


def test_all_that_takes_memory_is_in_the_plan(limit):
    limit(1e9)
    totals = memory.totals(decide(config()).items)
    assert totals == {"CPU:0": 2 * WORDS * ROW, HOST: OTHERS}


@pytest.mark.parametrize(("strategy", "more"), [("none", 4), ("mirrored", 4), ("multi_worker", 0)])
def test_a_gpu_has_a_number_for_each_row_beside_compiled_steps(limit, strategy, more):
    limit(1e9, 1e9)
    settings = dataclasses.replace(config(), run=RunConfig(seed=1, strategy=strategy))
    assert memory.totals(decide(settings, "GPU:0").items)["GPU:0"] == 2 * WORDS * (ROW + more)


def test_a_gpu_has_a_number_for_each_cached_row_beside_compiled_steps(limit):
    limit(1e9, 1e9)
    found = decide(config(table="host", stage_steps=20), "GPU:0")
    numbers = {item.name: item.bytes for item in found.items if "unique rows" in item.name}
    for name, size in found.cache_sizes.items():
        rows = len(size.pinned_N) + size.unpinned
        assert numbers[f"{name}: numbers of unique rows"] == 4 * rows
    assert len(numbers) == len(found.cache_sizes) == 2


def test_a_compiled_step_has_room_for_the_ngrams_of_any_batch():
    words = [f"{number:030d}" if number < 40 else f"{number}" for number in range(400)]
    subwords = SubwordRows(words, NgramRule(3, 4, 5000))
    counts = np.arange(400, 0, -1)
    model = make_model("skipgram", counts, DIM, subwords=subwords, chances_V=counts / counts.sum())
    optimizer, before = rowwise_adagrad(), len(tf.config.list_logical_devices())
    plain, by_xla = (
        memory_plan.step_bytes(model, optimizer, TOKENS, device) for device in ("", "CPU:0")
    )
    assert len(tf.config.list_logical_devices()) == before
    longest = np.sort(subwords._sizes_V)[-TOKENS.shape.num_elements() :].sum()
    lists = 4 * subwords._sizes_V.sum()
    assert by_xla > 2 * DIM * 4 * longest + lists  # the rows and their gradients
    assert plain < by_xla


def test_a_step_on_a_tree_takes_memory_by_its_words_and_not_by_their_square():
    loss = HierarchicalSoftmax(COUNTS, DIM)
    model = MODELS["skipgram"][0](WORDS, DIM, WINDOW, loss, seed=1)
    sizes = [tf.TensorSpec([rows, *TOKENS.shape[1:]], tf.int32) for rows in (64, 512)]
    few, many = (memory_plan.step_bytes(model, rowwise_adagrad(), size) for size in sizes)
    assert 6 * few < many < 10 * few


@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_gradients_of_a_streamed_loss_are_in_memory_if_they_are_added(monkeypatch, strategy):
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_: {})
    words = 20 * WORDS
    model = MODELS["cbow"][0](words, DIM, WINDOW, ClassSoftmax(words, DIM), seed=1)

    def activations(micro_batches, sync_steps=1):
        settings = dataclasses.replace(
            config(optimizer="sgd"),
            input=InputConfig(steps_per_call=STEPS, micro_batches=micro_batches),
            run=RunConfig(strategy=strategy, sync_steps=sync_steps),
        )
        plan = memory_plan.plan(model, batches, TOKENS, settings, "CPU:0")
        (found,) = (item.bytes for item in plan.items if "activations" in item.name)
        return found / (4 * words * DIM)  # in tables

    assert activations(0, sync_steps=4) < 1 and (activations(0) < 1) == (strategy == "none")
    assert [round(activations(count)) for count in (2, 3)] == [8, 11]


def test_a_step_that_xla_has_no_form_of_takes_what_it_takes_without(monkeypatch):
    def without_xla(*arguments):
        if under_xla():
            raise tf.errors.UnimplementedError(None, None, "a form of this")
        return train_step(*arguments)

    monkeypatch.setattr(memory_plan, "train_step", without_xla)
    monkeypatch.setattr(memory_plan, "free_memory", lambda *_: {})
    plans = [decide(config(), device).items for device in ("CPU:0", "GPU:0")]
    found = [[item.bytes for item in items if "activations" in item.name] for items in plans]
    assert found[0] == found[1] > [0]


# Why XLA compiles no step of a job on a GPU. This may only become shorter. `tests.keras` has such a
# list for models of Keras. Beside it there are micro-batches with gradients as large as a table.
UNCOMPILED = {
    "--loss=softmax goes through all rows, and": FEW_HOT | {"loss": "softmax"},
    "steps look up different numbers of rows, and": FEW_HOT | {"max_ngram": 4},
    "--strategy=multi_worker with --sync_steps=1": {"strategy": "multi_worker"},
}
# All rows of the third fit. Keys of dynamic tables are found before a call.
COMPILED = [{}, FEW_HOT, {"table": "host", "loss": "softmax", "max_ngram": 4}, {"table": "dynamic"}]
COMPILED += [
    FEW_HOT | {"table": "sharded"},
    {"strategy": "mirrored"},
    {"strategy": "multi_worker", "sync_steps": 2},
]


def test_added_gradients_of_all_labels_are_counted():
    """A streamed loss of labels that are trained alone, as one of a softmax over all."""
    labels, columns = 200_000, 8
    hidden = Predictions(
        tf.ones([50, 1, columns]), tf.zeros([50, 1], tf.int32), tf.ones([50, 1, 1])
    )
    (part,) = OneVsAll(labels, columns).loss(hidden, {})[1]
    assert part.tiles is not None and part.rows == labels


def test_no_other_steps_are_not_compiled():
    few = types.SimpleNamespace(unpinned=5)
    caches = [{}, {"input": few}, {"input": few, "output": few}]
    for task in ("words", "classify", "recommend", "language_model"):
        for table in ("device", "host", "sharded", "dynamic"):
            settings = from_names({"task": task, "table": table, "loss": "softmax"})
            for cache, shape in itertools.product(caches, [(9,), (3, 3)]):
                lookups = {name: [np.zeros(shape)] for name in cache}
                plan = settings, {"input", "output"}, lookups, cache
                reason = memory_plan.why_uncompiled(*plan)
                assert reason.startswith(tuple(UNCOMPILED)) or not reason


@pytest.mark.parametrize(
    ("reason", "values"), [*itertools.product([""], COMPILED), *UNCOMPILED.items()]
)
def test_steps_that_cannot_be_compiled_are_known_before_the_first(
    limit, monkeypatch, reason, values
):
    limit(1e9, 1e9)
    settings = from_names({"task": "words", **values})
    names = ["input"] if values.get("loss") else ["input", "output"]
    ids = np.arange(9) if "max_ngram" in values else np.arange(9)[np.newaxis]
    monkeypatch.setattr(memory_plan, "first_lookups", lambda *_: {name: [ids] for name in names})
    monkeypatch.setattr(memory_plan, "step_bytes", lambda *given: 1 if "GPU:0" in given else 10)
    plan = decide(settings, "GPU:0")
    assert plan.uncompiled.startswith(reason) and bool(plan.uncompiled) == bool(reason)
    activations = [item.bytes for item in plan.items if "activations" in item.name]
    assert activations == [10 if reason else 1]
    assert any("unique rows" in item.name for item in plan.items) == (not reason)


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_flags_that_would_help(limit):
    limit(OTHERS + 2 * WORDS * ROW - 1)
    with pytest.raises(UsageError) as refused:
        decide(config())
    assert "30,000 x 50" in str(refused.value)
    assert str(refused.value).endswith(
        "; --table_dtype=bfloat16; or --table=host --hot_rows=auto --table_file=FILE"
    )
    decide(config(table_dtype="bfloat16"))
    with pytest.raises(UsageError, match="--optimizer=rowwise_adagrad"):
        limit(OTHERS + 2 * WORDS * ROW)
        decide(config(optimizer="adagrad"))


def test_no_step_of_tables_far_too_large_is_traced(limit, monkeypatch):
    limit(OTHERS)
    monkeypatch.setattr(memory_plan, "step_bytes", lambda *_: pytest.fail("traced"))
    monkeypatch.setattr(memory_plan, "_smaller", lambda _: [{"table": "host"}])
    with pytest.raises(UsageError, match="^the run does not fit: host has 10.00 MB free"):
        decide(config())


def test_no_step_is_drawn_where_no_place_of_the_tables_would_help(limit, monkeypatch):
    limit(1e9)
    monkeypatch.setattr(memory_plan, "step_bytes", lambda *_: 10**9)
    monkeypatch.setattr(memory_plan, "first_lookups", lambda *_: pytest.fail("drawn"))
    with pytest.raises(UsageError, match="; lower --max_vocab_size, --dim or --batch_tokens$"):
        decide(config())


@pytest.mark.slow
def test_as_many_rows_are_hot_as_fit_the_device(limit):
    limit(1e9)
    sizes = []
    for gpu in (4 * WORDS * ROW, WORDS * ROW, WORDS * ROW // 2):
        limit(1e9, gpu)
        found = decide(config(table="host", stage_steps=20), "GPU:0")
        assert not memory.too_much(found.items, {"GPU:0": gpu})
        sizes.append(len(found.cache_sizes["input"].pinned_N))
        if sizes[-1] < WORDS:  # one more does not fit
            more = config(table="host", stage_steps=20, hot_rows=str(sizes[-1] + 1))
            with pytest.raises(UsageError, match="GPU:0 has"):
                decide(more, "GPU:0")
    assert sizes[0] == WORDS > sizes[1] > sizes[2]
    assert found.cache_sizes["input"].pinned_N.tolist() == list(range(sizes[2]))
    with pytest.raises(UsageError, match=r"GPU:0 has 1.00 kB free.* input: "):
        limit(1e9, 1000)
        decide(config(table="host"), "GPU:0")


@pytest.mark.slow
def test_a_cache_larger_than_the_device_is_refused(limit):
    limit(1e9, WORDS * ROW)
    with pytest.raises(UsageError, match=r"hot rows 29,999 rows .*--hot_rows=auto"):
        decide(config(table="host", hot_rows="29999"), "GPU:0")


def test_fewer_steps_at_a_time_take_less_room(limit):
    limit(1e9)
    little = 200 * ROW + 8 * WORDS
    with pytest.raises(UsageError, match="; --table=host --hot_rows=auto --stage_steps=2$"):
        decide(config(table="host", stage_steps=40, device_memory=(little + 60_000) / 1e9))


@pytest.mark.slow
def test_the_memory_of_the_device_can_be_told(limit):
    limit(1e9)
    found = decide(config(table="host", stage_steps=20, device_memory=WORDS * ROW / 1e9))
    assert 0 < len(found.cache_sizes["input"].pinned_N) < WORDS
    with pytest.raises(UsageError, match="CPU:0 has"):
        decide(config(device_memory=WORDS * ROW / 1e9))


def test_places_of_each_kind(limit, tmp_path, monkeypatch):
    limit(1e9)
    kinds = {
        "host": ({}, HOST),
        "file": ({"table_file": str(tmp_path / "rows")}, FILE),
    }
    for flags, place in kinds.values():
        found = decide(config(table="host", hot_rows="100", stage_steps=4, **flags))
        assert memory.totals(found.items)[place] >= 2 * WORDS * ROW
    monkeypatch.setattr(sharded, "local_devices", lambda: ["/device:CPU:0", "/device:CPU:1"])
    found = decide(config(table="sharded", hot_rows="0", stage_steps=1))
    totals = memory.totals(found.items)
    assert totals["CPU:1"] == WORDS * ROW
    assert totals["CPU:0"] - totals["CPU:1"] < WORDS * ROW, totals
    monkeypatch.setattr(sharded, "local_devices", lambda: ["/device:CPU:1", "/device:CPU:2"])
    with pytest.raises(UsageError, match="CPU:1 has"):
        decide(config(table="sharded", device_memory=0.005))
    monkeypatch.setattr(sharded, "local_devices", lambda: ["/device:GPU:0", "/device:GPU:1"])
    monkeypatch.setattr(memory_plan, "gpu_bytes", {"GPU:0": 1 << 34, "GPU:1": 1 << 20}.get)
    with pytest.raises(UsageError, match="GPU:1 has"):  # the smaller one limits the shards
        decide(config(table="sharded"))


@pytest.mark.slow
@pytest.mark.parametrize("table", ["device", "host", "sharded", "file"])
def test_tables_are_made_as_planned(limit, tmp_path, table):
    limit(1e9)
    flags = {"table": table}
    if table == "file":
        flags = {"table": "host", "table_file": str(tmp_path / "rows")}
    settings = config(**flags, table_dtype="float16")
    model, device = make_model("skipgram", COUNTS, DIM), "CPU:0"
    cache_sizes = decide(settings).cache_sizes
    how = settings.table, device, settings.run.seed
    path, workdir = flags.get("table_file"), Workdir(tmp_path / "run")
    file = storage.open_file(path, workdir) if path else None
    tables = storage.make_tables(model.tables(), *how, file=file)
    assert tables.keys() == {"input", "output"}
    for name, made in tables.items():
        assert (made.rows, made.columns) == (WORDS, DIM)
        assert made.bytes() == WORDS * DIM * 2
        assert made.device.endswith("CPU:0")
        rows = made.gather(tf.constant([5, 7]))
        expected = tf.gather(model.tables()[name].initial((WORDS, DIM)), [5, 7])
        np.testing.assert_array_equal(rows, tf.cast(tf.cast(expected, tf.float16), tf.float32))
    assert isinstance(tables["input"], FileTable) == (table == "file")
    brought = placing.make_staging(cache_sizes, model, tables, settings, device)
    assert isinstance(brought, Prefetcher if flags["table"] == "host" else InPlace)
    brought.close()


@pytest.mark.slow
def test_a_folder_that_is_not_there_yet(limit, tmp_path):
    limit(1e9)
    path = str(Path(tmp_path / "new" / "rows"))
    assert decide(config(table="host", table_file=path)).cache_sizes


@pytest.mark.parametrize("kind", [{}, {"table_file": "rows"}], ids=["host", "file"])
def test_rows_at_home_are_used_on_the_device_that_their_table_is_for(tmp_path, kind):
    if kind:
        kind = {"table_file": str(tmp_path / "rows")}
    settings, file = TableConfig(table="host", **kind), None
    if kind:
        file = storage.open_file(kind["table_file"], Workdir(tmp_path / "run"))
    tables = storage.make_tables(
        {"output": TableSpec(9, 2, tf.zeros)}, settings, "GPU:1", 1, file=file
    )
    assert tables["output"].device == "GPU:1"


def test_words_that_no_machine_holds_are_refused_before_anything_of_their_size_is_made(
    tmp_path, limit
):
    limit(100_000_000)
    (tmp_path / "corpus").write_text("a b " * 1000)
    table = TableConfig(table="dynamic", table_gb=1e6, device_memory=1e6)
    corpus, run = CorpusConfig(corpus=str(tmp_path / "corpus")), RunConfig(plan_only=True)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="does not fit.* give less than --table_gb=1000000.0"):
            words_job.make_job(
                Config(corpus=corpus, table=table, run=run), Workdir(tmp_path), False
            )
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 10_000_000


# Tables of --table=dynamic whose ids the data has, such as users.


FIRST = Uniform(0.5, 1)
SPECS = {
    "users": TableSpec(1000, 8, FIRST, grows=True),
    "items": TableSpec(50, 8, FIRST, grows=True),
    "kernel": TableSpec(8, 2, tf.zeros),
}
JOURNALLED = 8 * 4 + 4 + memory_plan.ID_BYTES  # with the accumulator of row-wise Adagrad
SLOTS = {"accumulator": Slot(1, 0.1)}
IDS = tf.constant([7, 3, 900, 7], tf.int32)


def placing_config(rows):
    """With room for so many rows."""
    return TableConfig(table="dynamic", table_gb=rows * JOURNALLED / 1e9)


def rows_of(rows):
    return memory_plan.rows_for_ids(SPECS, SLOTS, placing_config(rows))


def made(rows):
    return storage.make_tables(SPECS, placing_config(rows), "CPU:0", 1, most=rows_of(rows))


def test_tables_share_the_room_and_take_no_more_than_there_are_ids():
    assert rows_of(40) == {"items": 20, "users": 20}
    assert rows_of(200) == {"items": 50, "users": 150}
    assert rows_of(5000) == {"items": 50, "users": 1000}
    with pytest.raises(UsageError, match=r"^--table_gb=.*: a row of each table takes \d+ bytes"):
        rows_of(1)


def test_only_tables_that_grow_are_by_id():
    tables = made(200)
    kinds = {name: type(table) for name, table in tables.items()}
    assert kinds == {"users": DynamicTable, "items": DynamicTable, "kernel": DeviceTable}


def test_scoring_makes_no_rows_and_sees_those_that_are_there():
    users = made(200)["users"]
    users.assign(tf.constant([3, 7]), tf.ones((2, 8)))
    known = storage.scoring_tables({"users": users})["users"]
    expected = DeviceTable(1000, 8, FIRST).gather(IDS).numpy()
    expected[[0, 1, 3]] = 1
    for gather in (known.gather, tf.function(known.gather, autograph=False)):
        np.testing.assert_array_equal(gather(IDS), expected)
    assert len(users.key_map) == 2
    assert users.key_map.counts_V[users.key_map.in_use()].tolist() == [1, 1]


def test_a_checkpoint_by_id_is_read_into_a_table_of_all_ids(tmp_path):
    users = made(200)["users"]
    users.assign(tf.constant([3, 7]), tf.ones((2, 8)))
    Checkpoints(tmp_path, {"users": users}).save(Position(step=1))
    table = DeviceTable(1000, 8, FIRST)
    Checkpoints(tmp_path, {"users": table}).read()
    expected = DeviceTable(1000, 8, FIRST).values.numpy()
    expected[[3, 7]] = 1
    np.testing.assert_array_equal(table.values, expected)
    table = DeviceTable(1000, 8, FIRST, slots={"accumulator": Slot(1, 0.1)})
    with pytest.raises(RunError, match="go on with it, or train in a new workdir"):
        Checkpoints(tmp_path, {"users": table}).restore()


def test_the_plan_counts_the_rows_there_will_be(monkeypatch):
    monkeypatch.setattr(memory_plan, "step_bytes", lambda *_: 0)
    rows, model = rows_of(200), types.SimpleNamespace(tables=lambda: SPECS)
    others = [memory_plan.id_map(rows)]
    found = memory_plan.plan(
        model, None, None, Config(table=placing_config(200)), "CPU:0", others, rows
    ).items
    sizes = {item.name: item.size for item in found}
    assert sizes["users"] == "150 x 8"
    assert sizes["items"] == "50 x 8"
    assert sizes["kernel"] == "8 x 2"
    assert sizes["ids and their counts"] == "200 ids"
    counted = [item for item in found if item.name.startswith(("users", "items", "ids"))]
    assert sum(item.bytes for item in counted) == 200 * JOURNALLED


def test_ids_that_have_rows_are_read_in_order(tmp_path):
    users = made(200)["users"]
    users.assign(tf.constant([7, 3]), tf.constant([[7.0] * 8, [3.0] * 8]))
    Checkpoints(tmp_path, {"users": users}).save(Position(step=1))
    (path,) = tmp_path.iterdir()
    ids, rows = stored.read_ids(path, "users")
    assert ids.tolist() == [3, 7] and rows[:, 0].tolist() == [3, 7]


def test_trained_tables_are_made_with_slots_and_others_without():
    specs = {"input": TableSpec(9, 2, tf.zeros), "state": TableSpec(9, 2, tf.zeros, trained=False)}
    tables = storage.make_tables(specs, TableConfig(), "CPU:0", 1, SLOTS)
    assert {name: list(table.slots) for name, table in tables.items()} == {
        "input": ["accumulator"],
        "state": [],
    }
    tables = storage.make_tables(specs, TableConfig(), "CPU:0", 1)  # to read them
    assert not any(table.slots for table in tables.values())


@pytest.mark.parametrize("kind", ["folder", "file of another run", "no table"])
def test_a_table_file_that_is_refused_leaves_the_workdir_as_it_was(tmp_path, kind):
    place, path = Workdir(tmp_path / "run"), tmp_path / "rows"
    place.path.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "no table":
        path.write_bytes(b"text")
    else:
        TableFile(path, "another", resume=False)
    with pytest.raises(UsageError, match=f"^--table_file={path}"):
        storage.open_file(str(path), place)
    assert not [*place.path.iterdir()]
