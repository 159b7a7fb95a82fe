"""The kinds of table that `RowEmbedding` can have, by the values of its argument `table`."""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from ...errors import RunError, UsageError
from ...tables import sharded
from ...tables.base import Table
from ...tables.device import DeviceTable
from ...tables.disk.file import FileTable
from ...tables.disk.sections import read_header
from ...tables.disk.table_file import TableFile
from ...tables.initial import Constant, Initial, Unwritten
from ...tables.read_through import ReadThroughTable
from ...types import HOST
from ..backend import in_place
from .initial_values import by_id
from .stored_rows import StoredRows


def _on_host(layer: Any) -> Table:
    """Make the table of a layer in host memory."""
    with tf.device(HOST):
        return DeviceTable(layer.input_dim, layer.output_dim, _whole(layer), _dtype(layer))


def _sharded(layer: Any) -> Table:
    """Make the table of a layer with a shard on each GPU, or on each CPU if there is no GPU."""
    devices = sharded.local_devices()
    shape = layer.input_dim, layer.output_dim
    return sharded.make(*shape, _whole(layer), devices, dtype=_dtype(layer))


def _in_file(layer: Any) -> Table:
    """Make the table of a layer in a new file, which is locked until the layer is deleted.

    A file of the same layer is replaced. Raises ValueError if the file cannot be used.
    """
    path = Path(layer.table_file)
    _check_file(layer, path)
    shape = layer.input_dim, layer.output_dim
    initial = _by_id(layer)
    try:
        file = TableFile(path, layer.table_id, resume=False)
    except (OSError, UsageError, RunError) as error:
        raise ValueError(f"{layer.name}: table_file={path}: {error}") from error
    file.label = f"{layer.name}: table_file="
    file.remedy = "load a saved model, or make the layer again, with a new file"
    try:
        table = FileTable(file, "embeddings", *shape, initial, _dtype(layer))
    except RunError as error:
        raise ValueError(str(error)) from error
    lock = os.open(path, os.O_RDWR)
    weakref.finalize(layer, os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return table


# Makes the table of a `RowEmbedding`. The value "device" of `table` is a variable of Keras.
TABLES: dict[str, Callable[[Any], Table]] = {
    "host": _on_host,
    "file": _in_file,
    "sharded": _sharded,
}


def check_kind(layer: Any) -> None:
    """Check the arguments of a layer that belong to its table, and set its `supports_jit`.

    Args:
        layer: The `RowEmbedding`.

    Raises:
        ValueError: There is no such table, or it cannot have what the layer asks for.
    """
    kinds = ["device", *TABLES]
    if layer.table not in kinds:
        raise ValueError(f"{layer.name}: table={layer.table!r}; give one of {', '.join(kinds)}")
    if (layer.table == "file") != (layer.table_file is not None):
        raise ValueError(
            f"{layer.name}: table={layer.table!r} and table_file={layer.table_file!r}; name a file "
            "with table='file', and only with it"
        )
    is_name = isinstance(layer.table_file, str | os.PathLike) and layer.table_file
    if layer.table == "file" and not is_name:
        raise ValueError(f"{layer.name}: table_file={layer.table_file!r}; give the name of a file")
    if layer.lora_rank:
        check_is_variable(layer, "lora_rank")
    if layer.hot_rows is not None:
        _check_hot_rows(layer)
    if layer.table == "file":
        _by_id(layer)
    # XLA cannot call Python, and fails on the dynamic shapes of shards. On a GPU it cannot read
    # host memory, where the rows or the map of their cache are.
    layer.supports_jit = layer.table == "device" or (
        layer.table == "host" and not tf.config.list_physical_devices("GPU")
    )


def make_table(layer: Any) -> Table:
    """Return the table of a layer, with a cache on the current device if it has hot rows.

    Without a GPU, a table in host memory has no cache.

    Args:
        layer: The `RowEmbedding`, whose table is not "device".

    Raises:
        ValueError: The file of the table, or of its initial rows, cannot be used.
    """
    stored = layer.embeddings_initializer
    if isinstance(stored, StoredRows):
        stored.check_shape((layer.input_dim, layer.output_dim))
    table = TABLES[layer.table](layer)
    if isinstance(stored, StoredRows):
        for part, rows_UD in stored.parts():
            table.assign(tf.range(part.start, part.stop, dtype=tf.int64), rows_UD)
    if layer.hot_rows and not has_cache(layer):
        logging.info("%s: hot_rows=%d has no effect without a GPU", layer.name, layer.hot_rows)
    if not has_cache(layer):
        return table
    return ReadThroughTable(table, tf.zeros([]).device, layer.hot_rows)


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


def _check_hot_rows(layer: Any) -> None:
    """Raise ValueError unless `hot_rows` is a positive int, and the table is "host" or "file"."""
    if layer.table not in ("host", "file"):
        raise ValueError(
            f"{layer.name}: hot_rows={layer.hot_rows} needs table='host' or table='file', not "
            f"{layer.table!r}"
        )
    is_integer = isinstance(layer.hot_rows, int) and not isinstance(layer.hot_rows, bool)
    if not is_integer or layer.hot_rows < 1:
        raise ValueError(f"{layer.name}: hot_rows={layer.hot_rows!r}; give a number of rows")


def check_is_variable(layer: Any, feature: str) -> None:
    """Check that the table of a layer is a variable of the device.

    Args:
        layer: The `RowEmbedding`.
        feature: The feature that needs it, for the message.

    Raises:
        ValueError: It is not.
    """
    if layer.table != "device":
        raise ValueError(f"{layer.name}: {feature} needs table='device', not {layer.table!r}")


def _by_id(layer: Any) -> Initial:
    """Return the initial values of a layer by id; zeros for `StoredRows`, which follow later."""
    if isinstance(layer.embeddings_initializer, StoredRows):
        return Constant(0.0)
    return by_id(layer.embeddings_initializer, layer.name)


def _whole(layer: Any) -> Initial:
    """Return the initial values of a layer, made as a whole as Keras makes them, in its dtype.

    There are none yet for `StoredRows`, which follow later.
    """
    if isinstance(layer.embeddings_initializer, StoredRows):
        return Unwritten()
    initializer = keras.initializers.get(in_place(layer.embeddings_initializer))
    return lambda shape: initializer(shape, dtype=layer.variable_dtype)


def _dtype(layer: Any) -> tf.DType:
    """Return the dtype in which a layer stores rows."""
    return tf.as_dtype(layer.variable_dtype)


def _check_file(layer: Any, path: Path) -> None:
    """Raise ValueError if a file is in use, or if it may hold the rows of another layer."""
    if not path.exists():
        return
    if not path.is_file():
        raise ValueError(f"{layer.name}: table_file={path} is no file; give the name of a new file")
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"{layer.name}: table_file={path} is in use by another layer, of this process or "
                "another; make this layer with another file, and load its rows by load_weights"
            ) from error
    if not _is_own(path, layer.table_id):
        raise ValueError(
            f"{layer.name}: table_file={path} exists, and may hold the rows of another layer; "
            "name another file, or remove it: rows that were saved are in the saved model"
        )


def _is_own(path: Path, table_id: str) -> bool:
    """Return whether a file was made by this layer before its model was saved and loaded."""
    try:
        return read_header(path).owner == table_id
    except (OSError, ValueError):
        return False
