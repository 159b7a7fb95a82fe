"""Which row a key has: keys come, are counted, get a row, and are evicted by rule."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import damaged, read_json
from .. import arrays
from ..initial import fingerprints
from .key_files import INT64, SHAPE, STATE, STRING, read_arrays
from .key_index import KeyIndex, least
from .sketch import DEPTH, MOST, Sketch

_PER_ROW = 4  # counters of the sketch, for each hash function
_AT_ONCE = 16  # one of so many rows is evicted at once, as all sightings are read to choose them
_SWEEPS = 8  # looks for rows that are too old, in the age at which they are
# CPython's header of a bytes object with its final 0, and the pointer to it.
_STRING_BYTES = 33 + 8
_LETTERS = 12  # of a key that is yet to come, as one can guess
_PART = 1 << 20  # keys put into the index at a time
# Of a key of 8 bytes: itself and two places of 4 (see `KeyIndex`), its sightings and its last step;
# and while rows are chosen for eviction, their numbers, and their sightings twice.
_KEY_BYTES = 8 + 2 * 4 + 8 + 8
_CHOICE_BYTES = 3 * 8


class Seen(NamedTuple):
    """What became of the keys of a call.

    rows_U: of each key, int64, -1 where it has none (yet). new_rows, new_keys: those that got a row
    now. evicted_rows: that were taken from other keys; some are among the new ones.
    """

    rows_U: np.ndarray
    new_rows: np.ndarray
    new_keys: np.ndarray
    evicted_rows: np.ndarray


class KeyMap:
    """Rows 0 .. V - 1 for at most V keys, all int64 or all strings; strings are bytes outside.

    Works on many keys at a time, and is no place for single ones. Bounded in memory by V, whatever
    keys come: what has no row is at most counted in a sketch (see `tables.dynamic.sketch`).

    capacity: V, below 2^31. kind: `INT64` or `STRING`. min_sightings: a key gets a row when it was
    seen so often, up to 255. max_age: a row not seen for more steps than that is evicted, at the
    latest an eighth of them later; 0 keeps them. pinned: rows seen in so many steps before the
    current one are not evicted, whatever happens.

    Where more keys would have rows than there are, the rows seen the fewest times go, of these the
    ones not seen for longest, and the lower row of two equals; one in 16 of all at once. Without an
    age, keys that were frequent long ago are kept for ever.
    """

    def __init__(
        self,
        capacity: int,
        kind: str = INT64,
        min_sightings: int = 1,
        max_age: int = 0,
        pinned: int = 0,
    ):
        if not 0 < capacity < 2**31 - 1 or not 1 <= min_sightings <= MOST:
            raise ValueError(f"no map has {capacity} rows, or admits after {min_sightings}")
        self.capacity, self.kind, self.min_sightings = capacity, kind, min_sightings
        self.step = 0
        self.used = 0  # rows from here on were never in use
        self._max_age, self._pinned = max_age, pinned
        self._index = KeyIndex(capacity)
        self._strings_V = np.empty(capacity, object) if kind == STRING else None
        self._string_bytes = 0
        self.counts_V = np.zeros(capacity, np.int64)
        self._last_V = np.zeros(capacity, np.int64)
        self._free = np.zeros(0, np.int64)
        self._sketch = Sketch(_PER_ROW * capacity) if min_sightings > 1 else None
        self._swept = 0

    def __len__(self) -> int:
        return self.used - len(self._free)

    @property
    def hashes_V(self) -> np.ndarray:
        """Of the key that each row has, or last had: see `hashes`."""
        return self._index.hashes_V

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """The row of each key, int64, -1 where it has none; changes nothing. TypeError as `see`."""
        keys = self._checked(keys)
        return self._find(keys, self.hashes(keys))

    def see(
        self,
        keys_U: np.ndarray,
        sightings_U: np.ndarray,
        step: int,
        last_U: np.ndarray | None = None,
    ) -> Seen:
        """Count distinct keys and give rows to new ones; rows of these keys are not evicted.

        Args:
            keys_U: Distinct keys, which were seen in the current step, or in some steps up to it.
            sightings_U: How often each key was seen, 1 at least.
            step: The current step. Steps do not fall from call to call.
            last_U: The step in which each key was seen last; by default the current one.

        Raises:
            TypeError: The keys are of the other kind.
            RunError: More rows are needed than may be evicted. The map is as it was before.
        """
        keys_U = self._checked(keys_U)
        hashes_U = self.hashes(keys_U)
        rows_U = self._find(keys_U, hashes_U)
        known = rows_U >= 0
        new = np.flatnonzero(~known)
        sightings = sightings_U[new]
        if self._sketch is not None:
            found, places = self._sketch.look_up(hashes_U[new], sightings)
            counted, sightings = (places, found, sightings), found
            enough = sightings >= self.min_sightings
            new, sightings = new[enough], sightings[enough]
        steps_U = np.full(len(keys_U), step) if last_U is None else last_U
        kept_from = min(steps_U.min(initial=step), step - self._pinned)
        self._require(len(new), rows_U[known], kept_from)

        if self._sketch is not None:
            self._sketch.store(*counted)
        self.counts_V[rows_U[known]] += sightings_U[known]
        self._last_V[rows_U[known]] = steps_U[known]
        self.step = step
        evicted = self._evict(len(new), kept_from)
        rows_U[new] = rows = self._take(len(new))
        self._index.insert(hashes_U[new], rows)
        self.counts_V[rows], self._last_V[rows] = sightings, steps_U[new]
        if self._strings_V is not None:
            self._strings_V[rows] = keys_U[new]
            self._string_bytes += sum(map(len, keys_U[new]))
        return Seen(rows_U, rows, keys_U[new], evicted)

    def in_use(self) -> np.ndarray:
        """The rows that have a key, int64, in rising order."""
        return np.flatnonzero(self.counts_V[: self.used])

    def keys(self) -> np.ndarray:
        """The keys of `in_use`, int64 or bytes."""
        of_V = self._index.hashes_V if self._strings_V is None else self._strings_V
        return of_V[self.in_use()]

    def counts(self) -> np.ndarray:
        """The sightings of `in_use`, int64, with those before a row was given (about)."""
        return self.counts_V[self.in_use()]

    def ages(self) -> np.ndarray:
        """The steps since each of `in_use` was seen, int64."""
        return self.step - self._last_V[self.in_use()]

    def bytes(self) -> int:
        """Bytes of the map once all rows are in use, with the strings that it has now."""
        sketch = 0 if self._sketch is None else self._sketch.counts_HW.nbytes
        strings = 0 if self._strings_V is None else len(self) * _STRING_BYTES + self._string_bytes
        return self._index.bytes() + 2 * self.counts_V.nbytes + sketch + strings

    def hashes(self, keys: np.ndarray) -> np.ndarray:
        """What an initial row is a function of: the keys, or the fingerprints of strings, int64."""
        return keys if self.kind == INT64 else fingerprints(tf.constant(keys, tf.string)).numpy()

    def save(self, folder: Path) -> None:
        """Writes the map to a new folder. OSError when it cannot."""
        folder.mkdir(parents=True)
        state = {"capacity": self.capacity, "kind": self.kind, "admits": self.min_sightings > 1}
        state |= {"step": self.step, "used": self.used, "swept": self._swept}
        parts = {"counts": self.counts_V[: self.used], "last": self._last_V[: self.used]}
        parts |= {"free": self._free, "keys": self.keys()}
        if self._sketch is not None:
            state["added"], parts["sketch"] = self._sketch.added, self._sketch.counts_HW
        arrays.save(folder / STATE, state, parts)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote; all that follows is as it would have been.

        Raises:
            DamagedError: A file is missing or damaged.
            RunError: The map is of another kind or capacity, or admits keys otherwise.
        """
        path = folder / STATE
        state = read_json(path, SHAPE)
        for name, value, flag in (
            ("capacity", self.capacity, "--table_gb"),
            ("kind", self.kind, "another kind of key"),
            ("admits", self.min_sightings > 1, "--min_count"),
        ):
            if state[name] != value:
                raise RunError(
                    f"{folder} holds keys with {name} {state[name]}, where {value} is asked "
                    f"for; give the {flag} that it was made with, or train in a new workdir"
                )
        _, parts = read_arrays(path, {"sketch": [np.uint8]} if self._sketch is not None else {})
        if self._sketch is not None and parts["sketch"].shape != self._sketch.counts_HW.shape:
            raise damaged(path, "its sketch has another shape")
        self._restore(state, parts)

    def _restore(self, state: dict, parts: dict[str, np.ndarray]) -> None:
        used, self.used = self.used, state["used"]
        self.step, self._swept = state["step"], state["swept"]
        self._free = parts["free"]
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

    def _checked(self, keys: np.ndarray) -> np.ndarray:
        """The keys as int64 or bytes."""
        keys = np.asarray(keys)
        found = STRING if keys.dtype.kind in "OSU" else keys.dtype.name
        if self.kind == INT64 and keys.dtype.kind in "iu" and np.can_cast(keys.dtype, np.int64):
            return np.ascontiguousarray(keys, np.int64)
        if self.kind == found == STRING:
            if keys.dtype.kind == "U":
                return np.char.encode(keys, "utf-8").astype(object)
            return keys.astype(object, copy=False)
        raise TypeError(f"keys are {found}, where the table has {self.kind} keys")

    def _find(self, keys_U: np.ndarray, hashes_U: np.ndarray) -> np.ndarray:
        if self._strings_V is None:
            return self._index.find(hashes_U)
        return self._index.find(
            hashes_U, lambda which, rows: self._strings_V[rows] == keys_U[which]
        )

    def _take(self, count: int) -> np.ndarray:
        """Free rows, those given back first before those that were never in use."""
        again, self._free = self._free[:count], self._free[count:]
        fresh = np.arange(self.used, self.used + count - len(again))
        self.used += len(fresh)
        return np.concatenate([again, fresh])

    def _require(self, wanted: int, seen: np.ndarray, kept_from: int) -> None:
        """Raise RunError unless so many rows are free, or are not kept and may be evicted."""
        missing = wanted - (self.capacity - len(self))
        if missing <= 0:
            return
        count = len(self._idle(kept_from)) - np.count_nonzero(self._last_V[seen] < kept_from)
        if count < missing:
            raise RunError(
                f"the table's {self.capacity} rows are full and {missing} more are needed, but "
                f"only {count} were not just used; raise --table_gb or --min_count, or lower "
                "--batch_tokens, --steps_per_call or --block_bytes"
            )

    def _evict(self, wanted: int, kept_from: int) -> np.ndarray:
        """Free the rows that are too old, and more if fewer rows than wanted are free."""
        rows = np.zeros(0, np.int64)
        if self._max_age and (self.step - self._swept) * _SWEEPS >= self._max_age:
            self._swept = self.step
            rows = self._drop(self._idle(min(kept_from, self.step - self._max_age)))
        missing = wanted - (self.capacity - len(self))
        if missing > 0:
            may_go = self._idle(kept_from)
            count = min(max(missing, self.capacity // _AT_ONCE), len(may_go))
            rows = np.concatenate(
                [rows, self._drop(least(may_go, (self.counts_V, self._last_V), count))]
            )
        return rows

    def _idle(self, before: int) -> np.ndarray:
        """Return the rows in use that were last seen before this step."""
        old = self._last_V[: self.used] < before
        return np.flatnonzero(old & (self.counts_V[: self.used] > 0))

    def _drop(self, rows: np.ndarray) -> np.ndarray:
        self._index.remove(rows)
        self.counts_V[rows] = 0
        self._free = np.concatenate([self._free, rows])
        if self._strings_V is not None:
            self._string_bytes -= sum(map(len, self._strings_V[rows]))
            self._strings_V[rows] = None
        return rows


def key_bytes(kind: str, min_sightings: int) -> int:
    """What a row of a map takes in all, about, for strings of 12 bytes."""
    strings = _STRING_BYTES + _LETTERS if kind == STRING else 0
    sketch = _PER_ROW * DEPTH if min_sightings > 1 else 0
    return _KEY_BYTES + _CHOICE_BYTES + strings + sketch
