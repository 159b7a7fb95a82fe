import errno
import fcntl
import os

import pytest

from app.checkpoints import workdir
from app.checkpoints.workdir import Workdir
from app.errors import DamagedError, UsageError
from app.system.checked_files import read_json


def test_a_folder_is_made_and_held_by_one_job(tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    place = Workdir(tmp_path / "deep" / "run")
    for _ in range(2):
        with place.lock():
            with pytest.raises(UsageError) as raised, Workdir(place.path).lock():
                pass
            expected = f"--workdir={place.path}: another job is running there; wait for it or"
            assert str(raised.value).startswith(expected)
    assert not caplog.messages
    (place.path / "cache").mkdir(parents=True)  # of an earlier version
    (place.path / "cache" / "1.tokens").touch()
    with place.lock():
        assert caplog.messages == [f"{place.path}/cache is not read any more; you may delete it"]


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_changes(tmp_path):
    place = Workdir(tmp_path)
    place.metrics.mkdir()
    with pytest.raises(UsageError, match="metrics.jsonl is a folder or a device"), place.lock():
        pass
    assert place.metrics.is_dir()


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    place = Workdir(tmp_path)
    folder = place.tensorboard.parent
    folder.write_text("mine")
    message = f"^{folder} is no folder; remove it, or choose another --workdir$"
    with pytest.raises(UsageError, match=message), place.lock():
        pass
    assert folder.read_text() == "mine"


def test_an_error_within_lets_go(tmp_path):
    place = Workdir(tmp_path)
    with pytest.raises(BlockingIOError, match="mine"), place.lock():
        raise BlockingIOError("mine")
    with place.lock():
        pass


def test_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UsageError, match=f"^--workdir={path}: .*; choose a folder that can be"):
            with Workdir(path).lock():
                pass

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UsageError, match="No locks available; choose a folder"):
        with Workdir(tmp_path).lock():
            pass


def test_flags_are_a_flagfile(tmp_path):
    path = tmp_path / "flags.cfg"
    assert workdir.read_flags(path) == {}
    settings = {"corpus": "a=b, c.txt", "dim": 5, "shuffle": False, "rate": 1e-05, "vocab": ""}
    workdir.write_flags(path, settings)
    assert workdir.read_flags(path) == {
        "corpus": "a=b, c.txt",
        "dim": "5",
        "shuffle": "false",
        "rate": "1e-05",
        "vocab": "",
    }
    first, *others = path.read_text().splitlines()
    assert first.startswith("# ") and "--dim=5" in others


def test_flags_below_a_file_are_none(tmp_path):
    (tmp_path / "file").write_text("")
    assert workdir.read_flags(tmp_path / "file" / "flags.cfg") == {}


def test_flags_that_cannot_be_read(tmp_path):
    (tmp_path / "flags.cfg").write_bytes(b"--dim=\xff\n")
    with pytest.raises(UsageError, match="^cannot read .*flags.cfg: .*; mend it, or choose a new"):
        workdir.read_flags(tmp_path / "flags.cfg")


def test_json_and_back(tmp_path):
    path = tmp_path / "a.json"
    workdir.write_json(path, {"words": 3})
    assert read_json(path, {"words": int}) == {"words": 3}
    path.write_text("{")
    with pytest.raises(DamagedError, match="^.*a.json is damaged: .*; put back a copy of it"):
        read_json(path, dict)


def test_a_file_may_lack_until_there_is_a_checkpoint(tmp_path):
    place = Workdir(tmp_path)
    assert not place.has(place.vocabulary)
    (place.checkpoints / "step-000000000002").mkdir(parents=True)
    (place.checkpoints / "step-000000000002" / "state.json").write_text("{}")
    with pytest.raises(DamagedError, match=f"^{place.vocabulary} is missing; put back a copy of"):
        place.has(place.vocabulary)
    place.vocabulary.write_text("")
    assert place.has(place.vocabulary)


def test_the_owner_of_a_file_outside_is_kept(tmp_path):
    place = Workdir(tmp_path)
    with pytest.raises(DamagedError, match="owner.json is missing"):
        workdir.owner_id(place, resume=True)
    assert workdir.owner_id(place) == workdir.owner_id(place, resume=True)
    place.owner.write_text('{"owner": 3}')
    with pytest.raises(DamagedError, match="owner.json is damaged: its 'owner' is '3'"):
        workdir.owner_id(place)


def test_an_output_that_is_a_part_of_the_run(tmp_path):
    place = Workdir(tmp_path / "run")
    for name in (
        "",
        "vocab.tsv",
        "checkpoints",
        "texts.txt",
        "pairs.csv",
        "checkpoints/x",
        "tensorboard",
        "../run/flags.cfg",
    ):
        with pytest.raises(
            UsageError, match="^--output=.* belongs to the run of --workdir=.*; give"
        ):
            place.check_output(place.path / name)
    for name in ("vectors.txt", "encoder", "../vocab.tsv"):
        place.check_output(place.path / name)


def test_flags_that_are_missing_or_cut(tmp_path):
    place = Workdir(tmp_path)
    place.flags.write_text("--dim=8\n--epochs=1")
    with pytest.raises(UsageError, match="flags.cfg is damaged: its last line is cut short; put"):
        workdir.read_flags(place.flags)
    place.flags.write_text("")
    with pytest.raises(UsageError, match="flags.cfg is damaged: it has only 0 flags; put back"):
        workdir.read_flags(place.flags)
    workdir.write_flags(place.flags, {"dim": 8, "epochs": 1, "corpus": ""})
    assert workdir.read_flags(place.flags) == {"dim": "8", "epochs": "1", "corpus": ""}
    place.flags.write_text("".join(place.flags.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UsageError, match="flags.cfg is damaged: it has only 2 of its 3 flags; put"):
        workdir.read_flags(place.flags)
    place.flags.unlink()
    assert workdir.read_flags(place.flags) == {}
    (place.checkpoints / "step-000000000002").mkdir(parents=True)
    (place.checkpoints / "step-000000000002" / "state.json").write_text("{}")
    with pytest.raises(UsageError, match=f"^{place.flags} is missing; put back a copy of it"):
        workdir.read_flags(place.flags)
