"""The story of a run as a Python program calls it, on a real configuration made small."""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints.checkpoint import newest_position
from app.checkpoints.workdir import Workdir
from app.errors import StoppedError, UsageError
from app.settings import checks, flag_values, flagfiles, setting
from app.training import run
from app.training.job import PlacedTables
from app.training.run import train_and_evaluate

ROOT = pathlib.Path(__file__).parents[2]
SMALL = {
    "dim": 8,
    "min_count": 1,
    "epochs": 1,
    "batch_tokens": 256,
    "row_tokens": 16,
    "group_tokens": 32,
    "shared_negatives": 8,
    "steps_per_call": 2,
    "cache": "none",
}


def small_config(corpus: pathlib.Path, **values):
    """The configuration of `make train`, with a small model and another corpus."""
    lines, *_ = flagfiles.expand([f"--flagfile={ROOT / 'configs/words.cfg'}"])
    texts, fields = flagfiles.values(lines), flag_values.fields()
    parsed = {name: setting.parse(fields[name], text) for name, text in texts.items()}
    return checks.make_config(parsed | SMALL | {"corpus": str(corpus)} | values)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("the cat and the dog sat on the mat with a hat\n" * 200)
    return path


def test_a_run_is_trained_scored_and_continued(corpus, tmp_path, capsys):
    place = Workdir(tmp_path / "run")
    report = train_and_evaluate(small_config(corpus), place.path)
    assert "next:" in report and str(place.path) in report
    banner = capsys.readouterr().out
    assert "words in 1 file(s)" in banner and "CPU:0 of CPU:0" not in banner
    first = newest_position(place.checkpoints)
    assert first.epoch == 1 and first.step
    train_and_evaluate(small_config(corpus, epochs=2), place.path)
    assert newest_position(place.checkpoints).epoch == 2
    plan = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("plan "))
    assert plan.startswith(f"plan        2 epochs, about {first.step:,} steps of ")
    assert plan.endswith(" left")
    train_and_evaluate(small_config(corpus, epochs=2), place.path)
    out = capsys.readouterr().out
    assert "nothing to train: the run has made 2 epoch(s); give --epochs=3 or more" in out
    before = place.flags.read_bytes()
    with pytest.raises(UsageError, match="^--dim=9: --workdir=.* was made with 8; give that"):
        train_and_evaluate(small_config(corpus, dim=9), place.path)
    assert place.flags.read_bytes() == before


@pytest.mark.slow
def test_a_plan_needs_no_workdir_and_makes_none(corpus, tmp_path, capsys, monkeypatch):
    config = small_config(corpus, plan_only=True)
    monkeypatch.chdir(tmp_path)
    assert train_and_evaluate(config, "") == ""
    assert "plan        1 epoch, " in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("is_small", [True, False])
def test_a_disk_that_journals_may_fill_is_named(corpus, tmp_path, caplog, monkeypatch, is_small):
    """They have each row and its slot with their ids, for each checkpoint that is kept."""
    path = tmp_path / "rows"
    values = {"table": "host", "table_file": str(path), "keep_checkpoints": 3}
    config = small_config(corpus, **values, optimizer="rowwise_adagrad")
    needed = 2 * 3 * 10 * (8 * 4 + 4 + 2 * 8)  # input and output rows of the ten words
    disk = shutil.disk_usage(tmp_path)._replace(free=needed - is_small)

    def usage(place):  # the file has its room by then
        return disk if path.exists() and place == tmp_path else real(place)

    real = shutil.disk_usage
    monkeypatch.setattr(run.shutil, "disk_usage", usage)
    monkeypatch.setattr(run.loop, "train", lambda *arguments: False)
    with pytest.raises(StoppedError):
        train_and_evaluate(config, tmp_path / "run")
    warnings = [text for text in caplog.messages if "its journals take up to" in text]
    assert len(warnings) == is_small
    assert all(f"--table_file={path}" in text and "--keep_checkpoints" in text for text in warnings)


@pytest.mark.parametrize("task", sorted(flag_values.TASKS))
def test_a_refused_start_leaves_nothing(tmp_path, task):
    """No input, or none that can be used: nothing is left of the workdir and its parents."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "empty").write_text("")
    for name, place in (("none", "mine"), ("empty", "deep/run")):
        config = checks.make_config({"task": task, "corpus": str(tmp_path / name)})
        with pytest.raises(UsageError, match=name):
            train_and_evaluate(config, tmp_path / place)
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "mine"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dims": 8}, r"^'dims' is no setting; did you mean dim\?$"),
        ({"dim": 0}, "^--dim=0"),
        ({"task": "classify", "window": 3}, "^--window=3: --task=classify has no such flag"),
        ({"epochs": "5"}, "^--epochs='5': give a whole number$"),
        ({"dim": None}, "^--dim=None: give a whole number$"),
        ({"dim": 5.5}, "^--dim=5.5: give a whole number$"),
        ({"dim": True}, "^--dim=True: give a whole number$"),
        ({"dim": np.arange(1000)}, "^--dim=array.{1,60}: give a whole number$"),
        ({"learning_rate": "0.1"}, "^--learning_rate='0.1': give a number$"),
        ({"learning_rate": False}, "^--learning_rate=False: give a number$"),
        ({"learning_rate": 10**400}, "^--learning_rate=inf: give at most 10000$"),
        ({"fold_case": "yes"}, "^--fold_case='yes': give True or False$"),
        ({"top": 0, "task": "recommend"}, "^--top=0: give at least 1$"),
        ({"top": {8, 4}, "task": "recommend"}, r"^--top=\{8, 4\}: give text$"),
        (
            {"blub": 1, "task": "classify"},
            r"^'blub' is no setting; help\(lexrow.train_classifier\) l",
        ),
        ({"audit": False}, "^'audit' is no setting; the steps are audited by the tests alone"),
        ({"class_weights": {"a": 1}}, "^--class_weights={'a': 1}: give text$"),
        ({"corpus": b"a"}, "^--corpus=b'a': give text or a path$"),
    ],
)
def test_settings_that_cannot_be(values, message):
    with pytest.raises(UsageError, match=message):
        checks.make_config(values)


def test_types_that_are_as_good_as_those_of_the_settings(corpus):
    values = {"dim": np.int64(5), "learning_rate": 1, "subsample": np.float32(0.5)}
    values |= {"shuffle": np.False_, "documents": np.str_("file"), "corpus": corpus}
    made = flag_values.by_name(checks.make_config(values))
    found = {name: made[name] for name in values}
    assert found == values | {"corpus": str(corpus)}
    assert [type(value) for value in found.values()] == [int, float, float, bool, str, str]


def test_a_float_may_be_recorded_as_an_integer():
    config = checks.make_config({"negative_power": 1})
    checks.check_fixed({"negative_power": 1}, config)
    with pytest.raises(UsageError, match="^--negative_power=1.0: .* was made with 2; give that"):
        checks.check_fixed({"negative_power": 2}, config)


@pytest.mark.parametrize("workdir", [None, False, b"run", ""])
def test_workdirs_that_cannot_be(corpus, tmp_path, monkeypatch, workdir):
    config = small_config(corpus)
    monkeypatch.chdir(tmp_path)
    message = f"={workdir!r}: give text or a path" if workdir != "" else "= is empty; name a folder"
    with pytest.raises(UsageError, match=f"^--workdir{message}"):
        train_and_evaluate(config, workdir)
    assert not [*tmp_path.iterdir()]


def test_float32_of_a_gpu_is_exact_if_asked_for_and_as_before_after_the_run(
    corpus, tmp_path, monkeypatch
):
    seen = []
    is_rounded = tf.config.experimental.tensor_float_32_execution_enabled
    monkeypatch.setattr(run.loop, "train", lambda *arguments: seen.append(is_rounded()))
    for dtype in ("exact_float32", "float32"):
        with pytest.raises(StoppedError):
            train_and_evaluate(small_config(corpus, compute_dtype=dtype), tmp_path / dtype)
        assert is_rounded()
    assert seen == [False, True]


@pytest.mark.parametrize(("hidden", "warned"), [(None, 1), ("0", 1), ("-1", 0), ("", 0)])
def test_a_driver_without_a_gpu_is_named_unless_gpus_are_hidden(
    tmp_path, monkeypatch, hidden, warned
):
    monkeypatch.setattr(run, "_NVIDIA_DRIVER", tmp_path)
    monkeypatch.setattr(run.tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert len(run._machine(PlacedTables({}, "CPU:0"), "float32")) == 1 + warned


@pytest.mark.parametrize(("version", "is_old"), [("535.104.05", True), ("550.54.14", False)])
def test_a_driver_that_is_too_old_for_large_graphs_is_named_once(
    tmp_path, monkeypatch, version, is_old
):
    (tmp_path / "version").write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sat Aug 19 01:15:15 UTC 2023\n"
        "GCC version:  gcc version 11.4.0\n"
    )
    monkeypatch.setattr(run, "_NVIDIA_DRIVER", tmp_path / "version")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    lines = run._machine(PlacedTables({}, "GPU:0"), "bfloat16")
    named = [line for line in lines if f"NVIDIA driver {version[:3]} starts" in line]
    assert len(named) == is_old
    assert not [x for x in run._machine(PlacedTables({}, "CPU:0"), "float32") if "starts" in x]
