"""What the operating system tells."""

from __future__ import annotations

from app.system import host_memory


def test_a_field_of_the_proc_file_system(tmp_path):
    (tmp_path / "cpuinfo").write_text("a : 1\nmodel name\t: Some CPU: fast\nmodel name : other\n")
    assert host_memory.read_field(tmp_path / "cpuinfo", "model name") == "Some CPU: fast"
    assert host_memory.read_field(tmp_path / "cpuinfo", "none") is None
    assert host_memory.read_field(tmp_path / "missing", "a") is None


def test_free_memory_is_what_is_available_within_the_limit(monkeypatch):
    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}
    monkeypatch.setattr(host_memory, "_read_text", lambda path: files.get(str(path)))
    assert host_memory.free_bytes() == 2048 * 1024
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert host_memory.free_bytes() == 2048 * 1024
    files["/sys/fs/cgroup/memory.max"] = "4096\n"
    assert host_memory.free_bytes() == 4096
    files["/sys/fs/cgroup/memory.current"] = "3000\n"
    files["/sys/fs/cgroup/memory.stat"] = "anon 1000\nactive_file 500\ninactive_file 1400\n"
    assert host_memory.free_bytes() == 4096 - 1100
    older = "/sys/fs/cgroup/memory/memory."
    files |= {f"{older}limit_in_bytes": "2000\n", f"{older}usage_in_bytes": "600\n"}
    files |= {f"{older}stat": "inactive_file 1\ntotal_inactive_file 100\n"}
    assert host_memory.free_bytes() == 2000 - 500
    files.clear()
    assert host_memory.free_bytes() == host_memory.memory_bytes() > 2**27
