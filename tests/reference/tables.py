"""A table of every kind, made alike: called with rows, columns, initial values and storage."""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from app.tables import sharded
from app.tables.base import LocatedIds
from app.tables.cached import CachedTable, CacheMap
from app.tables.device import DeviceTable
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.dynamic.dynamic import DynamicTable
from app.tables.dynamic.keys import KeyMap


def random_tables(specs, slots=None, seed=0):
    """Tables on the device with random rows, by name."""
    draw = np.random.default_rng(seed)
    rows = {name: draw.normal(size=(s.rows, s.columns)).astype("f") for name, s in specs.items()}
    return {
        name: DeviceTable(*rows_VD.shape, lambda _, name=name: tf.constant(rows[name]), slots=slots)
        for name, rows_VD in rows.items()
    }


def contents(tables):
    """The bytes-exact values of every table and slot."""
    found = {}
    for name, table in tables.items():
        found[name] = table.values.numpy()
        for slot, part in table.slots.items():
            found[f"{name}.{slot}"] = part.values.numpy()
    return found


class Chunked(CachedTable):
    """A table that loads rows into a small cache whenever they are looked up."""

    def __init__(self, *options, **slots):
        backing = DeviceTable(*options, **slots)
        cache_map = CacheMap(backing.rows, np.array([5, 0]), backing.rows - 3)
        super().__init__(backing, "CPU:0", cache_map)

    def locate(self, ids_U):
        if not isinstance(ids_U, LocatedIds):
            unpinned = self.cache_map.drop_pinned(ids_U.numpy())
            plan = self.cache_map.plan(unpinned)
            self.cache_map.apply(plan, unpinned)
            self.write_back(plan.evicted_ids_N, self.apply(plan, self.load(plan)))
        return super().locate(ids_U)


def dealt(rows, columns, initial, dtype, **slots):
    return sharded.make(rows, columns, initial, ["CPU:0"] * 3, dtype=dtype, **slots)


def in_file(*options, **slots):
    folder = pathlib.Path(tempfile.mkdtemp())
    return FileTable(TableFile(folder / "rows", "run", resume=False), "input", *options, **slots)


def dynamic(rows, columns, initial, dtype, **slots):
    return DynamicTable(KeyMap(rows), columns, initial, dtype=dtype, **slots)
