"""Access to the variables that TensorFlow saved in the folder of a checkpoint.

It works for folders whose path has any characters, and tells damaged files from unreadable ones.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from ..errors import DamagedError, RunError
from ..system.checked_files import list_folder, reading
from ..types import HOST

PREFIX = "tables"  # the beginning of the names of the files
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"  # the end of the key of every variable

_SPECIAL = frozenset("*?[\\")  # characters of a glob pattern
# The errors of TensorFlow's readers. Some readers turn a status into an error of Python.
_FAILURES = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
# The errors of RestoreV2 for a file that can be opened, but is too short or has a wrong checksum.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)
# The errors of RestoreV2 when another process, which should have read the file, is lost.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)


class Bundle:
    """The variables in the folder of a checkpoint.

    The constructor reads the index; each method reads the values that it returns or assigns. All of
    them raise DamagedError if a file is missing or damaged, and RunError if it cannot be read for
    another reason. TensorFlow's errors about a lost process are not converted, and neither is a
    Python error where all files are good.

    Attributes:
        shapes: The shape of each variable, by key.
        dtypes: The dtype of each variable, by key.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self.shapes: dict[str, list[int]] = {}
        self.dtypes: dict[str, tf.DType] = {}
        with self._prefix() as prefix:
            reader = tf.train.load_checkpoint(prefix)
            self.shapes = reader.get_variable_to_shape_map()
            self.dtypes = reader.get_variable_to_dtype_map()

    def rows(self, key: str, first: int, count: int) -> tf.Tensor:
        """Read consecutive rows of a variable of shape (V, D), and no others.

        Args:
            first: The first row.
            count: The number of rows.

        Returns:
            Rows (count, D), in the dtype of the variable.
        """
        rows, columns = self.shapes[key]
        # For a slice TensorFlow first reads the whole variable, then copies the slice.
        part = "" if count == rows else f"{rows} {columns} {first},{count}:-"
        with self._prefix() as prefix:
            return self._read(prefix, key, part)

    def restore(self, variables: tf.train.Checkpoint) -> None:
        """Assign the saved values to variables; keep the value of a variable that was not saved."""
        with self._prefix() as prefix:
            variables.read(prefix).expect_partial()

    @contextlib.contextmanager
    def _prefix(self) -> Iterator[str]:
        """Yield the path prefix of the files, and convert errors of the `with` block.

        First each file is opened once. After an error, every variable is read once, to tell a
        damaged file (DamagedError) from one that cannot be read (RunError). If all can be read, an
        error of TensorFlow becomes a RunError, and a Python error is raised as it is.
        """
        with reading(self._folder):
            for path in (self._folder / f"{PREFIX}.index", *_data(self._folder)):
                # TensorFlow's errors say less than the system's for a file that cannot be opened.
                open(path, "rb").close()
            with _literal_prefix(self._folder) as prefix:
                try:
                    yield prefix
                except _LOST:
                    raise
                except _FAILURES as error:
                    self._verify(prefix)
                    if isinstance(error, tf.errors.OpError):
                        raise self._unreadable(error) from error
                    raise

    def _verify(self, prefix: str) -> None:
        """Read every variable; raise DamagedError if its checksum is wrong, RunError if unreadable.

        Return nothing if all files are good. This fills `dtypes`.
        """
        try:
            self._read(prefix, "_CHECKPOINTABLE_OBJECT_GRAPH")
            reader = tf.train.load_checkpoint(prefix)
            self.dtypes = reader.get_variable_to_dtype_map()
            for key in self.dtypes:
                self._read(prefix, key)
        except _DAMAGE as error:
            raise DamagedError(f"{self._folder / PREFIX}: {_reason(error)}") from error
        except tf.errors.OpError as error:
            raise self._unreadable(error) from error

    def _read(self, prefix: str, key: str, part: str = "") -> tf.Tensor:
        """Read a variable, or the part of it that a slice of RestoreV2 names, on the CPU."""
        dtype = self.dtypes.get(key, tf.string)
        with tf.device(HOST):
            (value,) = tf.raw_ops.RestoreV2(
                prefix=prefix, tensor_names=[key], shape_and_slices=[part], dtypes=[dtype]
            )
        return value

    def _unreadable(self, error: tf.errors.OpError) -> RunError:
        """Return (do not raise) the error for files that cannot be read, with the reason."""
        path = self._folder / PREFIX
        return RunError(f"cannot read {path}: {_reason(error)}; mend that and run this again")


def is_literal(folder: Path) -> bool:
    """Return whether a path has no character of a glob pattern: *, ?, [ or a backslash.

    Args:
        folder: The folder, whose absolute path is checked. TensorFlow finds files in another
            folder only by the trick of `_literal_prefix`.
    """
    return not _SPECIAL.intersection(str(folder.absolute()))


@contextlib.contextmanager
def _literal_prefix(folder: Path) -> Iterator[str]:
    """Yield a path prefix of the files that has no character of a glob pattern.

    RestoreV2 looks for the index by a glob pattern and then opens the same text. A path with
    brackets or a backslash does not match, whether or not it is escaped. So the folder is opened:
    during the `with` block it is /proc/self/fd/N, which only this process can read.
    """
    if is_literal(folder):
        yield str(folder.absolute() / PREFIX)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{PREFIX}"
    finally:
        os.close(descriptor)


def _data(folder: Path) -> list[Path]:
    """Return the files that hold the variables; the path of the missing first file if none does."""
    return list_folder(folder, f"{PREFIX}.data-") or [folder / f"{PREFIX}.data-00000-of-00001"]


def _reason(error: tf.errors.OpError) -> str:
    """Return the first line of an error's message, cut to 200 characters.

    The name of the operation in the graph is left out.
    """
    lines = error.message.splitlines() or [type(error).__name__]
    return lines[0].rpartition("}} ")[2][:200]
