"""Copies of the operations of a traced function in the graph that is being traced."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def copy_function(
    function: tf.types.experimental.ConcreteFunction, calls: Sequence[Sequence[tf.Tensor]]
) -> list[list[tf.Tensor]]:
    """Copy the operations of a traced function into the current graph, once for each call.

    A call of the function would run as a whole: what needs one of its results waits for all of
    them. Copied operations run as soon as their own inputs are there, beside those of other copies,
    as if the function were traced anew for each call. A copy takes a tenth of the time of a trace.

    Keep a reference to the function as long as the graph is used: it keeps the Python functions
    that its operations call.

    Args:
        function: The traced function.
        calls: The arguments of each call, flat.

    Returns:
        The results of each call, flat.
    """
    graph, source = tf.compat.v1.get_default_graph(), function.graph
    captured = [graph.capture(tensor) for tensor in function.captured_inputs]
    graph_def = source.as_graph_def()
    inputs = [placeholder.op.name for placeholder in function.inputs]
    nodes = [node for node in graph_def.node if node.name not in inputs]
    copied = tf.compat.v1.GraphDef(node=nodes, versions=graph_def.versions)
    used = {name for node in nodes for name in node.input}  # others may not be in `input_map`
    # Added here, the functions that it calls keep their graphs, which audits read.
    for called in source._functions.values():
        graph._add_function_recursive(called)
    return [
        tf.graph_util.import_graph_def(
            copied,
            {
                name: tensor
                for name, tensor in zip(inputs, [*arguments, *captured], strict=True)
                if name in used
            },
            [tensor.name for tensor in function.outputs],
            name="",
        )
        for arguments in calls
    ]
