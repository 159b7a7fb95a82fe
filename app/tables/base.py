"""The protocol of an embedding table: all that models, losses and optimizers know of one.

A table has V rows of D numbers each. Where the rows are stored, and in which precision, is the
business of the class: in one device (`device`), over several (`sharded`), in a file (`disk`), for
keys as they come (`dynamic`), or elsewhere with a cache on the device (`cached`).

A training step locates and gathers the rows of its batch, and the optimizer assigns their new
values. The loop asks `is_finite` before each checkpoint, which stores `layout` beside the rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

from .initial import Initial

# How a checkpoint holds the rows of a table; JSON can hold it. Key "kind" is always there.
Layout = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Slot:
    """One tensor of optimizer state for each row of a table.

    Attributes:
        columns: The numbers of a row's state; 0 for as many as the row has.
        initial: The initial value of each number.
        merge: How the changes of several replicas become one: "sum" for a sum over steps, "mean"
            for a running mean, "largest" for a number that only grows.
    """

    columns: int
    initial: float
    merge: str = "sum"


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The table that a model or a loss asks for, wherever it will be stored.

    Attributes:
        rows: The number of rows, V.
        columns: The number of columns, D.
        initial: A function from a shape to the initial values (see `tables.initial`).
        trained: Whether an optimizer updates it. The state of a recurrent model is not trained.
        by_frequency: Whether lower ids are needed more often than higher ids.
        grows: Whether rows stand for things in the data, such as users. A dynamic table can then
            make a row when its id is first seen.
        is_streamed: Whether a loss goes through its rows block by block (see `losses.base.Part`).
    """

    rows: int
    columns: int
    initial: Initial
    trained: bool = True
    by_frequency: bool = False
    grows: bool = False
    is_streamed: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class LocatedIds:
    """Ids whose rows were located, for several calls with the same ids (see `Table.locate`).

    Attributes:
        ids_U: The ids, (U,).
        rows: The location of their rows, in a form that only the table knows.
    """

    ids_U: tf.Tensor
    rows: Any


Ids: TypeAlias = tf.Tensor | LocatedIds


def plain_ids(ids_U: Ids) -> tf.Tensor:
    """Return the ids themselves, located or not."""
    return ids_U.ids_U if isinstance(ids_U, LocatedIds) else ids_U


class Table(Protocol):
    """V rows of D columns that are read and written by id.

    Ids are int32 or int64 of shape (U,), or the result of `locate` for them. Rows are float32 of
    shape (U, D), in whatever dtype they are stored. No method but `is_finite` touches more rows
    than the given ids.

    Attributes:
        rows: The number of rows, V.
        columns: The number of columns, D.
        device: The TensorFlow name of the device on which rows arrive and from which they leave.
        slots: The tables of optimizer state by name, made with this table: they have the same ids
            and are stored alike. A table that is only read has none.
    """

    rows: int
    columns: int
    device: str
    slots: Mapping[str, Table]

    def locate(self, ids_U: Ids) -> Ids:
        """Locate the rows of the given ids once, for several calls of this table and its slots.

        A dynamic table also counts the ids as seen, and makes rows for new ones. A table in a file
        checks the ids.

        Args:
            ids_U: Ids (U,), or a result of this method, to be returned unchanged.

        Returns:
            The ids to give to `gather` and `assign`. A table in a variable returns the ids as they
            are.
        """
        ...

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return the rows of the given ids.

        Args:
            ids_U: Ids (U,). An id may occur more than once.

        Returns:
            Rows (U, D), float32.
        """
        ...

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids. Only one writer may call this at a time.

        Args:
            ids_U: Unique ids (U,).
            rows_UD: New rows (U, D), float32.
        """
        ...

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make further tables of optimizer state, and add them to the attribute `slots`.

        Args:
            slots: The new slots by name.
        """
        ...

    def bytes(self) -> int:
        """Return the size in bytes of the rows and of all slots."""
        ...

    def is_finite(self) -> bool:
        """Return whether every number of every row is finite; slots are not read.

        The table is read part by part.
        """
        ...

    def layout(self) -> Layout:
        """Return how a checkpoint holds the rows of this table, as values for JSON.

        `checkpoints.stored` reads the rows by it.
        """
        ...


class Checkpointable(Protocol):
    """A table, or other state of a run, that a checkpoint has in a folder of its own.

    `Checkpoints.save` calls `snapshot` for a folder of the new checkpoint and, when the whole
    checkpoint is on the disk, `commit`. `restore` is called once, when a run is resumed.
    """

    def snapshot(self, folder: Path) -> None:
        """Write everything that `restore` needs.

        Args:
            folder: An empty folder of the new checkpoint.

        Raises:
            OSError: The folder cannot be written.
        """
        ...

    def commit(self, folders: Sequence[Path]) -> None:
        """Record that the newest snapshot is complete on the disk, and survives a kill from now on.

        Data that only snapshots outside of `folders` need may be removed.

        Args:
            folders: The folders of all snapshots that are kept, newest first.
        """
        ...

    def restore(self, folder: Path) -> None:
        """Replace the state by the state at the moment of a snapshot.

        Args:
            folder: The folder that `snapshot` wrote.

        Raises:
            DamagedError: The snapshot is damaged.
            OSError: The snapshot cannot be read.
            RunError: The snapshot does not fit this table.
        """
        ...
