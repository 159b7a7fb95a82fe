from __future__ import annotations

import pytest

from app.profiling import profile_report
from app.profiling.division import Division, divide
from app.profiling.operations import Work
from app.profiling.profiles import Profile
from tests.profiling.events import event

COLUMNS = (
    "deviceComputeTimeMs",
    "deviceToDeviceTimeMs",
    "deviceCollectivesTimeMs",
    "hostComputeTimeMs",
    "kernelLaunchTimeMs",
    "infeedTimeMs",
    "outfeedTimeMs",
    "compileTimeMs",
    "otherTimeMs",
)
IDLE = Work([], {}, 0.0)


def step(**times):
    values = dict.fromkeys(COLUMNS, 0.0) | {f"{name}TimeMs": ms for name, ms in times.items()}
    return values | {"stepTimeMs": sum(values.values())}


def profile(*steps, hardware="CPU_ONLY", events=()):
    return Profile(list(steps), hardware, list(events))


def divided(**shares):
    parts = ("input", "host_to_device", "host_compute", "launch", "device_compute", "other")
    return Division(9, 1.0, dict.fromkeys(parts, 0.0) | shares, False)


def test_shares_are_of_all_time_and_starting_operations_is_told_from_them():
    found = divide(
        profile(
            step(infeed=1, hostCompute=3),
            step(infeed=2, hostCompute=1, other=1),
            step(hostCompute=8, outfeed=2, compile=2),
        ),
        Work([], {}, 0.25),
    )
    assert found.cpu_only
    assert found.calls == 3 and found.milliseconds == pytest.approx(20 / 3)
    assert found.shares == pytest.approx(
        {
            "input": 0.15,
            "host_to_device": 0,
            "host_compute": 0,
            "launch": 0.15,
            "device_compute": 0.45,
            "other": 0.25,
        }
    )


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ({"input": 0.20, "device_compute": 0.8}, "input-bound"),
        ({"input": 0.19, "device_compute": 0.81}, "device-bound"),
        ({"device_compute": 0.3, "launch": 0.6, "host_compute": 0.1}, "launch-bound"),
        ({"device_compute": 0.3, "launch": 0.3, "host_compute": 0.2, "other": 0.2}, "host-bound"),
        ({"device_compute": 0.45, "host_compute": 0.3, "other": 0.1}, "device-bound"),
        ({"device_compute": 0.4, "host_to_device": 0.6}, "copy-bound"),
    ],
)
def test_verdicts(shares, verdict):
    assert divided(**shares).verdict == verdict
    assert verdict in profile_report.MEANINGS


def test_where_there_is_a_device_steps_are_taken_apart_from_its_kernels():
    """xprof's own division counts a step from its first kernel on, and no wait before that."""
    events = [
        event("train 1", 0, 1000, step_num="1"),
        event("IteratorGetNextOp::DoCompute", 0, 400),
        event("gemm", 500, 500, "Stream #1", "/device:GPU:0"),
    ]
    found = divide(profile(step(deviceCompute=0.5), hardware="GPU", events=events), IDLE)
    assert not found.cpu_only and found.verdict == "input-bound"
    assert found.milliseconds == pytest.approx(1.0)
    assert found.shares["input"] == pytest.approx(0.4)
    assert found.shares["device_compute"] == pytest.approx(0.5)
    assert sum(found.shares.values()) == pytest.approx(1)


def test_few_calls_are_not_to_be_trusted():
    assert not divide(profile(*[step(other=1)] * 4), IDLE).trusted
    assert divide(profile(*[step(other=1)] * 5), IDLE).trusted
