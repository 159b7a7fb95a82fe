"""A table that makes a row when it first sees a key, and the location of keys before steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.python_functions import call_python, under_vectorized_map
from ...types import HOST, LocatedData
from ..arrays import row_slices
from ..base import Ids, Layout, LocatedIds, Slot, Table
from ..cached import NONE
from ..device import DeviceTable, InPlace
from ..initial import Initial, Unwritten, fingerprints, initial_rows
from .keys import KeyMap

KEYS = "keys"  # the folder of the key map in a snapshot


class RowStore(DeviceTable):
    """The rows of a key map: a `tables.base.Table` whose ids are the map's row numbers.

    On a CPU the system commits memory when a row is first written, so a growing table copies
    nothing. A GPU allocates all of it at once. A row has no value before it is admitted.
    """

    grows = True

    def __init__(
        self,
        key_map: KeyMap,
        columns: int,
        initial: Initial,
        slots: Mapping[str, Slot] | None = None,
        **options: Any,
    ):
        super().__init__(key_map.capacity, columns, Unwritten(), **options)
        self.initial, self._key_map = initial, key_map
        for part in row_slices(self.used, self.columns):
            self.admit(np.arange(part.start, part.stop), key_map.hashes_V[part])
        self.add_slots(slots or {})

    def admit(self, rows: np.ndarray, hashes: np.ndarray) -> None:
        """Write the initial values of rows, and of their slots, for new keys.

        Args:
            hashes: The hashes of the keys that have these rows from now on, (N,) int64 (see
                `KeyMap.hashes`).
        """
        for part in row_slices(len(rows), self.columns):
            self.assign_exact(rows[part], self.initial_rows(tf.constant(hashes[part])))
        for slot in self.slots.values():
            slot.admit(rows, hashes)

    def initial_rows(self, hashes_U: tf.Tensor) -> tf.Tensor:
        """Return the initial rows of keys.

        Returns:
            Rows (U, D), float32.
        """
        return initial_rows(self.initial, hashes_U, (self.rows, self.columns))

    @property
    def used(self) -> int:
        """The number of rows that were ever in use; those from this number on have no values."""
        return self._key_map.used

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: by the rows that a key map gives out."""
        return {"kind": "dynamic"}

    def _make_slot(self, name: str, **options: Any) -> RowStore:
        """Return a store for a slot, with the same key map and device; `name` is not used."""
        with tf.device(self.values.device):
            return RowStore(self._key_map, **options)


class RowsByKey:
    """A `tables.base.Table` whose ids are keys: it looks up their rows in a `RowStore`.

    A key without a row reads as its initial row. Rows written to such a key are dropped.

    Args:
        rows_of: A function from keys (U,) to their row numbers, int64, or -1 for a key without one.
        may_lack_rows: Whether `rows_of` can return -1.
    """

    def __init__(
        self, row_store: RowStore, rows_of: Callable[[tf.Tensor], tf.Tensor], may_lack_rows: bool
    ):
        self.row_store, self.rows, self.columns = row_store, row_store.rows, row_store.columns
        self.device = row_store.device
        self._rows_of, self._may_lack_rows = rows_of, may_lack_rows
        self.slots: dict[str, RowsByKey] = {}
        self.add_slots({})

    def locate(self, ids_U: Ids) -> LocatedIds:
        """Look up the row numbers of keys, -1 for a key without a row; see `Table.locate`."""
        if isinstance(ids_U, LocatedIds):
            return ids_U
        ids_U = tf.convert_to_tensor(ids_U)
        return LocatedIds(ids_U, self._rows_of(ids_U))

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return the rows of keys, or initial rows for keys without one; see `Table.gather`."""
        located = self.locate(ids_U)
        if not self._may_lack_rows:
            return self.row_store.gather(located.rows)
        rows_UD = self.row_store.gather(tf.maximum(located.rows, 0))
        return replace_lacking(
            rows_UD, located.rows < 0, _hashes(located.ids_U), self.row_store.initial_rows
        )

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of keys; rows for keys without one are dropped; see `Table.assign`."""
        rows_U = self.locate(ids_U).rows
        if self._may_lack_rows:
            has_row_U = rows_U >= 0
            rows_U = tf.boolean_mask(rows_U, has_row_U)
            rows_UD = tf.boolean_mask(rows_UD, has_row_U)
        self.row_store.assign(rows_U, rows_UD)

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make the optimizer state of each row in the store; see `RoundedTable.add_slots`."""
        self.row_store.add_slots(slots)
        self.slots = {
            name: RowsByKey(slot, self._rows_of, self._may_lack_rows)
            for name, slot in self.row_store.slots.items()
        }

    def bytes(self) -> int:
        """Return the bytes of all rows and slots that were ever in use, also without a key now."""
        return self.row_store.bytes()

    def is_finite(self) -> bool:
        """Return whether every number of every row ever in use is finite; slots are not read."""
        return self.row_store.is_finite()

    def layout(self) -> Layout:
        """Return how a checkpoint holds the rows; see `RowStore.layout`."""
        return self.row_store.layout()


class DynamicTable(RowsByKey, tf.Module):
    """A `tables.base.Table` whose ids are any int64, or any strings.

    A key gets a row when it is first seen, or when the key map admits it. `locate` counts its keys
    as seen, in one step of the map. A key is counted as often as it occurs among them. `gather` and
    `assign` locate keys that are not located yet; so a training step locates its keys once, and
    gives the result to the rows and the slots. The result is right until other keys are located,
    because these can evict its rows.

    In a tf.function, keys are looked up by Python, on the CPU. An error of `KeyMap.see` arrives
    there as a tf.errors.OpError (see `call_python`), and XLA cannot compile the function.
    Steps that train on `row_store` by the row numbers of `see` need no look-up (see
    `KeyLocator`).

    Args:
        key_map: A map that no other table uses.
        initial: The initial values, with a method `rows`, such as `tables.initial.Uniform`. A row
            is a function of its key, or of the fingerprint of a string.
    """

    def __init__(self, key_map: KeyMap, columns: int, initial: Initial, **options: Any):
        tf.Module.__init__(self)
        self.key_map = key_map
        store = RowStore(key_map, columns, initial, **options)
        RowsByKey.__init__(self, store, self._rows_seen, key_map.min_sightings > 1)

    def bytes(self) -> int:
        """Return the bytes of the key map, and of all rows and slots that were ever in use."""
        return self.row_store.bytes() + self.key_map.bytes()

    def see(
        self,
        keys_U: np.ndarray,
        sightings_U: np.ndarray,
        steps: int = 1,
        step_U: np.ndarray | None = None,
    ) -> np.ndarray:
        """Count unique keys for the next steps of the map, and return their row numbers.

        New keys that the map admits get rows with initial values; other keys may be evicted for
        them. The rows belong to these keys until the next call.

        Args:
            steps: How many steps of the map begin and end with this call.
            step_U: The last of these steps in which each key occurs, from 0; by default the last.

        Returns:
            Row numbers (U,), int64, or -1 for a key that is not admitted yet.

        Raises:
            TypeError: The keys are of another kind than those of the map.
            RunError: The table has too few rows. It is unchanged.
        """
        first, last_U = self.key_map.step + 1, None
        if step_U is not None:
            last_U = first + step_U
        seen = self.key_map.see(keys_U, sightings_U, self.key_map.step + steps, last_U)
        if len(seen.new_rows):
            self.row_store.admit(seen.new_rows, self.key_map.hashes(seen.new_keys))
        return seen.rows_U

    @property
    def known(self) -> RowsByKey:
        """The same rows for inference: keys are not counted, and unknown keys get no rows."""

        def rows_of(keys_U: tf.Tensor) -> tf.Tensor:
            """Return the row numbers of keys, int64, or -1; nothing is counted."""
            with tf.device(HOST):  # where the map is
                rows_U = call_python(self.key_map.rows, [keys_U], tf.int64)
                return tf.ensure_shape(rows_U, keys_U.shape)

        return RowsByKey(self.row_store, rows_of, may_lack_rows=True)

    def snapshot(self, folder: Path) -> None:
        """Write the keys, the rows and the slots; see `Checkpointable.snapshot`."""
        self.key_map.save(folder / KEYS)
        self.row_store.snapshot(folder)

    def commit(self, folders: Sequence[Path]) -> None:
        """Do nothing: a snapshot is complete in itself."""

    def restore(self, folder: Path) -> None:
        """Read the files that `snapshot` wrote.

        Raises:
            DamagedError: A file is missing or damaged.
            RunError: The snapshot does not fit (see `KeyMap.load` and `RowStore.restore`).
        """
        self.key_map.load(folder / KEYS)
        self.row_store.restore(folder)

    def _rows_seen(self, keys_U: tf.Tensor) -> tf.Tensor:
        """Count keys, admit new ones, and return their row numbers, -1 for a key without a row.

        TensorFlow runs the operations of a graph on one variable in the order in which they were
        made. So an empty write to rows and slots before each look-up keeps it behind all reads and
        writes of the rows that were looked up before.
        """
        if tf.executing_eagerly():
            return tf.constant(self._see(keys_U.numpy()))
        barriers = [_barrier(store) for store in self.row_store.stores().values()]
        with tf.control_dependencies(barriers):
            rows_U = call_python(self._see, [keys_U], tf.int64)
        return tf.ensure_shape(rows_U, keys_U.shape)

    def _see(self, keys_U: np.ndarray) -> np.ndarray:
        """Count keys as one step, repeated ones several times; return their row numbers, or -1."""
        unique_keys, inverse_U, counts = np.unique(keys_U, return_inverse=True, return_counts=True)
        return self.see(unique_keys, counts)[inverse_U]


class KeyLocator(InPlace):
    """Gives each batch the row numbers of its ids in dynamic tables; other tables are unchanged.

    Inside a compiled step, the Python operation that looks up keys would have no GPU kernel, and
    the other operations would wait for it. So all ids of a call are looked up and counted before
    the call, and no row of the call is evicted for another one. The key map counts an id once for
    each lookup in a training step, and padding, `NONE`, not at all.

    Args:
        tables: The tables by name. A key of a dynamic table gets a row when it is first seen; none
            of them is streamed by a loss.
        lookups: Gives the padded ids (S, N) that a batch looks up, by table (see
            `training.step.lookup_function`).
    """

    looks_up = True

    def __init__(
        self,
        tables: Mapping[str, Table],
        lookups: Callable[[Any, tf.Tensor], Mapping[str, tf.Tensor]],
    ):
        self._dynamic = {n: table for n, table in tables.items() if isinstance(table, DynamicTable)}
        assert all(table.key_map.min_sightings == 1 for table in self._dynamic.values())
        super().__init__(
            {**tables, **{name: table.row_store for name, table in self._dynamic.items()}}
        )

        @tf.function(autograph=False)
        def unique_ids(data: Any, first: tf.Tensor) -> dict[str, tuple[tf.Tensor, ...]]:
            """Return by dynamic table where ids are, the unique ones, their inverse and counts."""
            ids, unique = lookups(data, first), {}
            for name in self._dynamic:
                is_id_SN = ids[name] != NONE
                unique[name] = is_id_SN, *tf.unique_with_counts(ids[name][is_id_SN])
            return unique

        self._unique_ids = unique_ids

    def locate(self, data: Any, first: tf.Tensor) -> LocatedData:
        """Count the ids that the next call looks up, and return the batch with their row numbers.

        New ids get rows, for which rows that were not used for long may be evicted.

        Returns:
            The data as it is, and for each dynamic table row numbers (S, N) int64.

        Raises:
            RunError: A table has too few rows for the call. No table was changed.
        """
        steps = tf.nest.flatten(data)[0].shape[0]
        with tf.device(HOST):  # the batch is there, so nothing waits for a GPU
            # TensorFlow would warn of calls that trace, in a process with several runs.
            unique = self._unique_ids.get_concrete_function(data, first)(data, first)
        found = {name: [part.numpy() for part in parts] for name, parts in unique.items()}
        for name, (_, ids_U, *_) in found.items():
            if len(ids_U) > self._dynamic[name].rows:
                raise RunError(
                    f"table {name!r} has {self._dynamic[name].rows:,} rows, but the {steps} steps "
                    f"of one call need {len(ids_U):,} different ones; give a greater "
                    "--table_gb, or a lower --batch_tokens or --steps_per_call"
                )
        rows = {}
        for name, (is_id_SN, ids_U, inverse_M, counts_U) in found.items():
            step_U = np.empty(len(ids_U), np.int64)
            step_U[inverse_M] = np.nonzero(is_id_SN)[0]  # the last step that looks up each id
            rows_U = self._dynamic[name].see(ids_U, counts_U, steps, step_U)
            rows_SN = np.zeros(is_id_SN.shape, np.int64)  # padding has any row, and changes none
            rows_SN[is_id_SN] = rows_U[inverse_M]
            rows[name] = tf.constant(rows_SN)
        return LocatedData(data, rows)


def replace_lacking(
    rows_UD: tf.Tensor,
    lacking_U: tf.Tensor,
    hashes_U: tf.Tensor,
    initial_rows: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Return the rows of keys, after the rows of keys that have none are set to initial rows.

    Initial rows are computed for these keys only: for 4,096 keys and 64 columns they take 2 ms.

    Args:
        lacking_U: Whether each key has no row, (U,).
        hashes_U: The hashes of the keys, (U,) int64 (see `KeyMap.hashes`).
        initial_rows: Returns the initial rows (M, D) of hashes (M,).
    """
    if under_vectorized_map():  # where every element has as many
        return tf.where(lacking_U[:, tf.newaxis], initial_rows(hashes_U), rows_UD)
    with tf.device(HOST):  # the number of such keys is a shape
        lacking_M1 = tf.where(lacking_U)
        hashes_M = tf.gather_nd(hashes_U, lacking_M1)
    return tf.tensor_scatter_nd_update(rows_UD, lacking_M1, initial_rows(hashes_M))


def _hashes(keys_U: tf.Tensor) -> tf.Tensor:
    """Return int64 keys as they are, or the fingerprints of strings, as `KeyMap.hashes` does."""
    return fingerprints(keys_U) if keys_U.dtype == tf.string else tf.cast(keys_U, tf.int64)


def _barrier(store: RowStore) -> tf.Operation:
    """Make an empty write, which runs after all earlier operations on the rows of a store."""
    return tf.raw_ops.ResourceScatterUpdate(
        resource=store.values.handle,
        indices=tf.zeros([0], tf.int32),
        updates=tf.zeros([0, store.columns], store.values.dtype),
    )
