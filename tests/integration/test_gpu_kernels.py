"""What a training step would do on a GPU, as far as TensorFlow tells without one.

Each kind of step is traced as on a GPU. Every operation needs a GPU kernel, every function that XLA
compiles is lowered for a GPU, and the step may wait for nothing that the device computes.
"""

from __future__ import annotations

import pathlib

import keras
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import app.keras
from app.build import placing, updates
from app.checkpoints.workdir import Workdir
from app.config import checks, settings
from app.optimizers.row_updates import slots, update
from app.system import devices
from app.tables import sharded
from app.tables.device import DeviceTable
from app.tables.dynamic.keys import KeyMap
from app.tables.dynamic.slab import Slab
from app.tables.initial import Uniform
from app.tasks import all_tasks
from app.training.step import lookup_function, train_function
from tests.integration.replicas import write_data
from tests.reference import gpu

GPU = "GPU:0"
FILES = {"classify": "labelled.txt", "recommend": "ratings.csv"}
USUAL = {
    "dim": 8,
    "window": 2,
    "min_count": 2,
    "batch_tokens": 256,
    "row_tokens": 16,
    "group_tokens": 32,
    "shared_negatives": 8,
    "steps_per_call": 1,
    "block_bytes": 8192,
    "samples": 16,
    "compute_dtype": "bfloat16",
}

# Why a step waits for the device: (operation that made the tensor, operation that needs it).
PAIRS = ("XLA", "Greater")  # which pairs there are to stream depends on draws made on the device
PATHS = ("XLA", "NotEqual")  # likewise which words of a group are to be predicted at all
JOINED = ("Const", "TensorListConcatV2")  # the empty constant within tf.TensorArray.concat
HOME = ("AddV2", "ResourceScatterUpdate")  # a streamed table of --table=host is trained at home
# Of each token of a row: what the gradient of tf.while_loop keeps of its TensorArrays' shapes.
UNROLLED = {
    ("TensorListPopBack", "TensorListSetItem"),
    ("TensorListPopBack", "TensorListReserve"),
}

WORDS = {}
CLASSIFY = {"task": "classify", "loss": "softmax"}
RECOMMEND = {"task": "recommend", "loss": "in_batch_softmax"}
LANGUAGE = {"task": "language_model", "loss": "softmax"}
# Settings, what they wait for, and the tensors that are copied to the device: ids and their places,
# seeds, the learning rate, and the constants and marks that go with ids.
OFTEN = [
    (WORDS, set(), 9),
    pytest.param(WORDS | {"loss": "class_softmax"}, {PAIRS, JOINED}, 25, marks=pytest.mark.slow),
    (WORDS | {"table": "host", "table_dtype": "bfloat16"}, set(), 17),
    pytest.param(WORDS | {"table": "sharded"}, set(), 31, marks=pytest.mark.slow),
    pytest.param(WORDS | {"micro_batches": 2}, set(), 21, marks=pytest.mark.slow),
    pytest.param(LANGUAGE, UNROLLED, 16, marks=pytest.mark.slow),
    (CLASSIFY, set(), 10),
    (RECOMMEND, set(), 7),
]
SELDOM = [
    (WORDS | {"model": "cbow"}, set()),
    *((WORDS | {"loss": loss}, set()) for loss in ("sampled_softmax", "nce")),
    *((WORDS | {"loss": loss}, {PAIRS, JOINED}) for loss in ("adaptive_softmax", "softmax")),
    (WORDS | {"loss": "hierarchical_softmax"}, {PATHS}),
    (WORDS | {"loss": "sampled_softmax", "sampler": "unigram"}, set()),
    *(
        (WORDS | {"optimizer": optimizer}, set())
        for optimizer in ("sgd", "momentum", "rowwise_adagrad", "ftrl", "lazy_adam", "lazy_adamw")
    ),
    *(
        (WORDS | {"table_dtype": dtype, "rounding": rounding}, set())
        for dtype in ("bfloat16", "float16")
        for rounding in ("nearest", "stochastic")
    ),
    (WORDS | {"clip_row_norm": 1.0, "clip_global_norm": 1.0}, set()),
    (WORDS | {"table": "dynamic"}, set()),
    *(
        (LANGUAGE | {"loss": loss}, UNROLLED)
        for loss in ("class_softmax", "sampled_softmax", "nce", "hierarchical_softmax")
    ),
    (LANGUAGE | {"loss": "adaptive_softmax"}, UNROLLED | {JOINED}),
    (LANGUAGE | {"cell": "lstm"}, UNROLLED),
    (LANGUAGE | {"table": "host"}, UNROLLED | {HOME}),
    (LANGUAGE | {"table": "host", "loss": "sampled_softmax"}, UNROLLED),
    (LANGUAGE | {"table": "sharded", "loss": "class_softmax"}, UNROLLED),
    (LANGUAGE | {"micro_batches": 2, "loss": "class_softmax"}, UNROLLED),
    *(
        (CLASSIFY | {"loss": loss}, set())
        for loss in ("one_vs_all", "hierarchical_softmax", "class_softmax", "sampled_softmax")
    ),
    (CLASSIFY | {"table": "host"}, {HOME}),
    *((CLASSIFY | {"table": table}, set()) for table in ("sharded", "dynamic")),
    (CLASSIFY | {"micro_batches": 2}, set()),
    *((RECOMMEND | {"loss": loss}, set()) for loss in ("bpr", "squared_error")),
    *((RECOMMEND | {"loss": "bpr", "model": model}, set()) for model in ("gmf", "mlp", "neumf")),
    *((RECOMMEND | {"table": table}, set()) for table in ("host", "sharded", "dynamic")),
]


def named(values) -> str:
    return "-".join(map(str, values.values())) if isinstance(values, dict) else ""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    """Make steps and their tables for a GPU, for which TensorFlow takes the CPU without one."""
    monkeypatch.setattr(devices, "name", lambda settings: GPU)
    monkeypatch.setattr(devices, "several", lambda config: [GPU])
    monkeypatch.setattr(placing, "_gpu_bytes", lambda name: 1 << 34)
    monkeypatch.setattr(sharded, "local_devices", lambda: [GPU, GPU])


def config_of(data, folder, values):
    task = values.get("task", "words")
    usual = {name: settings.default(field, task) for name, field in settings.fields().items()}
    files = {"workdir": str(folder), "corpus": str(data / FILES.get(task, "text.txt"))}
    values = usual | USUAL | files | values
    for name, field in settings.fields().items():
        other, *known = field.metadata["only"] or (name, values[name])
        if values[other] not in known:
            values[name] = usual[name]
    config = settings.from_names(values)
    checks.check(config)
    return config


def traced(data, folder, values, lookups=False) -> gpu.Report:
    """What a train function, or one that looks up ids for a table at home, would do on a GPU."""
    made: list[tuple[tf.Variable, str]] = []

    def creator(following, **arguments):
        made.append((following(**arguments), context.context().device_name or ""))
        return made[-1][0]

    config = config_of(data, folder, values)
    with tf.variable_creator_scope(creator):
        job = all_tasks.JOBS[config.run.task](config, Workdir(config.run.workdir), False)
        batches = job.batches(range(1), 0)
        if config.table.table == "host":
            batches = job.staging.ahead(batches, 0)
        _, batch = next(iter(batches))
        batch = job.staging.locate(batch, tf.constant(0, tf.int64))
        tables = job.staging.tables
        for name, table in tables.items():
            if job.model.tables()[name].trained and config.table.table != "host":
                slots(job.optimizer, table)
            _move_to_gpu(table)
    inner = {id(variable) for table in job.tables.values() for variable in table.variables}
    on_cpu = [
        variable for variable, device in made if "CPU" in device and id(variable) not in inner
    ]
    if config.table.table == "host":
        on_cpu += [variable for table in job.tables.values() for variable in table.variables]
    numbers = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float32)
    with tf.device(GPU):
        if lookups:
            function = lookup_function(job.model, 1, job.micro_batches)
            return gpu.report(function.get_concrete_function(batch, numbers[0]), on_cpu)
        function = train_function(job.model, tables, job.optimizer, 1, job.micro_batches)
        return gpu.report(function.get_concrete_function(batch, *numbers), on_cpu)


def _move_to_gpu(table) -> None:
    """A table says where its variables are, which is the CPU in the absence of a GPU."""
    table.device = GPU
    parts = table.parts if isinstance(table, sharded.ShardedTable) else []
    for part in [*parts, *getattr(table, "slots", {}).values()]:
        _move_to_gpu(part)


def waits(report) -> set[tuple[str, str]]:
    """The kinds of tensors that the host needs of the device."""
    to_host = [copy for copy in report.copies if copy.to == gpu.HOST]
    return {(copy.value.made_by, copy.needed_by) for copy in to_host}


def check(report, expected) -> None:
    assert not report.lacking
    assert waits(report) == expected
    for function in report.compiled.values():
        assert "ENTRY" in gpu.lowered(function)


@pytest.mark.parametrize(("values", "expected", "count"), OFTEN, ids=named)
def test_a_step_on_a_gpu(data, tmp_path, values, expected, count):
    report = traced(data, tmp_path, values)
    check(report, expected)
    to_device = [copy for copy in report.copies if copy.to == gpu.DEVICE]
    assert len(to_device) == count, to_device


@pytest.mark.slow
@pytest.mark.parametrize(("values", "expected"), SELDOM, ids=named)
def test_another_step_on_a_gpu(data, tmp_path, values, expected):
    check(traced(data, tmp_path, values), expected)


TABLES = {
    "device": DeviceTable,
    "slots of a map": lambda *shape, **options: Slab(KeyMap(shape[0]), *shape[1:], **options),
    "sharded": lambda *shape, **options: sharded.make(*shape, [GPU, GPU], **options),
}
DTYPES = [
    (tf.float32, "nearest"),
    *((dtype, rule) for dtype in (tf.bfloat16, tf.float16) for rule in ("nearest", "stochastic")),
]


SPECS = ([None], [None, 8], [], []), (tf.int32, tf.float32, tf.float32, tf.int64)


def writer(optimizer, table):
    """The part of a step that changes rows."""

    def write(ids_U, gradients_UD, rate, number):
        rows_UD = table.gather(ids_U)
        gradients_UD = optimizer.clip({"rows": gradients_UD})["rows"]
        update(optimizer, table, ids_U, rows_UD, gradients_UD, rate, number)

    return write


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("device", "sharded")]


@pytest.mark.parametrize("kind", ["slots of a map", *SLOW])
def test_every_rule_on_every_table_of_every_dtype(kind):
    # A step reads and writes its rows in the same way, whatever task, model and loss need them.
    for name in settings.fields()["optimizer"].metadata["choices"]:
        values = {"optimizer": name, "clip_row_norm": 1.0, "clip_global_norm": 1.0}
        optimizer = updates.optimizer(settings.from_names(values).optimizer)
        for dtype, rounding in DTYPES:
            table = TABLES[kind](
                40, 8, Uniform(0.1, 1), dtype=dtype, slot_dtype=dtype, rounding=rounding, seed=1
            )
            slots(optimizer, table)
            _move_to_gpu(table)
            report = report_of(writer(optimizer, table), *map(tf.TensorSpec, *SPECS))
            assert not report.lacking, (name, dtype, rounding)


def test_ids_to_stage_are_looked_up_without_the_device(data, tmp_path):
    report = traced(data, tmp_path, WORDS, lookups=True)
    assert not report.lacking and not report.copies


def report_of(function, *specs) -> gpu.Report:
    with tf.device(GPU):
        return gpu.report(tf.function(function, autograph=False).get_concrete_function(*specs))


def test_an_operation_without_a_gpu_kernel_is_found():
    numbers = tf.TensorSpec([2], tf.uint64)
    (found,) = report_of(lambda given: tf.unstack(given), numbers).lacking
    assert found == ("Unpack", ("uint64", "uint64", "uint64"))


def test_a_shape_that_the_device_computes_is_found():
    def function(given):
        return tf.zeros([tf.reduce_sum(tf.where(given > 0, given, 0))])

    spec = tf.TensorSpec([3], tf.int32)
    assert waits(report_of(function, spec)) == {("SelectV2", "Sum")}
    assert not waits(report_of(lambda given: tf.zeros([tf.maximum(given[0], 0)]), spec))


OTHERS = ("LazyAdamW", "Adagrad", "RowwiseAdagrad", "SGD")


@pytest.mark.parametrize(
    "name", ["LazyAdam", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_step_of_a_keras_model(name):
    inputs = keras.Input((5,), dtype="int32")
    rows = keras.layers.Flatten()(app.keras.RowEmbedding(50, 8)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(rows))
    model.compile(getattr(app.keras, name)(0.1), "mse", jit_compile=False)
    batch = tf.TensorSpec([16, 5], tf.int32), tf.TensorSpec([16, 3], tf.float32)
    report = report_of(lambda x, y: model.train_step((x, y)), *batch)
    assert not report.lacking
    assert waits(report) == {("If", "Reshape")}  # of the branch that refuses an id out of range
