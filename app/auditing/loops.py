"""The look-ups of a function that are inside its loops; their gradients are dense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from .graphs import CALLS, VIEWS, called_graphs

_LOOPS = ("While", "StatelessWhile")
_GATHERS = ("ResourceGather", "ResourceGatherNd", "Gather", "GatherV2", "GatherNd")


def look_ups_in_loops(
    function: Any, variables: Mapping[str, tf.Variable]
) -> dict[str, tuple[str, ...]]:
    """Return the loops in which a function gathers rows of variables.

    TensorFlow adds up the gradients of all passes of a loop. It does so with dense tensors, of the
    shape of the variable, even if the gradient of one pass is row-sparse (tf.IndexedSlices).

    Args:
        function: A traced function, a ConcreteFunction.
        variables: Its variables by name.

    Returns:
        For each variable with such a look-up, the names of the loops, as `call/loop/`. The name of
        an operation inside a loop begins with the name of the loop.
    """
    names: dict[int, str] = {}
    for name, variable in variables.items():
        several = isinstance(variable, tf.distribute.DistributedValues)
        for part in variable.values if several else (variable,):
            names.setdefault(id(part.handle), name)
    inner = {internal.name: names.get(id(outer)) for outer, internal in function.graph.captures}
    loops: dict[str, tuple[str, ...]] = {}
    arguments = [inner.get(tensor.name) for tensor in function.graph.inputs]
    _walk(function.graph, arguments, "", (), loops)
    return loops


def _walk(
    graph: tf.Graph,
    arguments: Sequence[str | None],
    scope: str,
    inside: tuple[str, ...],
    loops: dict[str, tuple[str, ...]],
) -> None:
    """Add the loops of the look-ups in a graph, and in the functions that it calls, to `loops`.

    Args:
        graph: The graph of a function.
        arguments: For each input, the name of the variable that it is the handle or value of.
        scope: The names of the calls that contain the function, as `call/call/`.
        inside: The names of the loops that contain the function.
        loops: The result.
    """
    names = {t.name: name for t, name in zip(graph.inputs, arguments, strict=True) if name}
    for op in graph.get_operations():
        inputs = [names.get(tensor.name) for tensor in op.inputs]
        if op.type in CALLS:
            _, skipped = CALLS[op.type]
            below = f"{scope}{op.name}/"
            around = (*inside, below) if op.type in _LOOPS else inside
            for body in called_graphs(op):
                _walk(body, inputs[skipped:], below, around, loops)
        elif op.type in VIEWS or op.type == "ReadVariableOp":
            pairs = zip(op.outputs, inputs, strict=False)
            names |= {tensor.name: name for tensor, name in pairs if name}
        elif op.type in _GATHERS and inside and inputs[0]:
            loops[inputs[0]] = tuple(dict.fromkeys((*loops.get(inputs[0], ()), *inside)))
