"""A table of every kind, made alike: called with rows, columns, initial values and storage."""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np

from app.tables import sharded
from app.tables.cached import Places, StagedTable
from app.tables.device import DeviceTable
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.dynamic.dynamic import DynamicTable
from app.tables.dynamic.keys import KeyMap


class Chunked(StagedTable):
    """A table whose cold rows come to the device whenever they are looked up; not all fit."""

    def __init__(self, *options):
        super().__init__(DeviceTable(*options), "CPU:0")
        self.places = None

    def at_home(self):
        """Opens the table, or writes home what is on the device."""
        if self.places is None:
            self.places = Places(self.rows, np.array([5, 0]), self.rows - 3)
            self.open(self.places)
        self.write_all()

    def gather(self, ids_U):
        cold = self.places.cold_of(ids_U.numpy())
        moves = self.places.moves(cold)
        self.places.make(moves, cold)
        self.write(moves.leaving_N, self.move(moves, self.read(moves.entering_M)))
        return super().gather(ids_U)


def dealt(rows, columns, initial, dtype):
    return sharded.make(rows, columns, initial, ["CPU:0"] * 3, dtype=dtype)


def in_file(*options):
    folder = pathlib.Path(tempfile.mkdtemp())
    return FileTable(TableFile(folder / "rows", "run", resume=False), "input", *options)


def dynamic(rows, columns, initial, dtype):
    return DynamicTable(KeyMap(rows), columns, initial, dtype=dtype)
