"""Who makes the calls of a run: what the loop knows of it, and the plain case, this process alone.

Others are the replicas of `distributed.replicas`, in step with one another, and the workers of
`distributed.parameter_server`, each at its own pace.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import tensorflow as tf

from ..auditing.findings import Findings
from ..auditing.step_audit import audit
from ..checkpoints.workdir import Workdir
from ..errors import RunError
from ..tables.base import Table
from .job import Job
from .step import train_function


class Runner(Protocol):
    """Makes the calls of a run.

    replicas: how many share each step. chief: whether this process writes to the workdir and tells
    people. is_asynchronous: whether calls go on while scores are computed.
    """

    replicas: int
    chief: bool
    is_asynchronous: bool

    def error_context(self) -> AbstractContextManager:
        """What the whole run is within: raises as what it is what the loss of others leads to."""
        ...

    def scope(self) -> AbstractContextManager:
        """What the job and its tables are made within."""
        ...

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """Before the first call: what is trained, and on which tables."""
        ...

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """The batches of the calls that this process makes; arguments as of `Batches`."""
        ...

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """What such a call would do to whole tables; see `auditing.step_audit`."""
        ...

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Any:
        """Makes a call, or has it made soon; gives something that `totals` takes.

        data, first, rate: see `training.step.TrainFunction`. RunError where a table raised one, or
        a process that is needed is gone.
        """
        ...

    def totals(self, calls: Sequence[Any]) -> tuple[float, float]:
        """The losses and the examples of calls, summed, once they are made."""
        ...

    def synchronize(self) -> None:
        """Waits until every call is made, so that the tables can be read as a whole."""
        ...

    def is_stopping(self, asked: bool) -> bool:
        """Whether to stop before the next call. asked: whether this process was asked to."""
        ...

    def broadcast(self, number: float) -> float:
        """Return the chief's number; every process is to call this with its own."""
        ...

    def values(self) -> dict[str, float]:
        """What to report of the calls since the last time, by name."""
        ...

    def close(self) -> None:
        """After the last call."""
        ...

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Before the end of a process that has finished its part of a run."""
        ...


class Here:
    """This process alone, on the device of the job."""

    replicas, chief, is_asynchronous = 1, True, False

    def error_context(self) -> AbstractContextManager:
        """There are no others."""
        return nullcontext()

    def scope(self) -> AbstractContextManager:
        """Nothing that changes anything."""
        return nullcontext()

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """See `Runner`."""
        self._device, self._tables = job.device, tables
        self._function = train_function(job.model, tables, job.optimizer, seed, job.micro_batches)

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """All of them."""
        return job.batches(epochs, first)

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """See `Runner`."""
        with tf.device(self._device):  # where it is called, or it would be traced twice
            return audit(self._function, self._tables, (data, first, rate))

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Runner`: the loss and the examples of the first step, on the device."""
        with tf.device(self._device), errors_of_tables():
            return self._function(data, first, rate)

    def totals(self, calls: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> tuple[float, float]:
        """See `Runner`."""
        loss, examples = (float(tf.add_n(part)) for part in zip(*calls, strict=True))
        return loss, examples

    def synchronize(self) -> None:
        """Calls are made one after the other."""

    def is_stopping(self, asked: bool) -> bool:
        """Whether this process was asked to."""
        return asked

    def broadcast(self, number: float) -> float:
        """Return the number: this process is the chief."""
        return number

    def values(self) -> dict[str, float]:
        """Nothing to report."""
        return {}

    def close(self) -> None:
        """Nothing to end."""

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Nobody is waited for."""


@contextlib.contextmanager
def errors_of_tables() -> Iterator[None]:
    """Raises as what it is a table's RunError, which a graph gives as an error of TensorFlow."""
    try:
        yield
    except tf.errors.UnknownError as error:  # which has the text of the other, and where it was
        within = re.search(r"^RunError: (.*)$", error.message, re.MULTILINE)
        if within is None:
            raise
        raise RunError(within[1]) from error
