"""The devices of a run: which there are, which are used, and what they multiply best."""

from __future__ import annotations

import os

import tensorflow as tf

from ..config import Config, ModelConfig, RunConfig
from ..errors import UsageError

_PRODUCTS = {"float32": tf.float32, "bfloat16": tf.bfloat16}
# What a processor that multiplies bfloat16 in hardware calls it (Linux, /proc/cpuinfo).
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}


def name(settings: RunConfig) -> str:
    """The device to train on: --device, else the first GPU, else the CPU."""
    devices = [device.name.removeprefix("/physical_device:") for device in _physical_devices()]
    if not settings.device:
        return next((device for device in devices if device.startswith("GPU")), "CPU:0")
    wanted = settings.device.lstrip("/").removeprefix("device:").upper()
    wanted = wanted if ":" in wanted else f"{wanted}:0"
    if wanted not in devices:
        raise UsageError(f"--device={settings.device}: not here; choose from {', '.join(devices)}")
    return wanted


def use_machine(settings: RunConfig) -> None:
    """Sets TensorFlow's threads and memory; call it before anything else asks for a device.

    UsageError for a --device that is not there.
    """
    cores = os.cpu_count() or 1
    # The operations of a step take 0.1 ms: too little to share, so few cores do best with an
    # operation each (2 cores, 2,048 tokens a step: 1.4 ms against 2.0). Those of a language model
    # wait for one another, and are larger (4,096 tokens, 300 units, the cell alone: 99 ms, shared
    # 70).
    usual = cores if settings.task == "language_model" else max(1, cores // 4)
    # At most what TensorFlow's own variable says: where processes share a machine, as in a trial.
    most = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    usual = min(usual, int(most)) if most.isdecimal() and int(most) else usual
    threads = settings.intra_op_threads or usual
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError as error:
        raise AssertionError("use_machine must come before TensorFlow's first operation") from error
    name(settings)


def several(config: Config) -> list[str]:
    """The device of the steps, and those after it over which the classes of words are dealt."""
    first, count = name(config.run), config.model.class_devices
    kind, _, number = first.partition(":")
    names = [f"{kind}:{index}" for index in range(int(number), int(number) + count)]
    there = len(tf.config.list_logical_devices(kind)) - int(number)
    if count > there:
        raise UsageError(
            f"--class_devices={count}: from {first} on there are {there}; give at most that"
        )
    return names


def compute_dtype(settings: ModelConfig, device: str) -> tf.DType:
    """The dtype of a model's products: --compute_dtype, or what the device multiplies fastest."""
    if settings.compute_dtype != "auto":
        return _PRODUCTS[settings.compute_dtype]
    if device.startswith("GPU"):
        gpu = tf.config.list_physical_devices("GPU")[int(device.partition(":")[2])]
        major, _ = tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        return tf.bfloat16 if major >= 8 else tf.float32  # from NVIDIA's Ampere on
    return tf.bfloat16 if _BFLOAT16_FLAGS & _processor_flags() else tf.float32


def _processor_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((set(line.split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return set()  # not Linux


def _physical_devices() -> list[tf.config.PhysicalDevice]:
    return tf.config.list_physical_devices("CPU") + tf.config.list_physical_devices("GPU")
