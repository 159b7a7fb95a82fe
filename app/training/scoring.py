"""The scores of a run at the end of its epochs: computed at once, or while training goes on."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence

from ..errors import StoppedError
from .job import Scores

# Seconds. The system may give a signal to another thread than the main one, whose wait goes on
# then. Python calls the handler of the signal only when the main thread runs again.
_WAKE_SECONDS = 0.2


class Scoring:
    """Computes scores one after the other, and keeps each result until `done` yields it.

    Args:
        is_aside: Whether to compute them in a thread while training goes on.
        is_asked: Returns whether this process is asked to stop; scoring then ends early.
    """

    def __init__(self, is_aside: bool, is_asked: Callable[[], bool] = lambda: False):
        self.is_aside, self._is_asked = is_aside, is_asked
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "scoring")
        self._pending: list[tuple[int, int, concurrent.futures.Future]] = []

    @property
    def is_idle(self) -> bool:
        """Return whether `done` has yielded the result of everything that was begun."""
        return not self._pending

    def begin(self, scores: Scores, step: int, epoch: int) -> None:
        """Begin to compute scores in the thread; wait for them here, unless `is_aside`.

        With `is_aside`, training may change the tables meanwhile, so the step is approximate.
        The scores come from `done` in both cases.

        Args:
            scores: Returns the scores by name.
            step: The step that the run is at.
            epoch: The epochs that are finished.
        """
        future = self._thread.submit(scores, self._end_if_asked)
        self._pending.append((step, epoch, future))
        if not self.is_aside:
            _wait([future])

    def done(self) -> Iterator[tuple[int, int, dict[str, float] | None]]:
        """Yield the step, the epoch and the scores of each result that is ready, and forget it.

        The scores are None if this process was asked to stop before they were complete. Wait for
        none. An error in computing scores is raised here.
        """
        while self._pending and self._pending[0][2].done():
            step, epoch, future = self._pending.pop(0)
            try:
                scores = future.result()
            except StoppedError:
                scores = None
            yield step, epoch, scores

    def rest(self) -> Iterator[tuple[int, int, dict[str, float] | None]]:
        """Wait for all scores, and yield and forget them as `done` does."""
        _wait([future for *_, future in self._pending])
        yield from self.done()

    def close(self) -> None:
        """Drop the waiting work of the thread, and wait for its end."""
        self._thread.shutdown(cancel_futures=True)

    def _end_if_asked(self) -> None:
        """Raise StoppedError if this process is asked to stop."""
        if self._is_asked():
            raise StoppedError("scoring was stopped")


def _wait(futures: Sequence[concurrent.futures.Future]) -> None:
    """Wait for the end of all futures, and let handlers of signals be called meanwhile."""
    while concurrent.futures.wait(futures, _WAKE_SECONDS).not_done:
        pass
