"""Train in step with replicas in several processes: `tf.distribute.MultiWorkerMirroredStrategy`.

Each process reads its share of every batch and computes its gradients. When a process is lost, the
exchange of gradients fails in all others. They start themselves again, meet the lost process once
it is back, and continue from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ..checkpoints.checkpoint import is_finished
from ..checkpoints.workdir import Workdir
from ..errors import RunError, UsageError
from ..settings import RunConfig
from ..tables.base import Table
from ..training.job import Job
from ..types import Team
from . import rendezvous
from .cluster_spec import Hosts
from .exchange import Made
from .replicas import Replicas

_NUMBER_BYTES = 8  # of an int64, the widest integer that TensorFlow gathers


class Workers(Replicas):
    """Run a job in several processes in step, as --strategy=multi_worker.

    The constructor waits for the other processes for up to --cluster_timeout, and connects to them.
    It starts this program again if another process is lost meanwhile, and ends it if connecting
    takes longer than --cluster_timeout.

    Args:
        flags: The value of every flag of the run by name, which the other processes must have, too.

    Raises:
        UsageError: This process cannot use its address or --device, it differs from the chief, or
            the workdir cannot be written.
        RunError: Processes did not arrive in time.
    """

    def __init__(self, settings: RunConfig, flags: Mapping[str, Any], hosts: Hosts):
        self._hosts, self._settings, seconds = hosts, settings, settings.cluster_timeout
        self._asked = False
        rendezvous.check_own_address(hosts, seconds)
        self._presence = rendezvous.Presence(flags, hosts)
        with self.error_context():
            strategy = _connect(hosts, settings.device, seconds)
            super().__init__(strategy, settings.sync_steps, settings.sync_dtype)
        self._gather_function = self.exchange.in_replicas(
            self.exchange.gather,
            reduce_retracing=True,  # lengths differ
        )
        self.chief = hosts.is_chief
        self.team = Team(
            hosts.everyone.index(hosts.task),
            lambda message: gather_bytes(message, self._gather, len(hosts.everyone)),
            tuple(hosts.name(*task) for task in hosts.everyone),
        )
        self._last: list[Made] = []  # the results of the last two calls
        self._agreement = Agreement(self._somebody_has_more)

    @contextlib.contextmanager
    def error_context(self) -> Iterator[None]:
        """Start this program again if the block fails because another process is gone.

        Raises:
            RunError: Another process is gone, and this one was asked to stop.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if not rendezvous.is_lost_process_error(error):
                raise
            absent = self._presence.missing(self._hosts.others)
            names = self._hosts.names(absent) or "another process"
            if self._asked:
                raise RunError(
                    f"{names} is gone; run all processes again to continue from the last checkpoint"
                ) from error
            logging.debug("%s", error.message)
            rendezvous.start_again(names)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Return the context in which the job and its tables are created.

        Variables are local to each process, and have the same initial values in all processes.
        """
        # In the strategy's scope the chief would send every variable to the others, however large.
        # With several local devices the scope is needed, as each device needs a copy.
        is_several = self.replicas > len(self._hosts.everyone)
        with super().scope() if is_several else contextlib.nullcontext():
            yield

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`; a new job starts without a request to stop, and checks its start again."""
        super().open(job, tables, seed)
        self._is_shared, self._digest = job.data.empty is not None, job.data.digest
        self._asked = False
        self._last = []

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """See `Runner`; for a job with an empty batch, only the micro-batches of this process.

        Then all processes yield equally many batches, some of them empty. A job that has no empty
        batch (`job.data.empty` is None) gives all batches whole to every process.
        """
        if not self._is_shared:
            return job.data.batches(epochs, first)
        held = self.micro_batches(job)
        own = job.data.batches(epochs, first, held)
        return self._agreement.batches(own, epochs, tf.concat([job.data.empty] * len(held), axis=1))

    def micro_batches(self, job: Job) -> range:
        """See `Replicas`; an equal share for each process, or all if the job has no empty batch."""
        if job.data.empty is None:
            return super().micro_batches(job)
        everyone = self._hosts.everyone
        share = job.placed.micro_batches // len(everyone)
        start = everyone.index(self._hosts.task) * share
        return range(start, start + share)

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Made:
        """See `Runner`; the first call after `open` checks that all processes start alike.

        Raises:
            RunError: The processes have different steps or data.
        """
        if not self._last:
            self._check_same_start(data, first)
        result = super().run_steps(data, first, rate)
        self._last = [*self._last[-1:], result]
        return result

    def flags_F(self) -> tf.Tensor:
        """Return whether this process is asked to stop, and has more batches: 0 or 1 each, (2,)."""
        return tf.constant([self._asked, self._agreement.has_more], tf.float32)

    def wait_for_chief(self, workdir: Workdir) -> None:
        """See `Runner`; start this program again if the run is not finished when the chief ends."""
        if self.chief:
            return
        self._presence.wait_for_end_of_chief()
        if not is_finished(workdir, self._settings):
            rendezvous.start_again(self._hosts.name(*self._hosts.chief))

    def _somebody_has_more(self) -> bool:
        """Wait for the latest call, and return whether any process reported more batches in it."""
        return float(self._last[-1].flags_F[1]) > 0

    def is_stopping(self, asked: bool) -> bool:
        """See `Runner`; whether any process had been asked to by the call before the latest one."""
        self._asked = asked
        stops = len(self._last) == 2 and float(self._last[0].flags_F[0]) > 0
        return super().is_stopping(stops)

    def broadcast(self, number: float) -> float:
        """Return the `number` that the chief gave; wait until all processes call this."""
        # The first replica belongs to the chief.
        return float(self._gather(tf.constant([number], tf.float64))[0, 0])

    def _gather(self, mine_N: tf.Tensor) -> np.ndarray:
        """Return the vector of every replica, (R, N); wait until all processes call this.

        `mine_N` is the vector of each replica of this process.
        """
        joined = self._gather_function(mine_N, tf.constant(self.exchange.keys(1)[0]))
        return self.exchange.first(joined).numpy().reshape(self.replicas, -1)

    def _check_same_start(self, data: Any, first: tf.Tensor) -> None:
        """Raise RunError unless all processes continue at the same step with the same data.

        Wait until all processes call this. If each has a share of the data, digests are compared.
        """
        digest = self._digest
        if not self._is_shared:  # every process has the whole batch
            digest ^= zlib.crc32(b"".join(t.numpy().tobytes() for t in tf.nest.flatten(data)))
        starts_R2 = self._gather(tf.stack([first, tf.constant(digest, tf.int64)]))
        steps, digests = set(starts_R2[:, 0].tolist()), set(starts_R2[:, 1].tolist())
        if len(steps) > 1:
            numbers = ", ".join(map(str, sorted(steps)))
            raise RunError(
                f"--workdir: the processes continue at different steps ({numbers}); give all of "
                "them the same folder, on a file system that they share"
            )
        if len(digests) > 1:
            raise RunError(
                "--corpus: the processes have different data or vocabularies; give all of them "
                "files with the same content, and with --start=spectral processors of one kind"
            )


class Agreement:
    """The calls of one worker, in step with the calls of the others.

    Args:
        somebody_has_more: Waits for the latest call, and returns whether any worker has reported
            with that call that it has more batches of the epoch.

    Attributes:
        has_more: Whether this worker has more batches of the epoch, to report with the next call.
    """

    def __init__(self, somebody_has_more: Callable[[], bool]):
        self._somebody_has_more = somebody_has_more
        self.has_more = False

    def batches(
        self, own: Iterator[tuple[int, Any]], epochs: range, empty: Any
    ) -> Iterator[tuple[int, Any]]:
        """Yield the batch of every call that all workers make together; set `has_more` before each.

        An epoch goes on, with empty batches if need be, until no worker has more. It has at least
        one call, so every epoch must have a batch in at least one worker.

        Args:
            own: The batches of this worker, each with its epoch.
            epochs: The epochs to go through.
            empty: The batch of a call for which this worker has no batch.
        """
        upcoming = next(own, None)
        for epoch in epochs:
            is_first = True
            while True:
                data = empty
                if upcoming is not None and upcoming[0] == epoch:
                    data, upcoming = upcoming[1], next(own, None)
                elif not is_first and not self._somebody_has_more():
                    break
                is_first = False
                self.has_more = upcoming is not None and upcoming[0] == epoch
                yield epoch, data


def gather_bytes(
    message: bytes, gather: Callable[[tf.Tensor], np.ndarray], processes: int
) -> list[bytes]:
    """Return the message of every process, in their order; all processes call this together.

    Args:
        message: The bytes of this process, of any length.
        gather: A function from numbers (N,) int64 of each replica of this process, N equal in all
            processes, to the numbers of all replicas, (R, N).
        processes: The number of processes, each with as many replicas.
    """
    sizes = gather(tf.constant([len(message)], tf.int64))[:, 0]
    padded = message.ljust(-(-int(sizes.max()) // _NUMBER_BYTES) * _NUMBER_BYTES, b"\0")
    numbers_RN = gather(tf.constant(np.frombuffer(padded, np.int64)))
    first = range(0, len(sizes), len(sizes) // processes)  # the first replica of each process
    return [numbers_RN[row].tobytes()[: sizes[row]] for row in first]


def _connect(hosts: Hosts, device: str, seconds: float) -> tf.distribute.Strategy:
    """Start the server of this process, connect it to the others, and return their strategy.

    With --device, set the GPUs that TensorFlow sees: the first, or none for a CPU. If the others
    are not connected after `seconds`, this process exits with code 1.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if device:
        kind, _, number = device.upper().lstrip("/").removeprefix("DEVICE:").partition(":")
        if kind == "GPU" and number not in ("", "0"):
            raise UsageError(
                f"--device={device}: --strategy=multi_worker uses the first visible GPU; set "
                f"CUDA_VISIBLE_DEVICES={number} and give --device=GPU:0"
            )
        gpus = gpus[:1] if kind == "GPU" else []
        tf.config.set_visible_devices(gpus, "GPU")
    kinds = tf.distribute.experimental.CommunicationImplementation
    # On a CPU, AUTO does the same as RING and takes a little longer.
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.AUTO if gpus else kinds.RING
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({job: list(tasks) for job, tasks in hosts.tasks.items()}),
        task_type=hosts.kind,
        task_id=hosts.index,
        rpc_layer="grpc",
    )
    handler = signal.getsignal(signal.SIGTERM)
    logging.info("connecting to the others; if one is lost now, this ends after %g s", seconds)
    # TensorFlow would wait for a lost process without end, and lets no other Python code run, not
    # even a handler of signals. Only `faulthandler` can end this process then; its trace, which
    # always names the line below, is not shown.
    with open(os.devnull, "w", encoding="utf-8") as hidden:
        faulthandler.dump_traceback_later(seconds, exit=True, file=hidden)
        try:
            return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
        finally:
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGTERM, handler)  # TensorFlow has replaced it
