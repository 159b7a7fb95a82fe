import json
import pathlib
import subprocess
import sys

import pytest

from tests.keras.two_replicas import BATCH, CASES, make_data

ROOT = pathlib.Path(__file__).parents[2]


def test_the_replicas_have_rows_in_common():
    x, _ = make_data()
    for start in range(0, len(x), BATCH):
        left, right = (set(half.ravel()) for half in x[start : start + BATCH].reshape(2, -1))
        assert left & right and left - right and right - left


@pytest.mark.slow
def test_two_replicas_train_as_one_device_and_never_read_a_whole_table():
    # The number of devices is fixed for the life of a process.
    ended = subprocess.run(
        [sys.executable, "-m", "tests.keras.two_replicas"], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found.keys() == CASES.keys() | {"class_softmax"}
    for name, case in found.items():
        assert case["apart"] < (1e-4 if name == "class_softmax" else 1e-6), name
        assert case["replicas"] == [True, True], name
        assert case["whole"] == [], name
