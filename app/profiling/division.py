"""How the time of a step divides, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import marked
from .operations import Work
from .profiles import Profile

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
    "host_to_device": "copy-bound",
}

# Part -> the columns of xprof's analyzer that it sums where the host is the device.
_COLUMNS = {
    "input": ("infeedTimeMs",),
    "host_to_device": (),
    "host_compute": (),
    "launch": ("kernelLaunchTimeMs",),
    "device_compute": ("hostComputeTimeMs", "deviceComputeTimeMs"),
    "other": (
        "otherTimeMs",
        "outfeedTimeMs",
        "compileTimeMs",
        "deviceToDeviceTimeMs",
        "deviceCollectivesTimeMs",
    ),
    "step": ("stepTimeMs",),
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
        if self.shares["input"] >= INPUT_BOUND:
            return VERDICTS["input"]
        # What the host does besides, Python's share of it included, goes by one name.
        host = self.shares["host_compute"] + self.shares["other"]
        by_part = {"host_compute": host} | {
            part: self.shares[part] for part in ("device_compute", "launch", "host_to_device")
        }
        return VERDICTS[max(by_part, key=lambda part: by_part[part])]


def division(profile: Profile, work: Work) -> Division:
    """How the calls of a profile divide."""
    cpu_only = profile.hardware == "CPU_ONLY"
    if cpu_only and profile.steps:
        calls = [
            {part: sum(step[name] for name in names) for part, names in _COLUMNS.items()}
            for step in profile.steps
        ]
    else:
        calls = marked.steps(profile.events, starting=not cpu_only)
        if cpu_only:
            calls = [_on_host(call) for call in calls]
    total = sum(call["step"] for call in calls) or 1.0
    shares = {part: sum(call[part] for call in calls) / total for part in _COLUMNS}
    del shares["step"]
    if cpu_only:
        # All operations are the host's there, and what starts them is not told apart.
        busy = shares["device_compute"]
        shares |= {
            "launch": shares["launch"] + busy * work.starting,
            "device_compute": busy * (1 - work.starting),
        }
    return Division(len(calls), total / max(len(calls), 1), shares, cpu_only)


def _on_host(call: Mapping[str, float]) -> dict[str, float]:
    """Where the host is the device, what it computes is the device's."""
    return dict(call) | {"device_compute": call["host_compute"], "host_compute": 0.0}
