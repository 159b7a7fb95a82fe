"""The metrics of the steps since the last logged step: loss, speed, and the wait for input."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from ..checkpoints.checkpoint import Position
from ..errors import RunError
from .job import Job
from .profile_hooks import Item
from .runner import Runner


class Interval:
    """Measures the loss and the speed of the steps since the last logged step.

    The caller appends to `losses`. They stay on the device until the interval is closed.

    Args:
        job: The job to train.
        epochs: The number of epochs of the whole run.
        position: Where the run is.
        runner: Makes the steps.

    Attributes:
        losses: The results of `Runner.run_steps` since the last logged step.
        step: The last logged step.
    """

    def __init__(self, job: Job, epochs: int, position: Position, runner: Runner):
        self._job, self._epochs, self._runner = job, epochs, runner
        self._before = position.seconds
        self._began = time.perf_counter()
        self._first_call = 0.0  # the seconds of the first call, if it is in this interval
        self._start(position)

    def _start(self, position: Position) -> None:
        """Begin an interval at a position: clear the losses and the time of waits."""
        self.step, self._seconds = position.step, self._train_seconds()
        self._words = _words(position, self._job)
        self.losses: list[Any] = []
        self._waited = 0.0

    def measure_waits(self, batches: Iterator[Item]) -> Iterator[Item]:
        """Yield the batches, and add up how long the loop waits for them (`input_wait`).

        Args:
            batches: The batches of the run.
        """
        for number in itertools.count():
            began = time.perf_counter()
            item = next(batches, None)
            self._waited += time.perf_counter() - began
            if item is None:
                return
            yield item
            if number == 0 and self.losses:  # else its interval is closed
                self._first_call = time.perf_counter() - began

    def exclude(self, call: Callable[[], None]) -> None:
        """Call a function, and do not count its time as training.

        Args:
            call: The function.
        """
        began = time.perf_counter()
        call()
        self._began += time.perf_counter() - began

    def seconds(self) -> float:
        """Return the training time since the last logged step, in seconds."""
        return self._train_seconds() - self._seconds

    def close(self, position: Position, rate: float) -> dict[str, float]:
        """Return the metrics of this interval by name, and begin the next one.

        It waits until the device has made all steps. Log a warning if they had no examples.

        Args:
            position: Where the run is; its `seconds` are set.
            rate: The learning rate of the last step.

        Returns:
            The epochs made, the mean loss of an example and the further metrics of the job, the
            rate, the units of data a second, the share of the time spent waiting for input, the
            units and the seconds of training of the whole run, and the estimated seconds left.

        Raises:
            RunError: The mean loss is not finite. The interval then stays open.
        """
        total, examples = self._runner.totals(self.losses)
        loss = total / max(examples, 1.0)
        if not math.isfinite(loss):
            raise RunError(not_finite("the loss", f"steps {self.step} and {position.step}"))
        if not examples:
            logging.warning(
                "the measured steps from %d to %d have no example, so nothing is learnt from them; "
                "a line of text is an example if it has two words of the vocabulary",
                *(self.step + 1, position.step),
            )
        position.seconds = self._train_seconds()
        seconds = max(self.seconds(), 1e-9)
        words = _words(position, self._job)
        speed, data = (words - self._words) / seconds, self._job.data
        # The first call traces and compiles, which later calls do not.
        steady = seconds - self._first_call if len(self.losses) > 1 else seconds
        rest = self._epochs - position.done
        values = {
            "epoch": round(position.done, 4),
            "loss": loss,
            **self._job.loss_metrics(loss),
            "learning_rate": rate,
            f"{data.unit}_per_second": speed,
            "input_wait": self._waited / seconds,
            data.unit: round(words),
            "train_seconds": position.seconds,
            "seconds_left": data.epoch_size * rest * steady / max(words - self._words, 1e-9),
        }
        self._first_call = 0.0
        self._start(position)
        return values

    def _train_seconds(self) -> float:
        """Return the training time of the whole run, earlier processes included."""
        return self._before + time.perf_counter() - self._began


def _words(position: Position, job: Job) -> float:
    """Return about how many words, or other units of the data, the run has trained on."""
    return position.words + job.data.epoch_size * (position.done - position.epoch)


def not_finite(subject: str, between: str) -> str:
    """Return the error message for numbers that are not finite.

    Args:
        subject: The name of the numbers, with an article.
        between: The last step with finite numbers and the current step, as text.
    """
    return (
        f"{subject} is not finite between {between}; lower --learning_rate "
        "(run again to resume from the last checkpoint)"
    )
