"""What every test shares: quiet TensorFlow, on the CPU unless a GPU is asked for.

On a GPU the order of sums changes from run to run, and Keras compiles by XLA by itself. So tests
that compare bits, or ask for errors, hold on the CPU. CUDA_VISIBLE_DEVICES=0 runs them on a GPU.
"""

import gc
import os
import resource
import signal

import pytest

# Read by TensorFlow when it is imported, so set before any test module is collected. Errors stay.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# The same products on every CPU, and those of the commands (see `app.cli.startup`).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Products of float32 on a GPU, where it is asked for, have the precision that tests are made for.
os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
# Two test processes share one GPU: neither may take all of its memory at the start.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
# XLA compiles twice as fast; the programs are small.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Some tests run make: as a person would, not as a part of the `make test ARGS=…` that runs them.
for _name in ("ARGS", "CASE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "WORKDIR", "WORKERS"):
    os.environ.pop(_name, None)
# A shell has what it starts in the background ignore Ctrl-C; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def on_the_cpu():
    """Where float32 products are float32 (a GPU may round them), and results the same bits."""
    import tensorflow as tf  # only where a test asks: it takes seconds

    with tf.device("CPU:0"):
        yield


@pytest.fixture
def limited():
    """Return a function that forbids this process files of more bytes, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def pytest_collection_finish():
    gc.freeze()  # each collection of a test passes over what was imported, which takes .2 s


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import tensorflow as tf  # only where a test asks: it takes seconds

    if not tf.config.list_physical_devices("GPU"):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="TensorFlow sees no GPU"))
