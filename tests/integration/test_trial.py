"""lexrow cluster with the real thing: a worker is killed and the run finishes all the same."""

from __future__ import annotations

import re

import pytest

from app.checkpoints.checkpoint import is_finished
from app.checkpoints.workdir import Workdir
from tests.integration.commands import fresh, train, write_corpus


@pytest.mark.slow
@pytest.mark.parametrize("servers", [0, 2])
def test_a_worker_is_killed_and_the_run_finishes(tmp_path, servers):
    corpus = write_corpus(tmp_path / "corpus.txt", 2000)
    _, *flags = train(tmp_path / "run", corpus, "--epochs=8", "--log_seconds=1")
    flags = [flag for flag in flags if not flag.startswith("--device")]
    own = ("--workers=2", f"--ps={servers}", "--kill_worker_after=0.5", "--")
    ended = fresh("app.cluster", *own, *flags)
    assert ended.code == 0, ended.err
    assert len(re.findall("^killing worker 1, ", ended.err, re.MULTILINE)) == 1
    again = "worker 1 ended (signal 9); starting it again"
    assert ended.err.splitlines().count(again) == 1
    assert "Traceback" not in ended.err
    assert is_finished(Workdir(tmp_path / "run"))
