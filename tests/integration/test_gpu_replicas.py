"""What a step of two replicas would do on two GPUs; see `tests.reference.gpu`."""

from __future__ import annotations

import pytest
import tensorflow as tf

from app.checkpoints.workdir import Workdir
from app.distributed.replicas import Replicas
from app.tables.variable import host_variable
from app.tasks import all_tasks
from tests.integration.gpu_jobs import (
    CLASSIFY,
    GPU,
    IDS,
    JOINED,
    LANGUAGE,
    NUMBERS,
    PAIRS,
    PATHS,
    RECOMMEND,
    UNROLLED,
    WORDS,
    Variables,
    check,
    config_of,
    first_batch,
    named,
    pretend,
)
from tests.reference import gpu

# The sizes of the vectors that replicas exchange, then the ids in these, say what is computed next.
EXCHANGED = {
    ("CollectiveGatherV2", "Reshape"),
    ("Bitcast", "Unpack"),
    ("Bitcast", "ConcatV2"),
}
CASES = [
    (WORDS, set()),
    (WORDS | {"loss": "sampled_softmax", "sampler": "unigram"}, set()),
    (WORDS | {"loss": "class_softmax"}, {PAIRS, JOINED, IDS}),
    (WORDS | {"loss": "class_softmax", "class_levels": 3}, {PAIRS, JOINED, IDS}),
    (WORDS | {"loss": "hierarchical_softmax"}, {PATHS}),
    (WORDS | {"table_dtype": "bfloat16", "rounding": "stochastic"}, set()),
    (LANGUAGE, UNROLLED),
    (LANGUAGE | {"loss": "class_softmax"}, UNROLLED | {JOINED, IDS}),
    *((task, set()) for task in (CLASSIFY, RECOMMEND)),
]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    pretend(monkeypatch)


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
@pytest.mark.parametrize(("values", "expected"), CASES, ids=named)
def test_a_step_of_replicas(replicas, data, tmp_path, values, expected):
    on_cpu, batch = opened(replicas, data, tmp_path, values)
    inputs = batch, *NUMBERS, replicas.flags_F()
    function = replicas._function.get_concrete_function(*inputs)
    check(gpu.report(function, on_cpu), EXCHANGED | expected)


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
