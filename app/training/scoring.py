"""The scores of a run at the end of its epochs, at once or while training goes on."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator

Scores = Callable[[], dict[str, float]]


class Scoring:
    """Computes scores one after the other. is_aside: in a thread, while calls go on."""

    def __init__(self, is_aside: bool):
        self.is_aside = is_aside
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "scoring")
        self._begun: list[tuple[int, int, concurrent.futures.Future]] = []

    @property
    def is_idle(self) -> bool:
        """Whether all that were begun have been told by `done`."""
        return not self._begun

    def begin(self, scores: Scores, step: int, epoch: int) -> None:
        """Begins with the scores of the tables at a step, or, where aside, about there."""
        future = self._thread.submit(scores)
        self._begun.append((step, epoch, future))
        if not self.is_aside:
            future.result()

    def done(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Those that are computed since the last time, each with its step. Raises what they do."""
        while self._begun and self._begun[0][2].done():
            step, epoch, future = self._begun.pop(0)
            yield step, {"epoch": epoch, **future.result()}

    def rest(self) -> Iterator[tuple[int, dict[str, float]]]:
        """The same of all that were begun, as they come."""
        concurrent.futures.wait([future for *_, future in self._begun])
        yield from self.done()

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(cancel_futures=True)
