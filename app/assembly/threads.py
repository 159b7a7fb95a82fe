"""Choose the threads of TensorFlow by the task of a run."""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from ..errors import UsageError
from ..settings import RunConfig
from ..system import devices


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
    devices.name(settings)
    # The strategies configure TensorFlow before it starts the devices.
    if settings.strategy == "none" and tf.config.list_physical_devices("GPU"):
        _start_gpus()


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
