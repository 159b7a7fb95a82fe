"""What the operations of the recorded calls took, and what was spent between them."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..types import PHASES
from .profiles import Event, on_stream
from .threads import by_thread, nested

INPUT = "input"

# TensorFlow's executor, as it names itself: it starts operations, and runs those of XLA in `Start`.
_EXECUTOR = "ExecutorState::"
_ASYNCHRONOUS = "ExecutorState::ProcessAsync::Start"
# Lies within that of the operation that has ended, and starts others.
_AFTERWARDS = "ExecutorState::ProcessAsync::Done"
# Functions of tf.data run on threads of these names.
_INPUT_THREADS = "tf_data_"
_ITERATOR = "Iterator::"
# What a function within another adds to the names of its operations: keras.fit has one.
_CALL = "StatefulPartitionedCall/"


class Operation(NamedTuple):
    """Operations of one name in the graph, but for the numbers that tell copies apart.

    part: the phase of the step (`types.PHASES`), `input`, or empty. share: of the time of
    all operations.
    """

    name: str
    kind: str
    part: str
    count: int
    seconds: float
    share: float


class Work(NamedTuple):
    """operations: heaviest first. parts: share of each part in the time of all operations.

    starting: share of the executor's own time in what the threads of the step did: what it takes
    to start operations.
    """

    operations: list[Operation]
    parts: dict[str, float]
    starting: float


def work(events: Sequence[Event]) -> Work:
    """The work of a profile: that on devices where there is any, else that of the host."""
    times: collections.Counter[tuple[str, str, str]] = collections.Counter()
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    starting = stepping = 0.0
    on_devices = any(on_stream(event) for event in events)
    for thread in by_thread([event for event in events if on_stream(event) == on_devices]):
        for event, around, own in nested(thread):
            inside = _innermost((*around, event))
            if inside is not None:
                key = _key(inside)
                times[key] += own / 1e6
                counts[key] += inside is event
                stepping += 0 if key[2] == INPUT else own
            elif event.name.startswith(_EXECUTOR) and not _of_input(event):
                starting += own
    total = sum(times.values()) or 1.0
    parts: collections.Counter[str] = collections.Counter()
    for (_, _, part), seconds in times.items():
        parts[part] += seconds / total
    heaviest = [
        Operation(*key, counts[key], seconds, seconds / total)
        for key, seconds in times.most_common()
    ]
    return Work(heaviest, dict(parts), starting / ((starting + stepping) or 1.0))


def _innermost(stack: Sequence[Event]) -> Event | None:
    """The operation that the last of nested events is a part of, or is; None if there is none."""
    for event in reversed(stack):
        if event.name == _AFTERWARDS or _waits(event):
            return None
        if _operation(event):
            return event
    return None


def _of_input(event: Event) -> bool:
    return event.thread.startswith(_INPUT_THREADS)


def _waits(event: Event) -> bool:
    """Whether the event is an iterator's, in which a thread waits for another."""
    return event.name.startswith(_ITERATOR)


def _operation(event: Event) -> tuple[str, str] | None:
    """Name and type of the operation that the event is, if it is one."""
    if event.name == _ASYNCHRONOUS:
        return event.args.get("name", ""), event.args.get("kernel_type", "")
    # Of the host `long_name`, of kernels on a GPU `tf_op`: name:type.
    name, colon, kind = (event.args.get("long_name") or event.args.get("tf_op") or "").rpartition(
        ":"
    )
    return (name, kind) if colon and not _waits(event) else None


def _key(event: Event) -> tuple[str, str, str]:
    found = _operation(event)
    assert found is not None
    name, kind = found
    name = re.sub(r"_\d+(?=/|$)", "", name).removeprefix(_CALL)
    return name, kind, INPUT if _of_input(event) else _phase(name)


def _phase(name: str) -> str:
    """The phase of the step that an operation belongs to; autodiff names its own after the loss."""
    first = name.partition("/")[0]
    first = "gradient" if first == "gradient_tape" else first
    return first if first in PHASES else ""
