"""What a step takes beside its tables, told from its graph without running it."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from ..auditing.graphs import CALLS, VIEWS, executed
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..optimizers.row_updates import slots
from ..tables.base import Table
from ..types import Batch
from .step import step

# Share of the ids of a step that are distinct: 0.5 for 4,096 of English text's, 0.6 with samples.
_DISTINCT = 0.6
# Made by somebody else, or with the graph.
_GIVEN = ("Placeholder", "Const", "ReadVariableOp")


class Outline:
    """A `tables.base.Table` without rows: what is read is zeros, what is written is lost."""

    def __init__(self, rows: int, columns: int, device: str = ""):
        self.rows, self.columns, self.device = rows, columns, device
        self.slots: dict[str, Outline] = {}
        self._written = tf.Variable(0.0, trainable=False)  # or a graph would leave out writing

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Zeros, (U, D)."""
        return tf.zeros((tf.size(ids_U), self.columns))

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Does nothing that is seen."""
        self._written.assign(tf.reduce_sum(delta_UD))

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Does nothing that is seen."""
        self._written.assign(tf.reduce_sum(rows_UD))

    def slot(self, name: str, columns: int, initial: float) -> Outline:
        """Another one."""
        if name not in self.slots:
            self.slots[name] = Outline(self.rows, columns, self.device)
        return self.slots[name]

    def bytes(self) -> int:
        """None."""
        return 0

    def is_finite(self) -> bool:
        """Zeros are."""
        return True


def step_bytes(model: Model, optimizer: Optimizer, data: Any) -> int:
    """About the bytes of all tensors that a step holds at a time.

    data: the nest of tensor specs of its `Batch`.
    """
    tables: dict[str, Table] = {}
    for name, spec in model.tables().items():
        tables[name] = Outline(spec.rows, spec.columns)
        slots(optimizer, tables[name])  # as a variable must not be made while it is traced
    most = 0

    @tf.function(autograph=False)
    def one(data: Any) -> tf.Tensor:
        nonlocal most
        batch = Batch(data, tf.zeros([2], tf.int64))
        # One rather small table is read whole; an unknown size is that of the largest look-up.
        most = max(ids.shape.num_elements() or 0 for ids in model.lookups(batch).values())
        number, rate = tf.constant(1, tf.int64), tf.constant(0.1)
        return step(model, tables, optimizer, batch, rate, number)[0]

    graph = one.get_concrete_function(data).graph
    return peak_bytes(graph, math.ceil(_DISTINCT * most))


def peak_bytes(graph: tf.Graph, unknown: int) -> int:
    """The bytes of the tensors alive at the worst moment, if operations ran in the graph's order.

    unknown: what a dimension counts as that is known when the function runs only. An operation's
    results are there before its inputs are freed. Of functions that are called, the largest counts.
    """
    operations = executed(graph)
    buffer: dict[str, str] = {}  # whose buffer a tensor has
    last: dict[str, int] = {}
    for index, operation in enumerate(operations):
        for tensor in operation.inputs:
            last[buffer.get(tensor.name, tensor.name)] = index
        if operation.type in VIEWS:
            for given, made in zip(operation.inputs, operation.outputs, strict=False):
                buffer[made.name] = buffer.get(given.name, given.name)
    sizes: dict[str, int] = {}
    alive = peak = 0
    for index, operation in enumerate(operations):
        if operation.type not in (*VIEWS, *_GIVEN):
            for tensor in operation.outputs:
                sizes[tensor.name] = _bytes(tensor, unknown)
                alive += sizes[tensor.name]
        peak = max(peak, alive + max(_called(operation, unknown), default=0))
        for tensor in (*operation.inputs, *operation.outputs):
            name = buffer.get(tensor.name, tensor.name)
            if last.get(name, index) == index:
                alive -= sizes.pop(name, 0)
    return peak


def _called(operation: tf.Operation, unknown: int) -> list[int]:
    """The peaks of the functions that an operation calls."""
    attributes, _ = CALLS.get(operation.type, ((), 0))
    named = [operation.get_attr(attribute) for attribute in attributes]
    functions = [f for found in named for f in (found if isinstance(found, list) else [found])]
    return [
        peak_bytes(operation.graph._get_function(function.name).graph, unknown)
        for function in functions
    ]


def _bytes(tensor: tf.Tensor, unknown: int) -> int:
    if tensor.shape.rank is None or not tensor.dtype.size:
        return 0
    return math.prod(unknown if size is None else size for size in tensor.shape) * tensor.dtype.size
