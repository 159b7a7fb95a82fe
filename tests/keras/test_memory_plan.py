"""The memory of tables is said before they are made, and one that does not fit is refused."""

import gc
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    Adagrad,
    DynamicEmbedding,
    Ftrl,
    HierarchicalSoftmax,
    LazyAdam,
    LossScaleOptimizer,
    RowEmbedding,
    RowEmbeddingReduce,
    RowwiseAdagrad,
    Softmax,
    compile_steps,
    memory_plan,
    prefetch_rows,
)
from app.keras.optimizers import row_accumulation, row_sparse
from app.keras.tables import table_memory
from app.tables.cached import CachedTable
from tests.keras import table_models as models
from tests.keras.softmax_models import LAYERS, planted
from tests.keras.softmax_models import make_model as make_output_model

ROWS, COLUMNS = 2_000, 8
TABLE = ROWS * COLUMNS * 4
OPTIMIZERS = {
    "sgd": (lambda: SGD(0.1), 0),
    "momentum": (lambda: SGD(0.1, momentum=0.9), COLUMNS),
    "adagrad": (lambda: Adagrad(0.1), COLUMNS),
    "rowwise": (lambda: RowwiseAdagrad(0.1), 1),
    "ftrl": (lambda: Ftrl(0.1, l1_regularization_strength=0.1), 2 * COLUMNS),
    "adam": (lambda: LazyAdam(0.1, amsgrad=True, correct_skipped=True), 3 * COLUMNS + 1),
    "scaled": (lambda: LossScaleOptimizer(LazyAdam(0.1)), 2 * COLUMNS),
}
pytestmark = pytest.mark.usefixtures("far_host")
KINDS = {
    "device": {},
    "host": {},
    "file": {},
    "sharded": {},
    "hot": {"table": "host", "hot_rows": 300},
    "half": {"table": "host", "dtype": "bfloat16"},
}


def make_layer(kind, folder, cls=RowEmbedding, **options):
    options = {"table": kind, "name": "words"} | KINDS[kind] | options
    if kind == "file":
        options["table_file"] = str(folder / "new" / "rows.bin")
    return cls(ROWS, COLUMNS, **options)


def parts(plan):
    """The bytes by the part of a table, of which that of its rows has the name "words"."""
    return {item.name.removeprefix("words: "): item.bytes for item in plan}


def train(layer, optimizer):
    model = models.make_model(layer, optimizer)
    model.train_on_batch(models.IDS, models.TARGETS)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_slots_are_those_that_the_optimizer_makes(optimizer, tmp_path):
    make, columns = OPTIMIZERS[optimizer]
    layer = make_layer("host", tmp_path)
    planned = memory_plan(layer, make())
    assert not layer.built
    assert parts(planned).get("optimizer", 0) == 4 * columns * ROWS
    model = train(layer, make())
    assert planned.totals == {"host memory": layer.embeddings.table.bytes()}
    assert memory_plan(model) == planned


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_of_every_kind_is_what_its_table_takes(kind, tmp_path):
    layer = make_layer(kind, tmp_path)
    planned = memory_plan(layer, LazyAdam())
    assert list(tmp_path.iterdir()) == [] and not layer.built
    model = train(layer, LazyAdam())
    if kind == "device":
        slots = [v for v in model.optimizer.variables if len(v.shape) == 2 and v.shape[0] == ROWS]
        taken = sum(v.numpy().nbytes for v in [layer.embeddings, *slots])
    else:
        table = layer.embeddings.table
        taken = getattr(table, "backing", table).bytes()
    assert taken == parts(planned)["words"] + parts(planned)["optimizer"]
    place = "disk" if kind == "file" else "host memory"
    assert planned.totals == {place: sum(parts(planned).values())}
    if kind == "file":
        assert 0 < (tmp_path / "new" / "rows.bin").stat().st_size - taken < 100_000


@pytest.mark.slow
def test_the_plan_of_a_cache_is_what_it_takes(tmp_path):
    layer = make_layer("hot", tmp_path)
    planned = parts(memory_plan(layer, LazyAdam()))
    train(layer, LazyAdam())
    table = layer.embeddings.table
    assert isinstance(table, CachedTable)
    assert planned["cached rows"] == table.bytes()
    maps = [value for value in vars(table.cache_map).values() if isinstance(value, np.ndarray)]
    maps += [table._ids_P, table._positions_V.read().numpy()]
    assert planned["cache maps"] == sum(array.nbytes for array in maps)


@pytest.fixture
def made(monkeypatch):
    """The numbers of unique rows that optimizers make."""
    found = []

    def make_numbers(*how):
        found.append(row_accumulation.make_numbers(*how))
        return found[-1]

    monkeypatch.setattr(row_sparse, "make_numbers", make_numbers)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", "hot"])
def test_the_plan_of_steps_by_xla_has_the_numbers_that_they_need(kind, tmp_path, made):
    layer, batches = make_layer(kind, tmp_path), models.data()
    model = models.make_model(layer, LazyAdam(), jit_compile=kind == "device")
    others = parts(memory_plan(layer, LazyAdam()))
    assert kind == "device" or parts(memory_plan(model)) == others
    if kind == "hot":
        compile_steps(model)
        batches = prefetch_rows(batches, model)
    more = {name: size for name, size in parts(memory_plan(model)).items() if name not in others}
    models.fit(model, batches)
    (numbers,) = made
    taken = {"numbers of unique rows": numbers.numpy().nbytes}
    if kind == "hot":
        taken["device map"] = layer.embeddings.table._positions_V._copies[True].numpy().nbytes
    assert more == taken
    layer.trainable = False
    assert "numbers of unique rows" not in parts(memory_plan(model))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["samples", "classes", "tree"])
def test_the_plan_has_the_numbers_of_an_output_layer(name, made):
    model, _, _ = make_output_model(name, LazyAdam(), jit_compile=True)
    x, y = planted()
    model.train_on_batch([x, y], y)
    (numbers,) = made
    planned = [item.bytes for item in memory_plan(model) if "numbers" in item.name]
    assert len(planned) == 1 + (name != "classes")
    assert sum(planned) == numbers.numpy().nbytes


@pytest.mark.slow
@pytest.mark.parametrize("key_dtype", ["int64", "string"])
def test_a_dynamic_table_counts_with_all_rows_in_use(key_dtype):
    layer = DynamicEmbedding(COLUMNS, key_dtype, capacity=ROWS, name="words")
    planned = parts(memory_plan(layer, LazyAdam()))
    keys = np.arange(ROWS // 4 * 4).reshape(-1, 4)
    model = models.make_model(layer, LazyAdam(), key_dtype)
    keys = keys if key_dtype == "int64" else np.char.zfill(keys.astype(str), 12).astype(object)
    model.train_on_batch(keys, np.ones((len(keys), 1)))
    table = layer.embeddings.table
    assert table.row_store.bytes() == planned["words"] + planned["optimizer"]
    keys_bytes = table.key_map.bytes()  # without the arrays of an eviction
    assert keys_bytes < planned["keys"] <= 2 * keys_bytes


def test_optimizers_for_some_layers():
    model = keras.Sequential(
        [RowEmbedding(ROWS, COLUMNS, name="a"), RowEmbeddingReduce(ROWS, COLUMNS, name="b")]
    )
    chosen = keras.optimizers.OptimizerMap(keras.optimizers.Adam())
    chosen["b/.*"] = RowwiseAdagrad()
    plan = memory_plan(model, keras.optimizers.MultiOptimizer(chosen))
    assert [item.bytes for item in plan] == [TABLE, 2 * TABLE, TABLE, 4 * ROWS]
    assert memory_plan(model, "sgd").totals == {"host memory": 2 * TABLE}
    model.layers[0].trainable = False
    assert [item.bytes for item in memory_plan(model, "adam")] == [TABLE, TABLE, 2 * TABLE]


def test_it_prints_a_line_for_each_table_and_place(tmp_path):
    model = keras.Sequential([make_layer("hot", tmp_path), make_layer("file", tmp_path, name="f")])
    model.compile(RowwiseAdagrad())
    assert [" ".join(line.split()) for line in str(memory_plan(model)).splitlines()] == [
        "words 2,000 x 8 float32 host memory 64.00 kB",
        "words: optimizer 2,000 rows host memory 8.00 kB",
        "words: cached rows 300 rows host memory 10.80 kB",
        "words: cache maps 2,000 ids host memory 23.20 kB",
        "f 2,000 x 8 float32 disk 64.00 kB",
        "f: optimizer 2,000 rows disk 8.00 kB",
        "total host memory 106.00 kB",
        "total disk 72.00 kB",
    ]
    assert str(memory_plan(keras.layers.Dense(1))) == "no table"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_plan_of_an_output_layer_is_what_it_takes(name, dtype):
    layer = LAYERS[name](name="words", dtype=dtype)
    with pytest.raises(ValueError, match="words is not built, so that its columns are not known"):
        memory_plan(layer)
    planned = memory_plan(layer, LazyAdam(), hidden_size=COLUMNS - 1)  # and a bias
    assert not layer.built and layer.weights == []
    layer.build((None, COLUMNS - 1))
    assert memory_plan(layer, LazyAdam()) == planned
    optimizer = LazyAdam()
    optimizer.build(layer.trainable_variables)
    slots = [v for v in optimizer.variables if len(v.shape) == 2]
    taken = sum(v.numpy().nbytes for v in [*layer.trainable_variables, *slots])
    assert planned.totals == {"host memory": taken}


@pytest.mark.parametrize("name", LAYERS)
def test_an_output_layer_that_does_not_fit_is_refused_before_a_table_is_made(name, little):
    layer = LAYERS[name](name="words")
    need = memory_plan(layer, hidden_size=COLUMNS - 1).totals["host memory"]
    for free in (need // 2, need - 1):
        little(free, 0)
        with pytest.raises(ValueError, match="words: the table of its 40 words takes .* use Adapt"):
            layer.build((None, COLUMNS - 1))
        assert layer.weights == []
    little(10**9, 0)
    layer.build((None, COLUMNS - 1))
    words = HierarchicalSoftmax(2**31 - 1, name="words")
    with pytest.raises(ValueError, match="words: the table of its 2,147,483,647 words takes"):
        words.build((None, 300))  # and at once: no tree is made


def test_an_output_layer_in_a_file_takes_the_disk(little, tmp_path):
    layer = LAYERS["classes"](table="file", table_file=str(tmp_path / "rows"), name="words")
    plan = memory_plan(layer, hidden_size=COLUMNS - 1)
    assert plan.totals == {"disk": plan.totals["disk"]}
    little(10**9, plan.totals["disk"] - 1)
    with pytest.raises(ValueError, match="words: the table of its 40 words takes .* of disk in"):
        layer.build((None, COLUMNS - 1))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def little(monkeypatch):
    """Return a function that leaves little memory and disk free."""

    def leave(memory, disk):
        monkeypatch.setattr(table_memory, "free_bytes", lambda: memory)
        usage = types.SimpleNamespace(free=disk)
        shutil = types.SimpleNamespace(disk_usage=lambda folder: usage)
        monkeypatch.setattr(table_memory, "shutil", shutil)

    return leave


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_does_not_fit_is_refused_before_it_is_made(kind, little, tmp_path):
    little(*((10**9, TABLE - 1) if kind == "file" else (TABLE // 3, 10**9)))
    layer = make_layer(kind, tmp_path)
    where = rf"disk in {tmp_path}" if kind == "file" else "host memory"
    left = rf"{TABLE - 1:,} bytes" if kind == "file" else ".* kB"
    message = (
        rf"words: its table takes .* bytes\) of {where}, where {left} are free; (give it|free the)"
    )
    with pytest.raises(ValueError, match=message):
        layer.build()
    assert not layer.built and list(tmp_path.iterdir()) == []
    little(10**9, 10**9)
    layer.build()
    assert layer.built


@pytest.mark.parametrize("kind", ["host", "file", "device"])
def test_tables_that_replicas_share_or_mirror_are_checked(kind, little, monkeypatch, tmp_path):
    little(0, 0)
    layer = make_layer(kind, tmp_path)
    file = {"table_file": str(tmp_path / "output.bin")} if kind == "file" else {}
    output = Softmax(ROWS, name="words", table=kind, **file)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        for build in (layer.build, lambda: output.build((None, COLUMNS))):
            with pytest.raises(ValueError, match="words: .* takes"):
                build()
        little(10**9, 10**9)
        layer.build()
        monkeypatch.setattr(table_memory, "LARGE", TABLE // 2)
        little(TABLE, TABLE)
        with pytest.raises(ValueError, match="words/embeddings: .* of LazyAdam takes"):
            LazyAdam().build(layer.trainable_variables)
        SGD().build(layer.trainable_variables)


@pytest.mark.parametrize("kind", ["device", "sharded"])
def test_a_table_larger_than_the_gpus_is_refused(kind, monkeypatch, tmp_path):
    monkeypatch.setattr(table_memory, "LARGE", TABLE)
    monkeypatch.setattr(table_memory, "device_place", lambda: table_memory.DEVICE)
    sizes = {"device": [TABLE - 1] * 2, "sharded": [TABLE, TABLE // 2 - 1]}  # of two GPUs
    monkeypatch.setattr(table_memory, "free_on_gpus", lambda: sizes[kind])
    layer = make_layer(kind, tmp_path)
    remedy = "give it table='host' with hot_rows" if kind == "device" else "give it table='file'"
    message = rf"words: its table takes .* \({TABLE:,} bytes\) of GPU memory, .* free; {remedy}"
    with pytest.raises(ValueError, match=message):
        layer.build()
    assert not layer.built
    sizes[kind] = [TABLE, 0] if kind == "device" else [TABLE // 2] * 2
    layer.build()
    assert layer.built


def test_a_dynamic_table_that_does_not_fit(little):
    little(TABLE, 0)
    with pytest.raises(ValueError, match="words: its table takes .* give a smaller capacity"):
        DynamicEmbedding(COLUMNS, capacity=ROWS, name="words").build()


@pytest.mark.slow
def test_a_file_that_is_replaced_makes_room_for_the_new_one(little, tmp_path):
    layer = make_layer("file", tmp_path)
    layer.build()
    del layer
    gc.collect()  # which unlocks the file
    little(10**9, 0)
    make_layer("file", tmp_path).build()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_slots_that_do_not_fit_are_refused_before_one_is_made(kind, little, monkeypatch, tmp_path):
    monkeypatch.setattr(table_memory, "LARGE", TABLE // 2)
    layer = make_layer(kind, tmp_path)
    layer.build()
    rows = layer.get_weights()[0]
    little(*((10**9, 2 * TABLE - 1) if kind == "file" else (TABLE, 10**9)))
    remedy = "free the disk" if kind == "file" else "use an optimizer with less state"
    # One slot would fit.
    with pytest.raises(ValueError, match=f"words/embeddings: .* of LazyAdam takes .*; {remedy}"):
        train(layer, LazyAdam())
    np.testing.assert_array_equal(layer.get_weights()[0], rows)
    if kind != "device":
        assert layer.embeddings.table.slots == {}
    train(layer, SGD())


def test_tables_that_may_be_on_other_machines_are_not_checked(little, tmp_path):
    little(0, 0)
    with tf.distribute.experimental.CentralStorageStrategy().scope():
        make_layer("device", tmp_path).build()
