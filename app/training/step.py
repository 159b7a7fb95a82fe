"""The training step: compute the gradients of a batch, then apply them to the rows of the tables.

This is the one place where a model, its tables and an optimizer meet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..losses.base import gather_from
from ..models.base import Model
from ..optimizers.base import Optimizer, update_rows
from ..system.loops import unroll
from ..system.xla import CompiledIfPossible, from_uint32, under_xla
from ..tables.base import Table
from ..tables.cached import NONE
from ..tables.device import find_elsewhere
from ..tables.row_reads import join_partitions
from ..types import HOST, Batch, LocatedData, UniqueIds
from .compiled_steps import Representatives, join_alike, loop_over_steps
from .gradients import (
    Lookups,
    RowGradients,
    StepGradients,
    UniqueRows,
    compute_gradients,
    make_lookups,
    phase,
    unique_rows_of_any,
)

# Called as `train(data_S, first, rate)`: the data of S steps, the number of steps before them
# (int64), the learning rate (float32). Returns the loss of the first step, summed over its
# examples, and the number of these examples.
TrainFunction = Callable[[Any, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def train_step(
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    batches: Sequence[Batch],
    rate: tf.Tensor,
    number: tf.Tensor,
    unique_rows: UniqueRows = unique_rows_of_any,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Make one training step: read and update only the rows that its batches need.

    A loss that streams blocks of rows updates each block at once if the step has one micro-batch.

    Args:
        batches: The micro-batches of the step.
        rate: The learning rate, a float32 scalar.
        number: The number of the step, an int64 scalar, 1 for the first.
        unique_rows: Finds the unique rows of a table.

    Returns:
        The loss before the update, summed over the examples, and the number of examples.
    """

    def update_block(
        name: str, ids_U: tf.Tensor, rows_UD: tf.Tensor, gradients_UD: tf.Tensor
    ) -> None:
        """Clip the gradients of a block, alone, and update its rows; `rows_UD` are their values."""
        clipped_UD = optimizer.clip({name: gradients_UD})[name]
        update_rows(optimizer.rule, tables[name], ids_U, clipped_UD, rate, number, rows_UD)

    update = lookups = None
    if len(batches) == 1:  # the gradients of several are added by id
        by_name = make_lookups(model, batches[0], is_split=True, unique_rows=unique_rows)
        tables = {**tables, **{name: tables[lookup.table] for name, lookup in by_name.items()}}
        update, lookups = update_block, [_locate(by_name, tables)]
    gather = gather_from(tables)
    gradients = compute_gradients(model, gather, batches, update, lookups, unique_rows)
    apply_gradients(tables, optimizer, gradients, rate, number)
    return gradients.loss, gradients.examples


def _locate(lookups: Lookups, tables: Mapping[str, Table]) -> Lookups:
    """Return the lookups with `rows_U` located, once for both the gathers and the updates."""
    with phase("lookup"):
        return {
            name: lookup._replace(rows_U=tables[name].locate(lookup.rows_U))
            for name, lookup in lookups.items()
        }


def apply_gradients(
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    gradients: StepGradients,
    rate: tf.Tensor,
    number: tf.Tensor,
) -> None:
    """Clip the gradients of one step and update the rows of all tables by them.

    The new rows of tables that are not trained are assigned as they are.

    Args:
        optimizer: Clips the gradients and changes the rows.
        gradients: The gradients of the whole step.
        rate: The learning rate, a float32 scalar.
        number: The number of the step, an int64 scalar, 1 for the first.
    """
    found = gradients.gradients
    with phase("gradient"):  # all tables together
        clipped_UD = optimizer.clip({name: rows.values_UD for name, rows in found.items()})
    clipped = {n: RowGradients(found[n].ids_U, values_UD) for n, values_UD in clipped_UD.items()}
    with phase("update"):
        updates: Iterable[tuple[Any, ...]] = (
            (tables[name], *rows, gradients.rows.get(name)) for name, rows in clipped.items()
        )
        if under_xla():
            updates = join_alike(tables, clipped, gradients.rows)
        for table, ids_U, gradients_UD, rows_UD in updates:
            update_rows(optimizer.rule, table, ids_U, gradients_UD, rate, number, rows_UD)
        for name, (ids_U, rows_UD) in gradients.state.items():
            tables[name].assign(ids_U, rows_UD)


def train_function(
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    seed: int,
    micro_batches: int = 1,
    by_xla: bool = False,
) -> TrainFunction:
    """Return a compiled function that makes S steps in one call (see `TrainFunction`).

    It is traced at its first call. It returns the loss and the examples of the first step only:
    TensorFlow removes the other losses from the graph. Empty steps at the end of an epoch follow
    the others in their call, so the first step always has examples.

    Args:
        micro_batches: How many micro-batches each step has.
        by_xla: Whether XLA compiles a call to one program with a loop over the steps, if it can and
            all tables are then in one device (see `find_elsewhere`). On a GPU, where starting the
            operations of a step takes most of its time.
    """

    @tf.function(autograph=False)
    def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Make S steps, and return the loss and the number of examples of the first."""
        # The steps are unrolled. So the draws and lookups of a step run during the matrix products
        # of the step before.
        steps = split_steps(data_S, first, seed, micro_batches)
        calls = [(batches, rate, first + index + 1) for index, batches in enumerate(steps)]
        return unroll(functools.partial(train_step, model, tables, optimizer), calls)[0]

    if not by_xla:
        return train
    return _compile_by_xla(model, tables, optimizer, seed, micro_batches, train)


def _compile_by_xla(
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    seed: int,
    micro_batches: int,
    train: TrainFunction,
) -> TrainFunction:
    """Return `train` as one program with a loop over the steps, or `train` where XLA cannot."""
    unique_rows = Representatives()

    def prepare() -> str | None:
        """Prepare the search for unique rows, or return why XLA cannot compile the steps."""
        name = find_elsewhere(tables)
        if name is not None:
            return f"not all rows of table {name!r} are on the device of the steps"
        unique_rows.prepare(tables)
        return None

    by_xla = steps_by_xla(model, tables, optimizer, unique_rows, seed, micro_batches)
    return CompiledIfPossible(by_xla, train, "a call of steps", prepare)


def steps_by_xla(
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    unique_rows: UniqueRows,
    seed: int,
    micro_batches: int,
    parts: range | None = None,
    held: range | None = None,
) -> Any:
    """Return a `tf.function` that makes S steps, as one program with a loop over them.

    It is called as `TrainFunction`; integers of the data may be uint32 (see `xla.to_uint32`).

    Args:
        unique_rows: Finds the unique rows of a table.
        micro_batches: How many micro-batches each step has. For the other numbers see
            `split_steps`.
    """

    def split(data: Any, number: tf.Tensor) -> list[Batch]:
        """Return the micro-batches of one step."""
        return one_step(data, number, seed, micro_batches, parts, held)

    @tf.function(autograph=False, jit_compile=True)
    def train_by_xla(data_S: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Make S steps, in one program."""

        def make_step(
            model: Model, batches: list[Batch], number: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            """Make one of the steps."""
            return train_step(model, tables, optimizer, batches, rate, number, unique_rows)

        return loop_over_steps(model, make_step, split, data_S, first)

    return train_by_xla


def lookup_function(
    model: Model, seed: int, micro_batches: int = 1
) -> Callable[..., dict[str, tf.Tensor]]:
    """Return a compiled function that returns the ids of all lookups of S steps.

    It is called as `lookups(data_S, first)`, see `TrainFunction`, and returns for each table the
    ids of all lookups in order, with repetitions: (S, N) if all steps look up the same number of
    ids, otherwise (N,). A table that is streamed, too, is left out: its rows have no cache. `NONE`
    follows the ids of `UniqueIds`, so that all steps look up as many.
    """
    streamed = {name for name, spec in model.tables().items() if spec.is_streamed}

    def flat(ids: tf.Tensor | UniqueIds | list[tf.Tensor]) -> tf.Tensor:
        """Return the ids of one lookup, (N,)."""
        ids = join_partitions(ids)
        if isinstance(ids, UniqueIds):
            return tf.where(tf.range(ids.ids_N.shape[0]) < ids.counts_P, ids.ids_N, NONE)
        return tf.reshape(ids, [-1])

    @tf.function(autograph=False)
    def lookups(data_S: Any, first: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return by table the ids of all lookups of S steps, in order, with repetitions."""
        ids_by_table: dict[str, list[tf.Tensor]] = {}
        for batches in split_steps(data_S, first, seed, micro_batches):
            for batch in batches:
                with tf.device(HOST):
                    for name, ids in model.lookups(batch).items():
                        if name not in streamed:
                            ids_by_table.setdefault(name, []).append(flat(ids))
        with tf.device(HOST):
            joined = {name: tf.concat(ids, axis=0) for name, ids in ids_by_table.items()}
            steps = tf.nest.flatten(data_S)[0].shape[0]
            return {
                name: tf.reshape(ids, [steps, -1]) if ids.shape.is_fully_defined() else ids
                for name, ids in joined.items()
            }

    # TensorFlow would warn of calls that trace, in a process with several runs.
    return lambda data_S, first: lookups.get_concrete_function(data_S, first)(data_S, first)


def split_steps(
    data_S: Any,
    first: tf.Tensor,
    seed: int,
    micro_batches: int,
    parts: range | None = None,
    held: range | None = None,
) -> Iterator[list[Batch]]:
    """Yield the list of micro-batches of each of S steps.

    Args:
        data_S: A nest of tensors (S, N, ...), or `LocatedData`. Its micro-batches are equal parts
            along the second dimension; the data of each has the shape (N / len(held), ...).
        first: The number of steps before these, an int64 scalar.
        seed: The seed of the run. A micro-batch gets (seed, its number in the run) as its seed.
        micro_batches: How many micro-batches each step has.
        parts: The indices of the micro-batches to yield, by default all that the data has.
        held: The indices of the micro-batches that the data has, by default all of a step.
    """
    held = held or range(micro_batches)
    with tf.device(HOST):  # the data is there
        by_step = list(zip(*map(tf.unstack, tf.nest.flatten(data_S)), strict=True))
    for index, tensors in enumerate(by_step):
        batches = []
        with tf.device(HOST):
            split = [
                tf.split(tensor, len(held)) if len(held) > 1 else [tensor] for tensor in tensors
            ]
            for part in parts or held:
                pieces = [of_tensor[held.index(part)] for of_tensor in split]
                data = tf.nest.pack_sequence_as(data_S, pieces)
                data, rows = data if isinstance(data, LocatedData) else (data, {})
                seeds = tf.constant(seed, tf.int64), (first + index) * micro_batches + part
                batches.append(Batch(data, tf.stack(seeds), part, rows))
        yield batches


def one_step(data: Any, number: tf.Tensor, *args: Any) -> list[Batch]:
    """Return the micro-batches of one step that XLA compiles; see `split_steps`.

    Args:
        data: The data of the step, a nest of tensors (N, ...).
        number: The number of steps before it, an int64 scalar.
        args: The other arguments of `split_steps`.
    """
    data_1 = tf.nest.map_structure(lambda tensor: from_uint32(tensor)[tf.newaxis], data)
    (batches,) = split_steps(data_1, number, *args)
    return batches
