"""Recording a profile of some steps for TensorBoard's Profile tab."""

from __future__ import annotations

import contextlib
from pathlib import Path

import tensorflow as tf
from absl import logging


class Profiler:
    """Records from the first call that crosses step `start` to the first that crosses `stop`.

    A call makes many steps, so a window begins and ends at the edges of calls.

    window: "START,STOP", or "" to record nothing. folder: TensorBoard's.
    """

    def __init__(self, window: str, folder: Path):
        self._start, self._stop = map(int, window.split(",")) if window else (-1, -1)
        self._folder = folder
        self._recording = False

    def call(self, first: int, last: int) -> contextlib.AbstractContextManager:
        """The context in which to make the steps first..last-1; starts and stops the recording."""
        if self._recording and first >= self._stop:
            self.close()
        if not self._recording and first <= self._start < last:
            tf.profiler.experimental.start(str(self._folder))
            self._recording = True
        if self._recording:
            return tf.profiler.experimental.Trace("train", step_num=first, _r=1)
        return contextlib.nullcontext()

    def close(self) -> None:
        """Ends a recording that is still going on."""
        if self._recording:
            tf.profiler.experimental.stop()
            self._recording = False
            self._start = -1
            logging.info("profile recorded; see it with: tensorboard --logdir=%s", self._folder)
