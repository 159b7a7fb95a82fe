"""The console command `lexrow`."""

import pathlib
import re
import subprocess
import sys

import pytest

from app import __version__
from app.__main__ import COMMANDS

ROOT = pathlib.Path(__file__).parents[1]


def lexrow(*arguments):
    command = [sys.executable, "-X", "importtime", "-m", "app", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = ended.stderr.splitlines()
    imported = {line.split("|")[-1].strip() for line in lines if line.startswith("import time:")}
    errors = [line for line in lines if not line.startswith("import time:")]
    return ended.returncode, ended.stdout, errors, imported


def test_it_lists_every_command_with_the_first_line_of_its_help():
    code, printed, errors, imported = lexrow("--help")
    assert code == 0 and not errors and "absl" not in imported
    sources = {path.stem: path.read_text("utf-8") for path in (ROOT / "app").glob("[a-z]*.py")}
    commands = {name: text for name, text in sources.items() if "__main__" in text}
    assert commands.keys() == COMMANDS.keys()
    for name, text in COMMANDS.items():
        assert commands[name].startswith(f'"""{text}\n\n    lexrow {name} ')
        assert f"  {name} " in printed and text in printed
    assert len(printed.splitlines()) <= 20
    assert lexrow()[:3] == (0, printed, [])
    assert lexrow("--version")[:3] == (0, f"lexrow {__version__}\n", [])


def test_the_help_of_training_names_every_example_of_settings():
    names = [path.stem for path in (ROOT / "configs").glob("*.cfg")]
    text = (ROOT / "app/train.py").read_text("utf-8").split('"""')[1]
    assert len(names) >= 7 and [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_it_imports_the_command_that_is_run_and_no_other():
    code, printed, _, imported = lexrow("neighbors", "--help")
    assert lexrow("help", "neighbors")[:2] == (code, printed)
    assert code == 0 and printed.startswith(COMMANDS["neighbors"])
    assert "--analogy" in printed and "app.cli.flags" in imported
    assert not imported & {f"app.{name}" for name in COMMANDS}  # it is run as the main module


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tarin",), "lexrow: 'tarin' is no command; did you mean train?"),
        (("--workdir=a",), "lexrow: '--workdir=a' is no command; choose from train,"),
        (("train", "--epochs=0"), "train: --epochs=0: "),
        (
            ("train", "--preset=word"),
            "train: --preset=word: no such example; choose from classify, language_model, ",
        ),
    ],
)
def test_it_refuses_in_one_line(arguments, message):
    code, printed, errors, _ = lexrow(*arguments)
    assert code == 2 and not printed and len(errors) == 1 and errors[0].startswith(message)
