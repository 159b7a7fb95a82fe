from __future__ import annotations

import pytest
import tensorflow as tf

from app.errors import UsageError
from app.settings import ModelConfig, RunConfig
from app.system import devices, processor


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
    monkeypatch.setattr(processor, "_PROCESSOR", path)
    assert devices.compute_dtype(ModelConfig(), "CPU:0") == dtype


def test_a_processor_that_is_not_known_multiplies_float32(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "_PROCESSOR", tmp_path / "missing")
    assert devices.compute_dtype(ModelConfig(), "CPU:0") == tf.float32
