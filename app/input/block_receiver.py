"""Receive numbered blocks of rows from a tf.data service in any order, and return them in order."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

# After this time the trainer makes a block itself: since a later block came, or since the last
# block if none came. A worker makes a block many times faster.
PATIENCE_SECONDS = 3.0
# After this silence the service is not used until the next epoch. A worker that is started again
# is ready in about 10 seconds. A service that sent nothing in an epoch is given up at once.
SILENCE_SECONDS = 30.0
# Additional time for the first block, as a worker receives the vocabulary and builds its table. A
# million tokens took 10 seconds or less, and 22 once on a busy machine.
START_SECONDS = 30.0


class BlockReceiver:
    """Holds the blocks of a dataset of (number, rows) until they are taken in order of number.

    The constructor starts a thread that makes and iterates the dataset, because TensorFlow's client
    waits forever if no server is left to answer. Only the end of the process ends such a wait; the
    thread does not delay it.

    Args:
        dataset: Makes the dataset.
        capacity: Number of blocks to hold until their turn.
    """

    def __init__(self, dataset: Callable[[], tf.data.Dataset], capacity: int):
        self._dataset, self._capacity = dataset, capacity
        self._changed = threading.Condition()
        self._held: dict[int, tuple[float, np.ndarray]] = {}  # the oldest first
        self._turn = 0
        self._last = time.monotonic() + START_SECONDS  # when the last block came
        self._came = self._ended = self._closed = False
        self._error = ""
        threading.Thread(target=self._pull, name="data service", daemon=True).start()

    def take(self, number: int) -> np.ndarray | None:
        """Wait for a block, and return its rows (R, L), or None if they do not come in time.

        That is the case if the block is overdue by `PATIENCE_SECONDS`, the dataset has ended, or
        `capacity` later blocks are held. The block itself and earlier ones are no longer held.

        Args:
            number: Number of the block; it must be larger in each call.
        """
        with self._changed:
            self._turn = number
            for late in [other for other in self._held if other < number]:
                del self._held[late]
            self._changed.notify_all()
            while number not in self._held:
                # Overdue since a later block came, or since the last block if none is held.
                since = next((came for came, _ in self._held.values()), self._last)
                remaining = since + PATIENCE_SECONDS - time.monotonic()
                if remaining <= 0 or self._ended or len(self._held) >= self._capacity:
                    return None
                self._changed.wait(remaining)
            return self._held.pop(number)[1]

    def why_lost(self) -> str:
        """Return why no more blocks are expected, or "" if some are.

        The reason is the dataset's error, or that no block is held or has come for a long time.
        """
        with self._changed:
            limit = SILENCE_SECONDS if self._came else PATIENCE_SECONDS
            silent = not (self._ended or self._held) and time.monotonic() - self._last >= limit
            return self._error or ("it sends nothing" if silent else "")

    def close(self) -> None:
        """Drop the held blocks, and let the thread end once TensorFlow returns; do not wait."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify_all()

    def _pull(self) -> None:
        """Hold each block of the dataset until `close`; keep the message of an error."""
        try:
            for number, rows_RL in self._dataset():
                self._last, self._came = time.monotonic(), True
                if not self._put(int(number), rows_RL.numpy()):
                    return
        except tf.errors.OpError as error:
            self._error = first_line(error)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, number: int, rows_RL: np.ndarray) -> bool:
        """Hold a block once there is space, or at once if awaited; return False after `close`.

        A block before the awaited one is dropped, as the trainer has made it itself.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or len(self._held) < self._capacity or number <= self._turn
            )
            self._last = time.monotonic()
            if number >= self._turn and not self._closed:
                self._held[number] = (self._last, rows_RL)
                self._changed.notify_all()
            return not self._closed


def first_line(error: tf.errors.OpError) -> str:
    """Return the first line of an error's message, without the names of operations.

    Args:
        error: An error of TensorFlow.
    """
    lines = re.sub(r"\{\{.*?\}\}", "", error.message).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
