"""The package as other people install it, beside a project with a folder `app` of its own."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

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


def python(*arguments, folder, path=""):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.slow
def test_a_model_trains_beside_a_project_with_an_app_of_its_own(tmp_path):
    names = "source", "wheels", "installed", "project"
    source, wheels, installed, project = (tmp_path / name for name in names)
    shutil.copytree(ROOT / "app", source / "app")  # a build leaves files beside what it builds
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    quiet = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    python(*quiet, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source), folder=tmp_path)
    (wheel,) = wheels.iterdir()
    python(*quiet, "install", "--no-deps", "--target", str(installed), str(wheel), folder=tmp_path)
    assert {path.name for path in installed.iterdir() if path.suffix == ""} == {"lexrow"}
    (project / "app").mkdir(parents=True)
    (project / "app" / "__init__.py").write_text("NAME = 'theirs'\n")
    (project / "fit.py").write_text(PROGRAM)
    assert python("fit.py", folder=project, path=installed).startswith("trained\n")
    corpus = project / "corpus.txt"
    corpus.write_text("the cat sat on the mat and the dog sat on the cat\n" * 200)
    printed = python(
        *("-m", "lexrow.train", f"--corpus={corpus}", f"--workdir={project / 'run'}"),
        *("--min_count=1", "--dim=8", "--epochs=1", "--batch_tokens=256"),
        *("--group_tokens=32", "--shared_negatives=8"),
        folder=project,
        path=installed,
    )
    assert "python -m lexrow.neighbors" in printed
