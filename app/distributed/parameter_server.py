"""Asynchronous training: `tf.distribute.ParameterServerStrategy` and its `ClusterCoordinator`.

The chief makes all batches and hands each call to whichever worker is free; tables are on parameter
servers (see `tables.served`). A call of a worker that is lost is given to another, with the same
data, so that each is made at least once. A server that is lost ends the run: its rows are gone, and
the next run goes on from the last checkpoint.
"""

from __future__ import annotations

import collections
import contextlib
import logging as std_logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..auditing.findings import Findings
from ..auditing.step_audit import audit
from ..checkpoints.workdir import Workdir
from ..config import Config
from ..errors import RunError
from ..tables import device, served
from ..tables.base import Table
from ..tables.device import DeviceTable
from ..tables.served import Served
from ..training.gradients import RowGradients, compute_gradients, phase
from ..training.job import Job
from ..training.step import clip_gradients, split_steps, update_rows
from ..types import Batch
from . import arrivals, joining
from .cluster_spec import Hosts

# Calls that are given out at a time: one that each worker makes, one that waits for it, some more
# to make up for workers that are not equally fast.
_EACH, _MORE = 2, 2
# How TensorFlow says that another process is gone; and that it has been started again, with an
# error that has other meanings, too.
_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
)
_STARTED_AGAIN = "context_id"


class Coordinator:
    """The chief of workers and parameter servers; see `training.runner.Runner`.

    Waits until all of them are there. Reports, since the run began: calls given out, made, and made
    again since a worker was lost meanwhile; and the bytes of rows that a step exchanges.
    """

    replicas, chief, is_asynchronous = 1, True, True

    def __init__(self, config: Config, hosts: Hosts):
        self._hosts, self._present = hosts, contextlib.ExitStack()
        # Workers that are started again look for the chief's note.
        self._present.enter_context(joining.present(config, hosts))
        joining.await_all(config, hosts)
        _tell_in_short(hosts)
        self._strategy = _strategy(hosts)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._most = _EACH * len(hosts.tasks["worker"]) + _MORE
        self._out: collections.deque[Any] = collections.deque()

    @contextlib.contextmanager
    def error_context(self) -> Iterator[None]:
        """See `Runner`: a parameter server that is gone may be met by whatever reads a table."""
        try:
            yield
        except (*_GONE, RunError) as error:
            servers = [task for task in self._hosts.everyone if task[0] == "ps"]
            gone = arrivals.missing(self._hosts, servers, 0)
            of_server = not isinstance(error, RunError) and "/job:ps/" in str(error)
            if isinstance(error, tf.errors.InvalidArgumentError):
                of_server = _STARTED_AGAIN in str(error)
            if not gone and not of_server:
                raise
            who = arrivals.names(self._hosts, gone) or "one that was started again"
            raise RunError(
                f"a parameter server is lost with its rows: {who}; see that all of them run, then "
                "run this command again: it goes on from the last checkpoint"
            ) from error

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Variables made within are copied to each worker, but for those of tables."""

        def made(make: Any, **options: Any) -> tf.Variable:
            if options.get("name") not in device.VARIABLES:
                options["per_worker_variable"] = True
                return self._strategy.extended._create_variable(make, **options)
            return make(**options)

        with tf.variable_creator_scope(made):
            yield

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`."""
        self._tables, self._steps = tables, job.steps_per_batch
        self._given = self._made = 0
        self._bytes: list[float] = []
        specs = job.model.tables()
        trained = {name: tables[name] for name in tables if specs[name].trained}
        self._served = Served(trained, _change(job))
        with tf.device(self._served.device):
            self._begun = tf.Variable(tf.zeros([], tf.int64), trainable=False)
        self._function = self._train_function(job, seed)

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """All of them, as workers take what the chief gives them."""
        return job.batches(epochs, first)

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """See `Runner`."""
        return audit(self._function, self._tables, (data, first, rate))

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Any:
        """Gives the call to the next worker that is free; waits while too many are given out."""
        if not self._given:
            self._served.start(int(first))
        while len(self._out) >= self._most:
            self._out.popleft().fetch()
        given = self._coordinator.schedule(self._function, args=(data, first, rate))
        self._out.append(given)
        self._given += 1
        return given

    def totals(self, calls: Sequence[Any]) -> tuple[float, float]:
        """See `Runner`."""
        made = [given.fetch() for given in calls]
        self._made += len(made)
        self._bytes += [float(exchanged) for *_, exchanged in made]
        return sum(float(loss) for loss, *_ in made), sum(float(count) for _, count, _ in made)

    def synchronize(self) -> None:
        """See `Runner`."""
        self._coordinator.join()
        self._out.clear()

    def is_stopping(self, asked: bool) -> bool:
        """Whether this process was asked to."""
        return asked

    def broadcast(self, number: float) -> float:
        """Return the number: this process is the chief."""
        return number

    def values(self) -> dict[str, float]:
        """See the class."""
        if not self._bytes:
            return {}
        self.synchronize()
        begun = int(self._begun.read_value())
        exchanged = sum(self._bytes) / len(self._bytes) / self._steps
        self._bytes = []
        return {
            "calls": self._given,
            "calls_made": self._made,
            "calls_again": begun - self._given,
            "exchanged_bytes": exchanged,
        }

    def close(self) -> None:
        """Workers and servers see themselves when this process has ended."""
        self._present.close()

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Nobody is waited for."""

    def _train_function(self, job: Job, seed: int) -> Any:
        """As `training.step.train_function`, of what a worker does; gives the bytes of rows too."""
        model, optimizer, tables = job.model, job.optimizer, self._served
        specs = job.model.tables()
        own = {name: spec for name, spec in specs.items() if not spec.trained}
        anywhere = dict.fromkeys(specs)

        @tf.function(autograph=False)
        def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, ...]:
            with tf.device(tables.device):
                self._begun.assign_add(1)
            # A recurrent state goes from step to step of a call: who makes the next one is open.
            state = {n: tf.zeros((spec.rows, spec.columns)) for n, spec in own.items()}

            def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
                if name in state:
                    return tf.gather(state[name], ids_U)
                return tables.gather({name: ids_U})[name]

            def train_step(batches: Sequence[Batch]) -> tuple[tf.Tensor, ...]:
                gradients = compute_gradients(model, gather, batches, anywhere)
                with phase("gradient"):
                    clipped = clip_gradients(optimizer, gradients.gradients)
                with phase("update"):
                    tables.update(clipped, rate)
                for name, (ids_U, rows_UD) in gradients.state.items():
                    indices_U1 = ids_U[:, tf.newaxis]
                    state[name] = tf.tensor_scatter_nd_update(state[name], indices_U1, rows_UD)
                return gradients.loss, gradients.examples, served.travelling(clipped, 2)

            steps = [
                train_step(batches)
                for batches in split_steps(data_S, first, seed, job.micro_batches)
            ]
            return *steps[0][:2], tf.add_n([exchanged for *_, exchanged in steps])

        return train


def _change(job: Job) -> served.Change:
    """What an update of the job's optimizer does to the rows of a part."""

    def change(
        name: str,
        part: DeviceTable,
        ids_U: tf.Tensor,
        gradients_UD: tf.Tensor,
        rate: tf.Tensor,
        number: tf.Tensor,
    ) -> None:
        update_rows(job.optimizer, part, RowGradients(ids_U, gradients_UD), rate, number)

    return change


def _strategy(hosts: Hosts) -> tf.distribute.ParameterServerStrategy:
    """Connects to all workers and servers, which are there."""
    cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in hosts.tasks.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=hosts.kind, task_id=hosts.index, rpc_layer="grpc"
    )
    return tf.distribute.ParameterServerStrategy(resolver)


def _tell_in_short(hosts: Hosts) -> None:
    """Has TensorFlow say in one line that a worker is lost, and leaves out what follows from it.

    Nor does it say that each checkpoint of tables on several servers traces a function anew.
    """

    def is_wanted(record: std_logging.LogRecord) -> bool:
        if "MultiDeviceSaver" in record.getMessage():
            return False
        if not record.pathname.endswith("cluster_coordinator.py"):
            return record.levelno >= std_logging.WARNING
        lost = re.match(r"Worker /job:worker/\S*task:(\d+) failed", record.getMessage())
        if lost is not None:
            name = hosts.name("worker", int(lost[1]))
            record.msg = f"{name} is gone: its call goes to another, until it is back"
            record.args = ()
        return lost is not None

    tf.get_logger().addFilter(is_wanted)
    unraisable = sys.unraisablehook

    def raised(found: Any) -> None:
        # As TensorFlow's objects wait, when they end, for what a lost server was to do.
        if not isinstance(found.exc_value, _GONE):
            unraisable(found)

    sys.unraisablehook = raised
