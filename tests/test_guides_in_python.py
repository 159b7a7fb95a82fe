"""The Python programs of README.md and of the guides to the tasks run as they are written."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
GUIDES = ["README.md", *(f"app/tasks/{task}/README.md" for task in ("words", "classify"))]
GUIDES += [f"app/tasks/{task}/README.md" for task in ("recommend", "language_model")]


@pytest.mark.parametrize("guide", GUIDES)
def test_the_program_of_a_guide(guide, tmp_path):
    text = (ROOT / guide).read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(import lexrow.*?)```", text, re.DOTALL)
    lines = ["the king and the queen", "a man and a woman", "the man is a king"] * 200
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    pairs = [f"{user},{item}" for user in range(30) for item in range(20) if (user + item) % 3]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item", *pairs]), encoding="utf-8")
    later = [f"{user},{item}" for user in range(30) for item in range(20) if not (user + item) % 3]
    (tmp_path / "later.csv").write_text("\n".join(["user,item", *later]), encoding="utf-8")
    # In the repository the package has the name of its folder.
    (tmp_path / "lexrow").symlink_to(ROOT / "app")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "tensorflow" not in done.stderr.lower()
