"""The size of the device cache of a host table, estimated from the first batches of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from ..models.base import Model
from ..tables.base import TableSpec
from ..tables.cached import CacheSize
from .step import lookup_function

# The size of the cache for rows that are not pinned, as a multiple of the rows that the first chunk
# loads. Later chunks may need more, and a row that stays in the cache need not be loaded again.
_HEADROOM = 1.5


def calls_per_chunk(stage_steps: int, steps_per_batch: int) -> int:
    """Return the number of calls of the train function in a chunk, rounded up.

    Args:
        stage_steps: The value of --stage_steps, the least number of steps in a chunk.
        steps_per_batch: The number of steps in a call.
    """
    return -(-stage_steps // steps_per_batch)


def first_lookups(
    model: Model, batches: Iterable, seed: int, device: str, count: int, micro_batches: int = 1
) -> dict[str, list[np.ndarray]]:
    """Return the ids that the first batches of a run look up: for each table a list by batch.

    The ids (N,) of all S steps of a batch are in the order of the lookups, with repetitions. If
    there are fewer batches than `count`, the lists are shorter; without any batch, the result is
    an empty dictionary.

    Args:
        model: Gives the lookups.
        batches: Pairs of an epoch and the data of S steps. At most `count` are taken.
        seed: The seed of the run.
        device: The device of the lookups.
        count: The number of batches to look at.
        micro_batches: The number of micro-batches in a step.
    """
    lookups = lookup_function(model, seed, micro_batches)
    ids_by_table: dict[str, list[np.ndarray]] = {}
    for number, (_, tokens) in enumerate(itertools.islice(batches, count)):
        first = tf.constant(number * tf.nest.flatten(tokens)[0].shape[0], tf.int64)
        with tf.device(device):
            for name, ids in lookups(tokens, first).items():
                ids_by_table.setdefault(name, []).append(ids.numpy().ravel())
    return ids_by_table


def estimate_cache_size(spec: TableSpec, lookups: Sequence[np.ndarray], pinned: int) -> CacheSize:
    """Return the size of a table's cache: the pinned rows, and the number of rows for all others.

    That number is 1.5 times the unique ids of the first chunk that are not pinned, but at least the
    number of ids that any one call looks up, and at most all rows that are not pinned.

    Args:
        spec: Its rows, and whether its ids are by descending frequency. If they are, the first rows
            are pinned, otherwise the rows with the most lookups in the first chunk.
        lookups: The ids (N,) that each call of the first chunk looks up, with repetitions, for one
            call or more.
        pinned: The number of rows to pin, of --hot_rows. If it exceeds the rows, all are pinned.
    """
    pinned, ids_N = min(pinned, spec.rows), np.concatenate(lookups)
    pinned_N = np.arange(pinned, dtype=np.int64)
    if not spec.by_frequency and pinned < spec.rows:
        counts_V = np.bincount(ids_N, minlength=spec.rows)
        pinned_N = np.sort(np.argsort(-counts_V, kind="stable")[:pinned])
    is_unpinned_V = np.ones(spec.rows, bool)
    is_unpinned_V[pinned_N] = False
    loaded = len(np.unique(ids_N[is_unpinned_V[ids_N]]))
    # The ids of any one call must fit.
    most = max(int(_HEADROOM * loaded), *map(len, lookups))
    return CacheSize(pinned_N, min(most, spec.rows - pinned), loaded)
