"""The scores of a run at the end of its epochs: computed at once, or while training goes on."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator

Scores = Callable[[], dict[str, float]]


class Scoring:
    """Computes scores one after the other, and keeps each result until `done` yields it.

    Args:
        is_aside: Whether to compute them in a thread while training goes on.
    """

    def __init__(self, is_aside: bool):
        self.is_aside = is_aside
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "scoring")
        self._pending: list[tuple[int, int, concurrent.futures.Future]] = []

    @property
    def is_idle(self) -> bool:
        """Return whether `done` has yielded the result of everything that was begun."""
        return not self._pending

    def begin(self, scores: Scores, step: int, epoch: int) -> None:
        """Begin to compute scores in the thread; wait for them here, unless `is_aside`.

        With `is_aside`, training may change the tables meanwhile, so the step is approximate.
        Without it, errors in computing are raised here. The scores come from `done` in both cases.

        Args:
            scores: Returns the scores by name.
            step: The step that the run is at.
            epoch: The epochs that are finished.
        """
        future = self._thread.submit(scores)
        self._pending.append((step, epoch, future))
        if not self.is_aside:
            future.result()

    def done(self) -> Iterator[tuple[int, int, dict[str, float]]]:
        """Yield the step, the epoch and the scores of each result that is ready, and forget it.

        Wait for none. An error in computing scores is raised here.
        """
        while self._pending and self._pending[0][2].done():
            step, epoch, future = self._pending.pop(0)
            yield step, epoch, future.result()

    def rest(self) -> Iterator[tuple[int, int, dict[str, float]]]:
        """Wait for all scores, and yield and forget them as `done` does."""
        concurrent.futures.wait([future for *_, future in self._pending])
        yield from self.done()

    def close(self) -> None:
        """Drop the waiting work of the thread, and wait for its end."""
        self._thread.shutdown(cancel_futures=True)
