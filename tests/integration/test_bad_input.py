"""What a person can get wrong in training: one line that names it, and an exit code."""

import math
import re

import numpy as np
import pytest

from app.tasks import trained_vectors
from tests.integration.commands import (
    done,
    fresh,
    logged,
    newest_step,
    refusal,
    refused,
    run,
    train,
)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--dim=eight", "--dim=eight: give a whole number"),
        ("--learning_rate=high", "--learning_rate=high: give a number"),
        ("--seed=-1", "--seed=-1: give at least 0"),
        ("--device=GPU:7", "--device=GPU:7: not here; choose from CPU:0"),
    ],
)
def test_flags(tmp_path, corpus, flag, message):
    assert message in refused(tmp_path, *train(tmp_path / "run", corpus, flag))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, 2, "--corpus={path}: no such file; check the path"),
        (b"word\xff word\n", 1, "{path}: byte 0xff at offset 4 is not UTF-8; convert"),
    ],
)
def test_text(tmp_path, content, code, message):
    path = tmp_path / "a.txt"
    if content:
        path.write_bytes(content)
    command = train(tmp_path / "run", path, "--invalid_utf8=error")
    assert message.format(path=path) in refused(tmp_path, *command, code=code)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_lines_of_one_word_have_no_examples(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join("abcde" * 40) + "\n")
    assert "the measured steps from 1 to" in done(tmp_path, *train(tmp_path / "run", path)).err
    assert {row["loss"] for row in logged(tmp_path / "run") if "loss" in row} == {0.0}


def test_a_workdir_that_is_a_file(tmp_path, corpus):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        line = refused(tmp_path, *train(place, corpus))
        assert f"--workdir={place}: " in line and "choose a folder that can be written" in line
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_a_loss_that_is_not_finite(tmp_path, corpus):
    workdir = tmp_path / "run"
    ended = run(tmp_path, *train(workdir, corpus, "--optimizer=sgd", "--learning_rate=1e4"))
    assert ended.code == 1 and "Traceback" not in ended.err
    last = ended.err.splitlines()[-1]
    assert re.search(r" is not finite between steps \d+ and \d+; lower --learning_rate ", last)
    assert all(math.isfinite(value) for row in logged(workdir) for value in row.values())
    # Nothing is saved of it, so that going on as it says helps.
    assert newest_step(workdir) == -1
    done(tmp_path, "app.train", f"--workdir={workdir}", "--learning_rate=0.01", "--epochs=1")
    assert np.isfinite(trained_vectors.load(workdir).matrix).all()


def test_a_real_process_says_one_line_as_well(tmp_path):
    flag = f"--corpus={tmp_path}/none"
    line = refusal(fresh("app.train", f"--workdir={tmp_path}/run", flag))
    assert line.startswith(f"train: {flag}: ")
