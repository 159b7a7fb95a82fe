"""What steps and scores would do on a GPU, as far as TensorFlow tells without one.

Each kind of step is traced as on a GPU. Every operation needs a GPU kernel, every function that XLA
compiles is lowered for a GPU, and the step may wait for nothing that the device computes.
"""

import pytest
import tensorflow as tf

from app.assembly import learning
from app.checkpoints.workdir import Workdir
from app.distributed.replicas import Replicas
from app.optimizers.base import update_rows
from app.settings import flag_values
from app.tables import sharded
from app.tables.device import DeviceTable, host_variable
from app.tables.dynamic.dynamic import RowStore
from app.tables.dynamic.keys import KeyMap
from app.tables.initial import Uniform
from app.tasks import all_tasks
from tests.integration.gpu_jobs import (
    CLASSIFY,
    GPU,
    HOME,
    IDS,
    JOINED,
    LANGUAGE,
    NUMBERS,
    PAIRS,
    PATHS,
    RECOMMEND,
    WORDS,
    Variables,
    check,
    config_of,
    first_batch,
    made,
    move_to_gpu,
    named,
    pretend,
    report_of,
    traced,
    waits,
)
from tests.reference import gpu
from tests.reference.gpu_calls import recorded

SUBWORDS = {"min_ngram": 2, "max_ngram": 4, "ngram_buckets": 500}
# Settings, what they wait for, and the tensors that are copied to the device: ids and their places,
# seeds, the learning rate, and the constants and marks that go with ids.
# The last number of each: the tensors that a step copies to the device.
OFTEN = [
    (WORDS, set(), 8),
    (WORDS | {"loss": "class_softmax"}, {PAIRS, JOINED}, 27),
    (WORDS | {"table": "host", "table_dtype": "bfloat16"}, set(), 10),
    (WORDS | {"table": "sharded", "hot_rows": "5"}, set(), 8),
    (WORDS | {"micro_batches": 2}, set(), 21),
    (LANGUAGE, set(), 18),
    (CLASSIFY, set(), 10),
    (RECOMMEND, set(), 7),
]
SELDOM = [
    (WORDS | {"model": "cbow"}, set()),
    *((WORDS | SUBWORDS | {"model": model}, set()) for model in ("skipgram", "cbow")),
    *((WORDS | {"loss": loss}, set()) for loss in ("sampled_softmax", "nce")),
    *((WORDS | {"loss": loss}, {PAIRS, JOINED}) for loss in ("adaptive_softmax", "softmax")),
    (WORDS | {"loss": "class_softmax", "class_levels": 3}, {PAIRS, JOINED}),
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
        (LANGUAGE | {"loss": loss}, set())
        for loss in ("sampled_softmax", "nce", "hierarchical_softmax")
    ),
    *((LANGUAGE | {"loss": "class_softmax", **c}, {JOINED}) for c in ({}, {"class_levels": 3})),
    (LANGUAGE | {"loss": "adaptive_softmax"}, {JOINED}),
    (LANGUAGE | {"cell": "lstm"}, set()),
    (LANGUAGE | {"loss": "sampled_softmax", "tie_weights": True, "dropout": 0.2}, set()),
    (LANGUAGE | {"tie_weights": True}, set()),
    (LANGUAGE | {"table": "host", "hot_rows": "1"}, {HOME}),
    (LANGUAGE | {"table": "host"}, set()),
    (LANGUAGE | {"table": "host", "loss": "sampled_softmax"}, set()),
    (LANGUAGE | {"table": "sharded", "loss": "class_softmax"}, {JOINED}),
    (
        LANGUAGE | {"micro_batches": 2, "loss": "class_softmax"},
        {JOINED, ("TensorListConcatV2", "ConcatV2")},
    ),
    *(
        (CLASSIFY | {"loss": loss}, set())
        for loss in ("one_vs_all", "hierarchical_softmax", "sampled_softmax")
    ),
    *((CLASSIFY | {"loss": "class_softmax", **c}, {JOINED}) for c in ({}, {"class_levels": 3})),
    (CLASSIFY | {"table": "host"}, set()),
    *((CLASSIFY | {"table": table}, set()) for table in ("sharded", "dynamic")),
    (CLASSIFY | {"micro_batches": 2}, set()),
    *((RECOMMEND | {"loss": loss}, set()) for loss in ("bpr", "squared_error")),
    *((RECOMMEND | {"table": table}, set()) for table in ("host", "sharded", "dynamic")),
]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    pretend(monkeypatch)


@pytest.mark.slow
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
    "slots of a map": lambda *shape, **options: RowStore(KeyMap(shape[0]), *shape[1:], **options),
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
        update_rows(optimizer.rule, table, ids_U, gradients_UD, rate, number, rows_UD)

    return write


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_every_rule_on_every_table_of_every_dtype(kind):
    # A step reads and writes its rows in the same way, whatever task, model and loss need them.
    for name in flag_values.fields()["optimizer"].metadata["choices"]:
        values = {"optimizer": name, "clip_row_norm": 1.0, "clip_global_norm": 1.0}
        optimizer = learning.make_optimizer(flag_values.from_names(values).optimizer)
        for dtype, rounding in DTYPES:
            options = {"dtype": dtype, "slot_dtype": dtype, "rounding": rounding, "seed": 1}
            table = TABLES[kind](40, 8, Uniform(0.1, 1), slots=optimizer.slots, **options)
            move_to_gpu(table)
            report = report_of(writer(optimizer, table), *map(tf.TensorSpec, *SPECS))
            assert not report.lacking, (name, dtype, rounding)


@pytest.mark.slow
def test_ids_to_stage_are_looked_up_without_the_device(data, tmp_path):
    report = traced(data, tmp_path, WORDS, lookups=True)
    assert not report.lacking and not report.copies


def test_an_operation_without_a_gpu_kernel_is_found():
    (found,) = report_of(lambda given: tf.unstack(given), tf.TensorSpec([2], tf.uint64)).lacking
    assert found == ("Unpack", ("uint64", "uint64", "uint64"))


def test_a_shape_that_the_device_computes_is_found():
    def function(given):
        return tf.zeros([tf.reduce_sum(tf.where(given > 0, given, 0))])

    spec = tf.TensorSpec([3], tf.int32)
    assert waits(report_of(function, spec)) == {("SelectV2", "Sum")}
    assert not waits(report_of(lambda given: tf.zeros([tf.maximum(given[0], 0)]), spec))


# The sizes of the vectors that replicas exchange, then the ids in these, say what is computed next.
EXCHANGED = {("CollectiveGatherV2", "Reshape"), ("Bitcast", "Unpack"), ("Bitcast", "ConcatV2")}
OF_REPLICAS = [
    (WORDS, set()),
    (WORDS | {"loss": "sampled_softmax", "sampler": "unigram"}, set()),
    (WORDS | {"loss": "class_softmax"}, {PAIRS, JOINED, IDS}),
    (WORDS | {"loss": "class_softmax", "class_levels": 3}, {PAIRS, JOINED, IDS}),
    (WORDS | {"loss": "hierarchical_softmax"}, {PATHS}),
    (WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"}, set()),
    (LANGUAGE, set()),
    (LANGUAGE | {"loss": "class_softmax"}, {JOINED, IDS}),
    *((task, set()) for task in (CLASSIFY, RECOMMEND)),
]


@pytest.fixture
def replicas():
    return Replicas(tf.distribute.MirroredStrategy([GPU, "GPU:1"]))


def opened(replicas, data, folder, values):
    """Start a job on both replicas, and return it with its variables and its first batch."""
    config = config_of(data, folder, values | {"strategy": "mirrored", "micro_batches": 2})
    variables = Variables()
    with variables.seen(), replicas.scope():
        job = all_tasks.JOBS[config.run.task](config, Workdir(config.run.workdir), False)
        batch = first_batch(job, config)
    replicas.open(job, job.placed.tables, 1)
    return variables.on_cpu(job, config), batch


@pytest.mark.slow
@pytest.mark.parametrize(("values", "expected"), OF_REPLICAS, ids=named)
def test_a_step_of_replicas(replicas, data, tmp_path, values, expected):
    on_cpu, batch = opened(replicas, data, tmp_path, values)
    arguments = batch, *NUMBERS, replicas.flags_F()
    compiled = replicas._function.get_concrete_function(*arguments)
    report = gpu.report(compiled, on_cpu)
    assert report.compiled and not report.lacking and not waits(report)
    without_xla = replicas._function._without.get_concrete_function(*arguments)
    check(gpu.report(without_xla, on_cpu), EXCHANGED | expected)


@pytest.mark.slow
@pytest.mark.parametrize("sync_dtype", ["float32", "bfloat16"])
def test_an_exchange_of_changes_has_kernels_on_a_gpu(data, tmp_path, sync_dtype):
    replicas = Replicas(tf.distribute.MirroredStrategy([GPU, "GPU:1"]), 2, sync_dtype)
    on_cpu, _ = opened(replicas, data, tmp_path, WORDS)
    synchronizer, number = replicas._synchronizer, tf.TensorSpec([], tf.int32)
    synchronizer.begin(replicas.scope)
    function = synchronizer._function.get_concrete_function(number, number)
    assert not gpu.report(function, on_cpu).lacking


def test_a_variable_of_the_host_has_one_copy(replicas):
    with replicas.scope():
        on_host, copied = host_variable([1.0]), tf.Variable([1.0])
    assert not isinstance(on_host, tf.distribute.DistributedValues)
    assert isinstance(copied, tf.distribute.DistributedValues)


LOSSES = ("one_vs_all", "hierarchical_softmax", "class_softmax", "sampled_softmax")
SCORED = [
    CLASSIFY,
    *(CLASSIFY | {"loss": loss} for loss in LOSSES),
    CLASSIFY | {"loss": "class_softmax", "class_levels": 3},
    *(CLASSIFY | {"table": table} for table in ("host", "sharded", "dynamic")),
    LANGUAGE,
    *(LANGUAGE | {"loss": loss} for loss in (*LOSSES[1:], "nce", "adaptive_softmax")),
    LANGUAGE | {"loss": "class_softmax", "class_levels": 3},
    *(LANGUAGE | {"table": table} for table in ("host", "sharded")),
    LANGUAGE | {"cell": "lstm"},
    LANGUAGE | {"tie_weights": True},
    RECOMMEND,
    *(RECOMMEND | {"loss": loss} for loss in ("bpr", "squared_error")),
    *(RECOMMEND | {"table": table} for table in ("host", "sharded", "dynamic")),
]


# The best blocks are sorted, and their places computed, as int32, which is on the host.
RANKED = {("TopKV2", "Neg"), ("TopKV2", "FloorDiv"), ("GatherV2", "Mul"), ("Const", "PadV2")}
# Keys without a row: their number is waited for, as only their first rows are drawn, by the key.
UNSEEN = {("Cast", "Sub"), ("Less", "Where"), ("Cast", "GatherNd")}


def waits_of_scores(values) -> set[tuple[str, str]]:
    if values["task"] == "recommend":
        return RANKED
    if values["task"] == "classify":
        return UNSEEN if values.get("table") == "dynamic" else set()
    return {JOINED} if values["loss"] in ("class_softmax", "adaptive_softmax") else set()


@pytest.mark.slow
@pytest.mark.parametrize("values", SCORED, ids=named)
def test_the_scores_of_a_run(data, tmp_path, monkeypatch, values):
    job, config, variables = made(data, tmp_path, values | {"heldout_share": 0.2})
    with recorded(monkeypatch) as calls:
        assert job.evaluator.scores()
    # A language model reads the text meanwhile, on the host.
    assert values["task"] == "language_model" or not calls.lacking
    assert calls.functions
    for function in calls.functions.values():
        check(gpu.report(function, variables.on_cpu(job, config)), waits_of_scores(values))
