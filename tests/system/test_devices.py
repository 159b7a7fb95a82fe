import os
import resource
import subprocess
import sys

import pytest
import tensorflow as tf

from app.errors import UsageError
from app.settings import ModelConfig, RunConfig
from app.system import devices, machine
from app.tables import memory
from tests.integration.commands import ROOT


@pytest.fixture
def present(monkeypatch):
    """Call it with the names of the devices that TensorFlow is to see."""

    def see(*names):
        monkeypatch.setattr(
            tf.config,
            "list_physical_devices",
            lambda kind: [
                tf.config.PhysicalDevice(f"/physical_device:{name}", kind)
                for name in names
                if name.startswith(kind)
            ],
        )

    return see


def test_the_first_gpu_is_the_default(present):
    present("CPU:0")
    assert devices.name(RunConfig()) == "CPU:0"
    present("CPU:0", "GPU:0", "GPU:1")
    assert devices.name(RunConfig()) == "GPU:0"


def test_names_of_devices(present):
    present("CPU:0", "GPU:0", "GPU:1")
    for name in ("GPU:1", "gpu:1", "/GPU:1", "/device:GPU:1"):
        assert devices.name(RunConfig(device=name)) == "GPU:1"
    assert devices.name(RunConfig(device="cpu")) == "CPU:0"
    for name in ("GPU:2", "TPU", "GPU:x", ":"):
        with pytest.raises(UsageError, match=f"^--device={name}: not here; choose from CPU:0, GPU"):
            devices.name(RunConfig(device=name))


def test_the_type_of_products():
    exact = ("exact_float32", tf.float32)
    for name, dtype in (("float32", tf.float32), exact, ("bfloat16", tf.bfloat16)):
        assert devices.compute_dtype(ModelConfig(compute_dtype=name), "CPU:0") == dtype


@pytest.mark.parametrize(
    ("vendor", "flags", "dtype"),
    [
        ("AuthenticAMD", "sse avx512_bf16", tf.bfloat16),
        ("GenuineIntel", "sse avx512_bf16 amx_bf16", tf.bfloat16),
        ("GenuineIntel", "sse avx512_bf16", tf.float32),  # half the speed of float32
        ("AuthenticAMD", "sse avx2", tf.float32),
    ],
)
def test_bfloat16_is_automatic_where_the_processor_multiplies_it_faster(
    monkeypatch, tmp_path, vendor, flags, dtype
):
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n")
    monkeypatch.setattr(machine, "_PROCESSOR", path)
    assert devices.compute_dtype(ModelConfig(), "CPU:0") == dtype


def test_a_processor_that_is_not_known_multiplies_float32(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_PROCESSOR", tmp_path / "missing")
    assert devices.compute_dtype(ModelConfig(), "CPU:0") == tf.float32


@pytest.fixture
def chosen(monkeypatch):
    """The threads that are set, on a machine of 8 cores."""
    numbers = {}
    for name in ("intra", "inter"):
        setter = f"set_{name}_op_parallelism_threads"
        keep = lambda count, name=name: numbers.update({name: count})  # noqa: E731
        monkeypatch.setattr(tf.config.threading, setter, keep)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    return numbers


@pytest.mark.parametrize(
    ("settings", "limit", "threads_of_one"),
    [
        ({}, "", 2),
        ({"task": "language_model"}, "", 8),
        ({"task": "language_model"}, "3", 3),
        ({"intra_op_threads": 5}, "3", 5),
    ],
)
def test_an_operation_takes_as_many_threads_as_its_task_needs(
    chosen, monkeypatch, settings, limit, threads_of_one
):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", limit)
    devices.use_machine(RunConfig(device="CPU:0", **settings))
    assert chosen == {"intra": threads_of_one, "inter": 8}


def test_a_device_that_is_not_there_is_refused(chosen):
    with pytest.raises(UsageError, match="--device=TPU: not here"):
        devices.use_machine(RunConfig(device="TPU"))


def test_a_gpu_takes_memory_as_needed_and_is_refused_in_one_line_if_it_has_none(
    chosen, monkeypatch
):
    gpu, grown = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU"), []

    def start(kind):
        raise tf.errors.InternalError(None, None, "CUDA failed.\nStatus: out of memory")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu] * (kind == "GPU"))
    monkeypatch.setattr(tf.config, "list_logical_devices", start)
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda *arguments: grown.append(arguments)
    )
    with pytest.raises(UsageError, match=r"GPU \(CUDA failed. Status: out of memory\); end other"):
        devices.use_machine(RunConfig())
    assert grown == [(gpu, True)]
    devices.use_machine(RunConfig(strategy="multi_worker"))  # starts them itself


# What the operating system tells.


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
