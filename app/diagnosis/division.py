"""How the time of a step divides, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.diagnosis import marked
from app.diagnosis.operations import Work
from app.diagnosis.profiles import Event, Profile

# From this share of a step on, waiting for input is what to change first: xprof calls it highly
# input-bound (kHighlyInfeedBoundThresholdInPercent of op_stats_to_input_pipeline_analysis.cc).
INPUT_BOUND = 0.20
# Calls that a profile needs before what one of them met, such as a block of text that had to be
# read, is not taken for the rule.
TRUSTED_CALLS = 5

VERDICTS = {
    "input": "input-bound",
    "device_compute": "device-bound",
    "launch": "launch-bound",
    "host_compute": "host-bound",
}

# Part -> the columns of xprof's analyzer that it sums.
_COLUMNS = {
    "input": ("infeedTimeMs",),
    "host_compute": ("hostComputeTimeMs", "compileTimeMs"),
    "launch": ("kernelLaunchTimeMs",),
    "device_compute": (
        "deviceComputeTimeMs",
        "deviceToDeviceTimeMs",
        "deviceCollectivesTimeMs",
    ),
    "other": ("outfeedTimeMs", "otherTimeMs"),
}


class Division(NamedTuple):
    """calls: whole calls that were recorded. milliseconds: of a call, on average. shares: of all
    time, that of each part: waiting for `input`, `host_to_device` (copies), `host_compute`,
    `launch` (starting operations), `device_compute` and `other`; they sum to 1. cpu_only: whether
    the host is the device, so that what it computes is `device_compute`."""

    calls: int
    milliseconds: float
    shares: dict[str, float]
    cpu_only: bool

    @property
    def trusted(self) -> bool:
        """Whether there are calls enough for the shares to mean something."""
        return self.calls >= TRUSTED_CALLS

    @property
    def verdict(self) -> str:
        """What bounds the step, in one word."""
        if self.shares["input"] + self.shares["host_to_device"] >= INPUT_BOUND:
            return VERDICTS["input"]
        # What the host does besides, Python's share of it included, goes by one name.
        host = self.shares["host_compute"] + self.shares["other"]
        by_part = {"host_compute": host} | {
            part: self.shares[part] for part in ("device_compute", "launch")
        }
        return VERDICTS[max(by_part, key=lambda part: by_part[part])]


def division(profile: Profile, work: Work) -> Division:
    """How the calls of a profile divide."""
    columns = sum(_COLUMNS.values(), ())
    calls = profile.steps or marked.steps(profile.events, columns)
    total = sum(step["stepTimeMs"] for step in calls) or 1.0
    shares = {part: _sum(calls, columns) / total for part, columns in _COLUMNS.items()}
    # xprof counts copies to the device as input.
    copies = min(shares["input"], _copied(profile.events) / total)
    shares |= {"input": shares["input"] - copies, "host_to_device": copies}
    cpu_only = profile.hardware == "CPU_ONLY"
    if cpu_only:
        # All operations are the host's there, and what starts them is not told apart.
        busy = shares["host_compute"]
        shares |= {
            "host_compute": 0.0,
            "launch": busy * work.starting,
            "device_compute": busy * (1 - work.starting),
        }
    return Division(len(calls), total / max(len(calls), 1), shares, cpu_only)


def _sum(steps: Sequence[Mapping[str, float]], columns: Sequence[str]) -> float:
    return sum(step[column] for step in steps for column in columns)


def _copied(events: Sequence[Event]) -> float:
    """Milliseconds of copies from the host to a device, by the name that CUPTI gives them."""
    return sum(
        event.length / 1e3
        for event in events
        if event.process.startswith("/device:") and event.name.lower().startswith("memcpyh2d")
    )
