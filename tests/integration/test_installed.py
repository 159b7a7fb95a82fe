"""The package as other people install it, beside a project with a folder `app` of its own."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from app.__main__ import COMMANDS

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import keras
import numpy as np

import app  # the project's own
import lexrow.keras

assert app.NAME == "theirs"
model = keras.Sequential(
    [lexrow.keras.RowEmbedding(1000, 8), keras.layers.Flatten(), keras.layers.Dense(1)]
)
model.compile(lexrow.keras.LazyAdam(0.01), loss="mse")
ids, targets = np.arange(64).reshape(32, 2), np.ones((32, 1), "float32")
before = model.evaluate(ids, targets, verbose=0)
model.fit(ids, targets, epochs=5, verbose=0)
assert model.evaluate(ids, targets, verbose=0) < before
print("trained")
"""


# The name of the folder in the repository as that of a module, and not within a path.
FOLDER = re.compile(r"(?<![\w/.-])app\.")


def python(*arguments, folder, path=""):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of an installation, which has nothing but the package and its metadata."""
    folder = tmp_path_factory.mktemp("wheel")
    source, wheels, target = (folder / name for name in ("source", "wheels", "installed"))
    for name in ("app", "configs"):  # a build leaves files beside what it builds
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    build = f"wheel --no-build-isolation --wheel-dir {wheels} {source}"
    for command in (build, f"install --target {target} --no-index --find-links {wheels} lexrow"):
        pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", *command.split())
        python(*pip, "--no-deps", folder=source)
    assert {path.name for path in target.iterdir() if path.suffix == ""} == {"lexrow", "bin"}
    return target


def files(folder):
    """The files of a package, by their paths in it, without those that Python adds."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def test_every_file_is_installed(installed):
    examples = [f"configs/{name}" for name in files(ROOT / "configs")]
    assert files(installed / "lexrow") == sorted([*files(ROOT / "app"), *examples])
    (metadata,) = installed.glob("*.dist-info/METADATA")
    assert "License-Expression: Apache-2.0" in metadata.read_text()


@pytest.mark.slow
def test_a_model_trains_beside_a_project_with_an_app_of_its_own(tmp_path, installed):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("NAME = 'theirs'\n")
    (tmp_path / "fit.py").write_text(PROGRAM)
    assert python("fit.py", folder=tmp_path, path=installed).startswith("trained\n")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat on the mat and the dog sat on the cat\n" * 200)
    printed = python(
        *(str(installed / "bin" / "lexrow"), "train"),
        *(f"--corpus={corpus}", f"--workdir={tmp_path / 'run'}"),
        *("--min_count=1", "--dim=8", "--epochs=1", "--batch_tokens=256"),
        *("--group_tokens=32", "--shared_negatives=8", "--preset=subwords"),
        folder=tmp_path,
        path=installed,
    )
    assert "lexrow neighbors" in printed
    assert not FOLDER.search(printed)


# What `help` and `--help` print of an installed package.
DOCUMENTS = """
import importlib.metadata, inspect, pydoc
import lexrow, lexrow.keras, lexrow.sklearn
assert importlib.metadata.version("lexrow") == lexrow.__version__
for module in lexrow.keras, lexrow.sklearn:
    for name in module.__all__:
        print(pydoc.render_doc(getattr(module, name), renderer=pydoc.plaintext))
"""


@pytest.mark.slow
def test_its_help_names_the_package_that_is_installed(tmp_path, installed):
    printed = python("-c", DOCUMENTS, folder=tmp_path, path=installed)
    assert "input_dim: " in printed and "learning_rate: " in printed
    for command in COMMANDS:
        shown = python("-m", f"lexrow.{command}", "--help", folder=tmp_path, path=installed)
        assert f"lexrow {command}" in shown
        printed += shown
    assert [line for line in printed.splitlines() if FOLDER.search(line)] == []
