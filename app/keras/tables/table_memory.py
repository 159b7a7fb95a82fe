"""The memory that the table of a layer takes in each place, and the check that it is free."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ...system.console import size_text
from ...system.machine import free_bytes
from ...tables.base import Table
from ...tables.cached import CachedTable
from ...tables.disk.file import FileTable
from ...tables.dynamic.keys import key_bytes
from ...tables.memory import SHARE, Item, totals
from ..backend import is_ours
from .table_kinds import has_cache
from .table_variable import TableVariable
from .table_warnings import LARGE

# The places of tables. Without a GPU, the memory of the device is that of the host.
DEVICE, HOST, FILE = "GPU memory", "host memory", "disk"
# In host memory, a cache takes two positions (int32) for each id of the table, and for each of its
# rows two ids and the last chunk that needed it (int64); see `tables.cached`.
_MAP_BYTES, _CACHED_ID_BYTES = 2 * 4, 3 * 8
_REMEDIES = {
    "file": "free the disk, or name a table_file on another one",
    "dynamic": "give a smaller capacity, or a smaller output_dim",
}
_ROWS = 3  # of the table for which the slots are made to see their size
_LESS_STATE = "use an optimizer with less state, such as SGD or RowwiseAdagrad, or a table='file'"
_REMEDY = "give it table='file' with a table_file, fewer rows, or dtype='bfloat16'"


@dataclasses.dataclass(frozen=True)
class TableMemory:
    """The memory of one table.

    Attributes:
        layer: The name of the layer; of an output layer with that of its table.
        kind: The value of its argument `table`, or "dynamic".
        rows: The number of rows, V; of a dynamic table its capacity.
        slot_bytes: The bytes of the optimizer state of a row.
        cached_rows: The rows of the cache on the device.
        map_bytes: The bytes, in host memory, of the map from ids to cached rows, or from keys to
            rows. Strings count as 12 bytes long.
    """

    layer: str
    kind: str
    rows: int
    columns: int
    dtype: str
    slot_bytes: int
    cached_rows: int = 0
    map_bytes: int = 0

    @property
    def rows_bytes(self) -> int:
        """The bytes of all rows."""
        return self.rows * self._row_bytes

    @property
    def slots_bytes(self) -> int:
        """The bytes of the optimizer state of all rows."""
        return self.rows * self.slot_bytes

    @property
    def cache_bytes(self) -> int:
        """The bytes of the cached rows with their optimizer state."""
        return self.cached_rows * (self._row_bytes + self.slot_bytes)

    @property
    def place(self) -> str:
        """Where the rows and the optimizer state are: `DEVICE`, `HOST` or `FILE`."""
        return {"host": HOST, "file": FILE}.get(self.kind) or device_place()

    @property
    def by_place(self) -> dict[str, int]:
        """The bytes in each place that is used."""
        table, maps = f"{self.rows:,} x {self.columns}", f"{self.rows:,} ids"
        items = [
            Item(self.layer, table, self.place, self.rows_bytes + self.slots_bytes),
            Item(self.layer, f"{self.cached_rows:,} rows", device_place(), self.cache_bytes),
            Item(self.layer, maps, HOST, self.map_bytes),
        ]
        return totals(item for item in items if item.bytes)

    @property
    def _row_bytes(self) -> int:
        return self.columns * tf.as_dtype(self.dtype).size


def memory_of(layer: Any, slot_bytes: int = 0) -> TableMemory:
    """Return the memory of the table of an embedding layer, which may not be built yet.

    Args:
        layer: A `RowEmbedding`, a `keras.layers.Embedding`, or a `DynamicEmbedding`, whose table
            counts with all rows in use.
        slot_bytes: The bytes of the optimizer state of a row.
    """
    if not isinstance(layer, keras.layers.Embedding):
        rows, maps = layer.capacity, key_bytes(layer.key_dtype, layer.min_count)
        return TableMemory(
            layer.name, "dynamic", rows, layer.output_dim, "float32", slot_bytes, 0, rows * maps
        )
    rows = layer.input_dim
    cached = min(layer.hot_rows, rows) if has_cache(layer) else 0
    return TableMemory(
        layer=layer.name,
        kind=getattr(layer, "table", "device"),
        rows=rows,
        columns=layer.output_dim,
        dtype=layer.variable_dtype,
        slot_bytes=slot_bytes,
        cached_rows=cached,
        map_bytes=rows * _MAP_BYTES + cached * _CACHED_ID_BYTES if cached else 0,
    )


def device_place() -> str:
    """Return the place of tables of the device: `DEVICE` if there is a GPU, else `HOST`."""
    return DEVICE if tf.config.list_physical_devices("GPU") else HOST


def require_room(memory: TableMemory, table_file: str | os.PathLike | None = None) -> None:
    """Check that a table fits, before it is made. Under a `tf.distribute` strategy do nothing.

    Args:
        table_file: The name of the file for a table in a file, which would be replaced.

    Raises:
        ValueError: Host memory or the disk has less free. The memory of a GPU is not checked.
    """
    if tf.distribute.has_strategy():
        return  # the rows may be on other machines
    path = Path(table_file) if table_file else None
    replaced = path.stat().st_size if path and path.is_file() else 0
    remedy = _REMEDIES.get(memory.kind, _REMEDY)
    needed = memory.by_place
    if FILE in needed:
        needed[FILE] -= replaced
    require_free(needed, f"{memory.layer}: its table", remedy, path)


def require_free(
    needed: Mapping[str, int], taker: str, remedy: str, table_file: Path | None = None
) -> None:
    """Check that memory is free.

    Args:
        needed: The bytes to take in each place.
        taker: The table that would take them, with its layer or optimizer, for the message.
        table_file: The file of the table, if `needed` has bytes on the disk.

    Raises:
        ValueError: Host memory or the disk has less free. The memory of a GPU is not checked.
    """
    for place, count in needed.items():
        if place == DEVICE:
            continue
        if place == HOST:
            free = int(SHARE * free_bytes())
        else:
            folder = next(folder for folder in table_file.absolute().parents if folder.exists())
            free = shutil.disk_usage(folder).free
        if count > free:
            where = f"{place} in {folder}" if place == FILE else place
            raise ValueError(
                f"{taker} takes {size_text(count)} ({count:,} bytes) of {where}, where "
                f"{size_text(free)} are free; {remedy}"
            )


def slot_bytes(optimizer: Any, columns: int, dtype: str, path: str) -> int:
    """Return the bytes of the slots of a row of a table.

    A new optimizer of the same configuration makes the slots of a table of three rows. The sum of
    gradients for `gradient_accumulation_steps` does not count: its rows depend on the batches.

    Args:
        optimizer: An optimizer of Keras or of `lexrow.keras`, built or not. A `MultiOptimizer` is
            asked for the optimizer of this table.
    """
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack, tf.init_scope():
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        table = keras.Variable("zeros", (_ROWS, columns), dtype, name=name)
        table.is_table = True  # read by the optimizers of lexrow.keras
        while (inner := _inner(optimizer, table)) is not None:
            optimizer = inner
        copy = type(optimizer).from_config(optimizer.get_config())
        copy.build([table])
    slots = [v for v in copy.variables if len(v.shape) == 2 and v.shape[0] == _ROWS]
    return sum(math.prod(v.shape[1:]) * tf.as_dtype(v.dtype).size for v in slots)


def require_room_for_slots(optimizer: Any, variables: Iterable[Any]) -> None:
    """Check that the slots of all tables fit, before one is made.

    Tables of less than 16 MiB together are not checked, nor those under a `tf.distribute` strategy,
    nor an optimizer of another package, whose configuration need not make it again.

    Raises:
        ValueError: Host memory or the disk has less free. The memory of a GPU is not checked.
    """
    tables = [variable for variable in variables if getattr(variable, "is_table", False)]
    if not is_ours(type(optimizer)) or tf.distribute.has_strategy():
        return
    if sum(map(_bytes, tables)) < LARGE:
        return
    needed: collections.Counter[tuple[str, Path | None]] = collections.Counter()
    for variable in tables:
        row = slot_bytes(optimizer, variable.shape[1], variable.dtype, variable.path)
        table = variable.table if isinstance(variable, TableVariable) else None
        if isinstance(table, CachedTable):
            needed[_place(table.device), None] += table.cache_map.unpinned * row
            table = table.backing
        place, path = _place(getattr(table, "device", variable.value.device)), None
        if isinstance(table, FileTable):
            place, path = FILE, table.path
        needed[place, path] += _rows(variable) * row
    names = ", ".join(variable.path for variable in tables)
    for (place, path), count in needed.items():
        taker = f"{names}: the optimizer state of {type(optimizer).__name__}"
        require_free({place: count}, taker, _LESS_STATE, path)


def _inner(optimizer: Any, table: keras.Variable) -> Any:
    """Return the optimizer of a table that this optimizer wraps, or None if it wraps none."""
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return optimizer._optimizer_map(table)
    return getattr(optimizer, "inner_optimizer", None)


def _rows(variable: Any) -> int:
    """Return the rows of a table; those of a dynamic one that it has room for."""
    table: Table | None = getattr(variable, "table", None)
    return variable.shape[0] if table is None else table.rows


def _bytes(variable: Any) -> int:
    """Return the bytes of the rows of a table."""
    return _rows(variable) * variable.shape[1] * tf.as_dtype(variable.dtype).size


def _place(device: str) -> str:
    """Return whose memory a device has, `DEVICE` or `HOST`."""
    return DEVICE if "GPU" in device else HOST
