"""Replicas on two logical CPU devices train as one device on the same global batch."""

from __future__ import annotations

import json

import pytest

from tests.integration.replicas import CASES, assert_same, trained, write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Workdirs of two epochs, the first and the second with the strategies in their names."""
    folder = tmp_path_factory.mktemp("mirrored")
    write_data(folder)
    names = [("none", "none"), ("none", "mirrored"), ("mirrored", "none")]
    trained(
        folder,
        *(
            f"adagrad,{strategy},{epoch},{folder}/{'-'.join(both)}"
            for both in names
            for epoch, strategy in enumerate(both, 1)
        ),
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none-mirrored", "mirrored-none"])
def test_a_run_goes_on_with_another_strategy(folder, name):
    """And so each of them gives what the other does."""
    assert_same(folder / "none-none", folder / name)


def test_what_replicas_send_is_reported(tmp_path):
    write_data(tmp_path)
    trained(tmp_path, f"adagrad,none,1,{tmp_path}/run", f"adagrad,mirrored,2,{tmp_path}/run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    sent = {line["epoch"] > 1: line.get("exchanged_bytes", 0) for line in told}
    assert sent[True] > 0 == sent[False]


@pytest.mark.slow
def test_every_task_trains_as_on_one_device(tmp_path):
    write_data(tmp_path)
    both = [(case, strategy) for case in CASES for strategy in ("none", "mirrored")]
    trained(
        tmp_path, *(f"{case},{strategy},2,{tmp_path}/{case}-{strategy}" for case, strategy in both)
    )
    for case in CASES:
        assert_same(tmp_path / f"{case}-none", tmp_path / f"{case}-mirrored")
