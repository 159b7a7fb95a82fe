"""Start TensorFlow for a command, or for a command that reads a trained run."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

from absl import logging

from ..checkpoints import workdir
from ..errors import UsageError
from ..settings import flag_values
from ..system import machine, program_cache
from ..system.console import hide_stderr, size_text

# Bytes of address space that TensorFlow takes to start, by the flag of `ulimit` that limits them.
# With less it ends by a signal, without a word. Measured: 2.0 and 0.45 GB with two threads.
_START_BYTES = {"-v": 2_500_000_000, "-d": 750_000_000}


def store_programs() -> None:
    """Let XLA store its programs for a GPU in a folder; call this before TensorFlow is imported.

    TF_XLA_FLAGS is changed (see `program_cache.with_folder`). If the folder cannot be written, a
    warning is logged instead.
    """
    try:
        os.environ.update(program_cache.with_folder(os.environ, program_cache.gpu_kind(os.environ)))
        atexit.register(program_cache.seal, os.environ)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        logging.warning(
            "XLA stores no programs, so every run compiles its own: %s; set XDG_CACHE_HOME to a "
            "folder of yours",
            error,
        )


def start_tensorflow() -> None:
    """Import TensorFlow and list the devices, without the messages of its C++ code.

    Standard error is hidden meanwhile, and shown only if the import fails: no log level turns off
    all these messages.

    Keras is not imported with TensorFlow. TensorFlow does that only to read optimizers of Keras
    from SavedModels. Keras also imports scikit-learn and Matplotlib if they are installed, and all
    three take a second. An import of Keras after this function works as usual.

    Python's garbage collector never looks at the objects that exist by then: no module of
    TensorFlow is garbage. It would take half a second of the import, and as much at the exit.

    Raises:
        UsageError: The limit of `ulimit` on memory is too low.
    """
    for flag, most, _ in machine.process_limits():
        if most < _START_BYTES[flag]:
            raise UsageError(
                f"ulimit {flag} allows {size_text(most)}, and TensorFlow takes "
                f"{size_text(_START_BYTES[flag])} to start; raise it, or limit the memory "
                "by a control group"
            )
    set_variables()
    gc.disable()
    try:
        with hide_stderr(), _refuse_import("keras"):
            import tensorflow

            tensorflow.config.list_physical_devices()
        gc.freeze()
    finally:
        gc.enable()


def set_variables() -> None:
    """Set the variables of the environment that TensorFlow reads when it is imported, if unset."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Without oneDNN, a step of word vectors takes 5 times as long. TensorFlow turns it on by itself
    # only for CPUs with AVX512-VNNI or AMX.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@contextlib.contextmanager
def _refuse_import(name: str) -> Iterator[None]:
    """Let every import of a module fail within the context, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python's own mark of such a module
    try:
        yield
    finally:
        del sys.modules[name]


def check_task(path: str | os.PathLike[str], stored: dict[str, Any], task: str) -> None:
    """Raise UsageError if a workdir has no run of a task; see `start_run`."""
    if not os.fspath(path):
        raise UsageError(
            f"--workdir= is empty; name the folder of a run of --task={task}, or train one with "
            f"`lexrow train --task={task}`"
        )
    if stored.get("task") != task:
        other = f", but one of --task={stored['task']}" if "task" in stored else ""
        raise UsageError(
            f"--workdir={path}: no run of --task={task} there{other}; give another workdir, or "
            f"train one with `lexrow train --task={task}`"
        )


def start_run(path: str, stored: dict[str, Any], task: str = "") -> tuple[Any, workdir.Workdir]:
    """Start TensorFlow as the run of a workdir does; return its configuration and the workdir.

    TensorFlow gets the threads of the run (see `devices.use_machine`). No file is read.

    Args:
        stored: The result of `workdir.read_settings`; a setting that is missing has its default.
        task: The task that the run must have; empty for any, or no run.

    Raises:
        UsageError: The workdir has no run of the task, or the --device of the run is not a device
            of this machine.
    """
    if task:
        check_task(path, stored, task)
    start_tensorflow()
    from ..system import devices

    config = flag_values.from_names(stored)
    devices.use_machine(config.run)
    return config, workdir.Workdir(path)
