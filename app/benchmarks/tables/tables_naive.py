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


def make_side(
    case: Case, optimizer: Optimizer, initial: Initial, error: Callable[[Rows], tf.Tensor]
) -> Side:
    """Return a side with rows and slots in numpy, whose steps send rows to the device and back.

    Every step waits for the device. Its figures count the copies as stall, and no hits.

    Args:
        case: The data.
        optimizer: Changes the rows.
        initial: Returns the initial rows of a given shape.
        error: Returns the loss of gathered rows.
    """
    job = case.job
    whole = {_ROWS: initial((job.rows, job.dim)).numpy()}
    for name, slot in optimizer.slots.items():
        whole[name] = np.full((job.rows, slot.columns or job.dim), slot.initial, np.float32)
    row_bytes = sum(part[0].nbytes for part in whole.values())
    since = {"began": time.perf_counter(), "steps": 0, "bytes": 0, "waited": 0.0}

    @tf.function(autograph=False, reduce_retracing=True)
    def train(
        rows: dict[str, tf.Tensor], inverse_N: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Return the loss before the update, and the new rows and slots, on the device."""
        rows_UD, slots = rows[_ROWS], {name: part for name, part in rows.items() if name != _ROWS}
        with tf.GradientTape() as tape:
            tape.watch(rows_UD)
            loss = error(Rows(rows_UD, inverse_N))
        gradients_UD = tape.gradient(loss, rows_UD)
        rate = tf.constant(RATE)
        change_UD, slots = optimizer.rule(rows_UD, gradients_UD, slots, rate, number)
        return loss, {_ROWS: rows_UD + change_UD, **slots}

    def step(ids_N: np.ndarray, number: int) -> tf.Tensor:
        """Train the rows of the ids, write them back, and add to `since`; return the loss."""
        began = time.perf_counter()
        ids_U, inverse_N = np.unique(ids_N, return_inverse=True)
        rows = {name: tf.constant(part[ids_U]) for name, part in whole.items()}
        sent = time.perf_counter()
        loss, rows = train(rows, tf.constant(inverse_N, tf.int32), tf.constant(number, tf.int64))
        float(loss)  # waits for the device
        trained = time.perf_counter()
        for name, part in whole.items():
            part[ids_U] = rows[name].numpy()
        since["steps"] += 1
        since["waited"] += time.perf_counter() - trained + sent - began
        since["bytes"] += 2 * len(ids_U) * row_bytes
        return loss

    def calls() -> Iterator[tf.Tensor]:
        for call, ids_SN in enumerate(case.ids_CSN):
            first = call * len(ids_SN) + 1
            yield [step(ids_N, number) for number, ids_N in enumerate(ids_SN, first)][0]

    def values() -> dict[str, float]:
        """Return the figures since the last call, and start anew."""
        now = time.perf_counter()
        figures = {
            "stage_hit_rate": 0.0,
            "staged_bytes": since["bytes"] / max(since["steps"], 1),
            "stage_stall": since["waited"] / (now - since["began"]),
        }
        since.update(began=now, steps=0, bytes=0, waited=0.0)
        return figures

    return Side(calls(), values)
