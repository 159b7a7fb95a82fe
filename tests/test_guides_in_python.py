"""The Python programs of README.md and of the guides to the tasks run and print what is shown.

A guide has its program in blocks of code, each followed by what it prints, and tables of the lines
of another library beside ours.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
GUIDES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        *(
            f"app/tasks/{task}/README.md"
            for task in ("words", "classify", "recommend", "language_model")
        ),
    )
}
BLOCKS = re.compile(r"^```python\n(.*?)^```(?:\n+```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
TABLES = re.compile(
    r"^\| (?:\[?)([\w-]+)[^|]* \| Lexrow \|\n\|---\|---\|\n((?:\|.*\|\n)+)", re.MULTILINE
)
END = "\x1e"  # between what the blocks print
# The data that the lines of the tables use by name, in a folder with the files of `furnished`.
GIVEN = {
    "gensim": "more = [['the', 'king', 'and', 'the', 'prince']] * 100",
    "fasttext": "",
    "implicit": "import scipy.sparse; user_items = scipy.sparse.random(60, 40, 0.3, 'csr', rng=1)\n"
    "test_items = scipy.sparse.random(60, 40, 0.1, 'csr', rng=2)",
    "scikit-learn": "texts = ['a warm and funny film', 'three dull hours'] * 20\n"
    "labels = ['good', 'bad'] * 20",
}
MODULES = {"scikit-learn": "sklearn"}
# The last fastText calls NumPy in a way that NumPy 2 refuses.
BEFORE = {
    "fasttext": "import numpy; make = numpy.array\n"
    "numpy.array = lambda *given, copy=None, **more: make(*given, copy=copy or None, **more)"
}


@pytest.fixture
def furnished(tmp_path) -> pathlib.Path:
    """A folder with the files that the programs name, and the package by its name."""
    lines = ["the king and the queen", "a man and a woman", "the man is a king"] * 200
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("king\tqueen\t9\nman\twoman\t8\nking\tis\t1\n")
    for name, kept in (("ratings.csv", (1, 2)), ("later.csv", (0,))):
        pairs = [f"{u},{i}" for u in range(30) for i in range(20) if (u + i) % 3 in kept]
        (tmp_path / name).write_text("\n".join(["user,item", *pairs]), encoding="utf-8")
    kinds = {"good": "a warm and funny film", "bad": "three dull hours of this"}
    lines = [f"__label__{label} {text} {i % 7}" for i in range(40) for label, text in kinds.items()]
    for name in ("reviews.txt", "later.txt"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    # In the repository the package has the name of its folder.
    (tmp_path / "lexrow").symlink_to(ROOT / "app")
    return tmp_path


def run(program: str, folder: pathlib.Path) -> str:
    """Run a program in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def tables_of(guide: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return by library its lines in a guide and ours; an empty cell is no line."""
    found = {}
    for name, rows in TABLES.findall(GUIDES[guide]):
        cells = [re.findall(r"(?<=\|) (?:`(.+?)`)? *(?=\|)", row) for row in rows.splitlines()]
        assert all(len(row) == 2 for row in cells), rows
        found[name] = tuple([row[side] for row in cells if row[side]] for side in (0, 1))
    return found


def assert_agrees(shown: str, printed: str) -> None:
    """Raise AssertionError unless a text looks like the one that a guide shows.

    Other processors, and other versions of the packages that are read, give other numbers and some
    other words: lines and numbers are as many, numbers are near, and half of the words the same.
    """
    assert len(shown.splitlines()) == len(printed.splitlines()), printed
    numbers = [re.findall(r"-?\d+(?:[.,]\d+)*", text) for text in (shown, printed)]
    assert len(numbers[0]) == len(numbers[1]), printed
    values = [[float(number.replace(",", "")) for number in side] for side in numbers]
    assert values[1] == pytest.approx(values[0], rel=0.3, abs=0.15), printed
    words = [set(re.findall(r"[^\W\d]+", text)) for text in (shown, printed)]
    assert 2 * len(words[0] & words[1]) >= len(words[0]), printed


def blocks_of(text: str) -> list[re.Match]:
    """Return the blocks of the program of a guide: its first part, and others that print."""
    end = f"{text}\n## In the shell".find("\n## In the shell")
    return [one for one in BLOCKS.finditer(text) if one[2] is not None or one.start() < end]


# These two train on real text for most of a minute.
@pytest.mark.parametrize(
    "guide",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "README.md")) for name in GUIDES],
)
def test_the_program_of_a_guide(guide, furnished):
    ours = blocks_of(GUIDES[guide])
    assert ours
    parts = [block[1] for block in ours]
    for name, (_, lines) in tables_of(guide).items():
        parts.append("\n".join([GIVEN[name], *lines]))
    printed = run(f"\nprint({END!r}, end='')\n".join(parts), furnished).split(END)
    for block, text in zip(ours, printed[: len(ours)], strict=True):
        assert_agrees(block[2] or "", text if block[2] or len(ours) > 1 else "")


@pytest.mark.parametrize(
    ("guide", "name"), [(guide, name) for guide in GUIDES for name in tables_of(guide)]
)
def test_our_lines_are_no_longer_than_those_of_another_library(guide, name, furnished):
    theirs, ours = tables_of(guide)[name]
    assert len(ours) <= len(theirs) and len("".join(ours)) <= len("".join(theirs))
    if importlib.util.find_spec(MODULES.get(name, name)) is None:
        pytest.skip(f"{name} is not installed")
    run("\n".join([BEFORE.get(name, ""), GIVEN[name], *theirs]), furnished)


def test_texts_are_compared():
    assert_agrees("0.61 layers\n0.55 dense\n", "0.64 layers\n0.52 units\n")
    for other in ("0.61 layers\n", "0.95 layers\n0.55 dense\n", "0.61 a\n0.55 b\n", "x layers\n1"):
        with pytest.raises(AssertionError):
            assert_agrees("0.61 layers\n0.55 dense\n", other)
