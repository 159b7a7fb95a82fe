"""Train asynchronously: `tf.distribute.ParameterServerStrategy` and its `ClusterCoordinator`.

The chief makes all batches and schedules each call on a free worker. Tables are on parameter
servers (see `tables.served`). If a worker is lost, another one makes its call with the same data,
so each call is made at least once. If a server is lost, its rows are lost. The run ends, and the
next run continues from the last checkpoint.
"""

from __future__ import annotations

import collections
import contextlib
import logging as std_logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..auditing.findings import Findings
from ..auditing.whole import audit
from ..errors import RunError, UsageError
from ..optimizers.base import update_rows
from ..settings import Config
from ..tables import device
from ..tables.base import Table
from ..tables.served import ServedTables
from ..training.job import Job
from ..training.runner import Runner
from . import rendezvous
from .cluster_spec import Hosts
from .served_calls import make_train_function
from .tensorflow_server import make_resolver

# The most scheduled calls: two for each worker (one runs, one waits) and a few more, as workers are
# not equally fast.
_CALLS_PER_WORKER, _MORE_CALLS = 2, 2
_SECONDS_BETWEEN_FETCHES = 0.1


class Coordinator(Runner):
    """The runner of the chief in --strategy=parameter_server.

    The constructor waits until all workers and servers are there, for up to --cluster_timeout, and
    changes what TensorFlow logs.

    Raises:
        UsageError: This process cannot use its address, another one differs from it, or the workdir
            cannot be written.
        RunError: Processes did not arrive in time.
    """

    is_asynchronous = True

    def __init__(self, config: Config, hosts: Hosts):
        self._hosts = hosts
        self._is_by_call = config.run.exchange == "call"
        self._optimizer = config.optimizer.optimizer  # for messages
        rendezvous.check_own_address(hosts, config.run.cluster_timeout)
        self._presence = rendezvous.meet(config, hosts)
        _shorten_log(hosts)
        self._strategy = tf.distribute.ParameterServerStrategy(make_resolver(hosts))
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._most_scheduled = _CALLS_PER_WORKER * len(hosts.tasks["worker"]) + _MORE_CALLS
        self._scheduled: collections.deque[Any] = collections.deque()

    @contextlib.contextmanager
    def error_context(self) -> Iterator[None]:
        """Convert errors of the block to a RunError if a parameter server is gone.

        Other errors stay as they are.

        Raises:
            RunError: The block fails because a parameter server is lost.
        """
        try:
            yield
        except (tf.errors.OpError, RunError) as error:
            # TensorFlow's coordinator repeats the calls of a lost worker, and raises no such error.
            servers = [task for task in self._hosts.everyone if task[0] == "ps"]
            absent = self._presence.missing(servers)
            if not absent and not rendezvous.is_lost_process_error(error):
                raise
            names = self._hosts.names(absent) or "one that was started again"
            raise RunError(
                f"a parameter server is lost with its rows: {names}; start all servers, then run "
                "this command again: it continues from the last checkpoint"
            ) from error

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Return the context in which the job and its tables are created.

        Each worker gets a copy of every variable, except the variables of tables.
        """

        def create(make: Any, **options: Any) -> tf.Variable:
            """Make a variable: of a table as usual, any other with a copy for each worker."""
            if options.get("name") not in device.VARIABLES:
                options["per_worker_variable"] = True
                return self._strategy.extended._create_variable(make, **options)
            return make(**options)

        with tf.variable_creator_scope(create):
            yield

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`; also make the counter of begun calls, and set the counts of calls to 0.

        Raises:
            UsageError: --exchange does not fit the optimizer.
        """
        if self._is_by_call and not job.optimizer.is_additive:
            raise UsageError(
                f"--exchange=call adds up the changes of all workers, which the state of "
                f"--optimizer={self._optimizer} does not allow; give --exchange=step, or another "
                "--optimizer, such as rowwise_adagrad"
            )
        self._tables, self._steps = tables, job.data.steps_per_batch
        self._calls_scheduled = self._calls_finished = 0
        self._bytes: list[float] = []
        specs = job.model.tables()
        trained = {name: tables[name] for name in tables if specs[name].trained}

        def update(name: str, shard: Table, ids_U: Any, gradients_UD: Any, *step: Any) -> None:
            """Update rows of a shard of any table; `step` is the rate and the step's number."""
            update_rows(job.optimizer.rule, shard, ids_U, gradients_UD, *step)

        self._served = ServedTables(trained, update)
        with tf.device(self._served.device):
            self._begun = tf.Variable(tf.zeros([], tf.int64), trainable=False)
        self._function = make_train_function(job, self._served, self._begun, seed, self._is_by_call)

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """See `Runner`."""
        return audit(self._function, self._tables, (data, first, rate))

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Any:
        """Schedule the call on a free worker, and return its result, for `totals` to fetch.

        If too many calls are scheduled, wait first until the oldest have finished.
        """
        if not self._calls_scheduled:
            self._served.start(int(first))
        while len(self._scheduled) >= self._most_scheduled:
            fetch(self._scheduled.popleft())
        result = self._coordinator.schedule(self._function, args=(data, first, rate))
        self._scheduled.append(result)
        self._calls_scheduled += 1
        return result

    def totals(self, calls: Sequence[Any]) -> tuple[float, float]:
        """Wait for scheduled calls, count them, and return their summed loss and examples."""
        results = [fetch(call) for call in calls]
        self._calls_finished += len(results)
        self._bytes += [float(exchanged) for *_, exchanged in results]
        losses, examples = ([float(result[part]) for result in results] for part in (0, 1))
        return sum(losses), sum(examples)

    def synchronize(self) -> None:
        """Wait until all scheduled calls are made."""
        self._coordinator.join()
        self._scheduled.clear()

    def values(self) -> dict[str, float]:
        """Wait for all calls; return the number of scheduled, finished and repeated calls.

        A call is repeated when its worker was lost. The field `exchanged_bytes` is the mean bytes
        of all messages of a step between its worker and the servers, since the last call of this
        method. Return {} without waiting if `totals` has fetched no call since then.
        """
        if not self._bytes:
            return {}
        self.synchronize()
        begun = int(self._begun.read_value())
        exchanged = sum(self._bytes) / len(self._bytes) / self._steps
        self._bytes = []
        return {
            "calls": self._calls_scheduled,
            "calls_made": self._calls_finished,
            "calls_again": begun - self._calls_scheduled,
            "exchanged_bytes": exchanged,
        }


def fetch(call: Any) -> Any:
    """Wait for a scheduled call, and return its results.

    A worker may be lost between the end of a call and the copy of its results to this process.
    `RemoteValue.fetch` then raises the error of the copy, although the coordinator makes the call
    again. This function waits for the results of the repeated call.

    Args:
        call: The `tf.distribute.coordinator.RemoteValue` that `schedule` returned.

    Raises:
        tf.errors.OpError: The call has failed, and is not made again.
    """
    while True:
        try:
            return call.fetch()
        except tf.errors.OpError as error:
            if "/job:worker" not in str(error) or call._get_error() is error:
                raise
            time.sleep(_SECONDS_BETWEEN_FETCHES)


def _shorten_log(hosts: Hosts) -> None:
    """Make TensorFlow log a lost worker in one line, and hide the messages that follow from it.

    This changes TensorFlow's logger and `sys.unraisablehook` for the whole process. It also hides
    messages below a warning, all other messages of the coordinator, the warning that a checkpoint
    of several servers traces a function, and TensorFlow's errors in destructors.
    """

    def is_wanted(record: std_logging.LogRecord) -> bool:
        """Return whether to log a record; change the text of one about a lost worker."""
        if "MultiDeviceSaver" in record.getMessage():
            return False
        if not record.pathname.endswith("cluster_coordinator.py"):
            return record.levelno >= std_logging.WARNING
        lost = re.match(r"Worker /job:worker/\S*task:(\d+) failed", record.getMessage())
        if lost is not None:
            name = hosts.name("worker", int(lost[1]))
            record.msg = f"{name} is gone: other workers make its calls until it is back"
            record.args = ()
        return lost is not None

    tf.get_logger().addFilter(is_wanted)
    previous_hook = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        """Call the previous hook, except for TensorFlow's errors."""
        # Destructors of TensorFlow's objects wait for operations of a lost server, and fail.
        if not isinstance(unraisable.exc_value, tf.errors.OpError):
            previous_hook(unraisable)

    sys.unraisablehook = hook
