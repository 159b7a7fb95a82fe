from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from absl import flags as absl_flags

from app import flags
from app import settings as names
from app.errors import RunError, UsageError
from app.training import workdir


@pytest.fixture
def parse(monkeypatch):
    """Defines the flags of training afresh; call it with arguments for the settings they make."""
    given = absl_flags.FlagValues()
    monkeypatch.setattr(absl_flags, "FLAGS", given)
    for kind, define in list(flags._DEFINE.items()):
        defined = lambda *field, define=define: define(*field, flag_values=given)  # noqa: E731
        monkeypatch.setitem(flags._DEFINE, kind, defined)
    flags.define()

    def parsed(*arguments):
        given.unparse_flags()
        given(["train", *arguments])
        return flags.parsed()

    return parsed


@pytest.fixture
def stored(tmp_path, parse):
    """A workdir with flags that are not the defaults."""
    settings = parse("--dim=7", "--noshuffle", "--learning_rate=0.1", f"--workdir={tmp_path}")
    workdir.write_flags(tmp_path / "flags.cfg", names.by_name(settings))
    for name in names.fields():
        absl_flags.FLAGS[name].unparse()
    return f"--workdir={tmp_path}"


def test_every_setting_is_a_flag(parse):
    settings = parse(
        "--workdir=none", "--dim=7", "--subsample=1e-5", "--nofold_case", "--corpus=a,b"
    )
    expected = {name: field.default for name, field in names.fields().items()}
    expected |= {
        "workdir": "none",
        "dim": 7,
        "subsample": 1e-5,
        "fold_case": False,
        "corpus": "a,b",
    }
    assert names.by_name(settings) == expected


def test_choices_are_told(parse):
    text = absl_flags.FLAGS["schedule"].help
    assert text.endswith(" One of constant, linear, cosine.")


@pytest.mark.parametrize("value", ["-1", "-1e-9", "nan"])
def test_a_learning_rate_that_is_not_positive(parse, value):
    message = f"^--learning_rate={float(value)}: give at least 0$"
    with pytest.raises(UsageError, match=message):
        parse("--workdir=none", f"--learning_rate={value}")


def test_a_flag_that_is_not_given_is_that_of_the_workdir(parse, stored):
    settings = parse(stored, "--epochs=9")
    assert (settings.model.dim, settings.input.shuffle) == (7, False)
    assert (settings.optimizer.learning_rate, settings.run.epochs) == (0.1, 9)
    # A default that is given is given.
    assert parse(stored, "--learning_rate=0").optimizer.learning_rate == 0


def test_the_workdir_is_the_one_given_even_if_it_was_moved(parse, stored, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "flags.cfg").rename(moved / "flags.cfg")
    settings = parse(f"--workdir={moved}")
    assert (settings.run.workdir, settings.model.dim) == (str(moved), 7)


def test_a_fixed_flag_may_not_change(parse, stored, tmp_path):
    message = f"^--dim=8: --workdir={tmp_path} was made with 7; give that, or a new --workdir$"
    with pytest.raises(UsageError, match=message):
        parse(stored, "--dim=8")
    assert parse(stored, "--dim=7").model.dim == 7


def test_the_flags_of_a_workdir_are_a_flagfile(parse, stored, tmp_path):
    again = parse(f"--flagfile={tmp_path}/flags.cfg", "--workdir=other")
    assert (again.model.dim, again.input.shuffle, again.run.workdir) == (7, False, "other")


def test_damaged_flags_of_a_workdir(parse, stored, tmp_path):
    (tmp_path / "flags.cfg").write_text("--dim=x\n--no_longer_a_flag=1\n")
    with pytest.raises(UsageError, match="flags.cfg: --dim=x: .*; mend it, or choose a new"):
        parse(stored)
    (tmp_path / "flags.cfg").write_text("--no_longer_a_flag=1\n--dim=5\n")
    assert parse(stored).model.dim == 5


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a main with arguments; its exit code (None: it returned) and what it printed."""
    monkeypatch.setattr(flags, "_set_up_logging", lambda: None)
    monkeypatch.setattr(absl_flags, "FLAGS", absl_flags.FlagValues())

    def ended(main, *arguments, **options):
        monkeypatch.setattr(sys, "argv", ["folder/train.py", *arguments])
        try:
            flags.run(main, **options)
        except SystemExit as end:
            return end.code, capsys.readouterr().err
        return None, capsys.readouterr().err

    return ended


def raising(error):
    def main(_):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("--dim=0: give more"), 2, "train: --dim=0: give more\n"),
        (RunError("the disk\nis full"), 1, "train: the disk is full\n"),
        (KeyboardInterrupt(), 1, "train: interrupted\n"),
    ],
)
def test_how_a_command_ends(run, error, code, line):
    assert run(raising(error)) == (code, line)


def test_a_command_that_ends_well(run):
    assert run(lambda _: None) == (None, "")


def test_a_mistake_of_ours_is_not_hidden(run):
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()))


def test_what_is_no_flag(run):
    code, line = run(raising(AssertionError()), "--none=1")
    assert code == 2 and "'none'" in line and line.count("\n") == 1
    code, line = run(raising(AssertionError()), "word")
    assert (code, line) == (2, "train: 'word' is no flag; write it as --NAME=VALUE, see --help\n")
    assert run(lambda words: words.remove("word"), "word", arguments=True) == (None, "")


def test_help_that_nobody_reads_to_its_end():
    command = f"{sys.executable} -m app.train --help | head -1"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Trains what --task names") and ended.stdout.count("\n") == 1
