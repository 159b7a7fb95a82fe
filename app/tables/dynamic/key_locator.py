"""The location of keys in dynamic tables before a call of steps (see `tables.dynamic.dynamic`).

Keys are looked up on the host, by a Python operation. Inside a compiled step, that operation would
have no GPU kernel, and the other operations would wait for it. So the ids of all steps of a call
are looked up before the call, which then uses row numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...types import HOST, LocatedData
from ..base import Table
from ..prefetch import InPlace
from .dynamic import DynamicTable


class KeyLocator(InPlace):
    """Gives each batch the row numbers of its ids in dynamic tables; other tables are unchanged.

    All ids of a call are counted before the call, so that no row of the call is evicted for
    another one. The key map counts an id once for each lookup in a training step;
    padding counts, too.

    Args:
        tables: The tables by name. A key of a dynamic table gets a row when it is first seen; none
            of them is streamed by a loss.
        lookups: Gives the padded ids (S, N) that a batch looks up, by table (see
            `training.step.lookup_function`).
    """

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
            """Return by dynamic table the unique ids of S steps, their inverse and their counts."""
            ids = lookups(data, first)
            flat = {name: tf.reshape(ids[name], [-1]) for name in self._dynamic}
            return {name: tuple(tf.unique_with_counts(ids_N)) for name, ids_N in flat.items()}

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
            unique = self._unique_ids(data, first)
        for name, (ids_U, *_) in unique.items():
            if ids_U.shape[0] > self._dynamic[name].rows:
                raise RunError(
                    f"table {name!r} has {self._dynamic[name].rows:,} rows, but the {steps} steps "
                    f"of one call need {ids_U.shape[0]:,} different ones; give a greater "
                    "--table_gb, or a lower --batch_tokens or --steps_per_call"
                )
        rows = {}
        for name, (ids_U, inverse_N, counts_U) in unique.items():
            inverse_SN = inverse_N.numpy().reshape(steps, -1)
            step_U = np.empty(ids_U.shape[0], np.int64)  # the last step that looks up each id
            for step, inverse in enumerate(inverse_SN):
                step_U[inverse] = step
            table = self._dynamic[name]
            rows_U = table.see(ids_U.numpy(), counts_U.numpy(), steps, step_U)
            rows[name] = tf.constant(rows_U[inverse_SN])
        return LocatedData(data, rows)
