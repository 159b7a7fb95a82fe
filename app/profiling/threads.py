"""What each thread of a profile did itself: nested events, taken apart."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from .profiles import Event


def by_thread(events: Sequence[Event]) -> list[list[Event]]:
    """The events of each thread, outer ones before those that they hold."""
    found = collections.defaultdict(list)
    for event in events:
        found[event.process, event.thread].append(event)
    return [sorted(own, key=lambda event: (event.start, -event.length)) for own in found.values()]


def nested(events: Sequence[Event]) -> Iterator[tuple[Event, tuple[Event, ...], float]]:
    """Each event of one thread with those around it, outermost first, and its own time.

    events: as of `by_thread`. The own time, in microseconds, is that which no event within took.
    """
    own = [event.length for event in events]
    around: list[int] = []  # of the event that is looked at, outermost first
    stacks = []
    for number, event in enumerate(events):
        while around and events[around[-1]].start + events[around[-1]].length <= event.start:
            around.pop()
        if around:
            own[around[-1]] -= event.length
        stacks.append(tuple(events[outer] for outer in around))
        around.append(number)
    for event, stack, time in zip(events, stacks, own, strict=True):
        yield event, stack, max(time, 0.0)
