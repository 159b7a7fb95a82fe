"""Find the runs of operations in a profile, and sum up their time."""

from __future__ import annotations

import collections
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..types import PHASES
from .profiles import NO_PROGRAMS, Event, Kernel, Programs, on_stream

INPUT = "input"

# The event of TensorFlow's executor that starts an operation, within which XLA runs it.
_ASYNCHRONOUS = "ExecutorState::ProcessAsync::Start"
# This event is within the operation that has ended, and starts the next ones.
_AFTERWARDS = "ExecutorState::ProcessAsync::Done"
# Functions of tf.data run on threads whose names begin so.
_INPUT_THREADS = "tf_data_"
_ITERATOR = "Iterator::"
# The call of a compiled program on a CPU, whose kernels may run on other threads.
_PROGRAM = "CpuExecutable::"
# The prefix of operations in a function that another function calls, as in keras.fit.
_CALL = "StatefulPartitionedCall/"
# Types of operations that call Python.
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# Seconds of a run that reads or writes about 3 MB or more, at the 10 GB/s of a core.
_LARGE = 3e-4
_LARGE_ON_DEVICE = 2e-5  # of a GPU, which is ten to a hundred times as fast


class Run(NamedTuple):
    """A run of an operation.

    Attributes:
        name: The name in the graph, with the numbers of copies.
        kind: The type.
        part: The phase of the step (`types.PHASES`), `input`, or empty.
        on_device: Whether a device other than the CPU ran it.
        start: Microseconds.
        end: Microseconds.
        seconds: The time without operations within it.
        kernel: The name of the kernel of a compiled program; empty if it is none. The operation of
            the step is then its source.
        bytes: The bytes that this kernel moves.
        in_graph: Whether this kernel was started by a CUDA graph.
    """

    name: str
    kind: str
    part: str
    on_device: bool
    start: float
    end: float
    seconds: float
    kernel: str = ""
    bytes: int = 0
    in_graph: bool = False

    @property
    def python(self) -> bool:
        """Whether it calls a Python function."""
        return self.kind in _PYTHON


class Operation(NamedTuple):
    """All operations of one name, type and part, where names lose the numbers of copies.

    Attributes:
        name: The name in the graph; `layer_1/MatMul_2` becomes `layer/MatMul`.
        kind: The type.
        part: The phase of the step (`types.PHASES`), `input`, or empty.
        count: The number of runs.
        seconds: The time of all runs, without operations within them.
        share: The share of the time of all operations.
        large: The share of the time of all operations that copies with much to do take, whose
            median run takes 0.3 ms or more (0.02 ms on a device).
    """

    name: str
    kind: str
    part: str
    count: int  # type: ignore[assignment]  # the field is not the method of tuples
    seconds: float
    share: float
    large: float = 0.0


class Work(NamedTuple):
    """The time of the operations of a profile.

    Attributes:
        operations: The operations, in descending order of time.
        parts: For each part (see `Operation.part`), its share of the time of all operations.
    """

    operations: list[Operation]
    parts: dict[str, float]


def collect_runs(events: Sequence[Event], programs: Programs = NO_PROGRAMS) -> list[Run]:
    """Return the runs of operations of a profile, of the host and of devices, in no order.

    Args:
        programs: Its compiled programs, whose kernels count as operations.
    """
    runs = []
    for thread in by_thread(events):
        seconds: dict[int, float] = collections.defaultdict(float)
        ends: dict[int, float] = {}
        found: dict[int, tuple[Event, tuple[str, str, Kernel | None], bool]] = {}
        for event, outer, own_time in nested(thread):
            operation = _innermost((*outer, event), programs)
            if operation is event:
                key = _key(event, programs)
                assert key is not None
                is_input = any(other.name.startswith(_ITERATOR) for other in outer)
                found[id(event)] = event, key, is_input or event.thread.startswith(_INPUT_THREADS)
            if operation is not None:
                seconds[id(operation)] += own_time / 1e6
            elif event.name == _AFTERWARDS and outer:
                ends.setdefault(id(outer[-1]), event.start)
        for number, (event, (name, kind, kernel), is_input) in found.items():
            end = ends.get(number, event.start + event.length)
            part = INPUT if is_input else _phase(name)
            run = Run(name, kind, part, on_stream(event), event.start, end, seconds[number])
            if kernel:
                in_graph = "cuda_graph_id" in event.args
                run = run._replace(kernel=event.name, bytes=kernel.bytes, in_graph=in_graph)
            runs.append(run)
    return runs


def collect_work(runs: Sequence[Run]) -> Work:
    """Sum up the runs of operations: only operations of devices, or of the host if none ran."""
    on_devices = any(run.on_device for run in runs)
    copies: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for run in runs:
        if run.on_device == on_devices:
            name = re.sub(r"(_\d+)+(?=/|$)", "", run.name)
            by_copy = copies.setdefault((name, run.kind, run.part), {})
            by_copy.setdefault(run.kernel or run.name, []).append(run.seconds)
    least = _LARGE_ON_DEVICE if on_devices else _LARGE
    total = sum(sum(times) for group in copies.values() for times in group.values()) or 1.0
    parts: dict[str, float] = collections.defaultdict(float)
    operations = []
    for key, group in copies.items():
        seconds = sum(sum(times) for times in group.values())
        large = sum(sum(times) for times in group.values() if statistics.median(times) >= least)
        count = sum(len(times) for times in group.values())
        operations.append(Operation(*key, count, seconds, seconds / total, large / total))
        parts[key[2]] += seconds / total
    return Work(sorted(operations, key=lambda operation: -operation.seconds), dict(parts))


def _innermost(stack: Sequence[Event], programs: Programs) -> Event | None:
    """Return the innermost operation in a stack of nested events, outermost first.

    Return None if there is none, or if the innermost part of the stack is a call of an iterator or
    of a compiled program with known kernels, in which a thread waits for others, or the executor's
    work after an operation.
    """
    waits = (_ITERATOR, _PROGRAM) if programs.kernels else _ITERATOR
    for event in reversed(stack):
        if event.name == _AFTERWARDS or event.name.startswith(waits):
            return None
        if _key(event, programs) is not None:
            return event
    return None


def _kernel(event: Event, programs: Programs) -> Kernel | None:
    """Return the kernel of a compiled program that an event ran, or None if it ran none.

    On a GPU, a graph of kernels is one instruction, so the kernel's own name is looked up, too.
    """
    module = event.args.get("hlo_module")
    if module is None:
        return None
    for name in (event.args.get("hlo_op", ""), event.name):
        if (module, name) in programs.kernels:
            return programs.kernels[module, name]
    # Others of the host call kernels, as loops do.
    return Kernel(event.args.get("name", ""), 0) if on_stream(event) else None


def _key(event: Event, programs: Programs) -> tuple[str, str, Kernel | None] | None:
    """Return the name and the type of an operation, or None if the event is no operation.

    If it is a kernel of a compiled program, return also that, and its name without numbers as type.
    """
    kernel = _kernel(event, programs)
    if kernel:
        return kernel.source, re.sub(r"[._]\d+", "", event.name), kernel
    if event.name == _ASYNCHRONOUS:
        name, kind = event.args.get("name", ""), event.args.get("kernel_type", "")
    else:
        # NAME:TYPE is in `long_name` for the host and in `tf_op` for kernels of a GPU.
        label = event.args.get("long_name") or event.args.get("tf_op") or ""
        name, colon, kind = label.rpartition(":")
        if not colon:
            return None
    return name.removeprefix(_CALL), kind, None


def _phase(name: str) -> str:
    """Return the phase (of `PHASES`) that an operation's name begins with, or "" if none.

    Operations of `gradient_tape` belong to `gradient`.
    """
    first = re.sub(r"(_\d+)+$", "", name.partition("/")[0])
    first = "gradient" if first == "gradient_tape" else first
    return first if first in PHASES else ""


def by_thread(events: Sequence[Event]) -> list[list[Event]]:
    """Group events by process and thread, each sorted by time: an outer event comes first."""
    threads: dict[tuple[str, str], list[Event]] = collections.defaultdict(list)
    for event in events:
        threads[event.process, event.thread].append(event)
    return [
        sorted(thread, key=lambda event: (event.start, -event.length))
        for thread in threads.values()
    ]


def nested(events: Sequence[Event]) -> Iterator[tuple[Event, tuple[Event, ...], float]]:
    """Yield each event of a thread, the events that enclose it (outermost first), and its own time.

    The latter are the microseconds without the events within it. The events are in the order of
    `by_thread`.
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
