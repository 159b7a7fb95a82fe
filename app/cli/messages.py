"""The log and the error message of a command."""

from __future__ import annotations

import contextlib
import errno
import logging as std_logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from absl import logging

from ..errors import RunError
from ..system.files import remedy

_OUTPUT_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}


def set_up_logging() -> None:
    """Set up the log of this process: the messages of this package, and warnings of others.

    TensorFlow's warnings about values of a checkpoint that were not read are left out, too.
    """
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(None)  # the message alone
    # TensorFlow's Python code logs through absl too. Its notes are not about the command.
    package = f"{Path(__file__).parents[1]}{os.sep}"
    handler.addFilter(
        lambda record: record.levelno >= std_logging.WARNING or record.pathname.startswith(package)
    )
    # A checkpoint that cannot be loaded is reported in one line. TensorFlow would add a line for
    # every variable that was not yet read.
    unread = (
        "Value in checkpoint could not be found",
        "Detecting that an object or model or tf.train.Checkpoint is being deleted",
    )
    std_logging.getLogger("tensorflow").addFilter(
        lambda record: not record.getMessage().startswith(unread)
    )


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Raise RunError if standard output cannot be written in the block.

    An error of a full or failing disk without a file name is taken for one of standard output:
    others are converted where a file is written. A standard stream that is closed, as by `>&-`,
    becomes the null device: Python sets it to None, and the next file that is opened would get its
    descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
            raise
        advice = f"{remedy(error)}, or send the output elsewhere"
        raise RunError(f"cannot write standard output: {error.strerror}; {advice}") from error


def drop_output() -> None:
    """Let standard output end in the null device, so that Python can flush it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end(error: object, code: int) -> None:
    """Print the command and an error to standard error, in one line, and exit the process.

    Line breaks become blanks, and other characters that cannot be printed become escapes. Standard
    output is written before; if it cannot be, the rest of it is dropped.

    Args:
        error: The exception or the message.
        code: The exit code.
    """
    try:
        sys.stdout.flush()
    except OSError:  # `error` came first, or says this
        drop_output()
    text = " ".join(f"{Path(sys.argv[0]).stem}: {error}".splitlines())
    # A character that a terminal cannot show, or takes for a command, is written as an escape.
    shown = (char if char.isprintable() else repr(char)[1:-1] for char in text)
    print("".join(shown), file=sys.stderr)
    sys.stderr.flush()
    sys.exit(code)


def memory_errors() -> tuple[type[Exception], ...]:
    """Return the errors that Python and TensorFlow raise without memory; do not import TensorFlow.

    TensorFlow's error is left out if TensorFlow is not imported.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return (MemoryError,)
    return MemoryError, tensorflow.errors.ResourceExhaustedError


def without_memory(error: Exception) -> str:
    """Return the message for one of the `memory_errors`.

    Args:
        error: The error; the first line of its message is quoted.
    """
    reason = str(error).partition("\n")[0][:200] or "an allocation failed"
    less, tensorflow = "train with a lower --dim or --batch_tokens", sys.modules.get("tensorflow")
    advice = f"end other programs, or {less}"
    is_of_tensorflow = tensorflow and not isinstance(error, MemoryError)
    if is_of_tensorflow and tensorflow.config.list_physical_devices("GPU"):
        advice = (
            f"end other programs on the GPU, which nvidia-smi lists, or {less}, or with "
            "--table=host and less --device_memory"
        )
    return f"there is not enough memory ({reason}); {advice}"
