"""Rows on the device of a table whose home is host memory or a file.

The rows of some ids stay on the device: the hot ones. All others, the cold ones, take turns in the
places beside them. A row is read and written where it has a place, and at home while it has none,
so what is read is never stale. Steps find rows by a map from ids to places, 4 bytes an id. The map
is in the memory of the host, where steps prepare their ids (see `app.types.HOST`): it takes nothing
of the device, and TensorFlow has no GPU kernel that gathers from an int32 variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..types import HOST
from .base import Table
from .device import DeviceTable
from .row_reads import parts

_NOWHERE = -1  # the place of an id that is not on the device, and the id of a free place
_FLOAT = 4  # bytes
_ROWS = ""  # the name of the rows themselves beside those of slots


class Moves(NamedTuple):
    """Rows that leave their places, and rows that take one: int64 ids and int32 places."""

    leaving_N: np.ndarray
    left_N: np.ndarray
    entering_M: np.ndarray
    taken_M: np.ndarray


class Places:
    """Which id has which place, chunk of steps by chunk of steps; knows no rows.

    rows: V. hot_N: distinct ids, which have the places 0 .. N - 1 for good. cold: how many places
    there are after those.
    """

    def __init__(self, rows: int, hot_N: np.ndarray, cold: int):
        self.hot_N, self.cold = hot_N, cold
        self._of_V = np.full(rows, _NOWHERE, np.int32)
        self._of_V[hot_N] = np.arange(len(hot_N))
        self._hot_are_first = np.array_equal(hot_N, np.arange(len(hot_N)))
        self._ids_C = np.full(cold, _NOWHERE, np.int64)
        self._chunk_C = np.full(cold, -1, np.int64)  # the last one that needed the row
        self._chunk = -1

    def cold_of(self, ids_N: np.ndarray) -> np.ndarray:
        """Those of the ids that are not hot, as often as they come."""
        if self._hot_are_first:  # a comparison is ten times as fast as a look-up
            return ids_N[ids_N >= len(self.hot_N)]
        places_N = self._of_V[ids_N]
        return ids_N[(places_N == _NOWHERE) | (places_N >= len(self.hot_N))]

    def missing(self, ids_N: np.ndarray) -> np.ndarray:
        """Those of the ids that have no place, as often as they come."""
        return ids_N[self._of_V[ids_N] == _NOWHERE]

    def moves(self, ids_N: np.ndarray) -> Moves | None:
        """What gives all of these cold ids a place; None if there are too few. `make` makes it so.

        Of the rows that are not among the ids those leave that were needed the longest ago.
        """
        first = len(self.hot_N)
        places_N = self._of_V[ids_N]
        entering_M = np.unique(ids_N[places_N == _NOWHERE]).astype(np.int64)
        idle_C = np.ones(self.cold, bool)
        idle_C[places_N[places_N != _NOWHERE] - first] = False
        idle_I = np.flatnonzero(idle_C)
        if len(idle_I) < len(entering_M):
            return None
        longest_I = idle_I[np.argsort(self._chunk_C[idle_I], kind="stable")]
        taken_M = longest_I[: len(entering_M)]
        left_N = taken_M[self._ids_C[taken_M] != _NOWHERE]
        places = [(cold + first).astype(np.int32) for cold in (left_N, taken_M)]
        return Moves(self._ids_C[left_N], places[0], entering_M, places[1])

    def make(self, moves: Moves, ids_N: np.ndarray) -> None:
        """Makes the moves for a chunk of these cold ids."""
        first = len(self.hot_N)
        self._chunk += 1
        self._of_V[moves.leaving_N] = _NOWHERE
        self._of_V[moves.entering_M] = moves.taken_M
        self._ids_C[moves.taken_M - first] = moves.entering_M
        self._chunk_C[self._of_V[ids_N] - first] = self._chunk


class StagedTable(tf.Module):
    """The rows of a table that are on the device, as a `tables.base.Table` for steps to train on.

    A row that has no place must not be asked for: on a CPU TensorFlow refuses that. home: the table
    that the rows belong to. device: where steps run. Slots are to be made first, then `open` makes
    room for rows.
    """

    def __init__(self, home: Table, device: str, places_V: tf.Variable | None = None):
        super().__init__()
        self.home, self.device = home, device
        self.rows, self.columns = home.rows, home.columns
        self.slots: dict[str, StagedTable] = {}
        self._values: DeviceTable | None = None
        self._ids_P = np.zeros(0, np.int64)  # the id of each place; those of slots have none
        if places_V is None:
            with tf.device(HOST):
                places_V = tf.Variable(lambda: tf.fill([home.rows], _NOWHERE), trainable=False)
        self._places_V = places_V

    def slot(self, name: str, columns: int, initial: float) -> StagedTable:
        """The slot of the table at home, staged with the table's rows; see `tables.base.Table`."""
        if name not in self.slots:
            home = self.home.slot(name, columns, initial)
            self.slots[name] = StagedTable(home, self.device, self._places_V)
        return self.slots[name]

    def open(self, places: Places) -> None:
        """Makes the places, and brings the hot rows there."""
        size = len(places.hot_N) + places.cold
        self._ids_P = np.full(size, _NOWHERE, np.int64)
        for part in self._parts().values():
            with tf.device(self.device):
                part._values = part.home.like(size)
        for part in parts(len(places.hot_N), self._columns()):
            ids = places.hot_N[part].astype(np.int64)
            taken = np.arange(part.start, part.stop, dtype=np.int32)
            nothing = np.zeros(0, np.int64)
            self.move(Moves(nothing, nothing.astype(np.int32), ids, taken), self.read(ids))

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """See `tables.base.Table`."""
        return self._values.gather(self._of(ids_U))

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """See `tables.base.Table`."""
        self._values.add(self._of(ids_U), delta_UD)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """See `tables.base.Table`."""
        self._values.assign(self._of(ids_U), rows_UD)

    def bytes(self) -> int:
        """Return the bytes on the device: those of the places and of their slots."""
        return sum(part._values.bytes() for part in self._parts().values())

    def is_finite(self) -> bool:
        """Whether every number on the device is finite."""
        return self._values.is_finite()

    def read(self, ids_N: np.ndarray) -> dict[str, tf.Tensor]:
        """The rows of ids at home, and those of the slots, as tensors of the device."""
        with tf.device(self.device):
            return {
                name: tf.identity(part.home.gather(tf.constant(ids_N)))
                for name, part in self._parts().items()
            }

    def write(self, ids_N: np.ndarray, rows: Mapping[str, tf.Tensor]) -> None:
        """Replaces rows at home by what `move` gave."""
        for name, part in self._parts().items():
            part.home.put(tf.constant(ids_N), rows[name])

    def move(self, moves: Moves, entering: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Makes the moves, between two steps; the rows that leave, for `write`.

        entering: what `read` gave for the ids that enter.
        """
        with tf.device(self.device):
            leaving = self._at(moves.left_N)
            for name, part in self._parts().items():
                part._values.put(tf.constant(moves.taken_M), entering[name])
        self._map(moves.leaving_N, np.full(len(moves.leaving_N), _NOWHERE, np.int32))
        self._map(moves.entering_M, moves.taken_M)
        self._ids_P[moves.left_N] = _NOWHERE
        self._ids_P[moves.taken_M] = moves.entering_M
        return leaving

    def write_all(self) -> None:
        """Brings home what is on the device, which also stays there."""
        places = np.flatnonzero(self._ids_P != _NOWHERE).astype(np.int32)
        for part in parts(len(places), self._columns()):
            with tf.device(self.device):
                rows = self._at(places[part])
            self.write(self._ids_P[places[part]], rows)

    def row_bytes(self) -> int:
        """Bytes of a row with its slots, as it is moved."""
        return _FLOAT * self._columns()

    def _columns(self) -> int:
        """Of a row and its slots together."""
        return sum(part.columns for part in self._parts().values())

    def _parts(self) -> dict[str, StagedTable]:
        return {_ROWS: self, **self.slots}

    def _at(self, places: np.ndarray) -> dict[str, tf.Tensor]:
        places = tf.constant(places)
        return {name: part._values.gather(places) for name, part in self._parts().items()}

    def _map(self, ids_N: np.ndarray, places_N: np.ndarray) -> None:
        with tf.device(HOST):
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._places_V.handle, indices=tf.constant(ids_N), updates=places_N
            )

    def _of(self, ids_U: tf.Tensor) -> tf.Tensor:
        """The places of ids."""
        with tf.device(HOST):
            return tf.raw_ops.ResourceGather(
                resource=self._places_V.handle, indices=ids_U, dtype=tf.int32
            )
