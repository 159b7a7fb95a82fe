from __future__ import annotations

import pytest
import tensorflow as tf

from app import build, config
from app.config import ModelConfig, RunConfig
from app.errors import UsageError


@pytest.fixture
def devices(monkeypatch):
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


def test_the_first_gpu_is_the_default(devices):
    devices("CPU:0")
    assert build.device_name(RunConfig()) == "CPU:0"
    devices("CPU:0", "GPU:0", "GPU:1")
    assert build.device_name(RunConfig()) == "GPU:0"


def test_names_of_devices(devices):
    devices("CPU:0", "GPU:0", "GPU:1")
    for name in ("GPU:1", "gpu:1", "/GPU:1", "/device:GPU:1"):
        assert build.device_name(RunConfig(device=name)) == "GPU:1"
    assert build.device_name(RunConfig(device="cpu")) == "CPU:0"
    for name in ("GPU:2", "TPU", "GPU:x", ":"):
        with pytest.raises(UsageError, match=f"^--device={name}: not here; choose from CPU:0, GPU"):
            build.device_name(RunConfig(device=name))


def test_the_type_of_products():
    for name, dtype in (("float32", tf.float32), ("bfloat16", tf.bfloat16)):
        assert build._compute_dtype(ModelConfig(compute_dtype=name), "CPU:0") == dtype


def test_bfloat16_is_automatic_where_the_processor_multiplies_it(monkeypatch):
    for flags, dtype in (({"avx512_bf16", "sse"}, tf.bfloat16), ({"avx2"}, tf.float32)):
        monkeypatch.setattr(build, "_processor_flags", lambda flags=flags: flags)
        assert build._compute_dtype(ModelConfig(), "CPU:0") == dtype


@pytest.mark.parametrize(
    ("name", "classes"),
    [("model", build.MODELS), ("optimizer", build.OPTIMIZERS), ("table", build.TABLES)],
)
def test_every_choice_has_a_class(name, classes):
    assert set(config.fields()[name].metadata["choices"]) == set(classes)
