"""The runner: decides which processes and devices make the steps of a run.

The loop knows a runner only by the methods of `Runner`.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from ..checkpoints.workdir import Workdir
from ..input.device_batches import copy_ahead
from ..system.python_functions import table_errors
from ..system.xla import CompiledIfPossible
from ..tables.base import Table
from ..types import ALONE
from .job import Job
from .step import train_function

_TOGETHER = 64  # calls whose numbers are copied to the device at once


class Runner:
    """Makes the steps of a run in this process, on the device of the job.

    The subclasses in `distributed` make them with other devices and processes. The loop calls
    `open` once, then `run_steps` for each of the `batches`, `finish_epoch` after each epoch.

    Attributes:
        replicas: The number of replicas that share each step.
        chief: Whether this process writes to the workdir and prints messages.
        team: The processes that make the job together and read a share of the text each.
    """

    replicas, chief = 1, True
    team = ALONE
    _traced: Any = None  # the train function, once it is traced
    _copied: Any = ()  # numbers of the next calls, and their tensors

    def error_context(self) -> AbstractContextManager:
        """Return a context for the whole run; here it does nothing.

        A subclass converts errors caused by a lost process into `RunError`, or starts the program
        again.
        """
        return nullcontext()

    def scope(self) -> AbstractContextManager:
        """Return the context in which to create the job and its tables; here it does nothing."""
        return nullcontext()

    def open(self, job: Job, tables: Mapping[str, Table], seed: int) -> None:
        """Make the train function of the job; call this before `run_steps`."""
        self._device, self._tables = job.placed.device, tables
        with tf.device(self._device):  # for what the function keeps there
            self._function: Any = train_function(
                *(job.model, tables, job.optimizer, seed, job.placed.micro_batches),
                by_xla="GPU" in self._device,
            )

    def close(self) -> None:
        """Forget the tables and the train function, so that the memory of the tables can be freed.

        Call it after the last step; it does nothing if `open` was not called.
        """
        for name in ("_tables", "_function", "_traced"):
            vars(self).pop(name, None)

    @property
    def is_program(self) -> bool:
        """Whether a call is one program of XLA, which takes its arguments from its device."""
        return isinstance(self._function, CompiledIfPossible) and self._function.is_by_xla

    def batches(self, job: Job, epochs: range, first: int) -> Iterator[tuple[int, Any]]:
        """Yield the batches for this process, each with its epoch.

        For steps that XLA compiles, batches are copied to the device one call ahead. Other steps
        prepare their ids on the host, and so does a staging that looks them up.

        Args:
            first: The number of batches of the first epoch to skip.
        """
        batches = job.data.batches(epochs, first)
        is_on_host = job.placed.staging is not None and job.placed.staging.looks_up
        if is_on_host or not self.is_program:
            return batches
        return copy_ahead(batches, self._device, lambda: self.is_program)

    def numbers(
        self, own: tuple[int, float], later: Iterator[tuple[int, float]]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the numbers of a call as tensors, `first` and `rate` of `run_steps`.

        For steps that XLA compiles, those of the calls after it are copied to the device with them:
        a copy to a GPU waits for all calls that were made before.

        Args:
            own: The numbers of the call.
            later: Yields those of the calls after it, as far as they are known.
        """
        if not self.is_program:
            return tf.constant(own[0], tf.int64), tf.constant(own[1], tf.float32)
        if not self._copied or self._copied[0][0] != own:
            known = [own, *itertools.islice(later, _TOGETHER - 1)]
            steps, rates = zip(*known, strict=True)
            with tf.device(self._device):
                columns = tf.constant(steps, tf.int64), tf.constant(rates, tf.float32)
                tensors = zip(*map(tf.unstack, columns), strict=True)
            self._copied = collections.deque(zip(known, tensors, strict=True))
        return self._copied.popleft()[1]

    def run_steps(self, data: Any, first: tf.Tensor, rate: tf.Tensor) -> Any:
        """Make S steps.

        Args:
            data: A batch, the data of S steps.
            first: The number of steps before them, an int64 scalar.
            rate: The learning rate, a float32 scalar.

        Returns:
            The loss of the first step, summed over its examples, and the number of these; a
            subclass may add more.

        Raises:
            RunError: A table raised it, or a process that is needed is gone.
        """
        with tf.device(self._device), table_errors():
            self._trace_once(data, first, rate)
            return self._function(data, first, rate)

    def _trace_once(self, *inputs: Any) -> None:
        """Trace the train function before its first call.

        TensorFlow counts calls that trace, and would warn of them in a process with several runs.
        """
        if self._traced is not self._function:
            self._function.get_concrete_function(*inputs)
            self._traced = self._function

    @property
    def is_synchronized(self) -> bool:
        """Whether the tables have the work of all replicas, the same in all processes.

        Only then a checkpoint can be written.
        """
        return True

    def finish_epoch(self) -> None:
        """Make the tables of all replicas equal at the end of an epoch; here they are."""

    def is_stopping(self, asked: bool) -> bool:
        """Return whether to stop before the next call, the same in all processes.

        `asked` tells whether this process received a signal to stop.
        """
        return asked

    def broadcast(self, number: float) -> float:
        """Return the number of the chief; every process calls this at the same point."""
        return number

    def values(self) -> dict[str, float]:
        """Return metrics of the runner since the last log line, by name; here none."""
        return {}

    def wait_for_chief(self, workdir: Workdir) -> None:
        """Wait, in a process that is not the chief, until the chief has finished the run."""
