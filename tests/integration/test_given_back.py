"""Models and fits that are deleted give back their memory, files and threads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.commands import ROOT, done
from tests.integration.repeated import FITS, KINDS


def check(printed: str) -> None:
    """What is held after the last model is what was held after the first ones."""
    for kind, (before, after) in json.loads(printed.splitlines()[-1]).items():
        # A fit of a classifier still leaves 2 MB; a model leaves .5, as one of stock Keras.
        most = 1.25 if kind in FITS else 1.05
        assert after["memory"] <= most * before["memory"], kind
        assert (after["files"], after["threads"]) == (before["files"], before["threads"]), kind


def test_a_few_models_leave_nothing(tmp_path):
    program = ("tests.integration.repeated", tmp_path, "2", "5")
    check(done(tmp_path, *program, "cached").out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thirty_of_a_kind_leave_nothing(tmp_path, kind):
    program = ["-m", "tests.integration.repeated", str(tmp_path), "5", "30", kind]
    ended = subprocess.run(
        [sys.executable, *program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    check(ended.stdout)
