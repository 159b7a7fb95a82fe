"""The row gradients of batches, before any row is changed: theirs, their sum, and as one vector.

Who trains one batch in place does without (see `training.step`). Micro-batches that share a step
are differentiated by the same rows, and their gradients are summed by row; what replicas tell one
another of them is one flat vector, so that a step takes one exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..losses import stream
from ..losses.base import Gather, Part
from ..models.base import Model, Outcome
from ..tables.row_reads import unique
from ..types import HOST, PHASES, Batch, Rows

# From a part of a loss to its value, and to its gradient by the hidden vectors.
Streamed = Callable[[Part], tuple[tf.Tensor, tf.Tensor]]


class Lookup(NamedTuple):
    """Distinct rows of a table that a batch looks up.

    rows_U: By what the table knows them: ids, or row numbers where `Batch.rows` has those.
    inverse_N: The place of each id that was asked for among them, int32.
    ids_U: Their ids, as models know them.
    """

    rows_U: tf.Tensor
    inverse_N: tf.Tensor
    ids_U: tf.Tensor


Wanted = Mapping[str, Lookup]  # by table


class Touched(NamedTuple):
    """Rows of a table and what is to become of them.

    ids_U: distinct, by what the table knows them (see `Lookup.rows_U`). values_UD: their gradients;
    of a table that is not trained, new rows.
    """

    ids_U: tf.Tensor
    values_UD: tf.Tensor


class Found(NamedTuple):
    """What batches give: their loss, summed, and examples, float32 scalars; touched rows by table.

    state: of tables that are not trained. is_streamed: whether some rows are of a loss that streams
    them, so that how many there are is known when they are differentiated only.
    """

    loss: tf.Tensor
    examples: tf.Tensor
    gradients: dict[str, Touched]
    state: dict[str, Touched]
    is_streamed: bool = False


def phase(name: str) -> tf.name_scope:
    """The name that a profile shows for operations; a slash enters the same scope at every step."""
    assert name in PHASES
    return tf.name_scope(f"{name}/")


def looked_up(model: Model, batch: Batch) -> Wanted:
    """Return the distinct rows that a batch needs of each table."""
    with phase("lookup"), tf.device(HOST):
        return {
            name: _lookup(ids, batch.rows.get(name)) for name, ids in model.lookups(batch).items()
        }


def _lookup(ids: tf.Tensor, rows_N: tf.Tensor | None) -> Lookup:
    """Return the distinct rows of these ids; rows_N: their row numbers, if these are known."""
    if rows_N is None:
        ids_U, inverse_N = unique(ids)
        return Lookup(ids_U, inverse_N, ids_U)
    # In the same order, as a row has one id; a graph leaves out the ids that no model looks at.
    return Lookup(*unique(rows_N), unique(ids)[0])


def of_batch(
    model: Model, gather: Gather, batch: Batch, streamed: Streamed, wanted: Wanted | None = None
) -> tuple[Found, dict[str, tf.Tensor]]:
    """What a batch gives, and the rows that it was differentiated by, (U, D), by table.

    streamed: works off the parts of the loss, whose rows are not among those. wanted: as of
    `looked_up`, if that is known.
    """
    wanted = wanted or looked_up(model, batch)
    with phase("gather"):
        values = {name: gather(name, lookup.rows_U) for name, lookup in wanted.items()}
    with phase("loss"), tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        rows = {
            name: Rows(values[name], lookup.inverse_N, lookup.ids_U)
            for name, lookup in wanted.items()
        }
        total, examples, parts, state = Outcome(*model.loss(batch, rows))
    by_part = [streamed(part) for part in parts]
    with phase("gradient"):
        gradients = tape.gradient(
            [total, *(part.hidden_ND for part in parts)],
            {name: values[name] for name in values if name not in state},
            output_gradients=[tf.ones_like(total), *(by_hidden for _, by_hidden in by_part)],
        )
    gradients = {name: tf.convert_to_tensor(rows_UD) for name, rows_UD in gradients.items()}
    for name, rows_UD in gradients.items():
        rows_UD.set_shape(values[name].shape)
    found = Found(
        tf.add_n([total, *(loss for loss, _ in by_part)]),
        examples,
        {name: Touched(wanted[name].rows_U, rows_UD) for name, rows_UD in gradients.items()},
        {name: Touched(wanted[name].rows_U, rows_UD) for name, rows_UD in state.items()},
    )
    return found, values


def collected(
    model: Model,
    gather: Gather,
    batches: Sequence[Batch],
    devices: Mapping[str, str],
    wanted: Sequence[Wanted] | None = None,
) -> Found:
    """What micro-batches give together, all differentiated by the same rows.

    Rows that a loss streams are touched ones like others, all in memory at once. devices: of the
    tables, by name, for those. wanted: of each micro-batch, as of `looked_up`, if that is known.
    """
    found, is_streamed = [], False
    for batch, known in zip(batches, wanted or [None] * len(batches), strict=True):
        touched: list[tuple[str, Touched]] = []

        def streamed(
            part: Part, touched: list = touched, batch: Batch = batch
        ) -> tuple[tf.Tensor, tf.Tensor]:
            assert part.table not in batch.rows, "a loss that streams rows knows them by their ids"
            with tf.device(devices[part.table]):
                loss, by_hidden, ids_U, by_rows = stream.gradients(part, gather)
            touched.append((part.table, Touched(ids_U, by_rows)))
            return loss, tf.cast(by_hidden, part.hidden_ND.dtype)

        of_one, _ = of_batch(model, gather, batch, streamed, known)
        found.append(of_one)
        found += [Found(tf.zeros([]), tf.zeros([]), {name: rows}, {}) for name, rows in touched]
        is_streamed = is_streamed or bool(touched)
    return together(found)._replace(is_streamed=is_streamed)


def together(found: Sequence[Found]) -> Found:
    """Their sum, by row."""
    if len(found) == 1:
        return found[0]
    with phase("gradient"):
        return Found(
            tf.add_n([one.loss for one in found]),
            tf.add_n([one.examples for one in found]),
            _by_table([one.gradients for one in found]),
            _by_table([one.state for one in found]),
        )


def _by_table(found: Sequence[Mapping[str, Touched]]) -> dict[str, Touched]:
    names = dict.fromkeys(name for tables in found for name in tables)
    return {name: merged([tables[name] for tables in found if name in tables]) for name in names}


def merged(touched: Sequence[Touched]) -> Touched:
    """Rows of one table, each once, with the sum of its values."""
    if len(touched) == 1:
        return touched[0]
    with tf.device(HOST):
        ids_U, positions_N = unique(tf.concat([rows.ids_U for rows in touched], axis=0))
    values_ND = tf.concat([rows.values_UD for rows in touched], axis=0)
    return Touched(ids_U, tf.math.unsorted_segment_sum(values_ND, positions_N, tf.size(ids_U)))


def length(columns: Sequence[int], sizes: Sequence[tf.Tensor], flags: int = 1) -> tf.Tensor:
    """The numbers of a vector of `pack`, of tables of so many columns and touched rows."""
    rows = [size * (1 + width) for size, width in zip(sizes, columns, strict=True)]
    return tf.add_n(rows) + _head(len(rows), flags)


def _head(tables: int, flags: int) -> int:
    return tables + 2 + flags


def pack(found: Found, flags: tf.Tensor, size: tf.Tensor | None = None) -> tf.Tensor:
    """All of it and some numbers as one float32 vector.

    It begins with the rows of each table, as bits of int32, the loss, the examples and the flags;
    after that come, for each table, the ids, as bits of int32, and the values. size: of the vector,
    if that is to be longer.
    """
    every = [*found.gradients.values(), *found.state.values()]
    sizes = [tf.size(rows.ids_U) for rows in every]
    told = [tf.stack([found.loss, found.examples]), tf.reshape(flags, [-1])]
    body = [
        tf.reshape(part, [-1])
        for rows in every
        for part in (_as_float(tf.cast(rows.ids_U, tf.int32)), rows.values_UD)
    ]
    if size is not None:
        columns = [rows.values_UD.shape[1] for rows in every]
        body.append(tf.zeros([size - length(columns, sizes, told[1].shape[0])]))
    return tf.concat([_as_float(tf.stack(sizes)), *told, *body], axis=0)


def unpack(
    vectors: tf.Tensor, count: int, like: Found, flags: int = 1, size: tf.Tensor | None = None
) -> tuple[Found, tf.Tensor]:
    """What `count` vectors of `pack`, one after the other, hold together, and the sums of `flags`
    flags.

    like: what one of them was made of: tells the tables, their columns and the dtype of ids. size:
    of each vector, if that was given to `pack`.
    """
    every = {**like.gradients, **like.state}
    start, found, every_flag = tf.constant(0), [], []
    for number in range(count):
        at = start if size is None else number * size
        head = vectors[at : at + _head(len(every), flags)]
        sizes = tf.unstack(tf.bitcast(head[: len(every)], tf.int32), num=len(every))
        loss, examples = tf.unstack(head[len(every) : len(every) + 2], num=2)
        every_flag.append(head[len(every) + 2 :])
        at += _head(len(every), flags)
        touched = {}
        for (name, rows), rows_here in zip(every.items(), sizes, strict=True):
            columns = rows.values_UD.shape[1]
            ids_U = tf.bitcast(vectors[at : at + rows_here], tf.int32)
            at += rows_here
            values = vectors[at : at + rows_here * columns]
            at += rows_here * columns
            values_UD = tf.reshape(values, (-1, columns))
            touched[name] = Touched(tf.cast(ids_U, rows.ids_U.dtype), values_UD)
        found.append(
            Found(
                loss,
                examples,
                {name: touched[name] for name in like.gradients},
                {name: touched[name] for name in like.state},
            )
        )
        start = at
    return together(found), tf.add_n(every_flag)


def _as_float(values_N: tf.Tensor) -> tf.Tensor:
    """The bits of int32 numbers, which are copied on their way and never computed with."""
    return tf.bitcast(values_N, tf.float32)
