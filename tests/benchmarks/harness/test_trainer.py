from __future__ import annotations

import pytest

from app.benchmarks.harness import trainer
from app.benchmarks.harness.trainer import Peer
from app.errors import UsageError

KNOWN = {"one": Peer("numpy", "numpy"), "two": Peer("numpy", "numpy"), "none": Peer("no_such", "x")}


def test_a_peer_that_is_not_installed_is_one_line():
    assert trainer.sides("two,one", KNOWN, "case") == ["lexrow", "two", "one"]
    with pytest.raises(UsageError, match="--peers=none: none is not installed; pip install x"):
        trainer.sides("none", KNOWN, "case")
    with pytest.raises(UsageError, match="other is no peer of case; choose from one, two, none"):
        trainer.sides("other", KNOWN, "case")


def test_a_library_is_named_and_imported_once(monkeypatch):
    imported = []
    monkeypatch.setattr(
        trainer.programs, "import_usage", lambda name: imported.append(name) or name
    )
    described, imports = trainer.measure_imports(["lexrow", "one", "two"], KNOWN)
    assert described["versions"].keys() == {"python", "tensorflow", "numpy"}
    assert imports["one"] == imports["two"] == "import numpy"
    assert "start_tensorflow()" in imports["lexrow"]
    assert sorted(imported) == [imports["lexrow"], "import numpy"]


def test_waiting_is_a_share_of_all_the_training():
    rows = [{"input_wait": 0.5, "train_seconds": 2.0}, {"input_wait": 0.0, "train_seconds": 10.0}]
    assert trainer.mean_between(rows, "input_wait", "train_seconds") == 0.1
    assert trainer.mean_between(rows[1:], "input_wait", "train_seconds", 2.0) == 0
    assert trainer.mean_between(rows, "exchanged_bytes", "step") is None
