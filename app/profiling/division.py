"""Divide the time of recorded steps into parts, and name the part that bounds it.

The steps are those that `tf.profiler.experimental.Trace` or `keras.callbacks.TensorBoard` marked.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .operations import INPUT, Run
from .profiles import Event, on_stream

# From this share of waiting for input on, a step is input-bound. xprof calls it highly input-bound
# (kHighlyInfeedBoundThresholdInPercent of op_stats_to_input_pipeline_analysis.cc).
INPUT_BOUND = 0.20
# The number of calls from which on the shares are trusted. In a shorter profile a single event,
# such as the read of a block of text, has too much weight.
TRUSTED_CALLS = 5

VERDICTS = {
    "input": "input-bound",
    "device_compute": "device-bound",
    "launch": "launch-bound",
    "host_compute": "host-bound",
    "host_to_device": "copy-bound",
}

# The event of a wait for the next batch, and operations that last as long as this wait.
_WAITING = "IteratorGetNextOp::DoCompute"
_WAITING_KIND = "IteratorGetNext"
# Prefixes of events that start operations: TensorFlow's executor, CUDA's calls, and XLA's program.
_STARTING = ("ExecutorState::", "cuLaunch", "cudaLaunch", "cuGraphLaunch", "GpuExecutable::Execute")
_COPY = "memcpyh2d"  # CUPTI's name of a copy from the host, in lower case
_CALL, _TRACING = "tf_function_call", "traced-"  # the latter begins that of a call that traces
# Threads that take parts of an operation of the CPU, and the event of such a part.
_HELPERS, _HELP = "tf_numa_", "ThreadpoolListener::Region"
# What a second hardware thread adds to the speed of a core, which is 1.2 to 1.3 times that of one.
_SECOND_THREAD = 0.25
# A wait is long if it takes as long as this many steps, and at least this many milliseconds.
_STEPS = 20
_LEAST_MILLISECONDS = 100.0


class Division(NamedTuple):
    """How the calls of a train function spend their time. A call runs one step or several.

    Attributes:
        calls: The number of complete calls in the profile.
        milliseconds: The mean time of a call, without Python's time where a function was traced.
        shares: For each part, its share of the time. The parts are `input` (waiting for it),
            `host_to_device` (copies), `host_compute` (the rest, such as Python), `launch` (the
            start of operations) and `device_compute` (operations; on a CPU, too). The shares add
            up to 1, or are all 0 without calls.
        cpu_only: Whether there is no device but the CPU.
        competing: The share of the time that steps lose because operations of the input use the
            same cores, a part of the shares above. 0 where there are enough cores.
        long_waits: The steps that wait 20 times the median time of a step or more, and at least
            100 ms; None if there are none.
        crowding: The time that all operations, of steps and of the input, would take on all cores,
            as a share of the time of the calls. 0 with another device.
        launch_counts: Whether `launch` is that of a run without a profile. It is not if a GPU ran
            compiled kernels one by one: XLA uses CUDA graphs only while no profile is recorded.
    """

    calls: int
    milliseconds: float
    shares: dict[str, float]
    cpu_only: bool
    competing: float = 0.0
    long_waits: LongWaits | None = None
    crowding: float = 0.0
    launch_counts: bool = True

    @property
    def seconds(self) -> float:
        """The time of all calls."""
        return self.calls * self.milliseconds / 1e3

    @property
    def trusted(self) -> bool:
        """Whether there are at least `TRUSTED_CALLS` calls, enough to trust the shares."""
        return self.calls >= TRUSTED_CALLS

    @property
    def verdict(self) -> str:
        """The part that limits the speed, such as "device-bound" (a value of `VERDICTS`).

        It is "input-bound" if waiting for input, and the time lost to operations of the input, are
        a share of `INPUT_BOUND` or more. Otherwise it is the part with the largest share, without
        `launch` if this does not count.
        """
        if self.shares["input"] + self.competing >= INPUT_BOUND:
            return VERDICTS["input"]
        left_out = ("input",) if self.launch_counts else ("input", "launch")
        others = [part for part in VERDICTS if part not in left_out]
        return VERDICTS[max(others, key=lambda part: self.shares[part])]


class LongWaits(NamedTuple):
    """The steps of a profile that wait far longer for input than the others.

    Attributes:
        steps: The numbers of these steps, as recorded.
        seconds: Their mean wait.
        share: The share of the time of all steps that is spent in these waits.
    """

    steps: list[int]
    seconds: float
    share: float

    def __str__(self) -> str:
        """Return a sentence for the user: how many steps wait, and how long."""
        count = len(self.steps)
        steps = "1 step waits" if count == 1 else f"{count} steps wait"
        return (
            f"{steps} {self.seconds:.3g} s for input, {self.share:.0%} of the time; such a step is "
            "normally the first of an epoch"
        )


def divide(events: Sequence[Event], runs: Sequence[Run], cores: int) -> Division:
    """Divide the time of the calls of a profile into parts, and find their long waits.

    Args:
        events: The events of the profile. A marked step has the argument `step_num`.
        runs: The runs of operations in the profile, of which the parts of a call are made.
        cores: The processor cores, to see how much the input competes with the steps for them.

    Returns:
        The division, with 0 calls and shares of 0 if the profile has no marked step.
    """
    cpu_only = not any(on_stream(event) for event in events)
    steps = divide_steps(events, runs, cpu_only)
    total = sum(step["step"] for step in steps) or 1.0
    shares = {part: sum(step[part] for step in steps) / total for part in VERDICTS}
    kernels = [run for run in runs if run.kernel and run.on_device]
    competing, crowding = _compete(events, runs, shares["input"], cores) if cpu_only else (0.0, 0.0)
    return Division(
        len(steps),
        total / max(len(steps), 1),
        shares,
        cpu_only,
        competing,
        _find_long_waits(steps),
        crowding,
        any(run.in_graph for run in kernels) or not kernels,
    )


def divide_steps(
    events: Sequence[Event], runs: Sequence[Run], cpu_only: bool
) -> list[dict[str, float]]:
    """Divide the time of each marked step into the parts of `Division`.

    Each moment belongs to the first active part, in this order: device, copy, wait for input, start
    of operations. The remaining time is `host_compute`, but does not count at all in a step that
    traces a function.

    Args:
        cpu_only: Whether operations of the CPU are `device_compute`.

    Returns:
        For each step, in ascending order, its `number`, and the milliseconds of each part, and of
        all parts as `step`.
    """
    on_device = [event for event in events if on_stream(event)]
    layers: dict[str, list[tuple[float, float]]] = {
        "device_compute": [(run.start, run.end) for run in runs if _of_step(run)]
        if cpu_only
        else _spans([event for event in on_device if not _copies(event)]),
        "host_to_device": _spans([event for event in on_device if _copies(event)]),
        "input": _spans([event for event in events if event.name == _WAITING]),
        "launch": _spans([event for event in events if event.name.startswith(_STARTING)]),
        "tracing": _spans([e for e in events if e.args.get(_CALL, "").startswith(_TRACING)]),
    }
    earlier: list[tuple[float, float]] = []
    covers = {}
    for part, layer in layers.items():
        earlier = earlier + layer
        covers[part] = _active_until(earlier)
    steps = []
    for number, start, end in _marks(events):
        times = {}
        before = 0.0
        for part, active_until in covers.items():
            moments = active_until([start, end])
            covered = float(moments[1] - moments[0])
            times[part] = covered - before
            before = covered
        # What else Python does in a step that traces a function is done once, too.
        times["host_compute"] = 0.0 if times.pop("tracing") > 1 else end - start - before
        step = {part: time / 1e3 for part, time in times.items()}
        steps.append(step | {"step": sum(step.values()), "number": number})
    return steps


def _marks(events: Sequence[Event]) -> list[tuple[int, float, float]]:
    """Return the number, the start and the end of each marked step, in ascending order of time.

    A step ends where the next one of its epoch starts, as callbacks may run between both; but a
    longer stop, such as for a checkpoint, belongs to none.
    """
    marks = sorted((event for event in events if "step_num" in event.args), key=lambda e: e.start)
    longest = statistics.median(event.length for event in marks) if marks else 0.0
    spans = []
    for event, following in itertools.zip_longest(marks, marks[1:]):
        number, end = int(event.args["step_num"]), event.start + event.length
        same_epoch = following and number < int(following.args["step_num"])
        if same_epoch and following.start - end < longest:
            end = max(end, following.start)
        spans.append((number, event.start, end))
    return spans


def _find_long_waits(steps: Sequence[dict[str, float]]) -> LongWaits | None:
    """Return the steps with a long wait for input, or None if there is none."""
    if not steps:
        return None
    least = max(_LEAST_MILLISECONDS, _STEPS * statistics.median(step["step"] for step in steps))
    long = [step for step in steps if step["input"] >= least]
    if not long:
        return None
    waited = sum(step["input"] for step in long)
    share = waited / sum(step["step"] for step in steps)
    return LongWaits([int(step["number"]) for step in long], waited / len(long) / 1e3, share)


def _compete(
    events: Sequence[Event], runs: Sequence[Run], waiting: float, cores: int
) -> tuple[float, float]:
    """Return `Division.competing` and `Division.crowding` of steps on a CPU.

    All threads that have work share the cores equally. Python functions of the input do not count,
    as they may wait.

    Args:
        waiting: The share of the time in which steps wait for input.
    """
    marked = _active_until([(start, end) for _, start, end in _marks(events)])
    waits = _active_until(_spans([event for event in events if event.name == _WAITING]))

    def sum_times(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Return the time of spans within steps, and this time without waits."""
        starts, ends = np.array(spans or [(0.0, 0.0)]).T
        whole = float(np.sum(marked(ends) - marked(starts)))
        return whole, whole - float(np.sum(waits(ends) - waits(starts)))

    helps = [e for e in events if e.name == _HELP and e.thread.startswith(_HELPERS)]
    # Kernels run within their program, and on threads that help.
    own = [(r.start, r.end) for r in runs if _of_step(r) and not r.kernel]
    step_all, step = sum_times(own + _spans(helps))
    fed_all, fed = sum_times([(r.start, r.end) for r in runs if r.part == INPUT and not r.python])
    total = float(marked(np.inf)) or 1.0
    computing = max(total * (1 - waiting), 1e-9)
    alone = _speed(step / computing, cores)
    lost = 1 - _speed((step + fed) / computing, cores) / alone
    return lost * (1 - waiting), (step_all + fed_all) / cores / total


def _speed(threads: float, cores: int) -> float:
    """Return the speed of each of so many threads, where a thread without others has speed 1.

    The cores of a machine may be two hardware threads of each core that it really has, which a
    virtual machine does not tell. They are taken for that.
    """
    real = max(cores / 2, 1)
    done = min(threads, real) + _SECOND_THREAD * min(max(threads - real, 0.0), cores - real)
    return done / max(threads, 1e-9) if threads > real else 1.0


def _of_step(run: Run) -> bool:
    """Return whether a run of an operation is work of a step, and no wait for input."""
    return run.part != INPUT and not run.kind.startswith(_WAITING_KIND)


def _copies(event: Event) -> bool:
    """Return whether an event of a device is a copy from the host."""
    return event.name.lower().startswith(_COPY)


def _spans(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Return the start and the end of each event."""
    return [(event.start, event.start + event.length) for event in events]


def _active_until(spans: Sequence[tuple[float, float]]) -> Callable[..., np.ndarray]:
    """Return a function from moments to how many microseconds before them any span was active."""
    moments, sums = [0.0], [0.0]  # between two of them, a span was always active, or never
    for start, end in sorted(spans):
        start = max(start, moments[-1])
        end = max(end, start)
        moments += [start, end]
        sums += [sums[-1], sums[-1] + end - start]
    return functools.partial(np.interp, xp=np.array(moments), fp=np.array(sums))
