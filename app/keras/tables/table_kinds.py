"""The kinds of table that a layer can have, by the values of its argument `table`."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import tempfile
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import RunError, UsageError
from ...system.scoped import Scoped
from ...tables import sharded
from ...tables.arrays import row_slices
from ...tables.base import Table, TableSpec
from ...tables.cached import CachedTable, CacheMap
from ...tables.device import DeviceTable
from ...tables.disk.file import FileTable
from ...tables.disk.table_file import TableFile, journal_path
from ...tables.initial import Constant, Initial, Unwritten
from ...tables.joined import StackedTable, stack
from ...types import HOST
from ..backend import in_place, named_files, one_copy, with_seed_of_chief
from .initial_rows import StoredRows, by_id, constant_of

_OWNER = "a layer of Keras"  # of a file; it is no id of a run (see `checkpoints.workdir.owner_id`)
# In bytes, of the largest initial rows that are made as a whole and copied to a larger table.
_MADE_TWICE = 64 << 20
KINDS = ("device", "host", "file", "sharded")  # "device" is a variable of Keras
# The files that `with_new_file` made up for layers that are not built yet.
_new_files: set[str] = set()
_folder: Scoped[Path | None] = Scoped(None)


def _file_of(layer: Any) -> TableFile:
    """Make the new file of a layer, which is locked until the layer is deleted.

    A file of an earlier layer that is no longer in use is replaced. Raises ValueError if the file
    cannot be used.
    """
    path = Path(layer.table_file)
    if path.exists() and not path.is_file():
        raise ValueError(f"{layer.name}: table_file={path} is no file; give the name of a new file")
    try:
        file = _new_file(path)
    except (UsageError, RunError) as error:
        remedy = "make this layer with another file, and load its rows by load_weights"
        if isinstance(error.__cause__, BlockingIOError):
            reason = "is in use by another layer, of this process or another"
            remedy = f"delete that model first, or {remedy}"
        elif isinstance(error.__cause__, OSError):
            reason = f"cannot be written: {error.__cause__.strerror}"
        else:
            reason = "exists, and holds something else than the rows of a layer"
        raise ValueError(f"{layer.name}: table_file={path} {reason}; {remedy}") from error
    weakref.finalize(layer, file.release)
    if layer.table_file in _new_files:
        _new_files.remove(layer.table_file)
        weakref.finalize(layer, _remove, path)
    file.label = f"{layer.name}: table_file="
    file.remedy = "load a saved model, or make the layer again, with a new file"
    return file


def _new_file(path: Path) -> TableFile:
    """Return a new file in place of one of an earlier layer, which may be deleted but not freed."""
    try:
        return TableFile(path, _OWNER, resume=False, take_over=False)
    except UsageError as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
        gc.collect()  # a model refers to itself
        return TableFile(path, _OWNER, resume=False, take_over=False)


def check_place(layer: Any) -> None:
    """Raise ValueError if the arguments `table` and `table_file` of a layer cannot be."""
    if layer.table not in KINDS:
        raise ValueError(f"{layer.name}: table={layer.table!r}; give one of {', '.join(KINDS)}")
    is_file = layer.table == "file"
    if is_file != (layer.table_file is not None):
        raise ValueError(
            f"{layer.name}: table={layer.table!r} and table_file={layer.table_file!r}; name a file "
            "with table='file', and only with it"
        )
    is_name = isinstance(layer.table_file, str | os.PathLike) and layer.table_file
    if is_file and not is_name:
        raise ValueError(f"{layer.name}: table_file={layer.table_file!r}; give the name of a file")
    if is_file:
        named_files.add(str(layer.table_file))


def check_kind(layer: Any) -> None:
    """Set `supports_jit` of an embedding; raise ValueError if arguments of its table cannot be."""
    check_place(layer)
    if layer.table == "file":
        _initial(layer)  # raises ValueError if there are none by id
    if layer.lora_rank:
        check_is_variable(layer, "lora_rank")
    if layer.hot_rows is not None and layer.table == "device":
        raise ValueError(
            f"{layer.name}: hot_rows={layer.hot_rows} needs table='host', 'file' or 'sharded', not "
            "'device'"
        )
    is_integer = isinstance(layer.hot_rows, int) and not isinstance(layer.hot_rows, bool)
    if layer.hot_rows is not None and not (is_integer and layer.hot_rows > 0):
        raise ValueError(f"{layer.name}: hot_rows={layer.hot_rows!r}; give a number of rows")
    layer.supports_jit = table_is_compiled(layer)


def table_is_compiled(layer: Any) -> bool:
    """Return whether XLA can compile steps on the table of a layer."""
    # XLA cannot call Python, and fails on the dynamic shapes of shards. On a GPU it cannot read
    # host memory. `compile_steps` compiles steps on the cache of a table.
    return layer.table == "device" or (layer.table == "host" and host_is_near())


def place_config(layer: Any) -> dict[str, Any]:
    """Return the arguments `table` and `table_file` of a layer where they are not the defaults."""
    config = {} if layer.table == "device" else {"table": layer.table}
    return config | ({"table_file": str(layer.table_file)} if layer.table == "file" else {})


def make_tables(layer: Any, specs: Mapping[str, TableSpec]) -> dict[str, Table]:
    """Return the tables of a layer by name, all of them in its file if it has one.

    Args:
        layer: A layer whose table is not "device".

    Raises:
        ValueError: The file cannot be used, or a strategy of tf.distribute is in use whose replicas
            do not train in step.
    """
    dtype, tables = tf.as_dtype(layer.variable_dtype), dict[str, Table]()
    with one_copy(f"{layer.name}: table={layer.table!r}"):
        file = _file_of(layer) if layer.table == "file" else None
        for name, spec in specs.items():
            size = spec.rows, spec.columns, spec.initial
            if file is not None:
                try:
                    tables[name] = FileTable(file, name, *size, dtype)
                except RunError as error:
                    raise ValueError(str(error)) from error
            elif layer.table == "sharded":  # over the GPUs, or over the CPUs if there is no GPU
                tables[name] = sharded.make(*size, sharded.local_devices(), dtype=dtype)
            else:
                with tf.device(HOST):
                    tables[name] = DeviceTable(*size, dtype)
    return tables


def make_table(layer: Any) -> Table:
    """Return the table of an embedding, with a cache on the current device if it has hot rows.

    Without a GPU, a table in host memory has no cache.

    Args:
        layer: The `RowEmbedding`, whose table is not "device".

    Raises:
        ValueError: The file of the table, or of its initial rows, cannot be used, or a strategy of
            tf.distribute is in use whose replicas do not train in step, or may use the cache.
    """
    layer.embeddings_initializer = with_seed_of_chief(layer.embeddings_initializer)
    shape, stored = (layer.input_dim, layer.output_dim), layer.embeddings_initializer
    if isinstance(stored, StoredRows):
        stored.check_shape(shape)
    (table,) = make_tables(layer, {"embeddings": TableSpec(*shape, _initial(layer))}).values()
    if isinstance(stored, StoredRows):
        write_initial(layer, table)
    if not has_cache(layer):
        if layer.hot_rows:
            logging.info("%s: hot_rows=%d has no effect without a GPU", layer.name, layer.hot_rows)
        return table
    if tf.distribute.has_strategy():
        raise ValueError(
            f"{layer.name}: hot_rows={layer.hot_rows} is a cache on one device, where "
            f"{type(tf.distribute.get_strategy()).__name__} can have several; leave it out"
        )
    cache_map = CacheMap(table.rows, np.zeros(0, np.int64), min(layer.hot_rows, table.rows))
    return CachedTable(table, tf.zeros([]).device, cache_map, is_shared=True)


def alike_tables(layers: Iterable[Any]) -> list[list[Any]]:
    """Return the embeddings whose tables can share a variable, those of each variable together.

    They are alike in width, dtype and kind. A table that `_can_share` refuses, or that is made
    under a strategy of tf.distribute, has its own.

    Args:
        layers: `RowEmbedding` layers that are not built.
    """
    alike: dict[Hashable, list[Any]] = {}
    for layer in layers if not tf.distribute.has_strategy() else ():
        if _can_share(layer):
            key = layer.table, layer.output_dim, layer.variable_dtype
            alike.setdefault(key, []).append(layer)
    return [group for group in alike.values() if len(group) > 1]


def _can_share(layer: Any) -> bool:
    """Return whether the table of an embedding can be in a variable with others.

    Not if it is frozen, has a cache, is in a file or sharded; nor if it is float64, as its rows
    would pass through float32; nor if its initial rows are many and made as a whole, as they would
    take their memory twice.
    """
    dtype, initializer = tf.as_dtype(layer.variable_dtype), layer.embeddings_initializer
    is_made_by_part = isinstance(initializer, StoredRows) or constant_of(initializer) is not None
    fits = is_made_by_part or layer.input_dim * layer.output_dim * dtype.size <= _MADE_TWICE
    is_of_kind = layer.table in ("device", "host") and not has_cache(layer)
    return layer.trainable and is_of_kind and dtype != tf.float64 and fits


def stack_tables(layers: Sequence[Any]) -> dict[str, StackedTable]:
    """Make the tables of embeddings that are alike, in one variable, by the names of the layers.

    Raises:
        ValueError: Stored initial rows have another shape than their table.
    """
    rows, dtype = [layer.input_dim for layer in layers], tf.as_dtype(layers[0].variable_dtype)
    with tf.device(HOST) if layers[0].table == "host" else contextlib.nullcontext():
        whole = DeviceTable(sum(rows), layers[0].output_dim, Unwritten(), dtype)
        tables = stack(whole, rows)
        for layer, table in zip(layers, tables, strict=True):
            write_initial(layer, table)
    return {layer.name: table for layer, table in zip(layers, tables, strict=True)}


def write_initial(layer: Any, table: Table | StackedTable) -> None:
    """Write the initial rows of a layer to its table, part by part."""
    stored, shape = layer.embeddings_initializer, (table.rows, table.columns)
    if isinstance(stored, StoredRows):
        stored.check_shape(shape)
        parts = stored.parts()
    else:
        slices = [*row_slices(*shape)]
        if constant_of(stored) is None:  # other rows depend on the shape
            rows_VD = _initial(layer)(shape)
            parts = ((part, rows_VD[part]) for part in slices)
        else:
            rows_ND = _initial(layer)((slices[0].stop, table.columns))  # no part is larger
            parts = ((part, rows_ND[: part.stop - part.start]) for part in slices)
    for part, rows_UD in parts:
        table.assign(tf.range(part.start, part.stop, dtype=tf.int64), tf.cast(rows_UD, tf.float32))


def has_cache(layer: Any) -> bool:
    """Return whether the table of a layer has a cache on the device.

    Args:
        layer: A layer that looks up rows, also one of Keras.
    """
    if not getattr(layer, "hot_rows", None):
        return False
    return layer.table != "host" or not host_is_near()


def host_is_near() -> bool:
    """Return whether steps reach host memory as fast as a cache: if there is no GPU."""
    return not tf.config.list_physical_devices("GPU")


def check_is_variable(layer: Any, feature: str) -> None:
    """Raise ValueError if the table of a layer is not on the device, as a named feature needs."""
    if layer.table != "device":
        raise ValueError(f"{layer.name}: {feature} needs table='device', not {layer.table!r}")


def _initial(layer: Any) -> Initial:
    """Return the initial values of a layer: by id for a file, else as a whole, as Keras makes them.

    `StoredRows` follow later: until then there are zeros in a file, and no values elsewhere.
    """
    initializer, is_file = layer.embeddings_initializer, layer.table == "file"
    if isinstance(initializer, StoredRows):
        return Constant(0.0) if is_file else Unwritten()
    if is_file:
        return by_id(initializer, layer.name)
    make = keras.initializers.get(in_place(initializer))
    return lambda shape: make(shape, dtype=layer.variable_dtype)


def new_files_in(folder: Path) -> contextlib.AbstractContextManager:
    """Let layers that are made from a configuration in the block have their files in a folder."""
    return _folder.set(folder)


def with_new_file(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a layer or a table, with a new file if it has a file.

    The new file is in the folder of `new_files_in`; without one, beside the file of the
    configuration if this process named it, as where a layer is copied; else in the folder for
    temporary files. It is removed with its layer.
    """
    config = dict(config)
    config.pop("table_id", None)  # of earlier versions
    if config.get("table") != "file":
        return config
    copied = str(config.get("table_file"))
    folder = _folder.get()
    if folder is None:
        folder = Path(copied).parent if copied in named_files else Path(tempfile.gettempdir())
    path = str(folder.absolute() / f"lexrow-{secrets.token_hex(8)}.rows")
    _new_files.add(path)
    return config | {"table_file": path}


def _remove(path: Path) -> None:
    """Remove a file of rows and its journal."""
    for file in (path, journal_path(path, 0)):
        file.unlink(missing_ok=True)
