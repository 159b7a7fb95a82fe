"""The gradients of a training step: computed for each micro-batch and added by row.

The functions here change no row, with one exception: a loss that streams blocks of rows can
update each block at once (see `compute_gradients`). `training.step` applies the gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..losses import stream
from ..losses.base import Gather
from ..losses.stream import Update
from ..models.base import Model, Outcome
from ..system import devices
from ..system.xla import under_xla
from ..tables.base import plain_ids
from ..tables.row_reads import join_partitions, split_partitions, unique, without_padding
from ..types import HOST, PHASES, Batch, Rows, UniqueIds

# Bytes of the gradients of a streamed loss that a program of XLA has in memory at once. They are
# added by id for several micro-batches, and for tied words.
_MOST = 1 << 30


class Lookup(NamedTuple):
    """The unique rows of a table that a batch needs.

    Attributes:
        rows_U: The ids to read the rows by: the row numbers where `Batch.rows` has them, otherwise
            `ids_U`; `training.step` locates them (see `Table.locate`).
        inverse_N: For each id of the batch its index in `rows_U`, int32; None for `UniqueIds`.
        ids_U: The ids of the rows, as the model names them.
        table: The name of the table.
    """

    rows_U: tf.Tensor
    inverse_N: tf.Tensor | None
    ids_U: tf.Tensor
    table: str


# Takes pairs of the name of a table and numbers of its rows (N,), and returns for each pair what
# `row_reads.unique` does.
UniqueRows = Callable[[Sequence[tuple[str, tf.Tensor]]], Sequence[tuple[tf.Tensor, tf.Tensor]]]
Lookups = Mapping[str, Lookup]  # by the name of the table; partition n of its ids is `NAME/n`


class RowGradients(NamedTuple):
    """Gradients of the loss by some rows of one table.

    Attributes:
        ids_U: Unique ids of the rows (see `Lookup.rows_U`).
        values_UD: The gradients; for a table that is not trained, the new rows. Float32.
    """

    ids_U: tf.Tensor
    values_UD: tf.Tensor


class StepGradients(NamedTuple):
    """The loss of one or more micro-batches and its gradients.

    Attributes:
        loss: The sum over all examples, a float32 scalar.
        examples: The number of examples, a float32 scalar.
        gradients: The row gradients of each trained table that has some, by name.
        state: The new rows of each table that is not trained, by name.
        rows: The values (U, D) of the rows in `gradients`, by table, where they are known.
        is_streamed: Whether `gradients` has rows of a streamed loss. Their number is known only
            after the gradients are computed.
    """

    loss: tf.Tensor
    examples: tf.Tensor
    gradients: dict[str, RowGradients]
    state: dict[str, RowGradients]
    rows: Mapping[str, tf.Tensor] = {}
    is_streamed: bool = False


def phase(name: str) -> tf.name_scope:
    """Return a name scope that marks operations in a profile as belonging to a phase of the step.

    Args:
        name: One of `PHASES`; another name raises an AssertionError.
    """
    assert name in PHASES
    return tf.name_scope(f"{name}/")  # the slash enters the same scope in every step


def unique_rows_of_any(
    ids: Sequence[tuple[str, tf.Tensor]],
) -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
    """Return the unique ids and the inverse of each list of ids, by `unique` (see `UniqueRows`)."""
    return [unique(ids_N) for _, ids_N in ids]


def make_lookups(
    model: Model, batch: Batch, is_split: bool = False, unique_rows: UniqueRows = unique_rows_of_any
) -> Lookups:
    """Return the unique rows of each table that a batch looks up, by name; read no rows.

    Args:
        batch: One micro-batch. For a table in `batch.rows`, `rows_U` of the lookup has row numbers;
            for other tables it has the ids themselves. `ids_U` always has the ids.
        is_split: Whether each partition of ids (see `Model.lookups`) is a lookup of its own.
            Otherwise all partitions are one lookup.
        unique_rows: Finds the unique rows.

    Returns:
        A `Lookup` for each table of `model.lookups(batch)`, in host memory, by first appearance.
        The partitions of a table have the names `NAME/0`, `NAME/1` and so on.
    """
    with phase("lookup"), tf.device(HOST):
        # By the name of the lookup: the table, the ids, and the numbers of their rows where known.
        parts: dict[str, tuple[str, tf.Tensor | UniqueIds, tf.Tensor | None]] = {}
        for table, ids in model.lookups(batch).items():
            partitions, rows = split_partitions(ids), batch.rows.get(table)
            if not is_split or len(partitions) == 1:
                parts[table] = table, join_partitions(ids), rows
                continue
            located = [None] * len(partitions)
            if isinstance(ids, UniqueIds) and rows is not None:
                split = split_partitions(ids._replace(ids_N=tf.reshape(rows, [-1])))
                located = [partition.ids_N for partition in split]
            for number, pair in enumerate(zip(partitions, located, strict=True)):
                parts[f"{table}/{number}"] = table, *pair
        numbers = {
            name: (table, tf.reshape(ids if rows is None else rows, [-1]))
            for name, (table, ids, rows) in parts.items()
            if not isinstance(ids, UniqueIds)
        }
        unique_of = dict(zip(numbers, unique_rows([*numbers.values()]), strict=True))
        return {name: _make_lookup(*part, unique_of.get(name)) for name, part in parts.items()}


def _make_lookup(
    table: str,
    ids: tf.Tensor | UniqueIds,
    rows: tf.Tensor | None,
    found: tuple[tf.Tensor, tf.Tensor] | None,
) -> Lookup:
    """Return the lookup of ids; `rows` are their row numbers if known.

    `found` has the unique rows and the inverse; it is None for `UniqueIds`.
    """
    if isinstance(ids, UniqueIds):
        ids_U = without_padding(ids, ids.ids_N)
        rows_U = ids_U if rows is None else without_padding(ids, tf.reshape(rows, [-1]))
        return Lookup(rows_U, None, ids_U, table)
    rows_U, inverse_N = found
    if rows is None:
        return Lookup(rows_U, inverse_N, rows_U, table)
    # Each id has its own row. TensorFlow removes the ids where the model does not use them.
    ids_U = tf.math.unsorted_segment_min(tf.reshape(ids, [-1]), inverse_N, tf.size(rows_U))
    return Lookup(rows_U, inverse_N, ids_U, table)


def compute_gradients(
    model: Model,
    gather: Gather,
    batches: Sequence[Batch],
    update: Update | None = None,
    lookups: Sequence[Lookups] | None = None,
    unique_rows: UniqueRows = unique_rows_of_any,
) -> StepGradients:
    """Return the loss of the micro-batches of one step and its gradients by the rows.

    All micro-batches read the same rows, and their gradients are added by row. No row changes here,
    unless `update` is given.

    Args:
        update: Called with each block of a streamed loss as soon as its gradients are known, so
            that memory holds one block. Only for a single micro-batch. By default the gradients
            of all blocks are part of the result.
        lookups: The result of `make_lookups` for each micro-batch, where already known.
        unique_rows: Finds the unique rows of a micro-batch, and those of all of them.

    Returns:
        The loss and the gradients. It has `rows` only for a single micro-batch without gradients of
        a streamed loss.
    """
    assert update is None or len(batches) == 1, "the micro-batches of a step read the same rows"
    lookups = lookups or [make_lookups(model, each, unique_rows=unique_rows) for each in batches]
    return add_gradients(
        [
            gradients
            for batch, known in zip(batches, lookups, strict=True)
            for gradients in _differentiate(model, gather, batch, update, known)
        ],
        unique_rows,
    )


def _differentiate(
    model: Model,
    gather: Gather,
    batch: Batch,
    update: Update | None,
    lookups: Lookups,
) -> Iterator[StepGradients]:
    """Yield the gradients of a micro-batch, then the gradients of each streamed part.

    With `update`, the rows of the streamed parts are updated instead, and not yielded, unless the
    model also looks up rows of their table: a row is updated once, by all of its gradient.
    """
    looked_up = {lookup.table for lookup in lookups.values()}
    with phase("gather"):
        values = {name: gather(lookup.table, lookup.rows_U) for name, lookup in lookups.items()}
    with phase("loss"), tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        rows = _rows_by_table(lookups, values)
        total, examples, parts, state = Outcome(*model.loss(batch, rows))
    streamed = []
    for part in parts:
        assert part.table not in batch.rows, "a streamed loss addresses its rows by id"
        is_read = part.table in looked_up
        at_once = None if is_read else update
        if at_once is None and part.padded is not None and part.padded.gradient_bytes > _MOST:
            flags = ["--micro_batches=1"] * (update is None) + ["--notie_weights"] * is_read
            raise tf.errors.UnimplementedError(
                None,
                None,
                f"the gradients of table {part.table!r} would take {part.padded.gradient_bytes:,} "
                f"bytes for each of the micro-batches; with {' and '.join(flags)} XLA can",
            )
        streamed.append(stream.differentiate(part, gather, at_once))
    with phase("gradient"):
        by_rows = tape.gradient(
            [total, *(part.hidden_ND for part in parts)],
            {name: values[name] for name in values if name not in state},
            output_gradients=[tf.ones_like(total), *(by_hidden for _, by_hidden, _ in streamed)],
        )
    by_rows = {name: tf.convert_to_tensor(rows_UD) for name, rows_UD in by_rows.items()}
    for name, rows_UD in by_rows.items():
        rows_UD.set_shape(values[name].shape)
    yield StepGradients(
        tf.add_n([total, *(loss for loss, *_ in streamed)]),
        examples,
        {name: RowGradients(lookups[name].rows_U, rows_UD) for name, rows_UD in by_rows.items()},
        {name: RowGradients(lookups[name].rows_U, rows_UD) for name, rows_UD in state.items()},
        values,
    )
    for part, (*_, of_part) in zip(parts, streamed, strict=True):
        if of_part:
            by_table = {part.table: RowGradients(*of_part)}
            yield StepGradients(tf.zeros([]), tf.zeros([]), by_table, {}, is_streamed=True)


def _rows_by_table(lookups: Lookups, values: Mapping[str, tf.Tensor]) -> dict[str, Rows]:
    """Return the rows of each table, as the model reads them."""
    rows: dict[str, Rows] = {}
    for name, lookup in lookups.items():
        of_lookup = Rows(values[name], lookup.inverse_N, lookup.ids_U)
        if name != lookup.table:
            before = rows.get(lookup.table, Rows(None, None))
            of_lookup = before._replace(partitions=[*before.partitions, of_lookup])
        rows[lookup.table] = of_lookup
    return rows


def add_gradients(
    parts: Sequence[StepGradients], unique_rows: UniqueRows = unique_rows_of_any
) -> StepGradients:
    """Add the losses, the examples and the gradients by row, with each id once in the result.

    The parts may have different ids and tables. The rows must not have changed between the parts.

    Args:
        parts: The gradients of micro-batches or of replicas. The ids in `state` must differ between
            the parts, as the new rows of an id would be added, too.
        unique_rows: Finds the unique rows of all parts.

    Returns:
        The sum, without `rows`; a single part as it is. It is streamed if any part is.
    """
    if len(parts) == 1:
        return parts[0]
    with phase("gradient"):
        sums = _add_by_table([{**part.gradients, **part.state} for part in parts], unique_rows)
        trained = {name for part in parts for name in part.gradients}
        return StepGradients(
            tf.add_n([part.loss for part in parts]),
            tf.add_n([part.examples for part in parts]),
            {name: rows for name, rows in sums.items() if name in trained},
            {name: rows for name, rows in sums.items() if name not in trained},
            is_streamed=any(part.is_streamed for part in parts),
        )


def _add_by_table(
    parts: Sequence[Mapping[str, RowGradients]], unique_rows: UniqueRows
) -> dict[str, RowGradients]:
    """Return the sum of gradients for each table, with each row once; a part may lack tables."""
    by_table: dict[str, list[RowGradients]] = {}
    for name, rows in itertools.chain.from_iterable(part.items() for part in parts):
        by_table.setdefault(name, []).append(rows)
    sums = {name: of_table[0] for name, of_table in by_table.items() if len(of_table) == 1}
    repeated = [(name, of_table) for name, of_table in by_table.items() if name not in sums]
    with tf.device(HOST):
        ids = [
            (name, tf.concat([plain_ids(rows.ids_U) for rows in of_table], axis=0))
            for name, of_table in repeated
        ]
        found = unique_rows(ids)
    for (name, of_table), (ids_U, inverse_N) in zip(repeated, found, strict=True):
        sums[name] = RowGradients(ids_U, _add_rows(of_table, inverse_N, tf.size(ids_U)))
    return sums


def _add_rows(parts: Sequence[RowGradients], inverse_N: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return the sums (U, D) of gradients of one table.

    Args:
        inverse_N: For each row of all parts its index among the sums, int32.
    """
    if not (under_xla() or devices.has_gpu()):
        values_ND = tf.concat([part.values_UD for part in parts], axis=0)
        return tf.math.unsorted_segment_sum(values_ND, inverse_N, count)
    # A GPU adds the values of a row in any order. So the parts, which have no row twice, are added
    # one by one: all replicas have to make the same sums, bit for bit.
    sums_UD = tf.zeros([count, parts[0].values_UD.shape[1]])
    sizes = [tf.size(plain_ids(part.ids_U)) for part in parts]
    for part, inverse_M in zip(parts, tf.split(inverse_N, sizes), strict=True):
        sums_UD = tf.tensor_scatter_nd_add(sums_UD, inverse_M[:, tf.newaxis], part.values_UD)
    return sums_UD
