"""Every command in README.md runs, in its order, in a copy of the repository."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from app.hosts import of_environment
from tests.integration.commands import Command, Ended

ROOT = pathlib.Path(__file__).parents[1]
COPIED = ("app", "configs", "data", "tests", "Makefile", "README.md", "pyproject.toml")
SECONDS_PER_COMMAND = 300
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARK = "python -m app.bench "
# Ours that do their work in the process they are started as; others start more of them.
FORKED = tuple(
    f"app.{name}"
    for name in ("train", "evaluate", "neighbors", "export", "predict", "recommend", "profile")
)

# Command -> what runs in its place; every other command runs as it stands in README.md.
REPLACED = {
    # The same target and configuration on a small corpus.
    "make train": "make train ARGS='--corpus=corpus.txt --epochs=1 --dim=16'",
    # It serves until it is stopped, so only what it would serve is checked.
    "make tensorboard": "make --dry-run tensorboard | grep 'dir=.*data/runs/words/'",
    # The same runs on a small corpus.
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/before --cache=none "
    "--map_parallelism=1 --prefetch=0 --profile_steps=400,800": "python -m app.train "
    "--flagfile=configs/words.cfg --epochs=12 --workdir=data/runs/before --cache=none "
    "--map_parallelism=1 --prefetch=0 --corpus=corpus.txt --profile_steps=16,120",
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/after "
    "--profile_steps=400,800": "python -m app.train --flagfile=configs/words.cfg --epochs=12 "
    "--workdir=data/runs/after --corpus=corpus.txt --profile_steps=16,120",
    "python -m app.profile --flagfile=configs/words.cfg --live": "python -m app.profile "
    "--flagfile=configs/words.cfg --corpus=corpus.txt --live --seconds=0.2",
    # As `make tensorboard`.
    "tensorboard --logdir=data/runs": "test -d data/runs/mine/tensorboard",
    # What it would install.
    "pip install .": "pip wheel --quiet --no-deps --wheel-dir=wheels . && "
    "python -m zipfile --list wheels/lexrow-*.whl | grep app/keras/embedding.py",
    # The same case on a small table.
    "python -m app.bench sparse --optimizers=lazy_adam --json=sparse.json --plot=sparse.png": (
        "python -m app.bench sparse --optimizers=lazy_adam --json=sparse.json --plot=sparse.png "
        "--rows=1000 --dim=8 --steps=3 --vocabularies=500,1000"
    ),
    # The same configuration on a small corpus, and the same case on a small vocabulary.
    "python -m app.train --flagfile=configs/language_model.cfg --workdir=data/runs/model": (
        "python -m app.train --flagfile=configs/language_model.cfg --workdir=data/runs/model "
        "--corpus=corpus.txt --epochs=1 --dim=8 --batch_tokens=256"
    ),
    "python -m app.bench softmax --json=softmax.json --plot=softmax.png": (
        "python -m app.bench softmax --json=softmax.json --plot=softmax.png --vocabularies=20,50 "
        "--targets=8 --dim=4 --steps=1 --losses=class_softmax --peers=copies"
    ),
    # The same configuration on a small corpus, and the same case on a small table.
    "python -m app.train --flagfile=configs/words.cfg --table=host --hot_rows=20000 --plan_only": (
        "python -m app.train --flagfile=configs/words.cfg --table=host --hot_rows=20000 "
        "--plan_only --corpus=corpus.txt"
    ),
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/host --table=host "
    "--hot_rows=20000": (
        "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/host --table=host "
        "--hot_rows=200 --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/stream --cache=none "
    "--table=dynamic --table_gb=0.5": (
        "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/stream --cache=none "
        "--table=dynamic --table_gb=0.01 --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    "python -m app.bench tables --json=tables.json --plot=tables.png": (
        "python -m app.bench tables --json=tables.json --plot=tables.png --rows=1000 --dim=4 "
        "--ids=32 --steps=20 --stage_steps=10 --sides=device,host --hot_shares=10 --peers=naive "
        "--optimizers=lazy_adam"
    ),
    # In the background, for the command after it, at a free port.
    "python -m app.cluster --data_workers=2 --port=5050": (
        "python -m app.cluster --data_workers=2 >served 2>&1 & echo $! >served.pid; "
        "until grep --quiet ^--data_service served; do kill -0 $(cat served.pid); sleep 0.2; done"
    ),
    "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/served --cache=none "
    "--data_service=127.0.0.1:5050": (
        "python -m app.train --flagfile=configs/words.cfg --workdir=data/runs/served --cache=none "
        "$(grep ^--data_service served) --corpus=corpus.txt --epochs=1; kill $(cat served.pid)"
    ),
    # The same configuration on a small corpus, with fewer processes.
    "python -m app.cluster --workers=2 --ps=2 -- --flagfile=configs/words.cfg "
    "--workdir=data/runs/servers": (
        "python -m app.cluster --workers=1 --ps=1 -- --flagfile=configs/words.cfg "
        "--workdir=data/runs/servers --corpus=corpus.txt --epochs=1 --dim=16"
    ),
    # The same case on little text, with one process.
    "python -m app.bench scaling --json=scaling.json --plot=scaling.png": (
        "python -m app.bench scaling --json=scaling.json --plot=scaling.png --corpus=corpus.txt "
        "--epochs=1 --dim=4 --workers= --vocabularies=2000 --columns=2 --modelled="
    ),
    # The same case on little text.
    "python -m app.bench pipeline --json=pipeline.json --plot=pipeline.png": (
        "python -m app.bench pipeline --json=pipeline.json --plot=pipeline.png --corpus=corpus.txt "
        "--examples=300 --example_epochs=2 --words=2000 --epochs=1 --peers=naive,map"
    ),
    # The same on fewer passes, and beside nobody.
    "python -m app.bench classify --corpus=reviews.txt --json=classify.json --plot=classify.png": (
        "python -m app.bench classify --corpus=reviews.txt --json=classify.json "
        "--plot=classify.png --peers= --epochs=1 --dim=4 --word_ngrams=1"
    ),
    "python -m app.train --flagfile=configs/recommend.cfg --corpus=ratings.csv "
    "--workdir=data/runs/ratings": (
        "python -m app.train --flagfile=configs/recommend.cfg --corpus=ratings.csv "
        "--workdir=data/runs/ratings --epochs=2"
    ),
    "python -m app.bench recommend --corpus=ratings.csv --heldout=later.csv --json=recommend.json "
    "--plot=recommend.png": (
        "python -m app.bench recommend --corpus=ratings.csv --heldout=later.csv "
        "--json=recommend.json --plot=recommend.png --peers= --dim=4 --train_flags=--epochs=1"
    ),
    "python -m app.bench adam --json=adam.json --plot=adam.png": (
        "python -m app.bench adam --json=adam.json --plot=adam.png --users=1000 --dim=4 --pairs=8 "
        "--peers=dense"
    ),
    # The run that this test is a part of, and the other steps of .ci/run.
    "make test": "true",
    "make lint": "true",
    "make smoke": "true",
}


# Sections that need nothing of those before them, so that they can run beside them.
APART = (
    "Classify text",
    "Recommend items",
    "Rescue a Keras model",
    "Predict words out of ten million",
    "Train a table that outgrows the device",
    "Let other machines read",
    "More machines",
)


def sections(markdown: str) -> dict[str, str]:
    """The sections of README.md that stand apart, by heading, and under `rest` all others."""
    found = {"rest": ""}
    for section in re.split(r"^(?=## )", markdown, flags=re.MULTILINE):
        heading = section.partition("\n")[0].removeprefix("## ")
        key = heading if heading in APART else "rest"
        found[key] = found.get(key, "") + section
    return found


def commands_in(markdown: str) -> list[str]:
    """The commands of the fenced bash blocks; comments go, continued lines are joined."""
    blocks = re.findall(r"^```bash\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", "".join(blocks)).splitlines()
    commands = [re.sub(r"(?:^|\s+)#\s.*", "", line).strip() for line in lines]
    return [command for command in commands if command]


def write_corpus(path: pathlib.Path, markdown: str) -> None:
    """README.md's own words, often enough to be kept, so that a word it asks for is known."""
    words = re.findall(r"[a-z]+", markdown.lower())
    lines = [" ".join(words[start:] + words[:start]) for start in range(40)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_examples(folder: pathlib.Path) -> None:
    """Reviews and ratings such as README.md speaks of."""
    kinds = {"good": "a warm and funny film", "bad": "three dull hours of this"}
    lines = [f"__label__{label} {text} {i % 7}" for i in range(40) for label, text in kinds.items()]
    (folder / "reviews.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    header = "userId,movieId,rating,timestamp\n"
    rows = [f"{u},{i},4.0,{100 + i}\n" for u in range(1, 20) for i in range(1, 30) if (u + i) % 3]
    (folder / "ratings.csv").write_text(header + "".join(rows), encoding="utf-8")
    rows = [
        f"{u},{i},4.0,{200 + i}\n" for u in range(1, 20) for i in range(1, 30) if not (u + i) % 3
    ]
    (folder / "later.csv").write_text(header + "".join(rows), encoding="utf-8")


def run(command: str, folder: pathlib.Path) -> Ended:
    """Runs the command in bash with the Python of this process, which needs no set-up.

    A command of ours that needs no shell starts with TensorFlow already imported.
    """
    words = shlex.split(command)
    if words[:2] == ["python", "-m"] and words[2] in FORKED and not re.search(r"[$|&;<>]", command):
        (folder / "printed").mkdir(exist_ok=True)
        return Command(folder / "printed", *words[2:], within=folder).ended()
    binaries = pathlib.Path(sys.executable).parent
    make = f'make() {{ command make -o setup BIN="{binaries}" "$@"; }}'
    ended = subprocess.run(
        ["bash", "-c", f"set -eo pipefail\n{make}\n{command}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"},
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
    """The same, with the texts and ratings that README.md speaks of."""
    write_corpus(copy / "corpus.txt", README)
    write_examples(copy)
    return copy


def ends_well(command: str, folder: pathlib.Path) -> None:
    """Runs the command, or what runs in its place."""
    code, *said = run(REPLACED.get(command, command), folder)
    assert code == 0, f"{command} ended {code}:\n{''.join(said)[-4000:]}"


@pytest.mark.parametrize("section", ["rest", *APART])
def test_every_command_runs(furnished, section):
    for command in commands_in(sections(README)[section]):
        if not command.startswith(BENCHMARK):
            ends_well(command, furnished)


@pytest.mark.slow  # a fresh process for every side
@pytest.mark.parametrize(
    "command",
    [command for command in commands_in(README) if command.startswith(BENCHMARK)],
    ids=lambda command: command.split()[3],
)
def test_every_benchmark_runs(furnished, command):
    ends_well(command, furnished)


def test_the_recipe_for_keras_runs(copy):
    """The model before and after the change, each on ids and labels that README.md leaves out."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", (copy / "README.md").read_text(), re.DOTALL | re.M)
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
    (loop,) = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    loop = loop.replace("/shared/lexrow", str(tmp_path)).replace("/shared/runs", str(tmp_path))
    program = "import os, sys; print(os.environ['TF_CONFIG'], *sys.argv[1:], sep='\\n')"
    loop = loop.replace(".venv/bin/python -m", f'{sys.executable} -c \\"{program}\\"')
    ended = run(f'ssh() {{ bash -c "$3 wait"; }}; {loop}', tmp_path)
    assert ended.code == 0, ended
    logs = [path.read_text().splitlines() for path in sorted(tmp_path.glob("words.*.log"))]
    assert len(logs) == 3 and all(flags == logs[0][1:] for _, *flags in logs)
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    (config,) = re.findall(r"value: >-\n(.*?\}\})\n", manifest, re.DOTALL)
    for configs in ([config for config, *_ in logs], [config] * 3):
        for index, text in enumerate(configs):
            found = of_environment("multi_worker", text.replace("$(INDEX)", str(index)))
            assert found.index == index and len(found.everyone) == 3


def test_every_replacement_is_of_a_command():
    commands = commands_in(README)
    assert commands and REPLACED.keys() <= set(commands)
    parts = sections(README).values()
    assert sorted(commands) == sorted(command for part in parts for command in commands_in(part))


def test_commands_are_found():
    markdown = (
        "Text `make no`.\n```bash\n# one\nmake train  # slow\n\npython -m app.train \\\n"
        "  --dim=5\n```\n```python\nprint()\n```\n```\nmake no\n```\n```bash\nmake a#b\n```\n"
    )
    assert commands_in(markdown) == ["make train", "python -m app.train --dim=5", "make a#b"]


def test_a_command_runs_in_the_copy_with_this_python(copy):
    assert run("python -c 'import sys; print(sys.prefix)'", copy).out.strip() == sys.prefix
    assert run("make help", copy).code == 0
    assert "pytest" in run("make --dry-run test", copy).out
    assert not (copy / ".venv").exists()
    assert run("false | true", copy).code != 0
    assert run("python -m app.train --epochs=0", copy).code == 2
