"""The recorder of profiles of some calls, for `lexrow profile` and TensorBoard's Profile tab."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import tensorflow as tf
from absl import logging

from ..checkpoints.checkpoint import Position
from ..errors import UsageError
from ..settings.config import windows

# The name of a call in a profile; `_r` marks it as a step for xprof, as `Trace`'s own example does.
STEP = "train"

Item = TypeVar("Item")


def check(profile_steps: str, first: int, call: int, last: int) -> None:
    """Raise UsageError if this run cannot record a window of --profile_steps.

    Args:
        profile_steps: The windows, as in --profile_steps.
        first: The step that the run begins with.
        call: The number of steps in a call.
        last: The step that the run will end with, about.

    Raises:
        UsageError: A window lies outside the run or has no call.
    """
    begin = first + call
    for start, stop in windows(profile_steps):
        reason = ""
        if start < begin:
            reason = f"steps {first} to {begin - 1} are the first call, which is compiled"
        elif stop > last:
            reason = f"the run ends at about step {last}"
        elif first + -(-(start - first) // call) * call >= stop:
            reason = f"no call begins between {start} and {stop}: they begin every {call} steps"
        if reason:
            remedy = (
                f"give START,STOP from {begin} to {last}"
                if last > begin
                else "it is too short for a profile; give more --epochs"
            )
            raise UsageError(f"--profile_steps={profile_steps}: {reason}; {remedy}")


class Profiler:
    """Records the windows of --profile_steps.

    A call makes many steps, so a window begins and ends between calls. If a profile cannot be
    recorded, a warning is logged and the run goes on.

    Args:
        profile_steps: The windows, as in --profile_steps.
        folder: The folder of the run for TensorBoard, WORKDIR/tensorboard/NAME.
    """

    def __init__(self, profile_steps: str, folder: Path):
        self._windows = windows(profile_steps)
        self._folder = folder
        self._began = self._now = 0  # the first and the current step of a recording
        # The step at which the recording ends; None while there is none.
        self._stop: int | None = None
        self._named = 0  # the time in seconds that names the last profile
        self._compiled = False

    def trace(self, items: Iterator[Item], at: Position) -> Iterator[Item]:
        """Yield the items, and begin and end the recordings that are due between two of them.

        While a recording goes on, each item is marked as one step: from the wait for it until the
        caller asks for the next one. The first item is never recorded, as it compiles the step.

        Args:
            items: The batches of the run.
            at: Where the run is; the caller keeps it up to date.
        """
        items = iter(items)
        while True:
            self._start_or_stop(at.step)
            with self._trace(at.step):
                item = next(items, None)
                if item is None:
                    return
                yield item
            self._compiled = True

    def close(self) -> None:
        """End and write the recording that is going on, if any; wait up to 1 s for a new name."""
        if self._stop is not None:
            self._stop = None
            with self._warning():
                # TensorFlow names a profile by the second, and overwrites one of the same name.
                time.sleep(min(1.0, max(0.0, self._named + 1 - time.time())))
                tf.profiler.experimental.stop()
                self._named = int(time.time())
                logging.info(
                    "profile of steps %d to %d recorded; read it with: lexrow profile --workdir=%s",
                    *(self._began, self._now, self._folder.parents[1]),
                )

    def _start_or_stop(self, step: int) -> None:
        """End the recording that is over at a step, and begin the one that is due.

        None begins before the first item has been made.
        """
        self._now = step
        if self._stop is not None and step >= self._stop:
            self.close()
        due = [stop for start, stop in self._windows if start <= step < stop]
        if due and self._compiled and self._stop is None:
            with self._warning():
                tf.profiler.experimental.start(str(self._folder))
                self._began, (self._stop,) = step, due

    def _trace(self, step: int) -> contextlib.AbstractContextManager:
        """Return a context that marks a step in the recording, or that does nothing without one."""
        if self._stop is None:
            return contextlib.nullcontext()
        return tf.profiler.experimental.Trace(STEP, step_num=step, _r=1)

    @contextlib.contextmanager
    def _warning(self) -> Iterator[None]:
        """Log errors of the `with` block as a warning, and give up the windows that are left."""
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            self._windows = []  # recording would fail again at every call
            reason = str(error).splitlines()[0]
            logging.warning("the profile cannot be recorded; the run goes on: %s", reason)
