"""Exchange the changes of rows every --sync_steps steps, and measure what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import tensorflow as tf

from .local_steps import ALL_ROWS, LocalSteps


class Frequent(NamedTuple):
    """The rows of the most frequent ids, which are exchanged more often than all rows.

    Attributes:
        rows: The number of rows.
        times: How many times as often as all rows they are exchanged.
        least_steps: The least number of steps between two exchanges.
    """

    rows: int
    times: int
    least_steps: int


# As in Ji et al. 2016, section 4.2. For the choice see data/benchmarks/README.md.
FREQUENT_ROWS = (Frequent(8192, 4, least_steps=64),)
# At the start rows move far, so frequent rows are exchanged sooner: when a sixth of the steps so
# far was made alone.
_PART = 6


class Synchronizer:
    """Counts the steps of the replicas of one process, and exchanges their changes when due.

    All processes count alike, so they exchange after the same call. Between two exchanges of all
    rows, the rows of the most frequent ids are exchanged alone (see `FREQUENT_ROWS`), and with them
    all rows of smaller tables. No level is exchanged more often than once in a call.

    Args:
        strategy: The strategy of the replicas.
        local: The steps of the replicas.
        sync_steps: The steps between two exchanges of all rows.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        local: LocalSteps,
        sync_steps: int,
    ):
        self._strategy, self._local = strategy, local
        self._function = self._exchange_function()
        # One entry for each level, from all rows to the fewest: the number of rows, the steps
        # between two exchanges, and the steps since the last one.
        self._rows = [ALL_ROWS, *(level.rows for level in FREQUENT_ROWS)]
        self._periods = [
            sync_steps,
            *(max(sync_steps // level.times, level.least_steps) for level in FREQUENT_ROWS),
        ]
        self._waiting = [0] * len(self._rows)
        self._sent, self._seconds, self._since = 0.0, 0.0, time.perf_counter()

    @property
    def waiting(self) -> int:
        """Return the steps since the last exchange of all rows."""
        return self._waiting[0]

    def begin(self, scope: Callable[[], AbstractContextManager]) -> None:
        """Copy the tables before the first step, when they have been restored.

        Args:
            scope: The context in which variables are created.
        """
        if not self._local.has_copies:
            self._local.copy_tables(scope)

    def count(self, steps: int, done: int) -> None:
        """Count the steps of a call, and exchange the changes of the rows that are due.

        Args:
            steps: The number of steps.
            done: The steps of the whole run so far.
        """
        self._waiting = [waiting + steps for waiting in self._waiting]
        of_all, *of_frequent = self._periods
        if self.waiting >= of_all:
            self._exchange(0)
            return
        for level, period in enumerate(of_frequent, 1):
            if self._waiting[level] >= min(period, done // _PART):
                self._exchange(level)
                return

    def synchronize(self) -> None:
        """Exchange the changes since the last exchange, if there are any, and wait for the end."""
        if self.waiting:
            self._exchange(0)

    def _exchange_function(self) -> Callable[[tf.Tensor, tf.Tensor], Any]:
        """Return a `tf.function` that exchanges changes and returns how many bytes are sent.

        Its arguments are those of `LocalSteps.exchange`. One function serves all levels, because
        TensorFlow takes one to two seconds to trace and optimize it.
        """

        @tf.function(autograph=False)
        def exchange(most: tf.Tensor, steps: tf.Tensor) -> Any:
            """Exchange the changes of all replicas."""
            return self._strategy.run(self._local.exchange, args=(most, steps))

        return exchange

    def _exchange(self, level: int) -> None:
        """Exchange the rows of a level, which include those of the levels after it, and wait."""
        began = time.perf_counter()
        of_level = tf.constant(self._rows[level]), tf.constant(self._waiting[level])
        sent = self._function(*of_level)
        self._sent += float(self._strategy.experimental_local_results(sent)[0])
        self._waiting[level:] = [0] * (len(self._waiting) - level)
        self._seconds += time.perf_counter() - began

    def values(self) -> tuple[float, float]:
        """Return the costs since the last call of this method.

        Returns:
            The bytes that a replica has sent to each other one, and the share of the time that the
            exchanges took, the wait for other replicas included.
        """
        now = time.perf_counter()
        values = self._sent, self._seconds / max(now - self._since, 1e-9)
        self._sent, self._seconds, self._since = 0.0, 0.0, now
        return values
