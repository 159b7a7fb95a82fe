"""Files of models and weights, written as a whole or not at all, with their tables part by part."""

from __future__ import annotations

import errno
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Keras has no public name for the store of a weights file, and for its check of a dataset.
from keras.src.saving.saving_lib import H5IOStore, safe_get_h5_dataset

from ..errors import RunError, UsageError
from ..system.console import apart, size_text
from ..system.files import allocate, check_path, replacing
from ..system.machine import free_bytes
from ..tables.dynamic.dynamic import DynamicTable
from .backend import require_model
from .step_parts import parts_of
from .tables.table_kinds import new_files_in
from .tables.table_variable import TableVariable
from .tables.table_warnings import variable_bytes

_MODEL, _WEIGHTS = ".keras", ".weights.h5"
HEAD_BYTES = 1 << 16  # more than the header of an HDF5 file, or that of a variable in it, takes


def save_model(model: keras.Model, filepath: str | os.PathLike) -> None:
    """Save a model, or its weights, as a whole or not at all.

    The file is one that `model.save` or `model.save_weights` would write, and is loaded as one. But
    an earlier file of this name is replaced only when the new one is complete, where Keras empties
    it first. A `.keras` file is not built in memory, and takes its size twice on the disk while it
    is written. Tables of `RowEmbedding` that are not on the device, and their optimizer state, are
    written and read part by part. The following take more memory besides the tables:

    - `model.save("model.keras")`, `load_model`: the whole file, if Keras finds that the weights fit
      into half of the free memory.
    - `save_weights` with `max_shard_size`, and a `MultiOptimizer` of Keras: a copy of each table,
      one at a time.
    - A `DynamicEmbedding`: a copy of its keys, not of its rows.
    - `tf.train.Checkpoint`: to write, a copy of each table that is sharded or a `DynamicEmbedding`;
      to read, of all tables.

    Example:
        >>> lexrow.keras.save_model(model, "model.keras")
        >>> lexrow.keras.save_model(model, "model.weights.h5")

    Args:
        model: The model.
        filepath: The name of the file. It ends in ".keras", for the model with its weights and
            optimizer state, or in ".weights.h5" for its weights and optimizer state alone.

    Raises:
        ValueError: The name ends in something else, or names a folder.
        OSError: The file cannot be written, such as on a full disk. An earlier file is unchanged.
    """
    path = Path(check_path(filepath, "filepath"))
    require_model(model)
    if not path.name.endswith((_MODEL, _WEIGHTS)):
        raise ValueError(f"filepath={path}: give a name that ends in {_MODEL} or {_WEIGHTS}")
    try:
        with (
            replacing(path) as temporary,
            tempfile.TemporaryDirectory(dir=temporary.parent, prefix=f"{temporary.name}-") as name,
        ):
            size, is_weights = _file_bytes(model), path.name.endswith(_WEIGHTS)
            require_disk(temporary.parent, size if is_weights else 2 * size, model.name)
            if is_weights:
                model.save_weights(Path(name) / path.name)
                os.replace(Path(name) / path.name, temporary)
            else:
                keras.saving.save_model(model, name, zipped=False)
                _zip(Path(name), temporary)
    except UsageError as error:
        raise ValueError(str(error)) from error
    except RunError as error:
        reason = getattr(error.__cause__, "strerror", None) or error.__cause__
        raise OSError(
            f"cannot save {path}: {reason}; an earlier file of this name is unchanged"
        ) from error


def load_model(
    filepath: str | os.PathLike,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    *,
    table_folder: str | os.PathLike | None = None,
) -> keras.Model:
    """Load a model that `save_model` or `model.save` wrote, with its tables in files beside it.

    `keras.saving.load_model` loads it as well, with its tables in the folder for temporary files.
    A table in a file gets a new file in every case, whatever name the saved model has for it. The
    file is working memory, which is removed when the layer is deleted or the program ends.

    Example:
        >>> lexrow.keras.save_model(model, "model.keras")
        >>> model = lexrow.keras.load_model("model.keras")

    Args:
        filepath: The name of the file.
        custom_objects: As for `keras.saving.load_model`.
        compile: As for `keras.saving.load_model`.
        safe_mode: As for `keras.saving.load_model`.
        table_folder: The folder of the new files; by default that of the model.
    """
    folder = Path(check_path(filepath, "filepath")).parent
    with new_files_in(folder if table_folder is None else Path(table_folder)):
        return keras.saving.load_model(filepath, custom_objects, compile, safe_mode)


def _file_bytes(model: keras.Model) -> int:
    """Return about how many bytes the weights file of a model takes, and not fewer."""
    parts = parts_of([model])
    # A wrapper of optimizers writes their variables, too, and they write them again.
    owners = [*parts.models, *parts.optimizers]
    variables = [variable for owner in owners for variable in owner.variables]
    tables = [v.table for v in variables if isinstance(v, TableVariable)]
    keys = sum(table.key_map.bytes() for table in tables if isinstance(table, DynamicTable))
    return keys + sum(variable_bytes(v) + HEAD_BYTES for v in variables)


def _zip(folder: Path, path: Path) -> None:
    """Write all files of a folder to an archive, without compression, as Keras does."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder))


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
        """Write a variable."""
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


class RowsByPart:
    """Mixin for a Keras layer: tables that are not on the device are written and read by part."""

    def save_own_variables(self, store: Any) -> None:
        """Write the variables."""
        super().save_own_variables(StoreByPart(store))

    def load_own_variables(self, store: Any) -> None:
        """Read the variables."""
        super().load_own_variables(StoreByPart(store))


class StateByPart(RowsByPart):
    """Mixin for a Keras optimizer: slots of tables are written and read part by part."""

    def save_own_variables(self, store: Any) -> None:
        """Write the state of the optimizer."""
        parts = StoreByPart(store)
        for number, variable in enumerate(self.variables):
            is_table = isinstance(variable, TableVariable)
            parts[str(number)] = variable if is_table else variable.numpy()


class _StoredRows:
    """A dataset (V, D) of a weights file, of which parts are read as arrays."""

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
        offset: The bytes that the file has already, which count for limits of a single file.

    Raises:
        OSError: The disk, a quota or a limit of the process is too small.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            allocate(file, offset, max(size, 1))  # a model may have no weights
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
    elif size > (free := free_bytes()):
        raise OSError(
            errno.ENOMEM,
            f"{variable.path}: Keras builds this file in memory, where its rows take "
            f"{apart(size, free)} and {apart(free, size)} are free; save it "
            "by lexrow.keras.save_model, or by model.save(..., zipped=False)",
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
