"""Brings rows to the device ahead of the steps that need them (see `tables.cached`).

Steps come in chunks. While one trains, a thread asks the model for the ids of the next one's
batches, and reads those rows at home that have no place on the device. Between the two, rows change
places; those that left are written home while the next chunk trains. The thread does one thing
after the other, so that a row which comes back is read after it was written.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..models.base import Model
from ..optimizers.base import Optimizer
from ..optimizers.row_updates import slots
from ..tables.base import Table, TableSpec
from ..tables.cached import Moves, Places, StagedTable
from .step import lookup_function

# Places for cold rows, as a multiple of those that the first chunk needs: later text may need more,
# and a row that stays need not come again.
_ROOM = 1.5


class InPlace:
    """Tables that steps train on where they are."""

    def __init__(self, tables: Mapping[str, Table]):
        self.tables = tables

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """The batches as they are."""
        return iter(batches)

    def locate(self, data: Any, first: tf.Tensor) -> Any:
        """Return what the next call of the train function is to take for a batch.

        Args:
            data: The batch: a nest of tensors of S steps.
            first: The steps before it, int64.
        """
        return data

    def write_back(self) -> None:
        """Nothing to do: rows are at home."""

    def values(self) -> dict[str, float]:
        """Nothing to report."""
        return {}

    def close(self) -> None:
        """Nothing to end."""


class _Call(NamedTuple):
    """A batch with its epoch, the cold ids that it needs by table, and how many ids in all."""

    item: tuple[int, Any]
    ids: dict[str, np.ndarray]
    looked_up: int


class _Chunk(NamedTuple):
    """Batches with their epochs; the moves before them and the rows that enter, by table.

    looked_up: ids that its steps look up. missed: those of them that had no place before.
    """

    items: list[tuple[int, Any]]
    moves: dict[str, Moves]
    entering: dict[str, dict[str, tf.Tensor]]
    looked_up: int = 0
    missed: int = 0


@dataclasses.dataclass
class _Since:
    """What has come since it was told last; bytes are those moved, `stalled` is in seconds."""

    looked_up: int = 0
    missed: int = 0
    bytes: int = 0
    stalled: float = 0.0
    steps: int = 0
    began: float = dataclasses.field(default_factory=time.perf_counter)


class Staging(InPlace):
    """As `InPlace`, for tables at home whose rows come to the device for chunks of steps.

    Results are those of tables on the device, bit for bit. Tables that the model looks up rows of
    are staged, those of which a loss streams blocks are trained on at home.

    tables: what steps are to train on; complete when the first batch is there. homes: in host
    memory or in a file, by name. device: where steps run. rooms: for the tables to stage, which
    rows stay on the device, and the places beside them. stage_steps: of a chunk, rounded up to
    whole calls of `steps_per_batch`; fewer where a chunk would need more places than there are.
    """

    def __init__(
        self,
        model: Model,
        homes: Mapping[str, Table],
        optimizer: Optimizer,
        seed: int,
        device: str,
        rooms: Mapping[str, Room],
        stage_steps: int,
        steps_per_batch: int,
        micro_batches: int = 1,
    ):
        super().__init__(dict(homes))
        self._model, self._homes, self._optimizer, self._device = model, homes, optimizer, device
        self._rooms, self._steps = rooms, steps_per_batch
        self._calls = calls(stage_steps, steps_per_batch)
        self._lookups = lookup_function(model, seed, micro_batches)
        self._staged: dict[str, StagedTable] = {}
        self._places: dict[str, Places] = {}
        self._drawn: list[_Call] = []
        self._writes: list[concurrent.futures.Future] = []
        self._since = _Since()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "staging")

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """The batches, each once its rows are on the device.

        batches: an epoch and what a call of the train function takes. step: the steps before them.
        Raises what reading the batches raises, and what reading or writing rows at home does.
        """
        batches = iter(batches)
        following = self._thread.submit(self._chunk, batches, step)
        while True:
            began = time.perf_counter()
            chunk = following.result()
            self._check_writes()
            self._enter(chunk)
            if not chunk.items:
                return
            step += len(chunk.items) * self._steps
            self._since.steps += len(chunk.items) * self._steps
            self._since.looked_up += chunk.looked_up
            self._since.missed += chunk.missed
            self._since.stalled += time.perf_counter() - began
            following = self._thread.submit(self._chunk, batches, step)
            yield from chunk.items

    def write_back(self) -> None:
        """Makes the tables at home as if steps had trained on them; between two steps."""
        self._thread.submit(int).result()  # what was given to the thread before is done then
        self._check_writes()
        for table in self._staged.values():
            table.write_all()

    def values(self) -> dict[str, float]:
        """What has come since the last call of this, by name.

        stage_hit_rate: of the look-ups of chunks, the share whose row was on the device when the
        chunk was made. staged_bytes: to and from the device, a step. stage_stall: the share of the
        time in which the steps waited for rows.
        """
        since, self._since = self._since, _Since()
        seconds = max(self._since.began - since.began, 1e-9)
        return {
            "stage_hit_rate": 1 - since.missed / max(since.looked_up, 1),
            "staged_bytes": since.bytes / max(since.steps, 1),
            "stage_stall": since.stalled / seconds,
        }

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _enter(self, chunk: _Chunk) -> None:
        """Lets rows change places, and has those that leave written home."""
        for name, moves in chunk.moves.items():
            table = self._staged[name]
            leaving = table.move(moves, chunk.entering[name])
            self._writes.append(self._thread.submit(table.write, moves.leaving_N, leaving))
            moved = len(moves.leaving_N) + len(moves.entering_M)
            self._since.bytes += moved * table.row_bytes()

    def _check_writes(self) -> None:
        """Raises what writing rows home raised."""
        done = [write for write in self._writes if write.done()]
        self._writes = [write for write in self._writes if not write.done()]
        for write in done:
            write.result()

    def _chunk(self, batches: Iterator, step: int) -> _Chunk:
        """The next batches whose rows have room together."""
        if not self._places:
            self._open()
        while len(self._drawn) < self._calls:
            item = next(batches, None)
            if item is None:
                break
            self._drawn.append(self._call(item, step + len(self._drawn) * self._steps))
        if not self._drawn:
            return _Chunk([], {}, {})
        for count in range(len(self._drawn), 0, -1):
            ids = _together(self._drawn[:count])
            moves = {name: places.moves(ids[name]) for name, places in self._places.items()}
            if None not in moves.values():
                break
        else:
            raise AssertionError("there are places for as many ids as a call has")
        drawn, self._drawn = self._drawn[:count], self._drawn[count:]
        entering, missed = {}, 0
        for name, places in self._places.items():
            missed += len(places.missing(ids[name]))
            places.make(moves[name], ids[name])
            entering[name] = self._staged[name].read(moves[name].entering_M)
        looked_up = sum(call.looked_up for call in drawn)
        return _Chunk([call.item for call in drawn], moves, entering, looked_up, missed)

    def _call(self, item: tuple[int, Any], step: int) -> _Call:
        """A batch with the ids that it needs, as the next after so many steps."""
        with tf.device(self._device):
            found = self._lookups(item[1], tf.constant(step, tf.int64))
        ids = {name: found[name].numpy() for name in self._rooms}
        cold = {name: places.cold_of(ids[name]) for name, places in self._places.items()}
        return _Call(item, cold, sum(map(len, ids.values())))

    def _open(self) -> None:
        """Makes room on the device."""
        specs = self._model.tables()
        for name, room in self._rooms.items():
            table = self._staged[name] = StagedTable(self._homes[name], self._device)
            if specs[name].trained:
                slots(self._optimizer, table)
            self._places[name] = Places(table.rows, room.hot_N, room.cold)
            table.open(self._places[name])
        self.tables.update(self._staged)


class Room(NamedTuple):
    """Whose rows of a table stay on the device, int64 ids, and how many places are beside them.

    needed: the cold rows that the first chunk needs.
    """

    hot_N: np.ndarray
    cold: int
    needed: int


def calls(stage_steps: int, steps_per_batch: int) -> int:
    """Calls of the train function in a chunk."""
    return -(-stage_steps // steps_per_batch)


def needs(
    model: Model, batches: Iterable, seed: int, device: str, count: int, micro_batches: int = 1
) -> dict[str, list[np.ndarray]]:
    """The ids that the first batches of a run need of each table that is looked up, by call."""
    lookups = lookup_function(model, seed, micro_batches)
    found: dict[str, list[np.ndarray]] = {}
    for number, (_, tokens) in enumerate(itertools.islice(batches, count)):
        first = tf.constant(number * tf.nest.flatten(tokens)[0].shape[0], tf.int64)
        with tf.device(device):
            for name, ids in lookups(tokens, first).items():
                found.setdefault(name, []).append(ids.numpy())
    return found


def room(spec: TableSpec, needed: Sequence[np.ndarray], hot: int) -> Room:
    """Room for `hot` rows of a table and for the others that chunks need, judged by the first one.

    needed: the ids of each of its calls. The hot rows are the first where ids are by frequency, and
    else those needed most.
    """
    hot, ids_N = min(hot, spec.rows), np.concatenate(needed)
    hot_N = np.arange(hot, dtype=np.int64)
    if not spec.by_frequency and hot < spec.rows:
        times_V = np.bincount(ids_N, minlength=spec.rows)
        hot_N = np.sort(np.argsort(-times_V, kind="stable")[:hot])
    cold = len(np.setdiff1d(ids_N, hot_N))
    # A call has to fit, whichever ids it has.
    most = max(int(_ROOM * cold), max(map(len, needed)))
    return Room(hot_N, min(most, spec.rows - hot), cold)


def _together(calls: list[_Call]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([call.ids[name] for call in calls]) for name in calls[0].ids}
