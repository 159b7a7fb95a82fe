"""The servers of lexrow cluster: they serve, are started again, and never outlive it."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from app.checkpoints.workdir import Workdir
from app.input import service
from app.settings import Config, CorpusConfig, InputConfig, VocabularyConfig
from app.tasks.words import words_data
from tests.integration.commands import ROOT, SECONDS, write_corpus
from tests.processes import is_running, until


def servers_of(cluster) -> dict[int, str]:
    """Process id -> role of the servers that it has started."""
    path = pathlib.Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children")
    found = {}
    for pid in path.read_text().split():
        try:
            arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has just ended
        if "app.distributed.data_server" in arguments:
            found[int(pid)] = arguments[arguments.index("app.distributed.data_server") + 1]
    return found


def check_it_serves(address: str, folder: pathlib.Path, caplog) -> None:
    """Has it make the rows of a text, by what only TensorFlow Text can do."""
    write_corpus(folder / "a.txt", 50)
    config = Config(
        corpus=CorpusConfig(corpus=str(folder / "a.txt"), tokenizer="unicode"),
        vocabulary=VocabularyConfig(min_count=1),
        input=InputConfig(data_service=address, block_bytes=1024),
    )
    place = Workdir(folder / "run")
    text = words_data.load_text(config, place, finished=False)
    words_data.record(text, place)
    caplog.clear()
    assert list(words_data.make_batches(text, config, place)(range(1), 0))
    assert "data service" not in caplog.text


@pytest.fixture
def cluster(tmp_path):
    """A cluster of two workers that is ready, its address, and the file of what it says."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cluster", "--data_workers=2"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        first, flag = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("tf.data service with 2 workers; Ctrl-C ends it."), (
            tmp_path / "log"
        ).read_text()
        yield (
            process,
            re.fullmatch(r"--data_service=(127\.0\.0\.1:\d+) --cache=none\n", flag)[1],
            tmp_path,
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGKILL, signal.SIGINT)),
    ],
)
def test_it_serves_starts_again_and_ends_with_all_of_it(cluster, caplog, number):
    process, address, folder = cluster
    if number == signal.SIGTERM:
        check_it_serves(address, folder, caplog)
    started = servers_of(process)
    assert sorted(started.values()) == ["data_dispatcher", "data_worker", "data_worker"]
    if number == signal.SIGTERM:
        for role, name in (
            ("data_worker", r"data worker \d"),
            ("data_dispatcher", "data dispatcher"),
        ):
            victim = next(pid for pid, its_role in started.items() if its_role == role)
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: len(set(servers_of(process)) - {victim}) == 3)
            line = rf"^{name} ended \(signal 9\); starting it again$"
            until(lambda line=line: re.search(line, (folder / "log").read_text(), re.MULTILINE))
        until(lambda: service._why_unreachable(address) == "")
    started |= servers_of(process)
    process.send_signal(number)
    assert process.wait(SECONDS) == (-number if number == signal.SIGKILL else 0)
    until(lambda: not any(map(is_running, started)))
    assert "Traceback" not in (folder / "log").read_text()
    if number != signal.SIGKILL:
        assert {path.name for path in folder.iterdir()} <= {"a.txt", "log", "run"}
