"""What has come since the last logged step: loss, speed, and how long the steps waited."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..checkpoints.checkpoint import Position
from ..errors import RunError
from .job import Job
from .profile_hooks import Item

# From what `Runner.run_steps` gave, for each call, to their losses and examples, summed.
Totals = Callable[[Sequence[Any]], tuple[float, float]]


class Interval:
    """What has come since the last logged step; values stay on the device until it is closed."""

    def __init__(self, job: Job, epochs: int, at: Position, totals: Totals):
        self._job, self._epochs, self._totals = job, epochs, totals
        self._before = at.seconds
        self._began = time.perf_counter()
        self._start(at)

    def _start(self, at: Position) -> None:
        self.step, self._words, self._seconds = at.step, _words(at, self._job), self._total()
        self.losses: list[Any] = []
        self._waited = 0.0

    def waiting(self, batches: Iterator[Item]) -> Iterator[Item]:
        """The batches, with the time that each keeps the loop waiting."""
        while True:
            began = time.perf_counter()
            item = next(batches, None)
            self._waited += time.perf_counter() - began
            if item is None:
                return
            yield item

    def apart(self, call: Callable[[], None]) -> None:
        """Makes a call whose time does not count."""
        began = time.perf_counter()
        call()
        self._began += time.perf_counter() - began

    def seconds(self) -> float:
        """How long it has been going on."""
        return self._total() - self._seconds

    def close(self, at: Position, rate: float) -> dict[str, float]:
        """Its values by name, once the device has come this far; the next one begins."""
        total, examples = self._totals(self.losses)
        loss = total / max(examples, 1.0)
        if not math.isfinite(loss):
            raise RunError(not_finite("the loss", f"steps {self.step} and {at.step}"))
        at.seconds = self._total()
        seconds = max(self.seconds(), 1e-9)
        words = _words(at, self._job)
        speed = (words - self._words) / seconds
        values = {
            "epoch": round(at.done, 4),
            "loss": loss,
            **self._job.of_loss(loss),
            "learning_rate": rate,
            f"{self._job.unit}_per_second": speed,
            "input_wait": self._waited / seconds,
            self._job.unit: round(words),
            "train_seconds": at.seconds,
            "seconds_left": self._job.words * (self._epochs - at.done) / max(speed, 1e-9),
        }
        self._start(at)
        return values

    def _total(self) -> float:
        return self._before + time.perf_counter() - self._began


def _words(at: Position, job: Job) -> float:
    """Words of the corpus trained on."""
    return at.words + job.words * (at.done - at.epoch)


def not_finite(what: str, between: str) -> str:
    """What to say of numbers that are not finite."""
    return (
        f"{what} is not finite between {between}; lower --learning_rate "
        "(run again to resume from the last checkpoint)"
    )
