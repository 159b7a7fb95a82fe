"""The memory that a step needs beside its tables, computed from its graph without running it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..auditing.graphs import VIEWS, called_graphs, executed
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..tables.device import DeviceTable
from ..types import HOST, Batch
from .step import train_step

# The fraction of the ids of a step that are unique. Measured on English text: 0.5 for 4,096 ids,
# 0.6 with negative samples.
_UNIQUE = 0.6
# Operations whose results take no memory of the step.
_FREE = ("Placeholder", "Const", "ReadVariableOp")


def step_bytes(model: Model, optimizer: Optimizer, data: Any) -> int:
    """Trace a training step and return about how many bytes of tensors it holds at its peak.

    The tables themselves are not counted. The step has one micro-batch. It is traced with tables of
    one row each on the CPU and not run; a trace can take minutes. A size that the graph does not
    know is taken to be the unique ids of the largest lookup: 0.6 times its ids, rounded up, but at
    most the rows of its table. A second one of the same tensor is that of the next lookup.

    Args:
        model: Gives the lookups and the loss.
        optimizer: Changes the rows.
        data: The data of one step, without a dimension of steps, as a nest of tensor specs.
    """
    specs = model.tables()  # not within the trace, where initial values would become constants
    with tf.device(HOST):  # one row is enough: the step is traced, not run
        tables = {  # made here, as a traced function must not create variables
            name: DeviceTable(1, spec.columns, tf.zeros, slots=optimizer.slots)
            for name, spec in specs.items()
        }
    unique: list[int] = []

    @tf.function(autograph=False)
    def one(data: Any) -> tf.Tensor:
        """Trace one step on `data`, add its lookups to `unique`, and return its loss."""
        batch = Batch(data, tf.zeros([2], tf.int64))
        for name, lookup in model.lookups(batch).items():
            ids = max(part.shape.num_elements() or 0 for part in tf.nest.flatten(lookup))
            unique.append(min(math.ceil(_UNIQUE * ids), specs[name].rows))
        number, rate = tf.constant(1, tf.int64), tf.constant(0.1)
        return train_step(model, tables, optimizer, [batch], rate, number)[0]

    graph = one.get_concrete_function(data).graph
    return peak_bytes(graph, sorted(unique, reverse=True) or [0])


def peak_bytes(graph: tf.Graph, unknown: Sequence[int]) -> int:
    """Return the bytes of all live tensors at the moment when they take the most.

    The operations are assumed to run in the order of the graph. An operation needs its inputs and
    its results at once, and the peak of the largest function that it calls. Arguments, constants
    and variables count as 0 bytes, and a view (see `VIEWS`) counts as the tensor that it views.

    Args:
        graph: The graph of a traced function.
        unknown: The sizes to assume for the dimensions of a tensor that the graph does not know;
            the last is used again for further ones.
    """
    operations = executed(graph)
    buffer: dict[str, str] = {}  # a view -> the tensor that owns its memory
    last: dict[str, int] = {}  # a tensor -> the last operation that reads it
    for index, operation in enumerate(operations):
        for tensor in operation.inputs:
            last[buffer.get(tensor.name, tensor.name)] = index
        if operation.type in VIEWS:
            for source, view in zip(operation.inputs, operation.outputs, strict=False):
                buffer[view.name] = buffer.get(source.name, source.name)
    sizes: dict[str, int] = {}
    alive = peak = 0
    for index, operation in enumerate(operations):
        if operation.type not in (*VIEWS, *_FREE):
            for tensor in operation.outputs:
                sizes[tensor.name] = _bytes(tensor, unknown)
                alive += sizes[tensor.name]
        called = (peak_bytes(inner, unknown) for inner in called_graphs(operation))
        peak = max(peak, alive + max(called, default=0))
        for tensor in (*operation.inputs, *operation.outputs):
            name = buffer.get(tensor.name, tensor.name)
            if last.get(name, index) == index:
                alive -= sizes.pop(name, 0)
    return peak


def _bytes(tensor: tf.Tensor, unknown: Sequence[int]) -> int:
    """Return the bytes of a tensor, with the sizes `unknown` for its unknown dimensions.

    Return 0 if the rank or the size of the dtype is not known.
    """
    if tensor.shape.rank is None or not tensor.dtype.size:
        return 0
    known = [size for size in tensor.shape if size is not None]
    missing = len(tensor.shape) - len(known)
    assumed = [*unknown, *[unknown[-1]] * missing][:missing]
    return math.prod([*known, *assumed]) * tensor.dtype.size
