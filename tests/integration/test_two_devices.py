"""Classes dealt over devices train as on one."""

from __future__ import annotations

import pytest

from tests.integration.commands import fresh


@pytest.mark.slow
def test_two_devices_train_the_same_rows():
    ended = fresh("tests.integration.two_devices")
    assert ended.code == 0, ended.err
    devices, *differences = ended.out.splitlines()
    assert devices == "['CPU:0', 'CPU:1']"
    assert len(differences) == 2 and all(float(value) < 1e-5 for value in differences)
