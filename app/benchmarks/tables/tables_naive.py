"""Train a table in numpy on the host without a cache, as a side of `tables`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ...optimizers.base import Optimizer
from ...tables.initial import Initial
from ...types import Rows
from .tables_measure import RATE, Case, Side

_ROWS = ""  # the name of the rows, beside the names of the slots


class Naive:
    """Rows and slots in numpy. Each step sends its rows to the device, trains them, and reads them.

    Args:
        case: The data.
        optimizer: Changes the rows.
        initial: Returns the initial rows of a shape.
        error: Returns the loss of gathered rows.
    """

    def __init__(
        self, case: Case, optimizer: Optimizer, initial: Initial, error: Callable[[Rows], tf.Tensor]
    ):
        job = case.job
        self._case, self._optimizer, self._error = case, optimizer, error
        self._whole = {_ROWS: initial((job.rows, job.dim)).numpy()}
        for name, slot in optimizer.slots.items():
            shape = (job.rows, slot.columns or job.dim)
            self._whole[name] = np.full(shape, slot.initial, np.float32)
        self._train = tf.function(self._trained, autograph=False, reduce_retracing=True)
        self._steps = 0
        self._restart()

    def side(self) -> Side:
        """Return the side."""
        return Side(self._calls(), self._values)

    def _calls(self) -> Iterator[tf.Tensor]:
        for ids_SN in self._case.ids_CSN:
            yield [self._step(ids_N) for ids_N in ids_SN][0]

    def _step(self, ids_N: np.ndarray) -> tf.Tensor:
        self._steps += 1
        number = tf.constant(self._steps, tf.int64)
        began = time.perf_counter()
        ids_U, inverse_N = np.unique(ids_N, return_inverse=True)
        rows = {name: tf.constant(part[ids_U]) for name, part in self._whole.items()}
        sent = time.perf_counter()
        loss, rows = self._train(rows, tf.constant(inverse_N, tf.int32), number)
        float(loss)  # waits for the device
        trained = time.perf_counter()
        for name, part in self._whole.items():
            part[ids_U] = rows[name].numpy()
        self._since["steps"] += 1
        self._since["waited"] += time.perf_counter() - trained + sent - began
        self._since["bytes"] += (
            2 * len(ids_U) * sum(part[0].nbytes for part in self._whole.values())
        )
        return loss

    def _trained(
        self, rows: dict[str, tf.Tensor], inverse_N: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        rows_UD, state = rows[_ROWS], {name: part for name, part in rows.items() if name != _ROWS}
        with tf.GradientTape() as tape:
            tape.watch(rows_UD)
            loss = self._error(Rows(rows_UD, inverse_N))
        gradients_UD = tape.gradient(loss, rows_UD)
        rate = tf.constant(RATE)
        change_UD, after = self._optimizer.rule(rows_UD, gradients_UD, state, rate, number)
        return loss, {_ROWS: rows_UD + change_UD, **after}

    def _restart(self) -> None:
        self._since = {"began": time.perf_counter(), "steps": 0, "bytes": 0, "waited": 0.0}

    def _values(self) -> dict[str, float]:
        since = self._since
        self._restart()
        return {
            "stage_hit_rate": 0.0,
            "staged_bytes": since["bytes"] / max(since["steps"], 1),
            "stage_stall": since["waited"] / (self._since["began"] - since["began"]),
        }
