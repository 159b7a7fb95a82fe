"""The variables that TensorFlow saved in the folder of a checkpoint, whatever its path is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from ..errors import DamagedError, RunError
from ..system.checked_files import list_folder, reading

PREFIX = "tables"  # of the files
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"  # what the key of a variable ends with

_SPECIAL = frozenset("*?[\\")  # characters of a glob pattern
# What TensorFlow's readers raise; some turn a status into an error of Python, or lose its code.
_FAILURES = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
# What RestoreV2 raises where a file that can be opened is too short, or has another checksum.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)
# What it raises where another process that was to read is lost.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)


class Bundle:
    """Reads the variables in the folder of a checkpoint.

    Whatever reads raises DamagedError if a file is missing or damaged, and RunError if it cannot be
    read for another reason.

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
        """Return a run of rows of a variable of shape (V, D), (count, D) of its dtype."""
        rows, columns = self.shapes[key]
        with self._prefix() as prefix:
            return self._read(prefix, key, f"{rows} {columns} {first},{count}:-")

    def restore(self, variables: tf.train.Checkpoint) -> None:
        """Assign what is saved to the variables; those that were not saved stay as they are."""
        with self._prefix() as prefix:
            variables.read(prefix).expect_partial()

    @contextlib.contextmanager
    def _prefix(self) -> Iterator[str]:
        """Give the prefix by which TensorFlow finds the files, and tell why it cannot read them."""
        with reading(self._folder):
            for path in (self._folder / f"{PREFIX}.index", *_data(self._folder)):
                open(path, "rb").close()  # TensorFlow tells less of what the system refuses
            with _literal(self._folder) as prefix:
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
        """Read the index and every variable by itself, which compares their checksums."""
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
        dtype = self.dtypes.get(key, tf.string)
        with tf.device("CPU:0"):
            (found,) = tf.raw_ops.RestoreV2(
                prefix=prefix, tensor_names=[key], shape_and_slices=[part], dtypes=[dtype]
            )
        return found

    def _unreadable(self, error: tf.errors.OpError) -> RunError:
        path = self._folder / PREFIX
        return RunError(f"cannot read {path}: {_reason(error)}; mend that and run this again")


def is_literal(folder: Path) -> bool:
    """Return whether TensorFlow takes a path as it is written."""
    return not _SPECIAL.intersection(str(folder.absolute()))


@contextlib.contextmanager
def _literal(folder: Path) -> Iterator[str]:
    """Give the prefix of the files in a path that TensorFlow takes as it is written.

    RestoreV2 looks for the index by a glob pattern, which a path with brackets or a backslash does
    not match, nor any escape of it: the same text is then opened. An opened folder has a name
    without such characters in this process. Others may read by a path that needs none.
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
    """Return the files that have the variables, or the first one's path if there is none."""
    return list_folder(folder, f"{PREFIX}.data-") or [folder / f"{PREFIX}.data-00000-of-00001"]


def _reason(error: tf.errors.OpError) -> str:
    """Return the first line of what TensorFlow says, without where in its graph that was."""
    lines = error.message.splitlines() or [type(error).__name__]
    return lines[0].rpartition("}} ")[2][:200]
