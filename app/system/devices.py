"""The devices and threads of a run, and the dtype of its products."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf
from absl import logging
from tensorflow.python.client import device_lib  # no public module knows the memory of a GPU
from tensorflow.python.eager import context

from ..errors import UsageError
from ..settings import ModelConfig, RunConfig
from .machine import has_fast_bfloat16

_EXACT = "exact_"  # what --compute_dtype begins with if products are not in TensorFloat-32


def name(settings: RunConfig) -> str:
    """Return the name of the device to train on: --device, else the first GPU, else `CPU:0`.

    The name has the form `GPU:0`; --device may also be `gpu`, `/GPU:0` or `/device:GPU:0`.

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


def gpu_bytes(name: str) -> int:
    """Return the bytes of a GPU that TensorFlow may use; this starts TensorFlow's devices."""
    # With the configuration of the process, which may hide or divide GPUs.
    devices = device_lib.list_local_devices(context.context().config)
    return next(device.memory_limit for device in devices if device.name.endswith(name))


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
    """
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    is_exact = compute_dtype.startswith(_EXACT)
    tf.config.experimental.enable_tensor_float_32_execution(before and not is_exact)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def use_machine(settings: RunConfig) -> None:
    """Set TensorFlow's threads, let it take GPU memory as needed, start the GPUs; check --device.

    Operations run side by side on all cores. Each of them uses --intra_op_threads threads. If that
    is 0: all cores for a language model, else a quarter of the cores, and at most
    TF_NUM_INTRAOP_THREADS. If TensorFlow has run an operation before, nothing is set, and a warning
    is logged.

    Raises:
        UsageError: --device is not a device of this machine, or TensorFlow cannot start a GPU.
    """
    cores = os.cpu_count() or 1
    # The operations of a step take 0.1 ms, which is too little to share: it is fastest to run each
    # operation on one core (2 cores, 2,048 tokens a step: 1.4 ms, shared 2.0). The operations of a
    # language model depend on each other and are larger (4,096 tokens, 300 units, the cell alone:
    # 99 ms, shared 70).
    usual = cores if settings.task == "language_model" else max(1, cores // 4)
    # TensorFlow's own variable is an upper bound, for processes that share a machine.
    limit = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    usual = min(usual, int(limit)) if limit.isdecimal() and int(limit) else usual
    threads = settings.intra_op_threads or usual
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError as error:
        logging.warning("--intra_op_threads=%d is ignored: %s", settings.intra_op_threads, error)
    name(settings)
    # The strategies configure TensorFlow before it starts the devices.
    if settings.strategy == "none" and tf.config.list_physical_devices("GPU"):
        _start_gpus()


def has_gpu() -> bool:
    """Return whether TensorFlow has a GPU: a step waits for it before a decision by its numbers."""
    return bool(tf.config.list_logical_devices("GPU"))


def _start_gpus() -> None:
    """Start the GPUs, each of which takes some memory; raise UsageError if one cannot be."""
    try:
        tf.config.list_logical_devices("GPU")
    except (tf.errors.OpError, RuntimeError) as error:
        raise UsageError(
            f"TensorFlow cannot start the GPU ({' '.join(str(error).split())[:200]}); end other "
            "programs on it, which nvidia-smi lists, update its driver, or set "
            "CUDA_VISIBLE_DEVICES=-1 to use the CPU"
        ) from error
