"""Sum up the time of operations in a profile, and the time to start them."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..types import PHASES
from .profiles import Event, on_stream

INPUT = "input"

# Events of TensorFlow's executor, which starts operations; it runs operations of XLA in `Start`.
_EXECUTOR = "ExecutorState::"
_ASYNCHRONOUS = "ExecutorState::ProcessAsync::Start"
# This event is within the operation that has ended, and starts the next ones.
_AFTERWARDS = "ExecutorState::ProcessAsync::Done"
# Functions of tf.data run on threads whose names begin so.
_INPUT_THREADS = "tf_data_"
_ITERATOR = "Iterator::"
# The prefix of operations in a function that another function calls, as in keras.fit.
_CALL = "StatefulPartitionedCall/"


class Operation(NamedTuple):
    """All operations of one name, type and part, where names lose the numbers of copies.

    Attributes:
        name: The name in the graph; `layer_1/MatMul_2` becomes `layer/MatMul`.
        kind: The type.
        part: The phase of the step (`types.PHASES`), `input`, or empty.
        count: The number of runs.
        seconds: The time of all runs, without operations within them.
        share: The share of the time of all operations.
    """

    name: str
    kind: str
    part: str
    count: int  # type: ignore[assignment]  # the field is not the method of tuples
    seconds: float
    share: float


class Work(NamedTuple):
    """The time of the operations of a profile.

    Attributes:
        operations: The operations, in descending order of time.
        parts: For each part (see `Operation.part`), its share of the time of all operations.
        starting: The time in which TensorFlow's executor starts operations, as a share of this time
            and the time of all operations but those of the input. 0 if a device ran operations.
    """

    operations: list[Operation]
    parts: dict[str, float]
    starting: float


def collect_work(events: Sequence[Event]) -> Work:
    """Sum up the operations of a profile: only operations of devices, or of the host if none ran.

    Args:
        events: The events of the profile.

    Returns:
        The time of the operations.
    """
    times: dict[tuple[str, str, str], float] = collections.defaultdict(float)
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    starting = computing = 0.0
    on_devices = any(on_stream(event) for event in events)
    for thread in by_thread([event for event in events if on_stream(event) == on_devices]):
        for event, outer, own_time in nested(thread):
            innermost = _innermost((*outer, event))
            if innermost is not None:
                operation, key = innermost
                times[key] += own_time / 1e6
                counts[key] += operation is event
                computing += 0 if key[2] == INPUT else own_time
            elif event.name.startswith(_EXECUTOR) and not _is_input(event):
                starting += own_time
    total = sum(times.values()) or 1.0
    parts: dict[str, float] = collections.defaultdict(float)
    for (_, _, part), seconds in times.items():
        parts[part] += seconds / total
    heaviest = [
        Operation(*key, counts[key], seconds, seconds / total)
        for key, seconds in sorted(times.items(), key=lambda item: item[1], reverse=True)
    ]
    return Work(heaviest, dict(parts), starting / ((starting + computing) or 1.0))


def _innermost(stack: Sequence[Event]) -> tuple[Event, tuple[str, str, str]] | None:
    """Return the innermost operation in a stack of nested events, outermost first, and its key.

    Return None if there is none, or if the innermost part of the stack is a call of an iterator, in
    which a thread waits for another, or the executor's work after an operation.
    """
    for event in reversed(stack):
        if event.name == _AFTERWARDS or event.name.startswith(_ITERATOR):
            return None
        key = _key(event)
        if key is not None:
            return event, key
    return None


def _is_input(event: Event) -> bool:
    """Return whether an event ran on a thread of tf.data."""
    return event.thread.startswith(_INPUT_THREADS)


def _key(event: Event) -> tuple[str, str, str] | None:
    """Return the name (without the numbers of copies), the type and the part of an operation.

    Return None if the event is no operation.
    """
    if event.name == _ASYNCHRONOUS:
        name, kind = event.args.get("name", ""), event.args.get("kernel_type", "")
    else:
        # NAME:TYPE is in `long_name` for the host and in `tf_op` for kernels of a GPU.
        label = event.args.get("long_name") or event.args.get("tf_op") or ""
        name, colon, kind = label.rpartition(":")
        if not colon:
            return None
    name = re.sub(r"(_\d+)+(?=/|$)", "", name).removeprefix(_CALL)
    return name, kind, INPUT if _is_input(event) else _phase(name)


def _phase(name: str) -> str:
    """Return the phase (of `PHASES`) that an operation's name begins with, or "" if none.

    Operations of `gradient_tape` belong to `gradient`.
    """
    first = name.partition("/")[0]
    first = "gradient" if first == "gradient_tape" else first
    return first if first in PHASES else ""


def by_thread(events: Sequence[Event]) -> list[list[Event]]:
    """Group events by process and thread, and sort each group by time.

    Args:
        events: Events in any order.

    Returns:
        The events of each thread; an outer event comes before the events within it.
    """
    threads: dict[tuple[str, str], list[Event]] = collections.defaultdict(list)
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
