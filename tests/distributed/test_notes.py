"""The notes of the processes of a run: what may differ, what may not, and whose notes count."""

from __future__ import annotations

import json

import pytest

from app.config import Config, CorpusConfig, InputConfig, ModelConfig, RunConfig
from app.distributed import notes
from app.distributed.cluster_spec import Hosts
from app.errors import UsageError

HOSTS = Hosts({"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}, "chief", 0)


def config(folder, dim=100, corpus="x", **run):
    return Config(
        corpus=CorpusConfig(corpus=corpus),
        model=ModelConfig(dim=dim),
        run=RunConfig(workdir=str(folder), **run),
    )


def leave(settings, hosts=HOSTS, others=()):
    """Leaves the notes of all processes, as if they were killed; others: task -> its settings."""
    for task in hosts.everyone:
        own = Hosts(hosts.tasks, *task)
        path = notes._path(settings, task)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(notes._note(dict(others).get(task, settings), own)))


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(notes, "_UNSEEN_SECONDS", 0.0)


def test_a_note_stays_unless_joining_fails(tmp_path):
    path = tmp_path / "run" / "cluster" / "chief-0.json"
    with notes.written(config(tmp_path / "run"), HOSTS):
        note = json.loads(path.read_text())
        assert note["cluster"]["worker"] == ["b:1", "c:1"] and note["flags"]["dim"] == 100
        assert note["versions"]["TensorFlow"].startswith("2.")
    assert path.exists()
    with pytest.raises(KeyboardInterrupt), notes.written(config(tmp_path / "run"), HOSTS):
        raise KeyboardInterrupt
    assert not path.exists()


def test_the_same_everywhere_is_right(tmp_path):
    settings = config(tmp_path)
    other = Config(
        corpus=settings.corpus,
        model=settings.model,
        input=InputConfig(prefetch=3, map_parallelism=7),
        run=RunConfig(workdir="/elsewhere", device="GPU:0", log_seconds=3.0, intra_op_threads=4),
    )
    leave(settings, others={("worker", 1): other})
    notes.check(settings, HOSTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 50}, "--dim=50 and the chief 100; start every process with the same flags"),
        ({"corpus": "{y}"}, "--corpus={y} and the chief x; start every"),
        ({"epochs": 3}, "--epochs=3 and the chief 5; start every"),
    ],
)
def test_a_flag_that_differs(tmp_path, change, message):
    settings = config(tmp_path)
    leave(settings, others={("worker", 1): config(tmp_path, **change)})
    for task in HOSTS.everyone:  # each ends with the same line
        with pytest.raises(UsageError) as raised:
            notes.check(settings, Hosts(HOSTS.tasks, *task))
        assert str(raised.value).startswith(f"worker 1 (c:1) has {message}")


def changed(folder, name, **values):
    path = folder / "cluster" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_version_that_differs(tmp_path):
    settings = config(tmp_path)
    leave(settings)
    versions = json.loads((tmp_path / "cluster" / "ps-0.json").read_text())["versions"]
    changed(tmp_path, "ps-0.json", versions=versions | {"TensorFlow": "2.20.0"})
    with pytest.raises(UsageError) as raised:
        notes.check(settings, HOSTS)
    assert str(raised.value) == (
        f"ps 0 (d:1) has TensorFlow 2.20.0 and the chief {versions['TensorFlow']}; install the "
        "same lock file everywhere"
    )


def test_another_revision(tmp_path):
    settings = config(tmp_path)
    leave(settings)
    changed(tmp_path, "worker-0.json", code="0123456789ab")
    with pytest.raises(UsageError, match=r"^worker 0 \(b:1\) runs another revision of Lexrow"):
        notes.check(settings, HOSTS)


def test_notes_of_other_hosts_do_not_count(tmp_path):
    settings = config(tmp_path)
    leave(settings)
    changed(tmp_path, "worker-1.json", cluster={"worker": ["b:1", "c:2"]})
    with pytest.raises(UsageError) as raised:
        notes.check(settings, HOSTS)
    assert str(raised.value) == (
        f"worker 1 (c:1) has left no note in --workdir={tmp_path}; all processes need one folder "
        "that they share, such as NFS"
    )


def test_a_note_may_come_late(tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "_UNSEEN_SECONDS", 60.0)
    settings = config(tmp_path)
    monkeypatch.setattr(notes.time, "sleep", lambda seconds: leave(settings))
    notes.check(settings, HOSTS)


def test_a_workdir_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as raised:
        with notes.written(config(tmp_path / "file"), HOSTS):
            pass
    line = str(raised.value)
    assert line.startswith(f"--workdir={tmp_path}/file: ") and "one folder that they share" in line
