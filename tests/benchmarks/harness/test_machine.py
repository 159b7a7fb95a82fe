from __future__ import annotations

import json
import os

from app.benchmarks.harness import machine


def test_the_machine_is_named(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    described = machine.describe(["numpy"])
    assert json.loads(json.dumps(described)) == described
    assert described["cores"] >= 1 and described["memory_bytes"] > 2**27
    line = machine.line(described)
    assert described["processor"] in line and f"{described['cores']} cores" in line
    assert f"numpy {described['versions']['numpy']}" in line and "python 3." in line


def test_a_busy_machine_is_told(monkeypatch, caplog):
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    with caplog.at_level("WARNING"):
        assert machine.describe([])["load"] == 1000.0
    assert "the machine is busy (load 1000.0)" in caplog.text
