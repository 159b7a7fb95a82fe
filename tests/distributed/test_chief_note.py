"""The note of the chief: what may differ from it, and what may not."""

from __future__ import annotations

import json

import pytest

from app.distributed import chief_note
from app.distributed.cluster_spec import Hosts
from app.errors import UsageError
from app.settings import Config, CorpusConfig, InputConfig, ModelConfig, RunConfig

CHIEF = Hosts({"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}, "chief", 0)
WORKER = Hosts(CHIEF.tasks, "worker", 1)


def config(folder, dim=100, corpus="x", **run):
    return Config(
        corpus=CorpusConfig(corpus=corpus),
        model=ModelConfig(dim=dim),
        run=RunConfig(workdir=str(folder), **run),
    )


def test_the_same_everywhere_is_right(tmp_path):
    settings = config(tmp_path)
    other = Config(
        corpus=settings.corpus,
        model=settings.model,
        input=InputConfig(prefetch=3, map_parallelism=7),
        run=RunConfig(workdir=str(tmp_path), device="GPU:0", log_seconds=3.0, intra_op_threads=4),
    )
    start = chief_note.write_note(settings, CHIEF)
    for known in (start, None):
        assert chief_note.difference(other, WORKER, known) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 50}, "--dim=50 and the chief 100; start every process with the same flags"),
        ({"corpus": "{y}"}, "--corpus={y} and the chief x; start every"),
        ({"epochs": 3}, "--epochs=3 and the chief 5; start every"),
    ],
)
def test_a_flag_that_differs(tmp_path, change, message):
    start = chief_note.write_note(config(tmp_path), CHIEF)
    line = chief_note.difference(config(tmp_path, **change), WORKER, start)
    assert line.startswith(f"worker 1 (c:1) has {message}")


def test_servers_need_the_workdir_of_the_chief_under_its_path(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "run")
    for strategy, message in (("multi_worker", ""), ("parameter_server", "has --workdir=")):
        start = chief_note.write_note(config(tmp_path / "run", strategy=strategy), CHIEF)
        settings = config(tmp_path / "other", strategy=strategy)
        line = chief_note.difference(settings, WORKER, start)
        assert message in line and bool(message) == bool(line)


def changed(folder, **values):
    path = folder / "cluster" / "chief.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_version_that_differs(tmp_path):
    settings = config(tmp_path)
    start = chief_note.write_note(settings, CHIEF)
    versions = json.loads((tmp_path / "cluster" / "chief.json").read_text())["versions"]
    changed(tmp_path, versions=versions | {"TensorFlow ": "2.20.0"})
    assert chief_note.difference(settings, WORKER, start) == (
        f"worker 1 (c:1) has TensorFlow {versions['TensorFlow ']} and the chief 2.20.0; install "
        "the same lock file everywhere"
    )


def test_another_revision(tmp_path):
    settings = config(tmp_path)
    start = chief_note.write_note(settings, CHIEF)
    changed(tmp_path, code={"revision of Lexrow ": "0123456789ab"})
    line = chief_note.difference(settings, WORKER, start)
    assert line.startswith("worker 1 (c:1) has revision of Lexrow ")
    assert line.endswith(" and the chief 0123456789ab; install the same revision everywhere")


def test_other_hosts(tmp_path):
    start = chief_note.write_note(config(tmp_path), CHIEF)
    other = Hosts({**CHIEF.tasks, "ps": ("e:1",)}, "worker", 1)
    line = chief_note.difference(config(tmp_path), other, start)
    assert '"ps": ["e:1"]} and the chief {"chief": ["a:1"],' in line
    assert line.startswith("worker 1 (c:1) has TF_CONFIG with the cluster ")


@pytest.mark.slow
def test_the_note_of_an_earlier_start_does_not_count(tmp_path):
    settings = config(tmp_path, cluster_timeout=1.0)
    for start in ("first", chief_note.write_note(settings, CHIEF)):
        chief_note.write_note(settings, CHIEF)
        assert chief_note.difference(settings, WORKER, start) == (
            f"worker 1 (c:1) does not find the note of the chief in --workdir={tmp_path}; all "
            "processes need one folder that they share, such as NFS"
        )


def test_a_note_may_be_seen_late(tmp_path, monkeypatch):
    settings, starts = config(tmp_path), iter(["late"])

    def sleep(seconds):
        chief_note.write_note(settings, CHIEF)
        changed(tmp_path, start=next(starts))

    monkeypatch.setattr(chief_note.time, "sleep", sleep)
    assert chief_note.difference(settings, WORKER, "late") == ""


def test_a_workdir_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as raised:
        chief_note.write_note(config(tmp_path / "file"), CHIEF)
    line = str(raised.value)
    assert line.startswith(f"--workdir={tmp_path}/file: ") and "one folder that they share" in line
