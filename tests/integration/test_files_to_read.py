"""The files that `app/README.md` lists for plain word vectors are those whose functions run."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Prints the modules of app/ whose functions run until the first checkpoint is there; functions
# that run while a module is imported are left out.
TRACER = """
import runpy, sys, threading
called, is_saved = set(), []
def note(frame, event, _):
    code = frame.f_code
    if event != "call" or "/app/" not in code.co_filename or is_saved or not code.co_flags & 1:
        return
    if code.co_qualname == "Checkpoints.save":
        is_saved.append(True)
    outer = frame
    while outer is not None:
        where, package, name = outer.f_code.co_filename.rpartition("/app/")
        is_import = package and outer.f_code.co_name == "<module>"
        if is_import and name not in ("__main__.py", "train.py"):
            return
        outer = outer.f_back
    called.add(code.co_filename.rpartition("/app/")[2])
threading.setprofile(note), sys.setprofile(note)
try:
    runpy.run_module("app", run_name="__main__")
finally:
    sys.setprofile(None)
    print("CALLED", *called)
"""


@pytest.mark.slow
def test_the_files_of_plain_word_vectors(tmp_path):
    (tmp_path / "text.txt").write_text("a b c d e f g h\n" * 2000)
    flags = f"--corpus={tmp_path}/text.txt", f"--workdir={tmp_path}/run", "--epochs=1"
    command = sys.executable, "-c", TRACER, "train", "--task=words", *flags
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    called = set(re.search("^CALLED (.*)", done.stdout, re.MULTILINE)[1].split())
    section = (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("\n## ")
    (text,) = (part for part in section if part.startswith("From the command to the vectors"))
    table, _, others = text.partition("It also runs")
    listed, further = (re.findall(r"`([\w/]+(?:\.py|/))`", part) for part in (table, others))
    assert len(listed) == len(set(listed)) == 40
    assert set(listed) <= called
    assert {name for name in called - set(listed) if not name.startswith(tuple(further))} == set()
