"""Replicas on two logical CPU devices train as one device on the same global batch."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from app.checkpoints.checkpoint import list_checkpoints
from tests.integration.commands import logged
from tests.integration.replicas import APART, CASES, assert_same, rows, trained, write_data


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
    sent = {row["epoch"] > 1: row.get("exchanged_bytes", 0) for row in logged(folder / name)}
    mirrored = name == "none-mirrored"  # in the second epoch
    assert sent[mirrored] > 0 == sent[not mirrored]


@pytest.mark.slow
def test_every_task_trains_as_on_one_device(tmp_path):
    write_data(tmp_path)
    both = [(case, strategy) for case in CASES for strategy in ("none", "mirrored")]
    trained(
        tmp_path, *(f"{case},{strategy},2,{tmp_path}/{case}-{strategy}" for case, strategy in both)
    )
    for case in CASES:
        assert_same(tmp_path / f"{case}-none", tmp_path / f"{case}-mirrored")


@pytest.mark.parametrize(
    "cases",
    [
        ("adagrad_apart",),
        pytest.param(sorted(APART)[:5], marks=pytest.mark.slow),
        pytest.param(sorted(APART)[5:], marks=pytest.mark.slow),
    ],
)
def test_a_run_that_exchanges_changes_resumes_bit_for_bit(tmp_path, cases):
    """Each goes on from a checkpoint in the middle of its second epoch."""
    write_data(tmp_path)
    trained(tmp_path, *(f"{case},mirrored,2,{tmp_path}/{case}" for case in cases))
    for case in cases:
        whole, resumed = tmp_path / case, tmp_path / f"{case}-resumed"
        shutil.copytree(whole, resumed)
        saved = list_checkpoints(resumed / "checkpoints")
        assert len(saved) > 3, "an epoch is one exchange, so nothing is shown"
        for path in saved[:2]:
            shutil.rmtree(path)
    trained(tmp_path, *(f"{case},mirrored,2,{tmp_path}/{case}-resumed" for case in cases))
    for case in cases:
        one, two = rows(tmp_path / case), rows(tmp_path / f"{case}-resumed")
        for name, values in one.items():
            np.testing.assert_array_equal(two[name], values, err_msg=f"{case} {name}")
