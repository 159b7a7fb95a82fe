"""What a traced function makes that is as large as a table."""

import tensorflow as tf


def as_large_as(function: tf.types.experimental.ConcreteFunction, rows: int) -> list[str]:
    """The types of all operations, called functions included, with a result of so many rows."""
    definition = function.graph.as_graph_def(add_shapes=True)
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return [
        node.op
        for node in nodes
        if any(
            shape.dim and shape.dim[0].size == rows
            for shape in node.attr["_output_shapes"].list.shape
        )
    ]
