"""Every command of README.md and of the guides runs, in its order, in a copy of the repository."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from app.distributed.cluster_spec import parse_tf_config
from tests.integration.commands import Command, Ended
from tests.replaced import ADDED, REPLACED, SMALLER

ROOT = pathlib.Path(__file__).parents[1]
COPIED = ("app", "configs", "data", "tests", "Makefile", "README.md", "pyproject.toml")
SECONDS_PER_COMMAND = 1200  # ends a command that hangs, not one of a busy machine
# README.md and the guides beside the code, by path; each of them runs in a copy of its own.
GUIDES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "app").rglob("README.md"))]
}
README = GUIDES["README.md"]
KERAS, DISTRIBUTED = GUIDES["app/keras/README.md"], GUIDES["app/distributed/README.md"]
QUICK = {"app/README.md", "app/tasks/recommend/README.md"}
BENCHMARKS = ("python -m tests.benchmarks.", "make bench ")
# Ours that do their work in the process they are started as; others start more of them.
FORKED = {"train", "evaluate", "neighbors", "export", "predict", "recommend", "profile"}
# The programs of an environment that has the copy installed, which they are run in.
PROGRAMS = {"python": f"{sys.executable} ", "lexrow": f"{sys.executable} -m app "}


def commands_in(markdown: str) -> list[str]:
    """The commands of the fenced bash blocks; comments go, continued lines are joined."""
    blocks = re.findall(r"^```bash\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", "".join(blocks)).splitlines()
    commands = [re.sub(r"(?:^|\s+)#\s.*", "", line).strip() for line in lines]
    return [command for command in commands if command]


ALL_COMMANDS = [command for text in GUIDES.values() for command in commands_in(text)]


def write_corpus(path: pathlib.Path, markdown: str) -> None:
    """Write the words of a text, often enough to be kept, so that a word it asks for is known."""
    words = re.findall(r"[a-z]+", markdown.lower())
    lines = [" ".join(words[start:] + words[:start]) for start in range(12)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_examples(folder: pathlib.Path) -> None:
    """Write the texts, reviews and ratings that the guides name."""
    (folder / "more.txt").write_text("words of brandnew vectors\n" * 60, encoding="utf-8")
    lines = ["__label__odd a brandnew film", "__label__good a warm one"] * 40
    (folder / "more_reviews.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    kinds = {"good": "a warm and funny film", "bad": "three dull hours of this"}
    lines = [f"__label__{label} {text} {i % 7}" for i in range(40) for label, text in kinds.items()]
    (folder / "reviews.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    header = "userId,movieId,rating,timestamp\n"
    pairs = [(user, item) for user in range(1, 20) for item in range(1, 30)]
    for name, later in (("ratings.csv", False), ("later.csv", True)):
        rows = [f"{u},{i},4.0,{100 + i}\n" for u, i in pairs if later == ((u + i) % 3 == 0)]
        (folder / name).write_text(header + "".join(rows), encoding="utf-8")


def run(command: str, folder: pathlib.Path) -> Ended:
    """Runs the command in bash with the Python of this process, which needs no set-up.

    A command of ours that needs no shell starts with TensorFlow already imported.
    """
    command = command.replace(".venv/bin/lexrow", "lexrow")
    words = shlex.split(command)
    if words[0] == "lexrow" and words[1] in FORKED and not re.search(r"[$|&;<>]", command):
        (folder / "printed").mkdir(exist_ok=True)
        return Command(folder / "printed", f"app.{words[1]}", *words[2:], within=folder).ended()
    binaries, programs = pathlib.Path(sys.executable).parent, folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, begin in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {begin} "$@"\n')
        (programs / name).chmod(0o755)
    make = f'make() {{ command make -o setup BIN="{programs}" "$@"; }}'
    ended = subprocess.run(
        ["bash", "-c", f"set -eo pipefail\n{make}\n{command}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{programs}:{binaries}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_PER_COMMAND,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def copy(tmp_path):
    """A copy of the repository without what was downloaded, trained or cached."""
    ignored = shutil.ignore_patterns("__pycache__", "raw", "runs")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def furnished(copy):
    """The same, with the texts and ratings that the guides name."""
    write_corpus(copy / "corpus.txt", "\n".join(GUIDES.values()))
    write_examples(copy)
    return copy


def ends_well(command: str, folder: pathlib.Path) -> None:
    """Runs the command, or what runs in its place."""
    added = [flags for part, flags in ADDED.items() if part in command]
    code, *said = run(" ".join([REPLACED.get(command, command), *added]), folder)
    assert code == 0, f"{command} ended {code}:\n{''.join(said)[-4000:]}"


@pytest.mark.parametrize(
    "guide",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in GUIDES],
)
def test_every_command_runs(furnished, guide):
    for command in commands_in(GUIDES[guide]):
        if not command.startswith(BENCHMARKS):
            ends_well(command, furnished)


def case_of(command: str) -> str:
    """The case of a command that runs a benchmark."""
    return re.search(r"(?:tests\.benchmarks\.|CASE=)(\w+)", command)[1]


@pytest.mark.slow  # a fresh process for every side
@pytest.mark.parametrize(
    "command",
    [command for command in ALL_COMMANDS if command.startswith(BENCHMARKS)],
    ids=lambda command: f"{command.split()[0]}-{case_of(command)}",
)
def test_every_benchmark_runs(furnished, command):
    quote = '"' * command.endswith('"')  # of ARGS
    ends_well(f"{command.removesuffix(quote)} {SMALLER[case_of(command)]}{quote}", furnished)


@pytest.mark.slow
def test_the_example_for_keras_runs(copy):
    (program,) = re.findall(r"```python\n(import .*?)```", KERAS, re.DOTALL)
    program = program.replace("lexrow.keras", "app.keras")  # its name in the repository
    ended = run(f"{sys.executable} -c {shlex.quote(program)}", copy)
    assert ended.code == 0, ended.err


@pytest.mark.slow
def test_the_recipe_for_keras_runs(copy):
    """The model before and after the change, each on ids and labels that the guide leaves out."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", KERAS, re.DOTALL | re.MULTILINE)
    diff = diff.replace("lexrow.keras", "app.keras")  # its name in a copy of the repository
    assert len(re.findall(r"^\+", diff, re.MULTILINE)) <= 5
    data = "import keras, numpy\nids = numpy.arange(640).reshape(32, 20)\nlabels = numpy.ones(32)\n"
    ended = {}
    for side, other in ("+-", "-+"):
        lines = [line[1:] for line in diff.splitlines() if not line.startswith(other)]
        ended[side] = subprocess.run(
            [sys.executable, "-W", "error", "-c", data + "\n".join(lines)],
            cwd=copy,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert ended[side].returncode == 0, ended[side].stdout[-4000:]
    assert "no operation on a whole table" in ended["+"].stdout


def test_the_processes_on_other_machines_know_who_they_are(tmp_path):
    """By SSH and in Kubernetes; what would be started only writes what it is given."""
    (loop,) = re.findall(r"^```sh\n(.*?)^```", DISTRIBUTED, re.DOTALL | re.MULTILINE)
    loop = loop.replace("/shared/lexrow", str(tmp_path)).replace("/shared/runs", str(tmp_path))
    program = "import os, sys; print(os.environ['TF_CONFIG'], *sys.argv[1:], sep='\\n')"
    loop = loop.replace(".venv/bin/lexrow train", f'{sys.executable} -c \\"{program}\\"')
    ended = run(f'ssh() {{ bash -c "$3 wait"; }}; {loop}', tmp_path)
    assert ended.code == 0, ended
    logs = [path.read_text().splitlines() for path in sorted(tmp_path.glob("words.*.log"))]
    assert len(logs) == 3 and all(flags == logs[0][1:] for _, *flags in logs)
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```", DISTRIBUTED, re.DOTALL | re.MULTILINE)
    (config,) = re.findall(r"value: >-\n(.*?\}\})\n", manifest, re.DOTALL)
    for configs in ([config for config, *_ in logs], [config] * 3):
        for index, text in enumerate(configs):
            found = parse_tf_config("multi_worker", text.replace("$(INDEX)", str(index)))
            assert found.index == index and len(found.everyone) == 3


def test_every_replacement_is_of_a_command():
    assert REPLACED.keys() <= set(ALL_COMMANDS)
    assert [part for part in ADDED if not any(part in each for each in ALL_COMMANDS)] == []
    benchmarks = {case_of(command) for command in ALL_COMMANDS if command.startswith(BENCHMARKS)}
    assert SMALLER.keys() == benchmarks


def test_the_readme_is_short_and_names_commands_of_the_guides():
    assert len(README.splitlines()) <= 250 and max(map(len, README.splitlines())) <= 120
    inline = re.findall(r"`(lexrow train -[^`]+)`", README)
    assert len(inline) >= 4 and set(inline) <= set(ALL_COMMANDS)


def test_every_link_leads_to_a_file():
    assert len(GUIDES) > 10
    for guide, text in GUIDES.items():
        links = re.findall(r"(?:\]\(|^\[\w+\]: )(?!https?:)([^)#\s]+)", text, re.MULTILINE)
        assert [link for link in links if not (ROOT / guide).parent.joinpath(link).exists()] == []


def test_commands_are_found():
    markdown = (
        "Text `make no`.\n```bash\n# one\nmake train  # slow\n\nlexrow train \\\n"
        "  --dim=5\n```\n```python\nprint()\n```\n```\nmake no\n```\n```bash\nmake a#b\n```\n"
    )
    assert commands_in(markdown) == ["make train", "lexrow train --dim=5", "make a#b"]


def test_a_command_runs_in_the_copy_with_this_python(copy):
    assert run("python -c 'import sys; print(sys.prefix)'", copy).out.strip() == sys.prefix
    assert run("make help", copy).code == 0
    assert "pytest" in run("make --dry-run test", copy).out
    assert not (copy / ".venv").exists()
    assert run("false | true", copy).code != 0
    assert run("lexrow train --epochs=0", copy).code == 2
