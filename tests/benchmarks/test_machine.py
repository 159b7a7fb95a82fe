from __future__ import annotations

import json
import os

from app.benchmarks import machine


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


def test_a_field_of_the_proc_file_system(tmp_path):
    (tmp_path / "cpuinfo").write_text("a : 1\nmodel name\t: Some CPU: fast\nmodel name : other\n")
    assert machine._field(tmp_path / "cpuinfo", "model name") == "Some CPU: fast"
    assert machine._field(tmp_path / "cpuinfo", "none") is None
    assert machine._field(tmp_path / "missing", "a") is None


def test_free_memory_is_what_is_available_within_the_limit(monkeypatch):
    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}
    monkeypatch.setattr(machine, "_text", lambda path: files.get(str(path)))
    assert machine.free_bytes() == 2048 * 1024
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert machine.free_bytes() == 2048 * 1024
    files["/sys/fs/cgroup/memory.max"] = "4096\n"
    assert machine.free_bytes() == 4096
    files.clear()
    assert machine.free_bytes() == machine._memory_bytes() > 2**27
