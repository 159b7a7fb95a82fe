"""Trains small models, one after the other: python -m tests.integration.replicas RUN…

A RUN is CASE,STRATEGY,EPOCHS,WORKDIR; a STRATEGY that ends with +gpu has steps that XLA compiles,
as on GPUs. A workdir that is there is gone on with. The data lie in the folder of the workdirs, see
`write_data`.
On two logical CPU devices; with a TF_CONFIG, as one process of several, with one.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import sys

import numpy as np
import tensorflow as tf

from app.assembly import strategies
from app.checkpoints import checkpoint
from app.checkpoints.checkpoint import is_finished
from app.checkpoints.workdir import Workdir
from app.distributed.cluster_spec import parse_tf_config
from app.distributed.replicas import Replicas
from app.settings import Config, checks, flag_values
from app.system import devices, ports
from app.tasks import all_tasks
from app.training import loop
from app.training.run import check_flags
from app.training.runner import Runner
from tests.integration.commands import Command, Ended, done, read_tables, write_corpus

TEXT = {"dim": 8, "min_count": 2, "batch_tokens": 256, "row_tokens": 16, "block_bytes": 2048}
SAMPLES = {**TEXT, "window": 2, "subsample": 0.05, "group_tokens": 32, "shared_negatives": 8}
CASES = {
    "adagrad": SAMPLES,
    "adam": {**SAMPLES, "model": "cbow", "optimizer": "lazy_adam", "clip_row_norm": 0.5},
    # One block, so that a micro-batch of every step is nothing but padding.
    "padding": {**SAMPLES, "block_bytes": 1 << 20, "optimizer": "adagrad"},
    "subwords": {**SAMPLES, "min_ngram": 2, "max_ngram": 4, "ngram_buckets": 500},
    "rounded": {**SAMPLES, "table_dtype": "bfloat16", "rounding": "stochastic"},
    "tree": {**TEXT, "window": 2, "model": "cbow", "loss": "hierarchical_softmax"},
    "language_model": {
        **TEXT,
        "task": "language_model",
        "dropout": 0.2,
        "tie_weights": True,
        "optimizer": "rowwise_adagrad",
        "learning_rate": 0.1,
    },
    "classify": {"task": "classify", "dim": 8, "batch_tokens": 256, "min_count": 1},
    "recommend": {"task": "recommend", "dim": 8, "batch_tokens": 64},
}
# Replicas that exchange changes of rows; every exchange of all rows is followed by a checkpoint.
_APART = {"sync_steps": 4, "checkpoint_minutes": 0.0, "keep_checkpoints": 1000}
APART = {f"{name}_apart": {**values, **_APART} for name, values in CASES.items()}
FILES = {"classify": "labelled.txt", "recommend": "ratings.csv"}


def main() -> None:
    """All runs."""
    runners: dict[str, Runner] = {}
    cluster = os.environ.get("TF_CONFIG")
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * (1 if cluster else 2)
    tf.config.set_logical_device_configuration(cpu, logical)
    for run in sys.argv[1:]:
        case, strategy, epochs, workdir = run.split(",")
        config = made(case, strategy.removesuffix("+gpu"), epochs, workdir)
        if not runners:
            devices.use_machine(config.run)
        if strategy not in runners:
            hosts = parse_tf_config(config.run.strategy, cluster)
            runner = runners[strategy] = strategies.make_runner(config, hosts)
            if isinstance(runner, Replicas):
                runner.exchange.is_gpu = strategy.endswith("+gpu")
        train(config, runners[strategy])
    runners[strategy].wait_for_chief(Workdir(config.run.workdir))
    # A start would take seconds longer; see `app.input.blocks.without_autograph`. For XLA,
    # `tf.vectorized_map` converts a function of its own.
    assert "+gpu" in str(sys.argv) or not [
        name for name in sys.modules if name.startswith("__autograph_generated")
    ]


def made(case: str, strategy: str, epochs: str, workdir: str) -> Config:
    """The configuration of a run."""
    file = FILES.get(case.removesuffix("_apart"), "text.txt")
    values = {
        "workdir": workdir,
        "corpus": str(pathlib.Path(workdir).parent / file),
        "strategy": strategy,
        "micro_batches": 2,
        "compute_dtype": "float32",
        "log_seconds": 0.0,
        "steps_per_call": 2,
        "epochs": int(epochs),
        **(CASES | APART)[case],
    }
    return checks.make_config(values)


def train(config: Config, runner: Runner) -> None:
    """As `lexrow train`, without scores."""
    workdir = Workdir(config.run.workdir)
    workdir.path.mkdir(parents=True, exist_ok=True)
    at = checkpoint.newest_position(workdir.checkpoints)
    config = strategies.with_micro_batches(config, runner.replicas, at)
    finished = is_finished(workdir)
    with runner.scope():
        job = all_tasks.JOBS[config.run.task](config, workdir, finished, runner.team)
        check_flags(job, config.run)
    runner.close = lambda: None  # so that the last of its functions is there
    assert loop.train(job, config.run, workdir, runner, flag_values.by_name(config))
    if isinstance(runner, Replicas) and runner.exchange.is_gpu:
        assert runner._function.is_by_xla


def write_data(folder: pathlib.Path) -> None:
    """What the cases are trained on."""
    draw = random.Random(0)
    write_corpus(folder / "text.txt")
    words = ["cat", "dog", "sun", "moon", "red", "blue", "sky", "sea"]
    texts = (" ".join(draw.choices(words, k=draw.randrange(2, 9))) for _ in range(200))
    lines = (f"__label__{draw.choice('abc')} {text}\n" for text in texts)
    (folder / "labelled.txt").write_text("".join(lines))
    pairs = (f"u{draw.randrange(30)},i{draw.randrange(40)},5\n" for _ in range(900))
    (folder / "ratings.csv").write_text("user,item,rating\n" + "".join(pairs))


def trained(folder: pathlib.Path, *runs: str) -> None:
    """Makes runs in a process of its own. folder: for what it prints."""
    done(folder, "tests.integration.replicas", *runs)


class Workers:
    """The processes of a cluster that run a command each; they end with the block.

    Each runs and prints in a folder of its own, such as `worker0`.
    """

    def __init__(self, folder: pathlib.Path, *argv: str, count: int = 2):
        self._folder, self._argv = folder, argv
        self.hosts = [f"127.0.0.1:{port}" for port in ports.free(count)]
        self.commands: dict[int, Command] = {}

    def start(self, index: int, *more: str, pretend: tuple[str, ...] = ()) -> Command:
        """Starts one, again if need be, with flags of its own; pretend: see `in_cluster`."""
        (place := self._folder / f"worker{index}").mkdir(parents=True, exist_ok=True)
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": self.hosts}, "task": task})
        command = ("tests.integration.in_cluster", config, *pretend, *self._argv, *more)
        self.commands[index] = Command(place, *command, within=place)
        return self.commands[index]

    def start_all(self) -> list[Command]:
        """Starts every one."""
        return [self.start(index) for index in range(len(self.hosts))]

    def start_again(self, index: int) -> None:
        """Kills one and starts it again."""
        self.commands[index].kill()
        self.start(index)

    def done(self) -> list[Ended]:
        """Waits for all, which have to end well."""
        ended = [self.commands[index].ended() for index in sorted(self.commands)]
        assert {one.code for one in ended} == {0}, ended
        return ended

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for command in self.commands.values():
            command.kill()


def trained_by_two(folder: pathlib.Path, *runs: str) -> None:
    """Makes runs in two processes that are a cluster."""
    with Workers(folder, "tests.integration.replicas", *runs) as workers:
        workers.start_all()
        workers.done()


def rows(workdir: pathlib.Path) -> dict[str, np.ndarray]:
    """All that the newest checkpoint holds, by the name it has there."""
    return read_tables(checkpoint.list_checkpoints(workdir / "checkpoints")[0])


def assert_same(workdir: pathlib.Path, other: pathlib.Path) -> None:
    """Both have the same rows, to 1e-5, after the same steps."""
    one, two = rows(workdir), rows(other)
    assert one and one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=1e-5, err_msg=name)
    steps = [checkpoint.newest_position(path / "checkpoints").step for path in (workdir, other)]
    assert steps[0] == steps[1] > 0


if __name__ == "__main__":
    main()
