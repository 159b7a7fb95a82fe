from __future__ import annotations

import json
import sys

import pytest

from app.benchmarks.harness import programs
from app.errors import RunError


def test_importing_takes_what_the_import_takes():
    assert programs.import_usage("import json").peak_bytes < 100 << 20
    with pytest.raises(RunError, match="import no_such_module ended with exit code 1: .*no_such"):
        programs.import_usage("import no_such_module")


def lacks(job):
    raise MemoryError("no memory\nat all")


@pytest.mark.parametrize(
    ("measure", "figures"),
    [(lambda job: {"doubled": 2 * job["a"]}, {"doubled": 6}), (lacks, {"left_out": "no memory"})],
)
def test_an_answer_is_the_figures_or_what_is_lacking(tmp_path, monkeypatch, measure, figures):
    result = tmp_path / "result"
    monkeypatch.setattr(sys, "argv", ["", json.dumps({"a": 3, "result": str(result)})])
    programs.answer(measure, (MemoryError,))
    assert json.loads(result.read_text()) == figures
