"""Which operations a compiled function makes."""

from __future__ import annotations


def executed(function) -> list[str]:
    """The types of the operations that a concrete function's results or effects depend on."""
    graph = function.graph
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    seen = {}
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen[operation.name] = operation.type
            waiting += [tensor.op for tensor in operation.inputs] + operation.control_inputs
    return list(seen.values())
