"""The devices of a run: their names, and the dtype of their products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ..errors import UsageError
from ..settings import Config, ModelConfig, RunConfig
from .processor import has_fast_bfloat16

_EXACT = "exact_"  # what --compute_dtype begins with if products are not in TensorFloat-32


def name(settings: RunConfig) -> str:
    """Return the name of the device to train on: --device, else the first GPU, else `CPU:0`.

    The name has the form `GPU:0`; --device may also be `gpu`, `/GPU:0` or `/device:GPU:0`.

    Args:
        settings: The settings of the run.

    Raises:
        UsageError: --device is not a device of this machine.
    """
    known = [device for kind in ("CPU", "GPU") for device in tf.config.list_physical_devices(kind)]
    devices = [device.name.removeprefix("/physical_device:") for device in known]
    if not settings.device:
        return next((device for device in devices if device.startswith("GPU")), "CPU:0")
    chosen = settings.device.lstrip("/").removeprefix("device:").upper()
    chosen = chosen if ":" in chosen else f"{chosen}:0"
    if chosen not in devices:
        raise UsageError(f"--device={settings.device}: not here; choose from {', '.join(devices)}")
    return chosen


def shard_devices(config: Config) -> list[str]:
    """Return the names of the --class_devices devices that share the classes of words.

    Args:
        config: The configuration of the run.

    Returns:
        The device of the steps (see `name`), then the next ones of its kind, such as GPU:0, GPU:1.

    Raises:
        UsageError: The machine has fewer devices, or no device --device.
    """
    first, count = name(config.run), config.model.class_devices
    kind, _, number = first.partition(":")
    names = [f"{kind}:{index}" for index in range(int(number), int(number) + count)]
    available = len(tf.config.list_logical_devices(kind)) - int(number)
    if count > available:
        raise UsageError(
            f"--class_devices={count}: from {first} on there are {available}; give at most that"
        )
    return names


def compute_dtype(settings: ModelConfig, device: str) -> tf.DType:
    """Return the dtype of the matrix products of a model: float32 or bfloat16.

    Args:
        settings: The settings of the model. --compute_dtype decides unless it is `auto`.
        device: The name of the device, such as GPU:0. With `auto`, the dtype is bfloat16 if the
            GPU (NVIDIA from Ampere on) or this machine's CPU multiplies it faster than float32.
    """
    if settings.compute_dtype != "auto":
        return tf.as_dtype(settings.compute_dtype.removeprefix(_EXACT))
    if device.startswith("GPU"):
        gpu = tf.config.list_physical_devices("GPU")[int(device.partition(":")[2])]
        major, _ = tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        return tf.bfloat16 if major >= 8 else tf.float32  # from NVIDIA's Ampere on
    return tf.bfloat16 if has_fast_bfloat16() else tf.float32


@contextlib.contextmanager
def float32_products(compute_dtype: str) -> Iterator[None]:
    """Within the context, let TensorFlow multiply float32 on GPUs as --compute_dtype says.

    TensorFlow has one setting for the whole process. It is set back at the end.

    Args:
        compute_dtype: The value of --compute_dtype.
    """
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    is_exact = compute_dtype.startswith(_EXACT)
    tf.config.experimental.enable_tensor_float_32_execution(before and not is_exact)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
