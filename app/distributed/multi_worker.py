"""Replicas over several processes: `tf.distribute.MultiWorkerMirroredStrategy`.

Each process reads and differentiates its share of every batch. One that is lost takes every
exchange with it: the others start themselves again, meet it, and go on from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..checkpoints.workdir import Workdir
from ..config import Config
from ..errors import RunError, UsageError
from ..tables.base import Table
from ..training.job import Job
from ..training.progress import is_finished
from . import arrivals, joining, meeting, notes
from .agreement import Agreement
from .cluster_spec import Hosts
from .replicas import Made, Replicas

# How TensorFlow says that another process is gone, has been started again, or says so itself.
_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


class Workers(Replicas):
    """The replicas of all processes; see `training.runner.Runner`.

    Waits for the others for --cluster_timeout. An exchange that fails since a process is gone ends
    this program, and starts it again as it was started.
    """

    def __init__(self, config: Config, hosts: Hosts):
        self._hosts, seconds = hosts, config.run.cluster_timeout
        self._asked, self._met = False, False
        with joining.present(config, hosts):
            meeting.meet(hosts, seconds, lambda: notes.check(config, hosts))
            with self._others():
                super().__init__(_strategy(hosts, config.run.device, seconds))
        self.chief = hosts.is_chief
        self._last: list[Made] = []
        self._agreement = Agreement(self._somebody_has_more)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """See `Replicas`. Variables are this process's own, and begin alike in all of them."""
        # Those of the strategy would be sent to all by the chief, however large; of several local
        # devices they are, as there have to be copies.
        several = self.replicas > len(self._hosts.everyone)
        with self._others(), self.strategy.scope() if several else contextlib.nullcontext():
            yield

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`."""
        super().open(job, tables, seed)
        self._is_shared, self._digest = job.empty is not None, job.digest
        self._asked, self._met = False, False
        self._last.clear()

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """Those of the micro-batches of this process, where there is less to do than for all."""
        if not self._is_shared:
            return job.batches(epochs, first)
        everyone = self._hosts.everyone
        share = job.micro_batches // len(everyone)
        start = everyone.index(self._hosts.task) * share
        own = job.batches(epochs, first, range(start, start + share))
        return self._agreement.batches(own, epochs, job.empty)

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Made:
        """See `Runner`."""
        with self._others():
            if not self._met:
                self._meet(data, first)
                self._met = True
            made = super().run_steps(data, first, rate)
        self._last = [*self._last[-1:], made]
        return made

    def flags_F(self) -> tf.Tensor:
        """Whether this process was asked to stop, and whether it has more of this epoch."""
        return tf.constant([self._asked, self._agreement.has_more], tf.float32)

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Waits for the chief, which is to save; starts again if that does not come to it."""
        if self.chief:
            return
        arrivals.until_gone(self._hosts)
        if not is_finished(workdir):
            who = self._hosts.name(*self._hosts.chief)
            logging.warning("%s is gone: starting again, to go on from the last checkpoint", who)
            _start_again()

    def _somebody_has_more(self) -> bool:
        with self._others():
            return float(self._last[-1].flags_F[1]) > 0

    def totals(self, calls: Sequence[Made]) -> tuple[float, float]:
        """See `Runner`."""
        with self._others():
            return super().totals(calls)

    def is_stopping(self, asked: bool) -> bool:
        """Whether any process was asked to, two calls ago: so all stop before the same call."""
        self._asked = asked
        if len(self._last) < 2:
            return False
        with self._others():
            return float(self._last[0].flags_F[0]) > 0

    def broadcast(self, number: float) -> float:
        """Return the chief's number; waits for all processes."""
        with self._others():
            # The chief has the first replica.
            return float(self._gather(tf.constant([number], tf.float64))[0, 0])

    def _gather(self, mine_N: tf.Tensor) -> np.ndarray:
        """Return the vector of each replica, (R, N)."""

        @tf.function(autograph=False)
        def gather(mine_N: tf.Tensor) -> Any:
            return self.strategy.run(_all_gathered, args=(mine_N,))

        return self.strategy.experimental_local_results(gather(mine_N))[0].numpy()

    def _meet(self, data: Any, first: tf.Tensor) -> None:
        """Sees to it that all go on at one step, with shares of the same data."""
        digest = self._digest
        if not self._is_shared:  # where each has all of it
            digest = zlib.crc32(b"".join(t.numpy().tobytes() for t in tf.nest.flatten(data)))
        found = self._gather(tf.stack([first, tf.constant(digest, tf.int64)]))
        steps, sums = set(found[:, 0].tolist()), set(found[:, 1].tolist())
        if len(steps) > 1:
            raise RunError(
                f"--workdir: the processes go on at different steps ({_list(steps)}); give all the "
                "same folder, on a file system that they share"
            )
        if len(sums) > 1:
            raise RunError(
                "--corpus: the processes have different data, or vocabularies; give all the same "
                "files, with the same content"
            )

    @contextlib.contextmanager
    def _others(self) -> Iterator[None]:
        """Starts this program again if it fails since another process is gone."""
        try:
            yield
        except _GONE as error:
            hosts = self._hosts
            gone = arrivals.missing(hosts, hosts.others, 0)
            who = arrivals.names(hosts, gone) or "another process"
            if self._asked:
                message = f"{who} is gone; run all again to go on from the last checkpoint"
                raise RunError(message) from error
            reason = error.message.strip().splitlines()[-1] if error.message else "no reason given"
            logging.debug("%s", reason)
            logging.warning("%s is gone: starting again, to go on from the last checkpoint", who)
            _start_again()


def _all_gathered(mine: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    return context.all_gather(tf.identity(mine)[tf.newaxis], axis=0)


def _strategy(hosts: Hosts, device: str, seconds: float) -> tf.distribute.Strategy:
    """Starts the server of this process, and connects it to the others.

    device: the --device of this process; by default all GPUs, or the CPU if there is none.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if device:
        kind, _, number = device.upper().lstrip("/").removeprefix("DEVICE:").partition(":")
        if kind == "GPU" and number not in ("", "0"):
            raise UsageError(
                f"--device={device}: --strategy=multi_worker takes the first GPU that it is shown; "
                f"give CUDA_VISIBLE_DEVICES={number} --device=GPU:0"
            )
        gpus = gpus[:1] if kind == "GPU" else []
        tf.config.set_visible_devices(gpus, "GPU")
    kinds = tf.distribute.experimental.CommunicationImplementation
    # That of a CPU; AUTO takes a little longer to the same end.
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.AUTO if gpus else kinds.RING
    )
    cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in hosts.tasks.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=hosts.kind, task_id=hosts.index, rpc_layer="grpc"
    )
    handler = signal.getsignal(signal.SIGTERM)
    # Where another process is lost right now, this would wait for it, and hear no signal.
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGTERM, handler)  # which TensorFlow has taken for itself


def _start_again() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    spec = sys.modules["__main__"].__spec__  # None of a program that was started as a file
    program = [sys.argv[0]] if spec is None else ["-m", spec.name]
    os.execv(sys.executable, [sys.executable, *program, *sys.argv[1:]])


def _list(steps: set[int]) -> str:
    return ", ".join(map(str, sorted(steps)))
