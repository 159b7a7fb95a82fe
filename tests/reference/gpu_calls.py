"""What code that runs eagerly would do on a GPU, and which functions it calls.

Scores and predictions are partly computed so, operation by operation, between functions that are
compiled. Each operation is looked at as it runs, on the CPU, under the device that the code asks
for; `tests.reference.gpu` looks at the functions.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import op_callbacks, op_def_registry

from tests.reference import gpu


class Calls(NamedTuple):
    """Eager operations without a GPU kernel, those with one, and the functions, by name."""

    lacking: set[tuple[str, tuple[str, ...]]]
    operations: set[str]
    functions: dict[str, ConcreteFunction]


@contextlib.contextmanager
def recorded(monkeypatch: Any) -> Iterator[Calls]:
    """Give what this thread runs, once it has run.

    An operation that the code puts on the CPU, and a string, is none of a GPU.
    """
    calls = Calls(set(), set(), {})
    following = ConcreteFunction._call_flat

    def call(function: ConcreteFunction, *arguments: Any, **named: Any) -> Any:
        if tf.executing_eagerly():
            calls.functions[function.name] = function
        return following(function, *arguments, **named)

    def see(kind, inputs, attributes, outputs, op_name=None, graph=None) -> None:
        definition = op_def_registry.get(kind)  # a function has none
        on_cpu = "CPU" in (context.context().device_name or "")
        if graph is not None or definition is None or on_cpu:
            return
        kind = tf.compat.as_str(kind)
        if gpu.kernel(kind, _Attributes(definition, attributes)) is None:
            tensors = [t for t in (*inputs, *outputs) if t.dtype != tf.resource]
            calls.lacking.add((kind, tuple(tensor.dtype.name for tensor in tensors)))
        else:
            calls.operations.add(kind)

    monkeypatch.setattr(ConcreteFunction, "_call_flat", call)
    op_callbacks.add_op_callback(see)
    try:
        yield calls
    finally:
        op_callbacks.remove_op_callback(see)
        monkeypatch.setattr(ConcreteFunction, "_call_flat", following)


class _Attributes:
    """The attributes of an eager operation, as those of an operation of a graph."""

    def __init__(self, definition: Any, attributes: tuple):
        self._given = dict(zip(attributes[::2], attributes[1::2], strict=True))
        self._usual = {attr.name: attr.default_value for attr in definition.attr}

    def __getitem__(self, name: str) -> Any:
        if name not in self._given:
            return self._usual[name]
        found = tf.compat.v1.AttrValue()
        given = self._given[name]
        if isinstance(given, (list, tuple)):
            found.list.type.extend(tf.as_dtype(each).as_datatype_enum for each in given)
        elif isinstance(given, (bytes, str)):
            found.s = tf.compat.as_bytes(given)
        else:
            found.type = tf.as_dtype(given).as_datatype_enum
        return found
