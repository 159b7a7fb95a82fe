from __future__ import annotations

from pathlib import Path

import pytest

from app.diagnosis.division import division
from app.diagnosis.operations import Work
from app.diagnosis.profiles import Profile
from tests.diagnosis.events import event

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


def profile(*steps, hardware="GPU", events=()):
    return Profile(Path("p"), list(steps), hardware, list(events))


def test_shares_are_of_all_time():
    found = division(
        profile(
            step(infeed=1, deviceCompute=2, deviceToDevice=1),
            step(infeed=2, hostCompute=1, other=1),
            step(kernelLaunch=8, outfeed=2, compile=2),
        ),
        IDLE,
    )
    assert found.calls == 3 and found.milliseconds == pytest.approx(20 / 3)
    assert found.shares == pytest.approx(
        {
            "input": 0.15,
            "host_to_device": 0,
            "host_compute": 0.15,
            "launch": 0.4,
            "device_compute": 0.15,
            "other": 0.15,
        }
    )


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ({"infeed": 20, "deviceCompute": 80}, "input-bound"),
        ({"infeed": 19, "deviceCompute": 81}, "device-bound"),
        ({"deviceCompute": 30, "kernelLaunch": 60, "hostCompute": 10}, "launch-bound"),
        ({"deviceCompute": 30, "kernelLaunch": 30, "hostCompute": 20, "other": 20}, "host-bound"),
        ({"deviceCompute": 45, "hostCompute": 30, "other": 10}, "device-bound"),
    ],
)
def test_verdicts(times, verdict):
    assert division(profile(step(**times)), IDLE).verdict == verdict


def test_where_the_host_is_the_device_its_operations_are_told_from_starting_them():
    steps = [step(hostCompute=80, infeed=10, other=10)]
    found = division(profile(*steps, hardware="CPU_ONLY"), Work([], {}, 0.25))
    assert found.cpu_only and found.verdict == "device-bound"
    assert found.shares["device_compute"] == pytest.approx(0.6)
    assert found.shares["launch"] == pytest.approx(0.2)
    assert found.shares["host_compute"] == 0
    assert division(profile(*steps, hardware="CPU_ONLY"), Work([], {}, 0.8)).verdict == (
        "launch-bound"
    )


def test_copies_to_the_device_are_told_from_waiting():
    copies = [event("MemcpyH2D", 0, 3000, "stream", "/device:GPU:0")]
    found = division(profile(step(infeed=10, deviceCompute=10), events=copies), IDLE)
    assert found.shares["host_to_device"] == pytest.approx(0.15)
    assert found.shares["input"] == pytest.approx(0.35)
    assert found.verdict == "input-bound"


def test_few_calls_are_not_to_be_trusted():
    assert not division(profile(*[step(other=1)] * 4), IDLE).trusted
    assert division(profile(*[step(other=1)] * 5), IDLE).trusted
