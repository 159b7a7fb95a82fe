"""The runner: decides which processes and devices make the steps of a run.

`Runner` is all that the loop knows of it. `LocalRunner` makes every step in this process. The
other runners are in `distributed`: replicas in step with each other, and parameter servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import tensorflow as tf

from ..auditing.findings import Findings
from ..auditing.step_audit import audit
from ..checkpoints.workdir import Workdir
from ..tables.base import Table
from ..tables.python_calls import table_errors
from .job import Job
from .step import train_function


class Runner(Protocol):
    """Makes the steps of a run.

    Attributes:
        replicas: The number of replicas that share each step.
        chief: Whether this process writes to the workdir and prints messages.
        is_asynchronous: Whether steps go on while scores are computed.
    """

    replicas: int
    chief: bool
    is_asynchronous: bool

    def error_context(self) -> AbstractContextManager:
        """Return a context for the whole run.

        It converts errors caused by a lost process into `RunError`.
        """
        ...

    def scope(self) -> AbstractContextManager:
        """Return the context in which the job and its tables are created."""
        ...

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """Prepare the first call.

        Args:
            job: What to train.
            tables: The tables to train on, by name.
            seed: The seed of the run.
        """
        ...

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """Yield the batches for this process, each with its epoch.

        Args:
            job: Gives the batches.
            epochs: The epochs to train.
            first: The number of batches of the first epoch to skip.
        """
        ...

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """Return the operations of a call that read or copy a whole table.

        Args:
            data: As for `run_steps`.
            first: As for `run_steps`.
            rate: As for `run_steps`.
        """
        ...

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Any:
        """Make S steps, or schedule them on another process.

        Args:
            data: A batch, the data of S steps.
            first: The number of steps before them, an int64 scalar.
            rate: The learning rate, a float32 scalar.

        Returns:
            An object for `totals`.

        Raises:
            RunError: A table raised it, or a process that is needed is gone.
        """
        ...

    def totals(self, calls: Sequence[Any]) -> tuple[float, float]:
        """Wait for some calls and return their summed loss and number of examples.

        Args:
            calls: The results of `run_steps`.
        """
        ...

    def synchronize(self) -> None:
        """Wait until all steps are made, so that the tables can be read as a whole."""
        ...

    def is_stopping(self, asked: bool) -> bool:
        """Return whether to stop before the next call.

        Args:
            asked: Whether this process received a signal to stop.
        """
        ...

    def broadcast(self, number: float) -> float:
        """Return the number of the chief; every process calls this at the same point.

        Args:
            number: The number of this process.
        """
        ...

    def values(self) -> dict[str, float]:
        """Return metrics of the calls since the last time, by name."""
        ...

    def close(self) -> None:
        """Release resources after the last call."""
        ...

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Wait until the chief has finished the run, at the end of any other process.

        Args:
            workdir: The workdir of the run.
        """
        ...


class LocalRunner:
    """Makes every step in this process, on the device of the job; see `Runner`."""

    replicas, chief, is_asynchronous = 1, True, False

    def error_context(self) -> AbstractContextManager:
        """Return a context that does nothing."""
        return nullcontext()

    def scope(self) -> AbstractContextManager:
        """Return a context that does nothing."""
        return nullcontext()

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """Make the train function; see `Runner`."""
        self._device, self._tables = job.placed.device, tables
        self._function = train_function(
            job.model, tables, job.optimizer, seed, job.placed.micro_batches
        )

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """Yield all batches; see `Runner`."""
        return job.data.batches(epochs, first)

    def audit(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Findings:
        """Audit the train function; see `Runner`."""
        with tf.device(self._device):  # as in `run_steps`, or the function would be traced twice
            return audit(self._function, self._tables, (data, first, rate))

    def run_steps(
        self, data: Any, first: tf.Tensor, rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the loss and the examples of the first step, on the device; see `Runner`."""
        with tf.device(self._device), table_errors():
            return self._function(data, first, rate)

    def totals(self, calls: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> tuple[float, float]:
        """Sum on the device, then wait; see `Runner`."""
        loss, examples = (float(tf.add_n(part)) for part in zip(*calls, strict=True))
        return loss, examples

    def synchronize(self) -> None:
        """Do nothing: calls are made one after the other."""

    def is_stopping(self, asked: bool) -> bool:
        """Return whether this process was asked to stop; see `Runner`."""
        return asked

    def broadcast(self, number: float) -> float:
        """Return the number: this process is the chief."""
        return number

    def values(self) -> dict[str, float]:
        """Return no metrics."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Do nothing: this process is the chief."""
