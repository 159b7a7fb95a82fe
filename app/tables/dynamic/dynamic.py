"""Rows that exist from the first time that a key is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UsageError
from ...types import HOST
from ..initial import Initial, fingerprints
from ..row_reads import parts
from .keys import KeyMap
from .slab import Slab

UNKNOWN = ("initial", "zeros", "mean", "error")  # rules for a key that has no row
KEYS = "keys"  # of a snapshot


class RowsByKey:
    """A slab whose ids are keys, as a table (see `tables.base.Table`).

    rows_of: from keys (U,) to their rows, int64, -1 for one that has none yet. Such a key reads its
    initial row, and what is written to it is dropped.
    """

    def __init__(self, slab: Slab, rows_of: Callable[[tf.Tensor], tf.Tensor], may_lack_rows: bool):
        self.slab, self.rows, self.columns = slab, slab.rows, slab.columns
        self.device = slab.device
        self._rows_of, self._may_lack_rows = rows_of, may_lack_rows
        self.slots: dict[str, RowsByKey] = {}

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """The rows of the keys, (U, D) float32; a key may occur more than once."""
        ids_U = tf.convert_to_tensor(ids_U)
        rows_U = self._rows_of(ids_U)
        if not self._may_lack_rows:
            return self.slab.gather(rows_U)
        first_UD = self.slab.initial_rows(_hashes(ids_U))
        rows_U1 = rows_U[:, tf.newaxis]
        return tf.where(rows_U1 < 0, first_UD, self.slab.gather(tf.maximum(rows_U, 0)))

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Adds to the rows of the keys, which are unique."""
        self.slab.add(*self._with_rows(ids_U, delta_UD))

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replaces the rows of the keys, which are unique."""
        self.slab.assign(*self._with_rows(ids_U, rows_UD))

    def slot(self, name: str, columns: int, initial: float) -> RowsByKey:
        """A table of the same keys; see `tables.base.Table.slot`."""
        if name not in self.slots:
            slab = self.slab.slot(name, columns, initial)
            self.slots[name] = RowsByKey(slab, self._rows_of, self._may_lack_rows)
        return self.slots[name]

    def bytes(self) -> int:
        """See `Slab.bytes`."""
        return self.slab.bytes()

    def is_finite(self) -> bool:
        """See `Slab.is_finite`."""
        return self.slab.is_finite()

    def _with_rows(self, ids_U: tf.Tensor, values_UD: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows_U = self._rows_of(tf.convert_to_tensor(ids_U))
        if not self._may_lack_rows:
            return rows_U, values_UD
        has_row_U = rows_U >= 0
        return tf.boolean_mask(rows_U, has_row_U), tf.boolean_mask(values_UD, has_row_U)


class DynamicTable(RowsByKey, tf.Module):
    """A table whose ids are any int64, or any strings (see `tables.base.Table`).

    A key that is seen for the first time gets a row, or when `keys` admits it: whoever gathers,
    adds or assigns has seen it. Each tensor of keys counts as one step of the map, in which each of
    its keys was seen as often as it is in it. Where the same tensor is used again, as by the slots
    and the writes of a training step, it is not looked up again.

    In a tf.function, keys are looked up by Python, on the CPU; steps that are given row numbers of
    `see` instead, and train on `slab`, do without (see `training.locating`). What `KeyMap.see`
    raises arrives as a tf.errors.OpError there, which ends with its text. XLA cannot compile it.

    keys: a map that no other table shares. columns, initial, options: see `Slab`. An initial row is
    a function of the key; for a string, of its fingerprint.
    """

    def __init__(self, keys: KeyMap, columns: int, initial: Initial, **options: Any):
        tf.Module.__init__(self)
        self.keys = keys
        RowsByKey.__init__(
            self, Slab(keys, columns, initial, **options), self._rows_seen, keys.min_sightings > 1
        )
        # The tensor that was last looked up, the graph or the step that did, and the rows.
        self._last: tuple = (None, None, None)

    def bytes(self) -> int:
        """Bytes of the rows and slots that ever were in use, and of the map."""
        return self.slab.bytes() + self.keys.bytes()

    def see(
        self,
        keys_U: np.ndarray,
        sightings_U: np.ndarray,
        steps: int = 1,
        step_U: np.ndarray | None = None,
    ) -> np.ndarray:
        """Count distinct keys as the next steps of the map, and return their rows, (U,) int64.

        New keys get rows with initial values. The rows belong to these keys until the next call.

        Args:
            keys_U: Distinct keys.
            sightings_U: How often each key is seen in these steps.
            steps: How many steps of the map this is.
            step_U: Which of these steps sees each key last, from 0; by default the last one.

        Raises:
            RunError: The table has too few rows. It is as it was before.
        """
        first, last_U = self.keys.step + 1, None
        if step_U is not None:
            last_U = first + step_U
        seen = self.keys.see(keys_U, sightings_U, self.keys.step + steps, last_U)
        if len(seen.new_rows):
            self.slab.admit(seen.new_rows, self.keys.hashes(seen.new_keys))
        return seen.rows_U

    def gather_known(self, keys_N: np.ndarray, unknown: str = "initial") -> tf.Tensor:
        """The rows of keys, (N, D) float32, for inference: keys are not counted and get no rows.

        unknown: what a key without a row has: its `initial` row, `zeros`, the `mean` of all rows
        (which reads them all), or an `error`, that is UsageError.
        """
        keys_N = np.asarray(keys_N)
        rows_N = self.keys.rows(keys_N)
        lacking_N = rows_N < 0
        values_ND = self.slab.gather(np.maximum(rows_N, 0))
        if not lacking_N.any():
            return values_ND
        if unknown == "error":
            key = keys_N[lacking_N].tolist()[0]
            raise UsageError(
                f"key {key!r} has no row, and {int(lacking_N.sum())} of {len(lacking_N)} have "
                "none; give keys that were trained, or another rule than `error`"
            )
        others = {
            "initial": lambda: self.slab.initial_rows(tf.constant(self.keys.hashes(keys_N))),
            "zeros": lambda: 0.0,
            "mean": self._mean,
        }
        return tf.where(lacking_N[:, np.newaxis], others[unknown](), values_ND)

    @property
    def known(self) -> RowsByKey:
        """The same rows for inference: keys are not counted, and one without a row has its initial
        one."""

        def rows_of(keys_U: tf.Tensor) -> tf.Tensor:
            with tf.device(HOST):  # where the map is
                found_U = tf.numpy_function(self.keys.rows, [keys_U], tf.int64)
                return tf.ensure_shape(found_U, keys_U.shape)

        return RowsByKey(self.slab, rows_of, may_lack_rows=True)

    def export(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keys, rows (N, D) float32 and sightings of all keys that have a row.

        By descending sightings, then by key.
        """
        keys, rows = self.keys.keys(), self.keys.in_use()
        order = np.argsort(keys, kind="stable")
        order = order[np.argsort(-self.keys.counts_V[rows[order]], kind="stable")]
        rows = rows[order]
        return keys[order], self.slab.gather(rows).numpy(), self.keys.counts_V[rows]

    def snapshot(self, folder: Path) -> None:
        """Writes keys, rows and slots. OSError if it cannot."""
        self.keys.save(folder / KEYS)
        self.slab.snapshot(folder)

    def committed(self, folders: Sequence[Path]) -> None:
        """Nothing: a snapshot is whole in itself."""

    def revert(self, folder: Path) -> None:
        """Reads what `snapshot` wrote; see `KeyMap.load` and `Slab.revert` for errors."""
        self._last = (None, None, None)
        self.keys.load(folder / KEYS)
        self.slab.revert(folder)

    def _rows_seen(self, keys_U: tf.Tensor) -> tf.Tensor:
        """The rows of keys, which are counted, unless they are the tensor that was just looked up.

        Only a further look-up can evict, which replaces what is remembered or moves the map on. A
        graph that looks keys up must not call, between two uses of one tensor, a function that was
        traced before and looks up others.

        A graph runs its operations on one resource in the order in which they were made: an empty
        write to rows and slots before each look-up keeps that behind all reads and writes of the
        rows that were looked up before.
        """
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        last_U, when, rows_U = self._last
        if last_U is keys_U and when == (graph or self.keys.step):
            return rows_U
        if graph is None:
            rows_U = tf.constant(self._see(keys_U.numpy()))
        else:
            barriers = [_barrier(slab) for slab in self.slab.parts().values()]
            with tf.control_dependencies(barriers):
                rows_U = tf.numpy_function(self._see, [keys_U], tf.int64)
            rows_U = tf.ensure_shape(rows_U, keys_U.shape)
        self._last = keys_U, graph or self.keys.step, rows_U
        return rows_U

    def _mean(self) -> np.ndarray:
        rows = self.keys.in_use()
        found = (self.slab.gather(rows[p]).numpy() for p in parts(len(rows), self.columns))
        total_D = sum(part.sum(axis=0, dtype=np.float64) for part in found)
        return np.asarray(total_D / max(len(rows), 1), np.float32)

    def _see(self, keys_U: np.ndarray) -> np.ndarray:
        distinct, places_U, sightings = np.unique(keys_U, return_inverse=True, return_counts=True)
        return self.see(distinct, sightings)[places_U]


def _hashes(keys_U: tf.Tensor) -> tf.Tensor:
    """See `KeyMap.hashes`."""
    return fingerprints(keys_U) if keys_U.dtype == tf.string else tf.cast(keys_U, tf.int64)


def _barrier(slab: Slab) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(
        resource=slab.values.handle,
        indices=tf.zeros([0], tf.int32),
        updates=tf.zeros([0, slab.columns], slab.values.dtype),
    )
