"""Scores that are computed on another thread while the steps go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from absl import logging

from ..errors import RunError, UsageError
from ..system import console

# Scores share the processor with the steps, so they may take this share of the time.
_SHARE = 0.02
_FAILURES = OSError, MemoryError, RunError, UsageError


class SideScores:
    """Computes the scores of one epoch at a time, and leaves out some if epochs are short."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "scores")
        self._due = 0.0  # when scores may be computed again, in `time.monotonic` seconds
        self._pending: Future | None = None
        self._place = 0, 0  # the step and the epoch of these scores

    def start(
        self, step: int, epoch: int, read: Callable[[], Callable[[], dict[str, float]]]
    ) -> None:
        """Begin to score an epoch, unless others are computed or have taken too much time.

        If what is scored cannot be read, a warning is logged, and no later epoch is scored.

        Args:
            read: Reads what is scored, see `Job.watch`.
        """
        if self._pending is None and time.monotonic() >= self._due:
            try:
                score = read()
            except _FAILURES as error:
                self._due = math.inf
                logging.warning("no scores from epoch %d on: %s", epoch, error)
                return
            self._place = step, epoch
            self._pending = self._pool.submit(self._score, score)

    def take(self, waits: bool = False) -> tuple[int, dict[str, float]] | None:
        """Return the step and the scores that have been computed since the last call, if any.

        A failure is logged as a warning, as the run is worth more than a score of it.

        Args:
            waits: Whether to wait until scores that are computed are ready.
        """
        if self._pending is None or not (waits or self._pending.done()):
            return None
        pending, self._pending, (step, epoch) = self._pending, None, self._place
        try:
            scores = pending.result()
        except _FAILURES as error:
            logging.warning("no scores after epoch %d: %s", epoch, error)
            return None
        return (step, {"epoch": epoch, **scores}) if scores else None

    def close(self) -> None:
        """End the thread, after its scores."""
        self._pool.shutdown()

    def _score(self, score: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Return the scores, without a bar beside that of the training."""
        began = time.thread_time()
        with console.progress(False):
            scores = score()
        self._due = time.monotonic() + (time.thread_time() - began) / _SHARE
        return scores
