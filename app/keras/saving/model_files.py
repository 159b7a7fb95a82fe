"""Model files that replace an earlier file only when they are complete."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from ...errors import RunError, UsageError
from ...system.files import replacing
from ...tables.dynamic.dynamic import DynamicTable
from ..step_parts import parts_of
from ..tables.table_kinds import new_files_in
from ..tables.table_variable import TableVariable
from ..tables.table_warnings import variable_bytes
from .weights_by_part import HEAD_BYTES, require_disk

_MODEL, _WEIGHTS = ".keras", ".weights.h5"


def save_model(model: keras.Model, filepath: str | os.PathLike) -> None:
    """Save a model, or its weights, as a whole or not at all.

    The file is one that `model.save` or `model.save_weights` would write, and is loaded as one. But
    an earlier file of this name is replaced only when the new one is complete, where Keras empties
    it first. A `.keras` file is not built in memory, and takes its size twice on the disk while it
    is written. Tables of `RowEmbedding` that are not on the device, and their optimizer state, are
    written part by part.

    Example:
        lexrow.keras.save_model(model, "model.keras")
        lexrow.keras.save_model(model, "model.weights.h5")

    Args:
        model: The model.
        filepath: The name of the file. It ends in ".keras", for the model with its weights and
            optimizer state, or in ".weights.h5" for its weights and optimizer state alone.

    Raises:
        ValueError: The name ends in something else, or names a folder.
        OSError: The file cannot be written, such as on a full disk. An earlier file is unchanged.
    """
    path = Path(filepath)
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

    Args:
        filepath: The name of the file.
        custom_objects: As for `keras.saving.load_model`.
        compile: As for `keras.saving.load_model`.
        safe_mode: As for `keras.saving.load_model`.
        table_folder: The folder of the new files; by default that of the model.
    """
    with new_files_in(Path(filepath).parent if table_folder is None else Path(table_folder)):
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
