"""Which calls processes in step make together, where each has a share of an epoch's text.

Shares are not of one length, and nobody knows the others' before. So each process tells with every
call whether it has batches of the epoch after this one. Who has none left makes calls with an empty
batch as long as somebody has; then all go on to the next epoch together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Agreement:
    """The calls of one of the processes.

    somebody_has_more: whether any process told so with the call made last; waits for that call.
    has_more: what this process is to tell with the call that comes.
    """

    def __init__(self, somebody_has_more: Callable[[], bool]):
        self._somebody_has_more = somebody_has_more
        self.has_more = False

    def batches(
        self, own: Iterator[tuple[int, Any]], epochs: range, empty: Any
    ) -> Iterator[tuple[int, Any]]:
        """The batches of all calls of the epochs.

        own: those of this process. empty: in place of those that it has no more of. Every epoch is
        to have a batch in some process, so that one which has none makes a first call to learn of
        others.
        """
        following = next(own, None)
        for epoch in epochs:
            is_first = True
            while True:
                data = empty
                if following is not None and following[0] == epoch:
                    data, following = following[1], next(own, None)
                elif not is_first and not self._somebody_has_more():
                    break
                is_first = False
                self.has_more = following is not None and following[0] == epoch
                yield epoch, data
