"""A run by a data service ends with the tables of one without; what cannot be is told at once."""

from __future__ import annotations

import gzip
import signal

import pytest

from tests.integration.commands import Command, done, logged, refusal, run, tensors, train
from tests.services import running


@pytest.mark.slow
def test_a_run_whose_worker_is_killed(tmp_path, corpus, trained):
    workdir = tmp_path / "run"
    with running(tmp_path) as service:
        command = Command(tmp_path, *train(workdir, corpus, f"--data_service={service.address}"))
        while command.process.is_alive() and not logged(workdir):
            command.process.join(0.002)
        service.workers[0].kill()
        ended = command.ended()
        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err
    assert tensors(workdir) == tensors(trained)


@pytest.mark.slow
def test_a_run_goes_on_without_its_service(tmp_path, corpus, trained):
    workdir = tmp_path / "run"
    with running(tmp_path) as service:
        flag = f"--data_service={service.address}"
        command = Command(tmp_path, *train(workdir, corpus, flag, "--checkpoint_minutes=0"))
        ended = command.signal_when(lambda: len(logged(workdir)) > 2, signal.SIGTERM)
        assert "stopped as asked, and saved" in ended.err
    line = refusal(run(tmp_path, "app.train", f"--workdir={workdir}"))
    assert f"{flag}: nobody answers there; start it with: lexrow cluster" in line
    done(tmp_path, "app.train", f"--workdir={workdir}", "--data_service=")
    assert tensors(workdir) == tensors(trained)


@pytest.mark.slow
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, corpus):
    workdir, packed = tmp_path / "run", tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"ba be bu\n" * 9))
    with running(tmp_path, workers=1) as service:
        for text, flags, message in (
            (corpus, ("--data_service=127.0.0.1:1",), "127.0.0.1:1: nobody answers there; start"),
            (packed, (f"--data_service={service.address}",), f"{packed} is compressed, and"),
        ):
            assert message in refusal(run(tmp_path, *train(workdir, text, *flags)))
            assert [path.name for path in workdir.iterdir()] == ["lock"]


@pytest.mark.parametrize("address", ["here", "http://a:1"])
def test_a_malformed_address(tmp_path, corpus, address):
    line = refusal(run(tmp_path, *train(tmp_path / "run", corpus, f"--data_service={address}")))
    assert f"--data_service={address}: give HOST:PORT such as 127.0.0.1:5050" in line
    assert not (tmp_path / "run").exists()
