"""Finds the rows of dynamic tables before the steps that need them (see `tables.dynamic.dynamic`).

Keys are looked up on the host. In a compiled step that is an operation of Python, for which there
is no kernel on a GPU, and for which the other operations of the step wait. So the ids of all steps
of a call are looked up before it, and the call is given row numbers: it trains on the plain rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import RunError
from ..models.base import Model
from ..tables.base import Table
from ..tables.dynamic.dynamic import DynamicTable
from ..types import Located
from .staging import InPlace
from .step import lookup_function


class Locating(InPlace):
    """Dynamic tables whose rows a call of steps knows by their numbers; others stay as they are.

    A training step is one step of the map of keys, in which each id is seen as often as all
    micro-batches of the step look it up. The ids of a call are counted together, before it is made,
    so that none of its rows is evicted for another.

    Args:
        model: Looks up rows of dynamic tables by id, and streams none of them.
        tables: By name. Keys of the dynamic ones get rows at first sight.
        seed: Of the run.
        micro_batches: Of each step.
    """

    def __init__(
        self, model: Model, tables: Mapping[str, Table], seed: int, micro_batches: int = 1
    ):
        self._dynamic = {n: table for n, table in tables.items() if isinstance(table, DynamicTable)}
        assert all(table.key_map.min_sightings == 1 for table in self._dynamic.values())
        super().__init__(
            {**tables, **{name: table.row_store for name, table in self._dynamic.items()}}
        )
        lookups = lookup_function(model, seed, micro_batches)

        @tf.function(autograph=False)
        def unique_ids(data: Any, first: tf.Tensor) -> dict[str, tuple[tf.Tensor, ...]]:
            found = lookups(data, first)
            return {name: tuple(tf.unique_with_counts(found[name])) for name in self._dynamic}

        self._unique_ids = unique_ids

    def locate(self, data: Any, first: tf.Tensor) -> Located:
        """Count the ids that the next call looks up, and return the batch with their rows.

        Args:
            data: The batch: a nest of tensors of S steps.
            first: The steps before it, int64.

        Raises:
            RunError: A table has too few rows for a call. All tables are as they were before.
        """
        steps = tf.nest.flatten(data)[0].shape[0]
        with tf.device("CPU:0"):  # where the batch is, so that nothing waits for a GPU
            found = self._unique_ids(data, first)
        for name, (ids_U, *_) in found.items():
            if ids_U.shape[0] > self._dynamic[name].rows:
                raise RunError(
                    f"table {name!r} has {self._dynamic[name].rows:,} rows, and {steps} steps, "
                    f"which are made in one call, need {ids_U.shape[0]:,} different ones; give a "
                    "greater --table_gb, or a lower --batch_tokens or --steps_per_call"
                )
        rows = {}
        for name, (ids_U, inverse_N, counts_U) in found.items():
            inverse_SN = inverse_N.numpy().reshape(steps, -1)
            step_U = np.empty(ids_U.shape[0], np.int64)
            for step, inverse in enumerate(inverse_SN):
                step_U[inverse] = step
            table = self._dynamic[name]
            rows_U = table.see(ids_U.numpy(), counts_U.numpy(), steps, step_U)
            rows[name] = tf.constant(rows_U[inverse_SN])
        return Located(data, rows)
