"""Where the operations of a traced function would run on a GPU, and what would cross on the way.

TensorFlow's wheel lists its GPU kernels even where there is no GPU, so that a graph that is traced
under `tf.device("GPU:0")` tells all of it. The rules are those of TensorFlow's placer and executor:

* An operation without a GPU kernel for its dtypes runs on the CPU (soft placement), and so does one
  that was put there, or that reads or writes a variable there.
* A GPU kernel has some of its inputs and outputs in host memory (`host_memory_arg`): nearly all
  arithmetic on int32 runs on the host. A kernel that is registered for DEFAULT runs on a GPU too.
* What passes a loop or a condition is in host memory if it is int32, and else on the device
  (`MemoryTypesForNode` in tensorflow/core/framework/memory_types.cc).
* What XLA compiles has its inputs and outputs on the device where it is called.

A tensor in the one memory that is needed in the other is copied. From device to host the step waits
for all work that was given to the device before.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import kernels

from app.system.graphs import CALLS, executed

HOST, DEVICE = "host", "device"
LOOP = " while("  # in what XLA makes of a function; on a GPU each iteration is launched by itself
_XLA = "_XlaMustCompile"
_NO_KERNEL = ("Placeholder",)  # the arguments of a function
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


class Value(NamedTuple):
    """A tensor of some run: what made it, its dtype, and the memory that it is in."""

    name: str
    made_by: str
    dtype: tf.DType
    memory: str


class Copy(NamedTuple):
    """A tensor that is in one memory and needed in the other."""

    value: Value
    to: str
    needed_by: str
    name: str


class Report(NamedTuple):
    """The operations without a GPU kernel, (type, dtypes), with a name; copies; XLA's functions."""

    lacking: dict[tuple[str, tuple[str, ...]], str]
    copies: list[Copy]
    compiled: dict[str, Any]


def report(function: Any, on_cpu: Sequence[tf.Variable] = ()) -> Report:
    """What a call of a concrete function, traced under GPU:0, would do.

    on_cpu: variables in host memory; all others are taken to be on the GPU.
    """
    walk = _Walk()
    graph = function.graph
    there = {id(variable.handle) for variable in on_cpu}
    on_gpu = {
        inner.name
        for outer, inner in graph.captures
        if id(outer) not in there and not _is_on_host(outer)
    }
    arguments = [
        Value(tensor.name, "argument", tensor.dtype, DEVICE if tensor.name in on_gpu else HOST)
        for tensor in graph.inputs
    ]
    walk.walk(graph, arguments, "")
    return Report(walk.lacking, list(walk.copies.values()), walk.compiled)


def lowered(function: Any) -> str:
    """Return what XLA makes of a function for a GPU.

    A dimension that is not static is taken to be the first one of an argument where that is, as
    such functions are called by groups, or else 16.
    """
    inputs = function.graph.inputs
    usual = next((t.shape[0] for t in inputs if t.shape.rank and t.shape[0]), 16)
    specs = [
        tf.TensorSpec([usual if size is None else size for size in tensor.shape], tensor.dtype)
        for tensor in inputs
    ]
    call = tf.function(lambda *arguments: function(*arguments), autograph=False, jit_compile=True)
    return call.experimental_get_compiler_ir(*specs)(stage="hlo", platform_name="GPU")


class _Walk:
    def __init__(self):
        self.lacking: dict[tuple[str, tuple[str, ...]], str] = {}
        self.copies: dict[tuple[str, str], Copy] = {}
        self.compiled: dict[str, Any] = {}

    def walk(self, graph, arguments, scope: str) -> list[Value]:
        values = {t.name: v for t, v in zip(graph.inputs, arguments, strict=True)}
        for op in _in_order(executed(graph)):
            if op.type in _NO_KERNEL:
                continue
            made = self._run(op, [values[tensor.name] for tensor in op.inputs], scope)
            values |= {tensor.name: value for tensor, value in zip(op.outputs, made, strict=True)}
        return [values[tensor.name] for tensor in graph.outputs]

    def _run(self, op, inputs, scope) -> list[Value]:
        name = scope + op.name
        if op.type in CALLS:
            return self._call(op, inputs, name)
        if op.type == "Identity":  # which TensorFlow prunes
            return inputs
        if _folds(op, inputs):
            dtypes = [tensor.dtype for tensor in op.outputs]
            at = [HOST if dtype == tf.int32 else _place(op) for dtype in dtypes]
            return [Value(name, "Const", *each) for each in zip(dtypes, at, strict=True)]
        found = kernel(op.type, op.node_def.attr)
        resources = [value.memory for value in inputs if value.dtype == tf.resource]
        on_cpu = _place(op) == HOST or HOST in resources
        if found is None and not on_cpu:
            dtypes = [t.dtype for t in (*op.inputs, *op.outputs) if t.dtype != tf.resource]
            self.lacking.setdefault((op.type, tuple(dtype.name for dtype in dtypes)), name)
        if on_cpu or found is None:
            needed, made = [HOST] * len(inputs), [HOST] * len(op.outputs)
        else:
            needed = _memories(op, op.op_def.input_arg, found)
            made = _memories(op, op.op_def.output_arg, found)
        for value, memory in zip(inputs, needed, strict=True):
            self._need(value, memory, op.type, name)
        return _values(op, name, "Const" if op.type == "HostConst" else op.type, made)

    def _call(self, op, inputs, name) -> list[Value]:
        attributes, skipped = CALLS[op.type]
        named = [f for a in attributes for f in _listed(op.get_attr(a))]
        functions = [op.graph._get_function(f.name) for f in named]
        definitions = [getattr(f, "definition", None) or f.function_def for f in functions]
        if any(d.attr[_XLA].b for d in (op.node_def, *definitions) if _XLA in d.attr):
            if _place(op) == DEVICE:
                self.compiled[functions[0].name] = functions[0]
            for value in inputs:
                self._need(value, _place(op), "XLA", name)
            return _values(op, name, "XLA", [_place(op)] * len(op.outputs))
        for value in inputs[:skipped]:
            self._need(value, HOST, op.type, name)
        arguments = inputs[skipped:]
        if op.type not in _LOOPS + _BRANCHES:
            (function,) = functions
            return self.walk(function.graph, arguments, f"{name}/")
        passed = [self._passed(v, op.type, name) for v in arguments]
        results = [self.walk(f.graph, passed, f"{name}/") for f in functions]
        if op.type in _LOOPS:
            condition, body = results
            self._need(condition[0], HOST, "LoopCond", name)
            results = [body]
        for result in results:
            for value in result:
                self._passed(value, op.type, name)
        outputs = zip(op.outputs, results[0], strict=True)
        return _values(op, name, op.type, [_passing(t.dtype, v.memory) for t, v in outputs])

    def _passed(self, value: Value, kind, name) -> Value:
        memory = _passing(value.dtype, value.memory)
        self._need(value, memory, kind, name)
        return value._replace(memory=memory, made_by=kind)  # no constant within

    def _need(self, value, memory, kind, name) -> None:
        if value.memory != memory and value.dtype not in (tf.resource, tf.string):
            self.copies.setdefault((value.name, memory), Copy(value, memory, kind, name))


def _is_on_host(captured: tf.Tensor) -> bool:
    """Whether a GPU has no such resource: a variable of int32, say, or a map of keys."""
    if captured.dtype != tf.resource:
        return False
    data = getattr(captured, "_handle_data", None)
    if data is None or not data.is_set:
        return True
    dtype = tf.compat.v1.AttrValue(type=data.shape_and_type[0].dtype)
    return kernel("VarHandleOp", {"dtype": dtype}) is None


def _in_order(operations: list[tf.Operation]) -> list[tf.Operation]:
    """Each after those that make its inputs; a gradient adds inputs to a loop that is there."""
    found: dict[str, tf.Operation] = {}
    waiting = operations[::-1]
    while waiting:
        op = waiting[-1]
        before = [tensor.op for tensor in op.inputs if tensor.op.name not in found]
        if before and op.name not in found:
            waiting += before
        else:
            found.setdefault(op.name, waiting.pop())
    return list(found.values())


def _folds(op, inputs) -> bool:
    """Whether TensorFlow makes a constant of it before anything runs."""
    if op.op_def.is_stateful or not op.inputs:
        return False
    if op.type in ("Shape", "Size", "Rank"):
        return op.inputs[0].shape.is_fully_defined()
    return all(value.made_by == "Const" for value in inputs)


def _listed(named):
    return named if isinstance(named, list) else [named]


def _passing(dtype, memory):
    if dtype == tf.resource:
        return memory
    return HOST if dtype in (tf.int32, tf.string) else DEVICE


def _place(op) -> str:
    return HOST if "CPU" in op.device else DEVICE


def _values(op, name, kind, memories) -> list[Value]:
    made = enumerate(zip(op.outputs, memories, strict=True))
    return [Value(f"{name}:{i}", kind, tensor.dtype, memory) for i, (tensor, memory) in made]


@functools.cache
def _kernels(kind: str):
    found = kernels.get_registered_kernels_for_op(kind).kernel
    return [k for device in ("GPU", "DEFAULT") for k in found if k.device_type == device]


def kernel(kind: str, attributes: Any) -> Any:
    """Return the kernel that a GPU would take, or None.

    Args:
        kind: Of the operation.
        attributes: Its attributes by name, as of a node of a graph.
    """
    for found in _kernels(kind):
        if all(_fits(attributes[part.name], part.allowed_values.list) for part in found.constraint):
            return found
    return None


def _fits(given: Any, allowed: Any) -> bool:
    if allowed.s:
        return given.s in allowed.s
    return set(given.list.type or [given.type]) <= set(allowed.type)


def _memories(op, arguments, kernel) -> list[str]:
    found = []
    for argument in arguments:
        if argument.number_attr:
            count = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        else:
            count = 1
        found += [HOST if argument.name in kernel.host_memory_arg else DEVICE] * count
    return found
