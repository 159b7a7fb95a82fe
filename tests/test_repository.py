"""House rules that no linter checks: what lies where, and what never gets in."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = {"app", "configs", "data", "tests"}
FILES = {
    "Makefile",
    "README.md",
    "pyproject.toml",
    "requirements.lock",
    "requirements-cuda.lock",
}
# Written apart, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile("/(?:" + "|".join(["root", "tmp", "work", "home/[a-z]"]) + r")\b")
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
PINS = re.compile(r"^([a-z0-9.-]+)==[\w.]+(?: ; .+)?$")


def our_files() -> list[pathlib.Path]:
    """Return every file that belongs to the repository; downloads and runs are left out."""
    inside = [path for folder in ("app", "configs", "tests", ".ci") for path in walk(ROOT / folder)]
    beside = [ROOT / name for name in (*sorted(FILES), ".gitignore", "data/README.md")]
    return inside + [path for path in beside if path.exists()]


def walk(folder: pathlib.Path) -> list[pathlib.Path]:
    caches = {"__pycache__"}
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and caches.isdisjoint(path.parts) and path.suffix != ".pyc"
    )


def hits(pattern: re.Pattern) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in our_files()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def requirements(name: str) -> list[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def test_no_strangers_at_the_top():
    visible = {name for name in os.listdir(ROOT) if not name.startswith(".")}
    assert visible - FOLDERS - FILES == set()


def test_no_path_of_one_machine():
    assert hits(MACHINE_PATHS) == []


def test_nothing_is_left_unfinished():
    assert hits(UNFINISHED) == []


def test_no_source_calls_the_package_by_its_folder():
    # It is named lexrow, in the repository as where it is installed.
    found = [hit for hit in hits(re.compile(r"\bapp\b")) if re.match(r"app/\S+\.py:", hit)]
    assert found == []
    called = hits(re.compile(r"\bapp\.[a-z]|python -m lexrow|\blexrow\.(?:cli|train)\b"))
    guides = re.compile(r"(?:README\.md|app/\S+\.md|configs/\S+):")
    assert [hit for hit in called if guides.match(hit)] == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-cuda.lock"])
def test_locks_hold_exact_versions_and_no_address(name):
    assert [line for line in requirements(name) if not PINS.match(line)] == []


def test_every_dependency_is_locked():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = "dependencies|dev|handover|peers|plot|sklearn|train"
    listed = re.findall(rf"^(?:{names}) = \[(.*?)\]$", project, re.DOTALL | re.MULTILINE)
    wanted = {name for text in listed for name in re.findall(r'"([a-z0-9-]+)', text)} - {"lexrow"}
    locked = {PINS.match(line)[1] for line in requirements("requirements.lock")}
    assert len(wanted) >= 15 and wanted <= locked


def test_make_alone_prints_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.*)", makefile, re.MULTILINE)[0].split()
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [f"make {target} " in printed for target in targets] == [True] * len(targets)
    assert len(printed.splitlines()) == len(targets)


def test_make_refuses_another_python_in_one_line(tmp_path):
    for name in ("Makefile", "requirements.lock", "requirements-cuda.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "old").write_text("#!/bin/sh\necho Python 2.7.18\nexit 1\n")
    (tmp_path / "old").chmod(0o755)
    for python, found in (("./old", "Python 2.7.18"), ("./none", "not found")):
        command = ["make", "test", f"PYTHON={python}"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        first, *rest = ended.stderr.splitlines()
        assert ended.returncode != 0 and not ended.stdout and len(rest) == 1
        assert f"PYTHON={python} is not Python 3.10 to 3.13" in first and found in first
    assert not (tmp_path / ".venv").exists()


def test_ci_runs_what_the_readme_says():
    steps = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert [step for step in steps if step.startswith("make")] == [
        "make lint",
        "make test",
        "make test-slow ARGS=tests/integration/test_browser.py",
        "make smoke",
    ]
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert os.access(ROOT / ".ci/run", os.X_OK)
