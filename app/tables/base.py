"""What every table can do; models, losses and optimizers know no more of one than this."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import tensorflow as tf

from .initial import Initial


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """A table that is wanted: V rows of D columns, and their initial values by shape.

    trained: whether an optimizer changes it; the state of a recurrent model is kept, not trained.
    device: which of the devices of a run holds it, where it has several. by_frequency: whether the
    rows that are needed most have the lowest ids. grows: whether its rows stand for what the data
    has, such as users, so that a dynamic table may make them when that is first seen.
    """

    rows: int
    columns: int
    initial: Initial
    trained: bool = True
    device: int = 0
    by_frequency: bool = False
    grows: bool = False


class Table(Protocol):
    """V rows of D numbers, somewhere.

    Ids are int32 or int64 of shape (U,); rows are float32 of shape (U, D), whatever the storage.
    Nothing here reads, copies or writes more than the rows that it is asked for. device: to and
    from which rows are read and written, as TensorFlow names it. slots: those made so far.
    """

    rows: int
    columns: int
    device: str
    slots: Mapping[str, Table]

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """The rows of the ids, (U, D) float32; an id may occur more than once."""
        ...

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Adds to the rows of the ids, which are unique. Stays right when several writers race."""
        ...

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replaces the rows of the ids, which are unique. For a single writer only."""
        ...

    def slot(self, name: str, columns: int, initial: float) -> Table:
        """A table placed like this one, V rows of `columns`, for an optimizer's state.

        The same name gives the same table every time.
        """
        ...

    def bytes(self) -> int:
        """Bytes of the rows and of the slots made so far."""
        ...

    def is_finite(self) -> bool:
        """Whether every number of every row is finite; reads the whole table, a part at a time."""
        ...


@runtime_checkable
class Kept(Protocol):
    """A table with more in a checkpoint than variables."""

    def snapshot(self, folder: Path) -> None:
        """Writes to the folder, which is empty, what `revert` needs. OSError if it cannot."""
        ...

    def committed(self, folders: Sequence[Path]) -> None:
        """The snapshot made last is found after a kill from now on.

        folders: of the snapshots that are kept, newest first.
        """
        ...

    def revert(self, folder: Path) -> None:
        """Bring the table back to the moment of a snapshot.

        Raises:
            DamagedError: The snapshot is damaged.
            OSError: It cannot be read.
            RunError: It does not fit this table.
        """
        ...
