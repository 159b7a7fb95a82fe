"""Jobs that are made as for a GPU, where there is none, and what their functions would do on it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.python.eager import context

from app.assembly import memory_plan
from app.checkpoints.workdir import Workdir
from app.settings import Config, checks, flag_values
from app.settings.flag_values import lacking
from app.system import devices
from app.tables import sharded
from app.tasks import all_tasks
from app.training.job import Job
from app.training.step import lookup_function, train_function
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
    "classes": 3,
    "compute_dtype": "bfloat16",
}

# Why a step waits for the device: (operation that made the tensor, operation that needs it).
PAIRS = ("XLA", "Greater")  # which pairs there are to stream depends on draws made on the device
PATHS = ("Transpose", "NotEqual")  # likewise which words of a group are to be predicted at all
JOINED = ("Const", "TensorListConcatV2")  # the empty constant within tf.TensorArray.concat
IDS = ("TensorListConcatV2", "Size")  # of the rows that are streamed, joined there by TensorFlow
HOME = ("AddV2", "ResourceScatterUpdate")  # a streamed table of --table=host is trained at home

WORDS = {}
CLASSIFY = {"task": "classify", "loss": "softmax"}
RECOMMEND = {"task": "recommend", "loss": "in_batch_softmax"}
LANGUAGE = {"task": "language_model", "loss": "softmax"}
NUMBERS = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.float32)  # the step and its rate


def named(values) -> str:
    return "-".join(map(str, values.values())) if isinstance(values, dict) else ""


def pretend(monkeypatch) -> None:
    """Make steps and their tables for GPUs, for which TensorFlow takes the CPU without one."""
    monkeypatch.setattr(devices, "name", lambda settings: GPU)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(memory_plan, "gpu_bytes", lambda name: 1 << 34)
    monkeypatch.setattr(sharded, "local_devices", lambda: [GPU, GPU])


def config_of(data, folder, values) -> Config:
    corpus = str(data / FILES.get(values.get("task", "words"), "text.txt"))
    values = USUAL | {"workdir": str(folder), "corpus": corpus} | values
    usual = flag_values.defaults(values)
    values = usual | values
    unused = {name: default for name, default in usual.items() if lacking(name, values)}
    config = flag_values.from_names(values | unused)
    checks.check(config)
    return config


class Variables:
    """The variables made meanwhile, with the devices that they were made for."""

    def __init__(self):
        self._made: list[tuple[tf.Variable, str]] = []

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        def creator(following, **arguments):
            made = following(**arguments)
            self._made.append((made, context.context().device_name or ""))
            return made

        with tf.variable_creator_scope(creator):
            yield

    def on_cpu(self, job: Job, config: Config) -> list[tf.Variable]:
        """Return those in host memory, where those of tables are for --table=host alone."""
        every = [variable for table in job.placed.tables.values() for variable in table.variables]
        inner = {id(variable) for variable in every}
        there = [v for v, device in self._made if "CPU" in device and id(v) not in inner]
        return there + every if config.table.table == "host" else there


def made(data, folder, values) -> tuple[Job, Config, Variables]:
    """Make the job of these settings."""
    config, variables = config_of(data, folder, values), Variables()
    with variables.seen():
        job = all_tasks.JOBS[config.run.task](config, Workdir(config.run.workdir), False)
    return job, config, variables


def traced(data, folder, values, lookups=False) -> gpu.Report:
    """What a train function, or one that looks up ids for a table at home, would do on a GPU."""
    job, config, variables = made(data, folder, values)
    with variables.seen():
        batch = first_batch(job, config)
        tables = job.placed.staging.tables
        for table in tables.values():
            move_to_gpu(table)
    on_cpu = variables.on_cpu(job, config)
    with tf.device(GPU):
        if lookups:
            lookups_of = lookup_function(job.model, 1, job.placed.micro_batches)
            function = tf.function(lookups_of, autograph=False)
            return gpu.report(function.get_concrete_function(batch, NUMBERS[0]), on_cpu)
        function = train_function(job.model, tables, job.optimizer, 1, job.placed.micro_batches)
        return gpu.report(function.get_concrete_function(batch, *NUMBERS), on_cpu)


def first_batch(job: Job, config: Config):
    batches = job.data.batches(range(1), 0)
    if config.table.is_cached:
        batches = job.placed.staging.prefetch(batches, 0)
    _, batch = next(iter(batches))
    return job.placed.staging.locate(batch, tf.constant(0, tf.int64))


def move_to_gpu(table, device: str = GPU) -> None:
    """A table says where its variables are, which is the CPU in the absence of a GPU."""
    table.device = device
    parts = table.parts if isinstance(table, sharded.ShardedTable) else []
    for part in [*parts, *getattr(table, "slots", {}).values()]:
        move_to_gpu(part, device)


def report_of(function: Callable, *specs, on_cpu: Sequence[tf.Variable] = ()) -> gpu.Report:
    with tf.device(GPU):
        traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return gpu.report(traced, on_cpu)


def waits(report) -> set[tuple[str, str]]:
    """The kinds of tensors that the host needs of the device."""
    to_host = [copy for copy in report.copies if copy.to == gpu.HOST]
    return {(copy.value.made_by, copy.needed_by) for copy in to_host}


def check(report, expected) -> None:
    assert not report.lacking
    assert waits(report) == expected, waits(report)
    for function in report.compiled.values():
        hlo = gpu.lowered(function)
        assert "ENTRY" in hlo and gpu.LOOP not in hlo
