"""Which operations a compiled function makes."""

from app.system import graphs


def executed(function) -> list[str]:
    """The types of the operations that a concrete function's results or effects depend on."""
    return [operation.type for operation in graphs.executed(function.graph)]
