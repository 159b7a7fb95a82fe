"""The map from keys to rows: it counts keys, gives them rows, and evicts them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import COUNT, damaged, read_json
from .. import arrays
from ..initial import fingerprints
from .key_index import DEPTH, LFU, KeyIndex, Sketch, select_least

INT64, STRING = "int64", "string"
STATE = "keys.json"
SHAPE = {
    "capacity": COUNT,
    "kind": frozenset([INT64, STRING]),
    "admits": bool,
    "step": COUNT,
    "used": COUNT,
    "swept": COUNT,
    "added": (COUNT, None),
}
_DTYPES = {"counts": [np.int64], "last": [np.int64], "free": [np.int64], "keys": [np.int64, object]}
# All files of a map.
FILES = (STATE, *_DTYPES, arrays.lengths_name("keys"), "sketch")
COUNTERS_PER_ROW = 4  # counters of the sketch, for each hash function
# CPython's header of a bytes object with its final 0, and the pointer to it.
STRING_BYTES = 33 + 8
_EXPECTED_LENGTH = 12  # an estimate of the length of a string that is yet to come
# A key takes 8 bytes, two positions in the index of 4 (see `KeyIndex`), the number of its sightings
# and its last step. While rows are chosen for eviction, it takes their row numbers, and the
# sightings twice.
_KEY_BYTES = 8 + 2 * 4 + 8 + 8
_EVICTION_BYTES = 3 * 8
# An eviction reads the sightings of all rows, so it frees this share of them at once: 1 / 16.
_EVICTED_SHARE = 16
_SWEEPS = 8  # searches for rows that are too old, within `max_age` steps
_PART = 1 << 20  # keys put into the index at a time


def read_keys(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the keys of a saved map, with their rows and counts, in the order of their rows.

    Returns:
        Keys (N,), int64 or bytes, their rows (N,), and how often each was seen, (N,), int64.
    """
    _, parts = read_arrays(folder / STATE, {})
    rows = np.flatnonzero(parts["counts"])
    return parts["keys"], rows, parts["counts"][rows]


def read_arrays(path: Path, dtypes: dict) -> tuple[dict, dict[str, np.ndarray]]:
    """Read the files of a saved map, and check that they agree.

    Args:
        dtypes: The possible dtypes of further arrays to read, by name.

    Raises:
        DamagedError: A file is missing or damaged, or the arrays do not agree.
    """
    state, parts = arrays.load(path, SHAPE, {**_DTYPES, **dtypes})
    used, free = state["used"], parts["free"]
    fits = used <= state["capacity"] and len(parts["counts"]) == len(parts["last"]) == used
    fits = fits and len(parts["keys"]) == np.count_nonzero(parts["counts"]) == used - len(free)
    if not fits or not np.all((free >= 0) & (free < used)):
        raise damaged(path, "its arrays do not fit together")
    return state, parts


def key_bytes(kind: str, min_sightings: int) -> int:
    """Return about how many bytes a key map takes for a row, if strings have 12 bytes each."""
    strings = STRING_BYTES + _EXPECTED_LENGTH if kind == STRING else 0
    sketch = COUNTERS_PER_ROW * DEPTH if min_sightings > 1 else 0
    return _KEY_BYTES + _EVICTION_BYTES + strings + sketch


class Seen(NamedTuple):
    """The result of `KeyMap.see`.

    Attributes:
        rows_U: The row of each key, int64, or -1 for a key that has none yet.
        new_rows: The rows that were given to keys now.
        new_keys: The keys that got these rows.
        evicted_rows: The rows that were taken from other keys. Some can be among the new rows.
    """

    rows_U: np.ndarray
    new_rows: np.ndarray
    new_keys: np.ndarray
    evicted_rows: np.ndarray


class KeyMap:
    """A map from at most V keys, all int64 or all strings, to the rows 0 .. V - 1.

    Its memory is bounded: a key without a row is at most counted in a sketch. When all rows are
    taken, one in 16 is evicted by the rule `eviction`.

    Args:
        capacity: The number of rows, V, below 2^31 - 1.
        kind: The kind of keys, `INT64` or `STRING`. Strings are returned as bytes.
        min_sightings: The number of sightings after which a key gets a row, from 1 to 255.
        max_age: A row not seen for more steps is evicted, at most an eighth later; 0 for never.
        pinned: Rows seen in this many steps before the current one are never evicted.
        eviction: `LFU` or `LRU`; among rows that are equal by one rule, the other decides.
    """

    remedy = (
        "raise --table_gb or --min_count; lower --batch_tokens, --steps_per_call, --block_bytes"
    )

    def __init__(
        self,
        capacity: int,
        kind: str = INT64,
        min_sightings: int = 1,
        max_age: int = 0,
        pinned: int = 0,
        eviction: str = LFU,
    ):
        self.capacity, self.kind, self.min_sightings = capacity, kind, min_sightings
        self.step, self.used = 0, 0  # rows from the number `used` on were never in use
        self._max_age, self._pinned = max_age, pinned
        self._index = KeyIndex(capacity)
        self._strings_V = np.empty(capacity, object) if kind == STRING else None
        self._string_bytes = 0
        self.counts_V = np.zeros(capacity, np.int64)
        self._last_V = np.zeros(capacity, np.int64)
        self._evict_by = (self.counts_V, self._last_V)[:: 1 if eviction == LFU else -1]
        self._free, self._swept = np.zeros(0, np.int64), 0
        self._sketch = Sketch(COUNTERS_PER_ROW * capacity) if min_sightings > 1 else None

    def __len__(self) -> int:
        return self.used - len(self._free)

    @property
    def hashes_V(self) -> np.ndarray:
        """The hash of the key that each row has, or last had, (V,) int64 (see `hashes`)."""
        return self._index.hashes_V

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """Return the row of each key, int64, or -1 for a key without one. Changes nothing.

        Args:
            keys: Keys (N,) of the kind of this map, else TypeError is raised.
        """
        keys = self._convert(keys)
        return self._find(keys, self.hashes(keys))

    def see(
        self,
        keys_U: np.ndarray,
        sightings_U: np.ndarray,
        step: int,
        last_U: np.ndarray | None = None,
    ) -> Seen:
        """Count unique keys, give rows to new ones that are admitted, and evict others if needed.

        Args:
            sightings_U: How often each key was seen, at least 1.
            step: The current step, not lower than in the call before.
            last_U: The step in which each key was last seen, (U,); by default the current one.

        Raises:
            TypeError: The keys are of the other kind.
            RunError: More rows are needed than may be evicted. The map is unchanged.
        """
        keys_U = self._convert(keys_U)
        hashes_U = self.hashes(keys_U)
        rows_U = self._find(keys_U, hashes_U)
        known = rows_U >= 0
        new = np.flatnonzero(~known)
        sightings = sightings_U[new]
        if self._sketch is not None:
            seen, counters = self._sketch.look_up(hashes_U[new], sightings)
            counted, sightings = (counters, seen, sightings), seen
            enough = sightings >= self.min_sightings
            new, sightings = new[enough], sightings[enough]
        steps_U = np.full(len(keys_U), step) if last_U is None else last_U
        kept_from = min(steps_U.min(initial=step), step - self._pinned)
        evicted = self._choose_evicted(len(new), rows_U[known], kept_from, step)
        if self._sketch is not None:
            self._sketch.store(*counted)
        self.counts_V[rows_U[known]] += sightings_U[known]
        self._last_V[rows_U[known]] = steps_U[known]
        self.step = step
        self._drop(evicted)
        rows_U[new] = rows = self._take(len(new))
        self._index.insert(hashes_U[new], rows)
        self.counts_V[rows], self._last_V[rows] = sightings, steps_U[new]
        if self._strings_V is not None:
            self._strings_V[rows] = keys_U[new]
            self._string_bytes += sum(map(len, keys_U[new]))
        return Seen(rows_U, rows, keys_U[new], evicted)

    def in_use(self) -> np.ndarray:
        """Return the rows that have a key, int64, in rising order."""
        return np.flatnonzero(self.counts_V[: self.used])

    def keys(self) -> np.ndarray:
        """Return the keys of the rows `in_use`, in the order of the rows, int64 or bytes."""
        of_V = self._index.hashes_V if self._strings_V is None else self._strings_V
        return of_V[self.in_use()]

    def bytes(self) -> int:
        """Return the bytes of the map with all rows in use, and with the strings it has now."""
        sketch = 0 if self._sketch is None else self._sketch.counts_HW.nbytes
        strings = 0 if self._strings_V is None else len(self) * STRING_BYTES + self._string_bytes
        return self._index.bytes() + 2 * self.counts_V.nbytes + sketch + strings

    def hashes(self, keys: np.ndarray) -> np.ndarray:
        """Return int64 keys as they are, or fingerprints of strings, for initial rows."""
        return keys if self.kind == INT64 else fingerprints(tf.constant(keys, tf.string)).numpy()

    def save(self, folder: Path) -> None:
        """Write the map to a new folder."""
        folder.mkdir(parents=True)
        state = {"capacity": self.capacity, "kind": self.kind, "admits": self.min_sightings > 1}
        state |= {"step": self.step, "used": self.used, "swept": self._swept}
        parts = {"counts": self.counts_V[: self.used], "last": self._last_V[: self.used]}
        parts |= {"free": self._free, "keys": self.keys()}
        if self._sketch is not None:
            state["added"], parts["sketch"] = self._sketch.added, self._sketch.counts_HW
        arrays.save(folder / STATE, state, parts)

    def load(self, folder: Path) -> None:
        """Replace the content by a map that `save` wrote.

        Raises:
            RunError: It has another kind or capacity, or only one of both admits keys at once.
        """
        path = folder / STATE
        state = read_json(path, SHAPE)
        for name, value, shown, flag in (
            ("capacity", self.capacity, "capacity", "--table_gb"),
            ("kind", self.kind, "kind", "kind of key"),
            ("admits", self.min_sightings > 1, "min_count above 1:", "--min_count"),
        ):
            if state[name] != value:
                raise RunError(
                    f"{path} holds keys with {shown} {state[name]}, where {value} is asked "
                    f"for; give the {flag} that it was made with, or train in a new workdir"
                )
        _, parts = read_arrays(path, {"sketch": [np.uint8]} if self._sketch is not None else {})
        if self._sketch is not None and parts["sketch"].shape != self._sketch.counts_HW.shape:
            raise damaged(path, "its sketch has another shape")
        used, self.used = self.used, state["used"]
        self.step, self._swept, self._free = state["step"], state["swept"], parts["free"]
        for of_V, saved in ((self.counts_V, parts["counts"]), (self._last_V, parts["last"])):
            of_V[: self.used], of_V[self.used : used] = saved, 0
        if self._sketch is not None:
            self._sketch.added = state["added"]
            self._sketch.counts_HW[:] = parts["sketch"]
        keys, rows = parts["keys"], self.in_use()
        if self._strings_V is not None:
            self._strings_V[:] = None
            self._strings_V[rows] = keys
            self._string_bytes = sum(map(len, keys))
        self._index.clear()
        for start in range(0, len(rows), _PART):
            part = slice(start, start + _PART)
            self._index.insert(self.hashes(keys[part]), rows[part])

    def _convert(self, keys: np.ndarray) -> np.ndarray:
        """Return keys as int64 or bytes, or raise TypeError if they are not of the map's kind."""
        keys = np.asarray(keys)
        kind = STRING if keys.dtype.kind in "OSU" else keys.dtype.name
        if self.kind == INT64 and keys.dtype.kind in "iu" and np.can_cast(keys.dtype, np.int64):
            return np.ascontiguousarray(keys, np.int64)
        if self.kind == kind == STRING:
            if keys.dtype.kind == "U":
                return np.char.encode(keys, "utf-8").astype(object)
            return keys.astype(object, copy=False)
        raise TypeError(f"keys are {kind}, where the table has {self.kind} keys")

    def _find(self, keys_U: np.ndarray, hashes_U: np.ndarray) -> np.ndarray:
        """Return the row of each key, int64, or -1 for a key without a row."""
        if self._strings_V is None:
            return self._index.find(hashes_U)
        return self._index.find(
            hashes_U, lambda indices, rows: self._strings_V[rows] == keys_U[indices]
        )

    def _take(self, count: int) -> np.ndarray:
        """Remove and return free rows: first evicted ones, then rows that were never in use."""
        again, self._free = self._free[:count], self._free[count:]
        fresh = np.arange(self.used, self.used + count - len(again))
        self.used += len(fresh)
        return np.concatenate([again, fresh])

    def _choose_evicted(
        self, needed: int, seen: np.ndarray, kept_from: int, step: int
    ) -> np.ndarray:
        """Return the rows to evict: old ones, and others until `needed` rows are free.

        They have keys, are not among the rows `seen` now, and were last seen before `kept_from`.
        Raise RunError if they are too few.
        """
        missing = needed - (self.capacity - len(self))
        is_due = self._max_age > 0 and (step - self._swept) * _SWEEPS >= self._max_age
        if missing <= 0 and not is_due:
            return np.zeros(0, np.int64)
        is_idle_V = (self._last_V[: self.used] < kept_from) & (self.counts_V[: self.used] > 0)
        is_idle_V[seen] = False
        idle = np.flatnonzero(is_idle_V)
        if len(idle) < missing:
            raise RunError(
                f"the table's {self.capacity} rows are full and {missing} more are needed, but "
                f"only {len(idle)} were not just used; {self.remedy}"
            )
        is_old = (self._last_V[idle] < step - self._max_age) & is_due
        self._swept = step if is_due else self._swept
        old, others = idle[is_old], idle[~is_old]
        missing -= len(old)
        if missing <= 0:
            return old
        count = min(max(missing, self.capacity // _EVICTED_SHARE), len(others))
        return np.concatenate([old, select_least(others, self._evict_by, count)])

    def _drop(self, rows: np.ndarray) -> None:
        """Remove the keys of rows, and add the rows to the free ones."""
        if not len(rows):
            return
        self._index.remove(rows)
        self.counts_V[rows] = 0
        self._free = np.concatenate([self._free, rows])
        if self._strings_V is not None:
            self._string_bytes -= sum(map(len, self._strings_V[rows]))
            self._strings_V[rows] = None
