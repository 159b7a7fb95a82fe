"""Split the time of nested events, so that each event has the time that it took itself."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from .profiles import Event


def by_thread(events: Sequence[Event]) -> list[list[Event]]:
    """Group events by process and thread, and sort each group by time.

    Args:
        events: Events in any order.

    Returns:
        The events of each thread; an outer event comes before the events within it.
    """
    threads = collections.defaultdict(list)
    for event in events:
        threads[event.process, event.thread].append(event)
    return [
        sorted(thread, key=lambda event: (event.start, -event.length))
        for thread in threads.values()
    ]


def nested(events: Sequence[Event]) -> Iterator[tuple[Event, tuple[Event, ...], float]]:
    """Yield each event of a thread, with the events that enclose it and its own time.

    Args:
        events: The events of a thread, in the order of `by_thread`.

    Yields:
        The event, the events that enclose it (outermost first), and the microseconds of the event
        without the events within it.
    """
    own_times = [event.length for event in events]
    outer: list[int] = []  # numbers of the events around the current one, outermost first
    stacks = []
    for number, event in enumerate(events):
        while outer and events[outer[-1]].start + events[outer[-1]].length <= event.start:
            outer.pop()
        if outer:
            own_times[outer[-1]] -= event.length
        stacks.append(tuple(events[index] for index in outer))
        outer.append(number)
    for event, stack, time in zip(events, stacks, own_times, strict=True):
        yield event, stack, max(time, 0.0)
