"""What a training step would do on a GPU, as far as TensorFlow tells without one.

Each kind of step is traced as on a GPU. Every operation needs a GPU kernel, every function that XLA
compiles is lowered for a GPU, and the step may wait for nothing that the device computes.
"""

from __future__ import annotations

import pytest
import tensorflow as tf

from app.assembly import learning
from app.optimizers.base import update_rows
from app.settings import flag_values
from app.tables import sharded
from app.tables.device import DeviceTable
from app.tables.dynamic.keys import KeyMap
from app.tables.dynamic.row_store import RowStore
from app.tables.initial import Uniform
from tests.integration.gpu_jobs import (
    CLASSIFY,
    GPU,
    HOME,
    JOINED,
    LANGUAGE,
    PAIRS,
    PATHS,
    RECOMMEND,
    UNROLLED,
    WORDS,
    check,
    move_to_gpu,
    named,
    pretend,
    report_of,
    traced,
    waits,
)
from tests.reference import gpu

# Three levels, the words dealt over two GPUs, and both.
CLASSES = [{"class_levels": 3}, {"class_devices": 2}, {"class_levels": 3, "class_devices": 2}]
SUBWORDS = {"min_ngram": 2, "max_ngram": 4, "ngram_buckets": 500}
# Settings, what they wait for, and the tensors that are copied to the device: ids and their places,
# seeds, the learning rate, and the constants and marks that go with ids.
# The last number of each: the tensors that a step copies to the device.
OFTEN = [
    (WORDS, set(), 8),
    pytest.param(WORDS | {"loss": "class_softmax"}, {PAIRS, JOINED}, 27, marks=pytest.mark.slow),
    (WORDS | {"table": "host", "table_dtype": "bfloat16"}, set(), 10),
    pytest.param(WORDS | {"table": "sharded"}, set(), 14, marks=pytest.mark.slow),
    pytest.param(WORDS | {"micro_batches": 2}, set(), 19, marks=pytest.mark.slow),
    pytest.param(LANGUAGE, UNROLLED, 16, marks=pytest.mark.slow),
    (CLASSIFY, set(), 10),
    (RECOMMEND, set(), 7),
]
SELDOM = [
    (WORDS | {"model": "cbow"}, set()),
    *((WORDS | SUBWORDS | {"model": model}, set()) for model in ("skipgram", "cbow")),
    *((WORDS | {"loss": loss}, set()) for loss in ("sampled_softmax", "nce")),
    *((WORDS | {"loss": loss}, {PAIRS, JOINED}) for loss in ("adaptive_softmax", "softmax")),
    *((WORDS | {"loss": "class_softmax", **c}, {PAIRS, JOINED}) for c in CLASSES),
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
        for loss in ("sampled_softmax", "nce", "hierarchical_softmax")
    ),
    *((LANGUAGE | {"loss": "class_softmax", **c}, UNROLLED | {JOINED}) for c in [{}, *CLASSES]),
    (LANGUAGE | {"loss": "adaptive_softmax"}, UNROLLED | {JOINED}),
    (LANGUAGE | {"cell": "lstm"}, UNROLLED),
    (LANGUAGE | {"table": "host"}, UNROLLED | {HOME}),
    (LANGUAGE | {"table": "host", "loss": "sampled_softmax"}, UNROLLED),
    (LANGUAGE | {"table": "sharded", "loss": "class_softmax"}, UNROLLED | {JOINED}),
    (
        LANGUAGE | {"micro_batches": 2, "loss": "class_softmax"},
        UNROLLED | {JOINED, ("TensorListConcatV2", "ConcatV2")},
    ),
    *(
        (CLASSIFY | {"loss": loss}, set())
        for loss in ("one_vs_all", "hierarchical_softmax", "sampled_softmax")
    ),
    *((CLASSIFY | {"loss": "class_softmax", **c}, {JOINED}) for c in [{}, *CLASSES]),
    (CLASSIFY | {"table": "host"}, {HOME}),
    *((CLASSIFY | {"table": table}, set()) for table in ("sharded", "dynamic")),
    (CLASSIFY | {"micro_batches": 2}, set()),
    *((RECOMMEND | {"loss": loss}, set()) for loss in ("bpr", "squared_error")),
    *((RECOMMEND | {"loss": "bpr", "model": model}, set()) for model in ("gmf", "mlp", "neumf")),
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


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("device", "sharded")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slots of a map", *SLOW])
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
    numbers = tf.TensorSpec([2], tf.uint64)
    (found,) = report_of(lambda given: tf.unstack(given), numbers).lacking
    assert found == ("Unpack", ("uint64", "uint64", "uint64"))


def test_a_shape_that_the_device_computes_is_found():
    def function(given):
        return tf.zeros([tf.reduce_sum(tf.where(given > 0, given, 0))])

    spec = tf.TensorSpec([3], tf.int32)
    assert waits(report_of(function, spec)) == {("SelectV2", "Sum")}
    assert not waits(report_of(lambda given: tf.zeros([tf.maximum(given[0], 0)]), spec))
