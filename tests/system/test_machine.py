"""What the operating system tells."""

import resource
import subprocess
import sys

import pytest

from app.errors import UsageError
from app.system import machine
from app.tables import memory
from tests.integration.commands import ROOT


def test_a_field_of_the_proc_file_system(tmp_path):
    (tmp_path / "cpuinfo").write_text("a : 1\nmodel name\t: Some CPU: fast\nmodel name : other\n")
    assert machine.read_field(tmp_path / "cpuinfo", "model name") == "Some CPU: fast"
    assert machine.read_field(tmp_path / "cpuinfo", "none") is None
    assert machine.read_field(tmp_path / "missing", "a") is None


def test_free_memory_is_what_is_available_within_the_limit(monkeypatch):
    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}
    monkeypatch.setattr(machine, "_read_text", lambda path: files.get(str(path)))
    assert machine.free_bytes() == 2048 * 1024
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert machine.free_bytes() == 2048 * 1024
    files["/sys/fs/cgroup/memory.max"] = "4096\n"
    assert machine.free_bytes() == 4096
    files["/sys/fs/cgroup/memory.current"] = "3000\n"
    files["/sys/fs/cgroup/memory.stat"] = "anon 1000\nactive_file 500\ninactive_file 1400\n"
    assert machine.free_bytes() == 4096 - 1100
    older = "/sys/fs/cgroup/memory/memory."
    files |= {f"{older}limit_in_bytes": "2000\n", f"{older}usage_in_bytes": "600\n"}
    files |= {f"{older}stat": "inactive_file 1\ntotal_inactive_file 100\n"}
    assert machine.free_bytes() == 2000 - 500
    files.clear()
    assert machine.free_bytes() == machine.memory_bytes() > 2**27


def test_free_memory_is_at_most_what_ulimit_allows(monkeypatch):
    limits = {resource.RLIMIT_AS: resource.RLIM_INFINITY, resource.RLIMIT_DATA: 9 << 30}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], resource.RLIM_INFINITY))
    files = {
        "/proc/meminfo": f"MemAvailable: {64 << 20} kB\n",
        "/proc/self/status": f"VmSize: {2 << 20} kB\nVmData:\t{1 << 20} kB\n",
    }
    monkeypatch.setattr(machine, "_read_text", lambda path: files.get(str(path)))
    assert machine.free_bytes() == 7 << 30  # without 1 GiB that threads reserve
    limits[resource.RLIMIT_AS] = 5 << 30
    assert machine.free_bytes() == 2 << 30
    items = [memory.Item("input", "", memory.HOST, 3 << 30)]
    error = memory.refusal(items, {memory.HOST: machine.free_bytes()}, ["lower --dim"])
    assert isinstance(error, UsageError)
    assert "host has 2.15 GB free (ulimit -v is 5.37 GB), and 3.22 GB are planned" in str(error)
    limits[resource.RLIMIT_AS] = 2 << 30
    assert machine.free_bytes() == 0


@pytest.mark.parametrize(("flag", "kilobytes"), [("-v", 1_000_000), ("-d", 500_000)])
def test_a_command_that_has_no_memory_to_start_says_so(tmp_path, flag, kilobytes):
    (tmp_path / "a.txt").write_text("a b\n")
    command = f"ulimit {flag} {kilobytes}; exec {sys.executable} -m app.train"
    arguments = f"--corpus={tmp_path}/a.txt --workdir={tmp_path}/run"
    ended = subprocess.run(
        ["bash", "-c", f"{command} {arguments}"], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 2
    said = f"train: ulimit {flag} allows {kilobytes * 1024 / 1e6:,.2f} "
    assert ended.stderr.startswith(said.replace("1,024.00 ", "1.02 GB")), ended.stderr
    assert ended.stderr.count("\n") == 1
