"""What N workers would do over a network: reckoned from measured times and bytes, not measured.

Each worker is taken to be a machine like the one that was measured, with a link of its own that
sends and receives at once. Its processor and its link take turns. There are as many parameter
servers as workers, so that the busiest link is a worker's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_BITS = 8e-9  # gigabits of a byte
_NUMBER = 4  # bytes of an id, and of a number of a row
# Messages of a step that wait for one another: a vector at each hop of the ring (the lengths of all
# vectors of a call go round once before); or ids, then rows, then gradients.
OF_HOP, OF_STEP = 1, 3


class Reckoned(NamedTuple):
    """Workers that each make a step in the same time.

    strategy: --strategy. step_tokens: of a step of all workers, or where they do not share it of
    one. words: of the corpus, that all of them get through meanwhile. seconds: of the step without
    the network. bytes: that a worker's link carries in it, one way. messages: that it waits for.
    """

    strategy: str
    workers: int
    step_tokens: int
    words: float
    seconds: float
    bytes: float
    messages: int

    @property
    def bytes_per_word(self) -> float:
        """What all links carry for a word of the corpus."""
        return self.workers * self.bytes / self.words

    @property
    def break_even(self) -> float:
        """Gbit/s of a link that is busy for as long as the processor is."""
        return _BITS * self.bytes / self.seconds

    def words_per_second(self, gigabits: float, message_seconds: float) -> float:
        """Of all workers. gigabits: of a link, each second. message_seconds: of an empty one."""
        travel = self.messages * message_seconds + _BITS * self.bytes / gigabits
        return self.words / (self.seconds + travel)

    def record(self, gigabits: list[int], message_seconds: float) -> dict[str, Any]:
        """For JSON, with the words a second by the speed of the links."""
        return self._asdict() | {
            "bytes_per_word": self.bytes_per_word,
            "break_even_gigabits": self.break_even,
            "words_per_second": {
                speed: self.words_per_second(speed, message_seconds) for speed in gigabits
            },
        }


def in_step(
    workers: int, step_tokens: int, words: float, seconds: float, vector_bytes: float
) -> Reckoned:
    """Replicas that share each step: a vector of each goes round a ring to all others."""
    hops = workers - 1
    carried = hops * vector_bytes
    return Reckoned("multi_worker", workers, step_tokens, words, seconds, carried, OF_HOP * hops)


def at_own_pace(
    workers: int, step_tokens: int, words: float, seconds: float, rows: float, columns: int
) -> Reckoned:
    """Workers that fetch the rows of each step from servers, and send gradients there.

    words: of a step of one. rows: that it touches, of all tables.
    """
    carried = rows_there_and_back(rows, columns)
    return Reckoned(
        "parameter_server", workers, step_tokens, workers * words, seconds, carried, OF_STEP
    )


def rows_there_and_back(rows: float, columns: int) -> float:
    """Bytes of so many rows that are asked for by their ids and come, and of their gradients.

    Those go with the ids. One after the other, so that they count as if they went the same way.
    """
    return 2 * rows * _NUMBER * (1 + columns)
