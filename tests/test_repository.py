"""House rules that no linter checks: what lies where, and what never gets in."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = {"app", "configs", "data", "tests"}
LOCKS = ["requirements.lock", "requirements-cuda.lock"]
FILES = {"Makefile", "README.md", "pyproject.toml", *LOCKS}
# Written apart, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile("/(?:" + "|".join(["root", "tmp", "work", "home/[a-z]"]) + r")\b")
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
PINS = re.compile(r"^([a-z0-9.-]+)==[\w.]+(?: ; .+)?$")


def our_files() -> list[pathlib.Path]:
    """Return every file that belongs to the repository; downloads and runs are left out."""
    folders = (ROOT / name for name in ("app", "configs", "tests", ".ci"))
    inside = [path for folder in folders for path in sorted(folder.rglob("*"))]
    beside = [ROOT / name for name in (*sorted(FILES), ".gitignore", "data/README.md")]
    return [path for path in inside + beside if path.is_file() and path.suffix != ".pyc"]


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


@pytest.mark.parametrize("name", LOCKS)
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
    for name in ("Makefile", *LOCKS):
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
    steps = re.findall("^make .*", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    browser = "make test-slow ARGS=tests/integration/test_browser.py"
    assert steps == ["make lint", "make test", browser, "make smoke"]
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert os.access(ROOT / ".ci/run", os.X_OK)
