"""Replicas on two logical CPU devices train as one device on the same global batch."""

from __future__ import annotations

import json

import pytest

from tests.integration.replicas import CASES, assert_same, trained, write_data

FAST = ("adagrad", "padding")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Workdirs of two epochs: CASE-STRATEGY, and CASE-FIRST-THEN where the strategy changed."""
    folder = tmp_path_factory.mktemp("mirrored")
    write_data(folder)
    both = [(case, strategy) for case in FAST for strategy in ("none", "mirrored")]
    trained(
        folder,
        *(f"{case},{strategy},2,{folder}/{case}-{strategy}" for case, strategy in both),
        *(f"adagrad,none,{epochs},{folder}/none-none" for epochs in (1, 2)),
        f"adagrad,none,1,{folder}/none-mirrored",
        f"adagrad,mirrored,2,{folder}/none-mirrored",
        f"adagrad,mirrored,1,{folder}/mirrored-none",
        f"adagrad,none,2,{folder}/mirrored-none",
    )
    return folder


@pytest.mark.parametrize("case", FAST)
def test_replicas_equal_one_device(folder, case):
    assert_same(folder / f"{case}-none", folder / f"{case}-mirrored")


@pytest.mark.parametrize("name", ["none-mirrored", "mirrored-none"])
def test_a_run_goes_on_with_another_strategy(folder, name):
    assert_same(folder / "none-none", folder / name)


def test_what_replicas_send_is_reported(folder):
    lines = (folder / "adagrad-mirrored" / "metrics.jsonl").read_text().splitlines()
    sent = [json.loads(line).get("exchanged_bytes", 0) for line in lines]
    assert min(sent) > 0
    lines = (folder / "adagrad-none" / "metrics.jsonl").read_text()
    assert "exchanged_bytes" not in lines


@pytest.mark.slow
def test_every_task_trains_as_on_one_device(tmp_path):
    write_data(tmp_path)
    cases = CASES.keys() - FAST
    both = [(case, strategy) for case in sorted(cases) for strategy in ("none", "mirrored")]
    trained(
        tmp_path, *(f"{case},{strategy},2,{tmp_path}/{case}-{strategy}" for case, strategy in both)
    )
    for case in cases:
        assert_same(tmp_path / f"{case}-none", tmp_path / f"{case}-mirrored")
