from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from app import bench
from app.benchmarks.harness.options import WordsOptions
from app.benchmarks.harness.report import Measure, Result, make_panels, make_table
from app.errors import UsageError
from app.system.files import temporary_folder
from tests.integration.commands import fresh, refusal
from tests.processes import is_running, until

MEASURE = Measure("speed", "words/s", ",.0f", drawn=True)


@pytest.fixture
def command(monkeypatch):
    """Runs the command with the given arguments; the cases only echo their options."""
    given = flags.FlagValues()
    monkeypatch.setattr(bench.absl_flags, "FLAGS", given)
    bench.define()

    def echo(name, settings):
        table = make_table({"ours": [{"speed": 5.0}]}, [MEASURE])
        machine = {"processor": "cpu", "accelerators": [], "cores": 2, "memory_bytes": 2**31}
        machine |= {"system": "Linux", "versions": {"python": "3"}}
        figures, panels = {"dim": settings.dim}, make_panels(table)
        return Result("case", "a title", machine, {}, [table], figures, panels, ["a note"])

    monkeypatch.setattr(bench, "_run", echo)
    return lambda *arguments: bench.main(given(["bench", *arguments])[1:])


def test_the_table_is_printed_and_the_record_written(command, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    record, drawn = tmp_path / "new" / "out.json", tmp_path / "out.png"
    command("words", "--dim=7", f"--json={record}", f"--plot={drawn}")
    printed = capsys.readouterr().out
    assert printed.startswith("a title\ncpu; 2 cores, 2 GiB; Linux; python 3\n\n")
    assert printed.endswith("      words/s\nours        5\n\na note\n")
    assert json.loads(record.read_text())["dim"] == 7
    assert drawn.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no case: name one case of words"),
        (["words", "sparse"], "words sparse: name one case of words, subwords, sparse"),
        (
            ["words", "--rows=3"],
            "--rows=3 means nothing to words, only to sparse, tables, export; leave",
        ),
        (
            ["sparse", "--window=5"],
            "--window=5 means nothing to sparse, only to words, subwords; leave",
        ),
        (["sparse", "--steps=0"], "--steps=0: give at least 1"),
        (["wrds"], "wrds: no such case; choose from words"),
        (["words", "--repeats=0"], "--repeats=0: give at least 1"),
        (["words", "--model=glove"], "--model=glove: not one of skipgram, cbow"),
        (["words", "--json={folder}"], "--json=.* is a folder"),
        (["words", "--plot={folder}/file/bars.png"], "--plot=.*bars.png: .*; choose another"),
        (["words", "--keep={folder}/file"], "--keep=.*/file: .*; choose another"),
    ],
)
def test_what_cannot_be_is_refused(command, tmp_path, arguments, message):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=message):
        command(*(argument.format(folder=tmp_path) for argument in arguments))


def test_the_defaults_are_those_of_the_case(command, tmp_path):
    record = tmp_path / "out.json"
    for case, dim in (("words", 100), ("sparse", 512)):
        command(case, f"--json={record}")
        assert json.loads(record.read_text())["dim"] == dim


def test_a_flag_of_two_cases_says_what_it_is_to_each(command):
    known = {name: bench._help(by_case) for name, by_case in bench._fields().items()}
    assert known["repeats"] == "Runs of each side; the report has their medians. (default: 1)"
    assert known["rows"].startswith("sparse: Rows of the table. (default: 793471) tables: Rows")
    dim = "words, subwords, classify, scaling: The number of columns of a vector. (default: 100) "
    assert known["dim"].startswith(dim)


def test_the_defaults_are_those_of_training():
    words = WordsOptions()
    assert (words.dim, words.window, words.min_count) == (100, 5, 5)


def test_a_refusal_is_all_that_is_said():
    ended = fresh("app.bench", "words", "--repeats=0")
    assert refusal(ended) == "bench: --repeats=0: give at least 1"


SLEEPS = """
import os
from pathlib import Path
from app import bench
from app.system import processes
child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
bench._run = lambda name, settings: processes.run(name, ["-c", child], Path(os.environ["LOG"]))
bench.define()
bench.flags.run(bench.main, arguments=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_neither_the_measured_program_nor_its_files(tmp_path, number):
    place, log = tmp_path / "temporary", tmp_path / "log"
    place.mkdir()
    log.touch()
    environment = {**os.environ, "TMPDIR": str(place), "LOG": str(log)}
    program = [sys.executable, "-c", SLEEPS, "words"]
    running = subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, text=True)
    until(lambda: log.read_text().endswith("\n"))
    (folder,) = place.iterdir()
    running.send_signal(number)
    _, said = running.communicate()
    until(lambda: not is_running(int(log.read_text())))
    if number == signal.SIGKILL:
        with temporary_folder("lexrow-benchmark-", str(place)) as other:
            assert [*place.iterdir()] == [Path(other)] != [folder]
    else:
        assert (running.returncode, said) == (130, "-c: interrupted\n")
    assert not [*place.iterdir()]
