"""Runs on every kind of table end as those on the device, also when killed, and go on from one
kind to another."""

from __future__ import annotations

import numpy as np
import pytest

from app.checkpoints.checkpoint import list_checkpoints
from app.checkpoints.stored import read_rows
from tests.integration.commands import done, refused, tensors, train

STAGED = ("--table=host", "--hot_rows=7", "--stage_steps=5")
HALF = ("--table_dtype=bfloat16", "--slot_dtype=float16", "--optimizer=lazy_adam")


def rows(workdir):
    """All rows and slots of the newest checkpoint, whatever kind its tables are of."""
    found = {}
    for name in ("input", "output"):
        newest = list_checkpoints(workdir / "checkpoints")[0]
        found[name] = read_rows(newest, name)
        found[f"{name}.accumulator"] = read_rows(newest, name, "accumulator")
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def in_file(folder):
    return (*STAGED, f"--table_file={folder}/rows")


def test_staged_rows_end_as_those_on_the_device(tmp_path, corpus, trained):
    done(tmp_path, *train(tmp_path / "run", corpus, *STAGED))
    assert tensors(tmp_path / "run") == tensors(trained)


@pytest.mark.slow
def test_staged_rows_of_half_precision_end_as_those_on_the_device(tmp_path, corpus):
    for name, flags in (("one", ()), ("other", STAGED)):
        done(tmp_path, *train(tmp_path / name, corpus, *HALF, *flags))
    assert tensors(tmp_path / "one") == tensors(tmp_path / "other")


@pytest.mark.slow
def test_a_run_goes_on_with_another_kind_of_table(tmp_path, corpus):
    kinds = {"one": ((), ()), "other": (("--table=sharded",), in_file(tmp_path))}
    for name, (first, second) in kinds.items():
        done(tmp_path, *train(tmp_path / name, corpus, "--epochs=1", *first))
        again = done(tmp_path, "app.train", f"--workdir={tmp_path / name}", "--epochs=2", *second)
    assert "table 'input' of kind sharded becomes one of kind file" in again.err
    assert_same(rows(tmp_path / "one"), rows(tmp_path / "other"))
    # Flags that mean nothing to the new kind are forgotten.
    workdir = f"--workdir={tmp_path / 'other'}"
    ended = done(tmp_path, "app.train", workdir, "--table=device")
    assert "table 'output' of kind file becomes one of kind device" in ended.err


def test_a_run_that_does_not_fit_is_refused(tmp_path, corpus):
    command = train(tmp_path / "run", corpus, *STAGED, "--device_memory=0.00001")
    assert "the run does not fit: CPU:0 has 0.0 MB free, and" in refused(tmp_path, *command)
