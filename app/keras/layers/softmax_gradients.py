"""The negative log probability as a function of tables, with row-sparse gradients."""

from __future__ import annotations

import collections
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf
from tensorflow.python.eager import record  # no public function knows of a tape

from ...losses import inference, stream
from ...losses.base import Gather, NormalizedLoss, Part, Predictions
from ...losses.sampled_losses import SampledLoss
from ...losses.tree.hierarchical_softmax import HierarchicalSoftmax
from ...system import devices
from ...system.python_functions import custom_gradient
from ...system.xla import under_xla
from ...tables.device import VariableRows
from ...tables.row_reads import gather_unique
from ...types import HOST
from ..backend import model_of_step, weighs_samples
from ..optimizers.row_accumulation import Merged, RowUpdate, Streamed
from ..optimizers.row_sparse import RowSparse
from ..tables.table_variable import TableVariable
from ..tables.table_warnings import variable_bytes, variable_name

# Tables of this size are updated block by block. That reads each row once more: on two cores a step
# of 64 columns took 12 % longer, one of 300 columns was 17 % shorter.
_STREAMED_BYTES = 1 << 30

# Optimizers of Keras that use the gradients of another one.
_WRAPPERS = (keras.optimizers.LossScaleOptimizer, keras.optimizers.MultiOptimizer)

# Rows (V, D): a tensor in a stateless call of Keras.
_Rows: TypeAlias = tf.Variable | tf.Tensor | TableVariable


class Source(NamedTuple):
    """Where the rows of a table of a loss are.

    Attributes:
        variables: Variables with the columns of the table: their rows stand side by side.
        ids_V: The index in the variables of each row of the table; None for the same index.
    """

    variables: Sequence[_Rows]
    ids_V: tf.Variable | None = None

    def ids(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the indices in the variables of some rows of the table.

        Under XLA the largest int32 stays as it is, for no row.
        """
        if self.ids_V is None:
            return ids_U
        found_U = look_up(self.ids_V, ids_U)
        return tf.where(ids_U == ids_U.dtype.max, ids_U, found_U) if under_xla() else found_U

    def read(self, ids_U: tf.Tensor, read: Callable[[_Rows, tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return rows of the table, made of those that a function reads of each variable."""
        ids_U = self.ids(ids_U)
        parts = [read(rows, ids_U) for rows in self.variables]
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


Sources = Mapping[str, Source]  # by name of the table


def look_up(values_V: tf.Variable, ids_N: tf.Tensor) -> tf.Tensor:
    """Return the values of some ids, int32, from a variable of `tables.device.PreparedValues`."""
    with tf.device(HOST):  # where the variable is, but under XLA
        return tf.cast(tf.gather(values_V, ids_N), tf.int32)


def exact(
    loss: NormalizedLoss, tables: Sources, hidden_ND: tf.Tensor, targets_N: tf.Tensor
) -> tf.Tensor:
    """Return -log P of each target, float32 (N,), computed block by block of rows.

    The backward pass weights each target by its incoming gradient. It holds the gradients of all
    rows that were read, unless they are `Streamed`. Where that saves a pass over the rows, a block
    is differentiated where its losses are computed, as if all targets had the weight 1.

    Args:
        targets_N: The ranks of the targets, int32.
    """
    inputs = loss, tables, targets_N
    is_trained = record.could_possibly_record()

    @custom_gradient
    def forward(hidden_ND: tf.Tensor, *_):
        """Return -log P of each target; the tables are arguments only for their gradients."""
        known = None
        if is_trained:
            ones_N = tf.ones_like(targets_N, tf.float32)
            known = _WeightedLoss(*inputs, hidden_ND, ones_N).differentiate_ahead()
        if known is None:
            losses_N = -inference.log_probability(loss, hidden_ND, targets_N, gather_of(tables))
        else:
            losses_N = tf.add_n([each_N for each_N, *_ in known])

        def backward(upstream_N: tf.Tensor) -> tuple[Any, ...]:
            """Return the gradients by the vectors and by each table, weighted by target."""
            # TensorFlow orders uses of a variable, but not a loop that reads a file and the update
            # that writes it: the losses would be those of some new rows.
            with tf.control_dependencies([losses_N]):
                weights_N = _after(losses_N, upstream_N)
                return _WeightedLoss(*inputs, hidden_ND, weights_N).gradients(known)

        return losses_N, backward

    return forward(hidden_ND, *_watched(tables))


def _after(first: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return values that are computed after others.

    XLA orders nothing by itself: it copies a table that one loop reads and another one writes. Of
    its own operations, it removes a barrier before it decides that.

    Args:
        first: A float32 tensor of a shape that fits.
    """
    if under_xla():
        return tf.where(first > math.inf, first, values)  # which XLA does not know to be False
    with tf.control_dependencies([first]):
        return tf.identity(values)


def of_lookups(
    loss: SampledLoss | HierarchicalSoftmax,
    tables: Sources,
    hidden_ND: tf.Tensor,
    targets_N: tf.Tensor,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Return the loss of each target, float32 (N,), by the rows that the loss looks up.

    Args:
        targets_N: The ranks of the targets, int32.
        seed: The seed of samples, int64 (2,). All targets share the samples.
    """
    targets_N1 = targets_N[:, tf.newaxis]
    with tf.device(HOST):  # as `training.gradients` does
        lookups = loss.lookups(targets_N1, tf.size(targets_N), seed)
    rows = gather_unique(lookups, lambda name, ids_U: tables[name].read(ids_U, _look_up))
    weights_N11 = tf.ones_like(targets_N, tf.float32)[:, tf.newaxis, tf.newaxis]
    return loss.vector_losses(Predictions(hidden_ND[:, tf.newaxis], targets_N1, weights_N11), rows)


def gather_of(tables: Sources) -> Gather:
    """Return a function that gathers rows, float32 (U, D), by the table's name and ids (U,)."""
    return lambda name, ids_U: tables[name].read(ids_U, _gather)


def _gather(rows: _Rows, ids_U: tf.Tensor) -> tf.Tensor:
    """Return the rows of some ids, float32 (U, D), without a gradient."""
    if isinstance(rows, TableVariable):
        return rows.gather(ids_U)
    return (
        VariableRows(rows).gather(ids_U) if isinstance(rows, tf.Variable) else _look_up(rows, ids_U)
    )


def _look_up(rows: _Rows, ids_U: tf.Tensor) -> tf.Tensor:
    """Return the rows of some ids, float32 (U, D), with a row-sparse gradient."""
    if isinstance(rows, TableVariable):
        return rows.look_up(ids_U)
    return tf.cast(tf.gather(rows, ids_U), tf.float32)


# Of a part: the loss of each vector, the gradients by the vectors, and the ids of rows and the
# gradients by them, which can be missing.
_OfPart: TypeAlias = tuple[tf.Tensor, tf.Tensor, Sequence[tf.Tensor]]


class _WeightedLoss:
    """The loss of some targets, each with a weight, in parts that are not yet computed."""

    def __init__(
        self,
        loss: NormalizedLoss,
        tables: Sources,
        targets_N: tf.Tensor,
        hidden_ND: tf.Tensor,
        weights_N: tf.Tensor,
    ):
        self._tables, self._hidden_ND, self._weights_N = tables, hidden_ND, weights_N
        self._gather = gather_of(tables)
        seed = tf.zeros(2, tf.int64)  # not used: these losses draw no samples
        targets_N1 = targets_N[:, tf.newaxis]
        lookups = loss.lookups(targets_N1, tf.size(targets_N), seed)
        self._rows = gather_unique(lookups, self._gather)
        self._values = {name: rows.values_UD for name, rows in self._rows.items()}
        with tf.GradientTape(watch_accessed_variables=False) as self._tape:
            self._tape.watch((hidden_ND, self._values))
            weights_N11 = weights_N[:, tf.newaxis, tf.newaxis]
            predictions = Predictions(hidden_ND[:, tf.newaxis], targets_N1, weights_N11)
            _, self._parts = loss.loss(predictions, self._rows)
        counts = collections.Counter([*self._rows, *(part.table for part in self._parts)])
        once = {part.table for part in self._parts if counts[part.table] == 1}
        self._streamed = {name for name in once if _can_stream(tables[name])}

    def differentiate_ahead(self) -> list[_OfPart] | None:
        """Return the losses and gradients by part if the backward pass saves a pass by them.

        Those by rows are computed if all targets should have one weight, and a step does not wait
        for a GPU to know. Under XLA that was no faster on a CPU, and 1.6 times as slow otherwise.
        """
        waits = under_xla() or devices.has_gpu()
        has_rows = not waits and not weighs_samples()
        if not (has_rows or self._streamed):
            return None
        return self._differentiate(self._streamed if has_rows else {*self._tables})

    def _differentiate(self, later: set[str]) -> list[_OfPart]:
        """Return the losses and the gradients by part, without those by rows of some tables."""
        updates = [(lambda *_: None) if part.table in later else None for part in self._parts]
        return [
            stream.differentiate(part, self._gather, update, by_vector=True)
            for part, update in zip(self._parts, updates, strict=True)
        ]

    def gradients(self, known: list[_OfPart] | None) -> tuple[Any, ...]:
        """Return the gradients by the hidden vectors, then by each table, row-sparse, in order.

        Args:
            known: The result of `differentiate_ahead` for weights of 1.
        """
        known = self._differentiate(self._streamed) if known is None else self._scaled(known)
        by_hidden, by_values = self._tape.gradient(
            [part.hidden_ND for part in self._parts],
            (self._hidden_ND, self._values),
            output_gradients=[by_vectors for _, by_vectors, _ in known],
            unconnected_gradients="zero",
        )
        found: dict[str, list[Any]] = {
            name: [(rows.ids_U, by_values[name])] for name, rows in self._rows.items()
        }
        for part, (_, by_vectors, by_rows) in zip(self._parts, known, strict=True):
            if part.table in self._streamed:
                # The rows are read once more where their gradient is applied.
                source = self._tables[part.table]
                by_rows = _streamed(source, part, by_vectors, gather=self._gather)
            found.setdefault(part.table, []).append(by_rows)
        return by_hidden, *(
            gradient
            for name, source in self._tables.items()
            for gradient in (
                found[name]
                if name in self._streamed
                # Under XLA the ids of rows to read repeat the first.
                else _slices(source, found[name], not (under_xla() and name in self._rows))
            )
        )

    def _scaled(self, known: list[_OfPart]) -> list[_OfPart]:
        """Return the losses and gradients for the weights of this loss; see `gradients`."""
        weights_N = self._weights_N
        one = tf.reduce_sum(weights_N[:1])  # 0 if there are none
        is_one, found = tf.reduce_all(weights_N == one), []
        for part, (losses_N, by_vectors, by_rows) in zip(self._parts, known, strict=True):
            # A vector without a loss is not in the part, where its weight, maybe NaN, has no place.
            is_out_N = (losses_N == 0) & ~tf.math.is_finite(weights_N)
            weights_N1 = tf.where(is_out_N, 0.0, weights_N)[:, tf.newaxis]
            weighted_ND = weights_N1 * tf.cast(by_vectors, tf.float32)
            again = functools.partial(self._read_again, part)
            if by_rows:
                ids_U, values_UD = by_rows
                by_rows = tf.cond(is_one, lambda u=ids_U, v=values_UD: (u, one * v), again)
            elif part.table not in self._streamed:
                by_rows = again()
            found.append((losses_N, tf.cast(weighted_ND, by_vectors.dtype), by_rows))
        return found

    def _read_again(self, part: Part) -> tuple[tf.Tensor, ...]:
        """Return the ids of the rows of a part and the gradients by them."""
        return tuple(stream.differentiate(part, self._gather, by_rows_alone=True)[2])


def _can_stream(source: Source) -> bool:
    """Return whether the gradient of a table is applied block by block.

    It is in a training step of Keras itself, which writes no row between the gradient and the
    update, unless the optimizer needs it as a whole. Warns of that for a large table.
    """
    (rows, *others), optimizer = source.variables, getattr(model_of_step(), "optimizer", None)
    if others or source.ids_V is not None or variable_bytes(rows) < _STREAMED_BYTES:
        return False
    if isinstance(optimizer, _WRAPPERS):
        reason: str | None = type(optimizer).__name__
    elif isinstance(optimizer, RowSparse):
        reason = optimizer.needs_whole()
    else:
        return False
    if reason:
        warnings.warn(
            f"{variable_name(rows)}: {reason} needs the gradients of all rows that a step reads, "
            "which are in memory at once; without it, rows are updated block by block",
            stacklevel=2,
        )
    return reason is None


def _streamed(source: Source, part: Part, by_hidden: tf.Tensor, *, gather: Gather) -> Streamed:
    """Return the gradient of a table that has a part of the loss and no other.

    Args:
        by_hidden: The gradient of the part by its vectors, which is computed before rows change.
    """

    def visit(update: RowUpdate) -> None:
        """Give the gradients of each block of rows to a function that may write them."""
        first = tf.cast(tf.reduce_sum(by_hidden[:1]), tf.float32)
        stream.differentiate(
            part,
            gather,
            lambda _, ids_U, rows_UD, by_rows: update(ids_U, rows_UD, _after(first, by_rows)),
            by_rows_alone=True,
        )

    def read() -> Merged:
        """Return the whole gradient."""
        _, _, by_rows = stream.differentiate(part, gather, by_rows_alone=True)
        (merged,) = _slices(source, [tuple(by_rows)], True)
        return merged

    return Streamed(visit, read, tf.constant(source.variables[0].shape.as_list(), tf.int64))


def _slices(
    source: Source, gradients: list[tuple[tf.Tensor, tf.Tensor]], are_unique: bool
) -> Iterator[tf.IndexedSlices]:
    """Yield float32 gradients of rows, pairs of ids and values, as one for each variable.

    Args:
        are_unique: Whether no row repeats in one of the pairs. One pair then becomes a `Merged`.
    """
    ids, values = zip(*gradients, strict=True)
    ids_U = source.ids(ids[0] if len(ids) == 1 else tf.concat(ids, axis=0))
    values_UD = values[0] if len(values) == 1 else tf.concat(values, axis=0)
    kind = Merged if len(gradients) == 1 and are_unique else tf.IndexedSlices
    shapes = [rows.shape.as_list() for rows in source.variables]
    parts = (
        tf.split(values_UD, [shape[1] for shape in shapes], axis=1) if shapes[1:] else [values_UD]
    )
    for shape, part in zip(shapes, parts, strict=True):
        yield kind(part, ids_U, tf.constant(shape, tf.int64))


def _watched(tables: Sources) -> list[tf.Tensor]:
    """Return the tensors through which a custom gradient passes the gradients of the tables.

    It would read a variable whole, but not the handle of a variable.
    """
    return [_watch(rows) for source in tables.values() for rows in source.variables]


def _watch(rows: _Rows) -> tf.Tensor:
    """Return the tensor through which a custom gradient passes the gradient of some rows."""
    if isinstance(rows, TableVariable):
        return rows.watched()
    if not isinstance(rows, tf.Variable):
        return rows
    rows.sparse_read(tf.zeros([0], tf.int32))  # which makes gradient tapes watch the variable
    return rows.handle
