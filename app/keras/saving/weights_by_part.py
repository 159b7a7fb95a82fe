"""The rows of tables in the weights files of Keras, written and read part by part."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

# Keras has no public name for the store of a weights file, and for its check of a dataset.
from keras.src.saving.saving_lib import H5IOStore, safe_get_h5_dataset

from ...system.console import size_text
from ...system.host_memory import free_bytes
from ..tables.table_variable import TableVariable
from ..tables.table_warnings import variable_bytes

HEAD_BYTES = 1 << 16  # more than the header of an HDF5 file, or that of a variable in it, takes


class StoreByPart:
    """The variables in a store of Keras, in which those of tables are not copied into memory.

    Keras gives a store to `save_own_variables` and `load_own_variables`. In a weights file the
    content is what Keras would write. A store that is no single HDF5 file is used as it is, which
    takes memory for one table at a time.

    Args:
        store: The store of arrays by name. Variables have numbers as names.
    """

    def __init__(self, store: Any):
        self._store = store
        self._is_file = type(store) is H5IOStore

    def keys(self) -> Iterable[str]:
        """Return the names of the variables; other names in the store are left out."""
        return list(filter(str.isdigit, self._store.keys()))

    def __setitem__(self, name: str, value: Any) -> None:
        """Write a variable.

        Raises:
            OSError: The disk has no room for the rows of a table, or the memory if Keras builds the
                file there.
        """
        if self._is_file and isinstance(value, TableVariable):
            _require_room(self._store.h5_file, value)
            _write(self._store, name, value)
        else:
            self._store[name] = value

    def __getitem__(self, name: str) -> Any:
        """Return a variable: a `_StoredRows` if it has two dimensions, otherwise its array.

        Every matrix of an HDF5 file is read by part, also one that is no table. A store that is no
        single HDF5 file always returns the array.
        """
        if not self._is_file:
            return self._store[name]
        dataset = safe_get_h5_dataset(self._store._h5_entry_group, name)
        return _StoredRows(dataset) if len(dataset.shape) == 2 else self._store[name]


class StateByPart:
    """Mixin for a Keras optimizer: slots of tables are written and read part by part."""

    def save_own_variables(self, store: Any) -> None:
        """Write the state of the optimizer.

        Args:
            store: A store of arrays by name.

        Raises:
            OSError: The disk has no room for the slots of a table.
        """
        parts = StoreByPart(store)
        for number, variable in enumerate(self.variables):
            is_table = isinstance(variable, TableVariable)
            parts[str(number)] = variable if is_table else variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read the state of the optimizer.

        Args:
            store: A store of arrays by name.
        """
        super().load_own_variables(StoreByPart(store))


class _StoredRows:
    """A dataset (V, D) of a weights file, of which parts are read as arrays.

    Args:
        dataset: The dataset of h5py.
    """

    def __init__(self, dataset: Any):
        self._dataset, self.shape = dataset, dataset.shape
        # Keras writes bfloat16, which HDF5 does not have, as two bytes and this mark.
        self._is_bfloat16 = dataset.attrs.get("dtype") == "bfloat16"

    def __getitem__(self, part: Any) -> np.ndarray:
        rows_ND = self._dataset[part]
        return rows_ND.view(tf.bfloat16.as_numpy_dtype) if self._is_bfloat16 else rows_ND

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)


def require_disk(folder: Path, size: int, name: str, offset: int = 0) -> None:
    """Check that a folder can take a file, or the rest of one.

    HDF5 may end the process with a segmentation fault, some time after a disk was full. So the
    space is taken for a moment, in a file without a name.

    Args:
        folder: The folder.
        size: The bytes to write.
        name: The data to write, for the message.
        offset: The bytes that the file has already, which count for limits of a single file.

    Raises:
        OSError: The disk, a quota or a limit of the process is too small.
    """
    try:
        if shutil.disk_usage(folder).free < size:  # else the system fills the disk, then fails
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), offset, max(size, 1))  # a model may have no weights
    except OSError as error:
        raise OSError(
            error.errno,
            f"{name}: {os.strerror(error.errno)}: {size_text(size)} are needed in {folder}; free "
            "the disk, or save to another folder",
        ) from error


def _require_room(file: Any, variable: TableVariable) -> None:
    """Raise OSError if an open HDF5 file cannot take the rows of a table."""
    size = variable_bytes(variable) + HEAD_BYTES
    if file.driver != "fileobj":
        path = Path(file.filename).absolute()
        require_disk(path.parent, size, variable.path, path.stat().st_size)
    elif size > free_bytes():
        raise OSError(
            errno.ENOMEM,
            f"{variable.path}: Keras builds this file in memory, where its rows take "
            f"{size_text(size)} and {size_text(free_bytes())} are free; save it by "
            f"lexrow.keras.save_model, or by model.save(..., zipped=False)",
        )


def _write(store: H5IOStore, name: str, variable: TableVariable) -> None:
    """Write the rows of a table to a weights file as Keras would, but part by part."""
    dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
    store[name] = np.zeros((0, variable.shape[1]), dtype)  # Keras makes the group and the mark
    group = store._h5_entry_group
    marks = dict(group[name].attrs)
    del store[name]
    dataset = group.create_dataset(name, tuple(variable.shape), dtype)
    dataset.attrs.update(marks)
    for part, rows_ND in variable.parts():
        dataset[part] = rows_ND
