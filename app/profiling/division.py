"""Divide the time of a step into parts, and name the part that bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import marked
from .operations import Work
from .profiles import Profile

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

# The columns of xprof's analyzer that each part sums, in a profile without another device.
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
    """How the calls of a train function spend their time. A call runs one step or several.

    Attributes:
        calls: The number of complete calls in the profile.
        milliseconds: The mean time of a call.
        shares: For each part, its share of the time. The parts are `input` (waiting for it),
            `host_to_device` (copies), `host_compute`, `launch` (the start of operations),
            `device_compute` and `other`. The shares add up to 1, or are all 0 without calls.
        cpu_only: Whether there is no device but the CPU. Then its time is `device_compute`.
    """

    calls: int
    milliseconds: float
    shares: dict[str, float]
    cpu_only: bool

    @property
    def trusted(self) -> bool:
        """Whether there are at least `TRUSTED_CALLS` calls, enough to trust the shares."""
        return self.calls >= TRUSTED_CALLS

    @property
    def verdict(self) -> str:
        """The part that limits the speed, such as "device-bound" (a value of `VERDICTS`).

        It is "input-bound" if the share of waiting for input is `INPUT_BOUND` or more. Otherwise it
        is the part with the largest share, where `other` counts as time of the host.
        """
        if self.shares["input"] >= INPUT_BOUND:
            return VERDICTS["input"]
        # In other time the host works as well, such as in Python.
        host = self.shares["host_compute"] + self.shares["other"]
        by_part = {"host_compute": host} | {
            part: self.shares[part] for part in ("device_compute", "launch", "host_to_device")
        }
        return VERDICTS[max(by_part, key=lambda part: by_part[part])]


def divide(profile: Profile, work: Work) -> Division:
    """Divide the time of the calls of a profile into parts.

    The times come from xprof for a CPU with steps that xprof knows, else from the marked steps
    among the events. On a CPU, the time of operations is divided by `work` into `launch` and
    `device_compute`.

    Args:
        profile: The profile.
        work: The operations of the profile.

    Returns:
        The division. If the profile has no marked step, it has 0 calls and all shares are 0.
    """
    cpu_only = profile.hardware == "CPU_ONLY"
    if cpu_only and profile.steps:
        calls = [
            {part: sum(step[name] for name in names) for part, names in _COLUMNS.items()}
            for step in profile.steps
        ]
    else:
        calls = marked.divide_steps(profile.events, starting=not cpu_only)
        if cpu_only:
            calls = [_on_host(call) for call in calls]
    total = sum(call["step"] for call in calls) or 1.0
    shares = {part: sum(call[part] for call in calls) / total for part in _COLUMNS}
    del shares["step"]
    if cpu_only:
        # xprof does not separate the start of operations from the operations here.
        busy = shares["device_compute"]
        shares |= {
            "launch": shares["launch"] + busy * work.starting,
            "device_compute": busy * (1 - work.starting),
        }
    return Division(len(calls), total / max(len(calls), 1), shares, cpu_only)


def _on_host(call: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of a call, with the time of `host_compute` moved to `device_compute`."""
    return dict(call) | {"device_compute": call["host_compute"], "host_compute": 0.0}
