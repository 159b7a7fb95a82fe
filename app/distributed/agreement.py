"""Make all workers run the same number of calls. Each worker reads another share of the text.

The shares have different lengths, which the workers do not know in advance. So with every call each
worker tells the others whether it has more batches of this epoch. A worker without batches makes
calls with an empty batch until no worker has any. Then all go on to the next epoch together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Agreement:
    """The calls of one worker, in step with the calls of the others.

    Args:
        somebody_has_more: Waits for the latest call, and returns whether any worker has reported
            with that call that it has more batches of the epoch.

    Attributes:
        has_more: Whether this worker has more batches of the epoch, to report with the next call.
    """

    def __init__(self, somebody_has_more: Callable[[], bool]):
        self._somebody_has_more = somebody_has_more
        self.has_more = False

    def batches(
        self, own: Iterator[tuple[int, Any]], epochs: range, empty: Any
    ) -> Iterator[tuple[int, Any]]:
        """Yield the batch of every call that all workers make together; set `has_more` before each.

        An epoch goes on, with empty batches if need be, until no worker has more. It has at least
        one call, so every epoch must have a batch in at least one worker.

        Args:
            own: The batches of this worker, each with its epoch.
            epochs: The epochs to go through.
            empty: The batch of a call for which this worker has no batch.

        Yields:
            The epoch and the batch.
        """
        upcoming = next(own, None)
        for epoch in epochs:
            is_first = True
            while True:
                data = empty
                if upcoming is not None and upcoming[0] == epoch:
                    data, upcoming = upcoming[1], next(own, None)
                elif not is_first and not self._somebody_has_more():
                    break
                is_first = False
                self.has_more = upcoming is not None and upcoming[0] == epoch
                yield epoch, data
