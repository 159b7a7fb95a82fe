"""What a call of S steps does differently when XLA compiles it to one program.

A GPU takes less time for most kernels of a step than for starting them. So a program has few:
the ids of all steps are drawn at once, unique rows are found without a sort, and tables that are
alike are updated together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla  # no public way to stop XLA's fusion

from ..models.base import Model, Padded, Preparable
from ..tables.base import Table
from ..tables.joined import JoinedTable, kind
from ..tables.row_reads import unique, unique_by_representative
from ..types import Batch
from .gradients import RowGradients


def loop_over_steps(
    model: Model,
    make_step: Callable[[Any, list[Batch], tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    split: Callable[[Any, tf.Tensor], list[Batch]],
    data_S: Any,
    first: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Make S steps, and return the result of the first.

    The other steps are a loop, in which XLA computes no loss, as nothing needs it. If the model has
    a form for usual batches, the program has two such loops, of which a call runs one.

    Args:
        make_step: Makes a step of a model: takes it, the micro-batches and the number of the step.
        split: Returns the micro-batches of a step, from its data and the number of steps before it.
        data_S: The data of the steps, a nest of tensors (S, ...).
        first: The number of steps before these, an int64 scalar.
    """
    count = tf.nest.flatten(data_S)[0].shape[0]
    steps_S = data_S, first + tf.range(count, dtype=tf.int64)
    make_steps = functools.partial(_make_steps, make_step, split, steps_S, count)
    usual: Any = model.for_usual_batches() if isinstance(model, Padded) else None
    if usual is None:
        return make_steps(model)
    fits_S = tf.vectorized_map(
        lambda step: tf.stack([usual.fits(batch) for batch in split(*step)]), steps_S
    )
    return tf.cond(tf.reduce_all(fits_S), lambda: make_steps(usual), lambda: make_steps(model))


def _make_steps(
    make_step: Callable[[Any, list[Batch], tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    split: Callable[[Any, tf.Tensor], list[Batch]],
    steps_S: tuple[Any, tf.Tensor],
    count: int,
    model: Model,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Make the steps of `loop_over_steps`; `steps_S` has the arguments of `split` for each."""

    def prepare(step: tuple[Any, tf.Tensor]) -> list[tuple[Any, Mapping[str, Any]]]:
        """Return the data of each micro-batch of a step, prepared, and the ids that it looks up."""
        batches = split(*step)
        if isinstance(model, Preparable):
            batches = [model.prepare(batch) for batch in batches]
        return [(batch.data, model.lookups(batch)) for batch in batches]

    def make(index: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
        """Make one of the steps."""
        step, prepared = tf.nest.map_structure(
            lambda tensor_S: tensor_S[index], (steps_S, prepared_S)
        )
        batches, prepared = split(*step), prepared or prepare(step)
        lookups = {}  # by micro-batch, of which a replica has some
        for place, (data, ids) in enumerate(prepared):
            batches[place] = batches[place]._replace(data=data)
            lookups[batches[place].part] = ids
        known = SimpleNamespace(lookups=lambda batch: lookups[batch.part], loss=model.loss)
        return make_step(known, batches, step[1] + 1)

    def body(index: tf.Tensor) -> tuple[tf.Tensor]:
        """Make one of the steps, and return the index of the next."""
        make(index)
        return (index + 1,)

    try:
        prepared_S = tf.vectorized_map(prepare, steps_S, fallback_to_while_loop=False)
    except ValueError:  # it lacks an operation of this model, so each step prepares itself
        prepared_S = ()
    result = make(0)
    # XLA makes one CUDA graph of an iteration only if it knows the number of iterations.
    tf.while_loop(lambda index: index < count, body, (tf.constant(1),), parallel_iterations=1)
    return result


class Representatives:
    """Finds unique rows with little work for XLA (see `UniqueRows`).

    It keeps a number for each row, in the device on which `prepare` is called.
    """

    def __init__(self) -> None:
        self._places: dict[str, range] = {}  # by table: the places of its numbers
        self._indices: tf.Variable | None = None

    def prepare(self, tables: Mapping[str, Table]) -> None:
        """Make the numbers, unless they exist already; call it before a graph is traced."""
        if self._indices is None:
            rows = 0
            for name, table in tables.items():
                self._places[name] = range(rows, rows + table.rows)
                rows += table.rows
            # A GPU has no kernels for variables of int32.
            indices = tf.Variable(tf.zeros([rows], tf.uint32), trainable=False)
            # Within the scope of replicas, as for a plan, the copy of the first one.
            self._indices = tf.distribute.get_strategy().experimental_local_results(indices)[0]

    def __call__(
        self, ids: Sequence[tuple[str, tf.Tensor]]
    ) -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
        """Return the unique rows."""
        if not ids or any(ids_N.shape[0] is None for _, ids_N in ids):
            return [unique(ids_N) for _, ids_N in ids]
        places = [self._places[name] for name, _ in ids]
        return unique_by_representative([ids_N for _, ids_N in ids], places, self._indices)


def join_alike(
    tables: Mapping[str, Table],
    gradients: Mapping[str, RowGradients],
    rows: Mapping[str, tf.Tensor],
) -> list[tuple[Any, Any, tf.Tensor, tf.Tensor | None]]:
    """Return the arguments of `update_rows` for all tables, where tables that are alike are one.

    Args:
        gradients: The gradients of rows by name.
        rows: The values of these rows by name, where they are known.

    Returns:
        For each update: the table, the ids of its rows, their gradients, and their values or None.
    """
    alike: dict[Any, list[str]] = {}
    for name, table in tables.items():
        if name in gradients:
            is_known = name in rows and gradients[name].ids_U.shape[0] is not None
            alike.setdefault(kind(table) if is_known else name, []).append(name)
    updates: list[tuple[Any, Any, tf.Tensor, tf.Tensor | None]] = []
    for names in alike.values():
        ids = [gradients[name].ids_U for name in names]
        values = [gradients[name].values_UD for name in names]
        if len(names) == 1:
            updates.append((tables[names[0]], ids[0], values[0], rows.get(names[0])))
            continue
        joined = JoinedTable([tables[name] for name in names])
        before_ND = tf.concat([rows[name] for name in names], axis=0)
        updates.append((joined, ids, tf.concat(values, axis=0), before_ND))
    if len(updates) < 2:
        return updates
    # Otherwise XLA's compiler for a GPU reads rows of one table again for the gradients of another,
    # after the first has been written, and keeps a copy of it whole for that.
    known = xla.optimization_barrier(*(gradients_UD for _, _, gradients_UD, _ in updates))
    return [(*update[:2], known[i], update[3]) for i, update in enumerate(updates)]
