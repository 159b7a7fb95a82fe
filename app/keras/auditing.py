"""The audit of a step: operations that read, copy or write whole tables, and its report.

A step that trains a table row by row has none of them. The search runs nothing.

A ReadVariableOp normally returns the variable's own buffer, without a copy. The first operation
that reads or writes single rows by the variable's handle (`EnsureSparseVariableAccess` of
tensorflow/core/kernels/training_op_helpers.h) puts the variable into copy-on-read mode for good.
From then on, every ReadVariableOp and every write of the whole variable first copies it
(resource_variable_ops.cc). Code compiled by XLA has no such mode.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..system.console import aligned, size_text
from ..system.graphs import CALLS, VIEWS, called_graphs, executed, number, shape_of
from .step_parts import replicas_of

# Two cores move 30 GB/s, so a pass over fewer bytes takes less time than a step on rows, 1 ms.
LEAST_BYTES = 16 << 20

_XLA = "_XlaMustCompile"

# Operations on a variable's handle that read or write single rows; and that read no row.
_BY_ROW = ("ResourceGather", "ResourceScatter", "ResourceSparse", "ResourceStridedSliceAssign")
_ASIDE = ("VariableShape", "VarIsInitializedOp", "DisableCopyOnRead")
# Operations on a tensor that take rows; that take a part; that read its shape only.
_TAKES = ("Gather", "GatherV2", "GatherNd", "SparseSegment")
_SLICES = ("Slice", "StridedSlice")
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
# Operations whose results are not computed by the step.
_GIVEN = ("Placeholder", "Const")

_TENSORFLOW = str(pathlib.PurePath(tf.__file__).parent)
_READ = "look rows up with tf.gather on the variable itself, not on its value"
_WRITE = "write the rows of the step with tf.raw_ops.ResourceScatterUpdate or its like"
_COMPUTE = "compute on the rows of the step: gather them, and keep gradients tf.IndexedSlices"


@dataclasses.dataclass(frozen=True)
class Finding:
    """All operations of one type and one cause on a whole table.

    Attributes:
        operation: The type of the operations.
        cause: The layer, optimizer or line of source that makes the operations.
        bytes: The bytes that the operations read and write in one call of the function.
        instead: The operation or layer to use instead.
    """

    variable: str
    shape: tuple[int, ...]
    operation: str
    cause: str
    bytes: int
    count: int
    instead: str


class Findings(tuple[Finding, ...]):
    """Findings in descending order of bytes; as a string, a report for the user.

    Attributes:
        least_bytes: The size of the smallest table that was audited, in bytes.
        notes: Further lines of the report.
    """

    least_bytes: int = 0
    notes: Sequence[str] = ()

    @property
    def total(self) -> int:
        """The sum of the bytes of all findings."""
        return sum(finding.bytes for finding in self)

    def __str__(self) -> str:
        """Return the report: a line for each finding, the advice by cause, and the notes."""
        if not self:
            none = f"no operation on a whole table of {size_text(self.least_bytes)} or more"
            return "\n".join([none, *self.notes])
        rows = [
            (
                size_text(finding.bytes),
                f"{finding.count} x",
                finding.operation,
                f"{finding.variable} {' x '.join(f'{size:,}' for size in finding.shape)}",
                finding.cause,
            )
            for finding in self
        ]
        count = sum(finding.count for finding in self)
        operations = "1 operation" if count == 1 else f"{count} operations"
        lines = [f"{operations} on whole tables, {size_text(self.total)} read and written:"]
        lines += [f"  {line}" for line in aligned(rows, ">><<<")]
        lines.append("use instead:")
        advice = dict.fromkeys((finding.cause, finding.instead) for finding in self)
        lines += [f"  {cause}: {instead}" for cause, instead in advice]
        return "\n".join([*lines, *self.notes])


def source_line(frames: Iterable[Any], foreign: Callable[[str], bool]) -> str:
    """Return the line of source that made an operation, as `folder/folder/file.py:12 function`.

    It is the innermost line of the call stack outside TensorFlow. If there is none, a note is
    returned instead.

    Args:
        frames: The call stack, outermost first.
        foreign: Returns whether to skip lines of the file of a given path, too. They are skipped
            only if other lines outside TensorFlow remain.
    """
    outside = [frame for frame in frames if not frame.filename.startswith(_TENSORFLOW)]
    if not outside:
        return "TensorFlow, or a function that was loaded"
    last = ([frame for frame in outside if not foreign(frame.filename)] or outside)[-1]
    path = pathlib.PurePath(last.filename)
    return f"{'/'.join(path.parts[-3:])}:{last.lineno} {last.name}"


def instead(operation: tf.Operation) -> str:
    """Return advice for the user: how to replace an operation on a whole table by one on rows.

    The advice depends on whether the operation reads or writes a variable, or computes.
    """
    if operation.type == "ReadVariableOp":
        return _READ
    return _WRITE if operation.type.startswith(("Assign", "Resource")) else _COMPUTE


@dataclasses.dataclass(frozen=True)
class _Table:
    """A variable. For a tensor it means that the tensor is the handle of the variable."""

    name: str
    shape: tuple[int, ...]
    bytes: int


@dataclasses.dataclass(eq=False)
class _Origin:
    """The table that the numbers of tensors come from; while it is None, the first of `shape`."""

    table: _Table | None
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Whole:
    """For a tensor: it has as many elements as a table, from whose numbers it is made."""

    origin: _Origin
    bytes: int
    elements: int


class Walk:
    """One pass through the operations of a function, in the order in which they run.

    Args:
        variables: All its variables by name. A tensor that could belong to several of them is
            attributed to the first.
        least_bytes: The size of the smallest table, in bytes.
    """

    def __init__(
        self, function: Any, variables: Mapping[str, tf.Variable], least_bytes: int = LEAST_BYTES
    ):
        self._touches: list[tuple[_Origin, tf.Operation, str, int, dict[_Table, int]]] = []
        self._copied: set[_Table] = set()  # in copy-on-read mode
        self._by_row: list[_Origin] = []
        self._of_shape: dict[tuple[int, ...], _Table] = {}
        self._least_bytes = least_bytes
        handles = self._handles(variables)
        graph = function.graph
        inner = {internal.name: handles.get(id(outer)) for outer, internal in graph.captures}
        compiled = _is_compiled(function.function_def)
        self._walk(graph, [inner.get(tensor.name) for tensor in graph.inputs], "", compiled)

    def findings(
        self, tables: set[str], explain: Callable[[str, tf.Operation, str], tuple[str, str]]
    ) -> tuple[Finding, ...]:
        """Return the operations on whole tables, grouped by table, type and cause.

        The bytes are an upper bound: both branches of a condition count, and XLA fuses operations.
        The body of a loop counts once. A read without a copy, or of the shape only, is not
        reported.

        Args:
            tables: The names of the variables to report.
            explain: Called for each operation, with the name of its table before it and its own
                name after it, which begins with those of the calls that contain it, such as
                `call/operation`. Returns its cause, and what to use instead.
        """
        sums = collections.Counter[tuple[_Table, str, str, str]]()
        counts = collections.Counter[tuple[_Table, str, str, str]]()
        for origin, op, name, moved, copies in self._touches:
            table = self._table(origin)
            moved += sum(bytes_ for copied, bytes_ in copies.items() if copied in self._copied)
            if moved and table.name in tables:
                cause, instead = explain(table.name, op, name)
                key = table, op.type, cause, instead
                sums[key] += moved
                counts[key] += 1
        return tuple(
            Finding(table.name, table.shape, kind, cause, moved, counts[key], instead)
            for key, moved in sums.most_common()
            for table, kind, cause, instead in [key]
        )

    def by_row(self) -> set[str]:
        """Return the names of the tables of which the function reads or writes single rows."""
        return {self._table(origin).name for origin in self._by_row}

    def _handles(self, variables: Mapping[str, tf.Variable]) -> dict[int, _Table]:
        """Return the tables to audit by the `id` of their handle, and set the first of each shape.

        These are large variables, and small ones of the shape of a large one.
        """
        known = {}
        for name, variable in variables.items():
            shape = tuple(variable.shape)
            known[_Table(name, shape, _bytes(shape, variable.dtype))] = variable
        large = {table.shape for table in known if table.bytes >= self._least_bytes}
        handles: dict[int, _Table] = {}
        for table, variable in known.items():
            if table.shape not in large:
                continue
            self._of_shape.setdefault(table.shape, table)
            for part in replicas_of(variable):
                handles.setdefault(id(part.handle), table)
        return handles

    def _table(self, origin: _Origin) -> _Table:
        """Return the table of an origin; if unknown, the first table of its shape."""
        return origin.table or self._of_shape[origin.shape]

    def _walk(
        self, graph: tf.Graph, arguments: Sequence[Any], scope: str, compiled: bool
    ) -> list[Any]:
        """Record the operations of a graph, and return the values of its outputs.

        A value is a `_Table`, a `_Whole`, an array of sizes (arguments only), or None. Compiled by
        XLA, no operation copies a table. The names of the operations begin with `scope`.
        """
        values = {t.name: v for t, v in zip(graph.inputs, arguments, strict=True) if v is not None}
        running = executed(graph)
        used = {t.name for op in running if op.type not in _SHAPES for t in op.inputs}
        used |= {t.name for t in graph.outputs}
        for op in running:
            inputs = [values.get(tensor.name) for tensor in op.inputs]
            if op.type in CALLS:
                results = self._call(op, inputs, values, scope, compiled)
            elif op.type == "ReadVariableOp" and op.outputs[0].name not in used:
                continue  # TensorFlow removes it
            elif any(isinstance(value, _Table) for value in inputs):
                results = self._handle(op, inputs, scope, compiled)
            else:
                results = self._compute(op, inputs, values, scope)
            pairs = zip(op.outputs, results, strict=False)
            values |= {tensor.name: value for tensor, value in pairs if value is not None}
        return [values.get(tensor.name) for tensor in graph.outputs]

    def _call(
        self, op: tf.Operation, inputs: list, values: dict, scope: str, compiled: bool
    ) -> list[Any]:
        """Walk through the functions that an operation calls; return the values of its results."""
        _, skipped = CALLS[op.type]
        compiled |= _is_compiled(op.node_def)
        # TensorFlow infers shapes within one function only, so pass on numbers that are sizes.
        pairs = zip(inputs, op.inputs, strict=True)
        arguments = [number(t, values) if value is None else value for value, t in pairs]
        results = [
            self._walk(graph, arguments[skipped:], f"{scope}{op.name}/", compiled)
            for graph in called_graphs(op)
        ]
        # The first function of a While is its condition; its output belongs to no table.
        outputs = [[r[i] for r in results if i < len(r)] for i in range(len(op.outputs))]
        return [next((v for v in known if v is not None), None) for known in outputs]

    def _handle(self, op: tf.Operation, inputs: list, scope: str, compiled: bool) -> list[Any]:
        """Record an operation on handles, of unknown type as read and write; return its values."""
        tables = [value for value in inputs if isinstance(value, _Table)]
        if op.type in VIEWS:
            return inputs
        whole = [value for value in inputs if isinstance(value, _Whole)]
        origin = _Origin(tables[0])
        _bind(whole, origin)
        moved = sum(value.bytes for value in whole)
        if op.type in _ASIDE:
            return []
        if op.type == "ReadVariableOp":
            size = tables[0].bytes
            self._touch(origin, op, scope, 0, {} if compiled else {tables[0]: 2 * size})
            return [_Whole(origin, size, math.prod(tables[0].shape))]
        if op.type.startswith(_BY_ROW):
            self._by_row += [_Origin(table) for table in tables]
            self._copied.update([] if compiled else tables)
            self._touch(origin, op, scope, moved, {})
        elif op.type == "AssignVariableOp":
            size = tables[0].bytes
            self._touch(origin, op, scope, size, {} if compiled else {tables[0]: size})
        else:
            copies = {} if compiled else {table: 2 * table.bytes for table in tables}
            moved += sum(2 * table.bytes for table in tables)
            self._touch(origin, op, scope, moved, copies)
        return []

    def _compute(self, op: tf.Operation, inputs: list, values: dict, scope: str) -> list[Any]:
        """Record an operation on tensors as large as a table; return the values of its outputs.

        A value is a `_Whole` if the output has a table's shape, even if all inputs are small, or as
        many elements as a `_Whole` input. Views and shape operations are not recorded. A slice of a
        `_Whole` counts twice its result, if that has `least_bytes`, and has no value. A gather
        marks the table as read by row.
        """
        if op.type in VIEWS:
            made = [self._result(tensor, [], _Origin(None), values) for tensor in op.outputs]
            pairs = zip(inputs, made, strict=False)
            return [old if isinstance(old, _Whole) else new for old, new in pairs]
        whole = [value for value in inputs if isinstance(value, _Whole)]
        origin = next((v.origin for v in whole if v.origin.table), None)
        origin = origin or (whole[0].origin if whole else _Origin(None))
        _bind(whole, origin)
        if op.type.startswith(_TAKES):
            if isinstance(inputs[0], _Whole):
                self._by_row.append(inputs[0].origin)
            whole = []
        elif op.type in _SLICES and whole:
            self._touch(origin, op, scope, 2 * self._large(op, values), {})
            return []
        results = [self._result(tensor, whole, origin, values) for tensor in op.outputs]
        if op.type not in _SHAPES + _GIVEN:
            moved = sum(value.bytes for value in [*whole, *results] if value)
            self._touch(origin, op, scope, moved, {})
        return results

    def _result(
        self, tensor: tf.Tensor, whole: list, origin: _Origin, values: dict
    ) -> _Whole | None:
        """Return an output as a `_Whole` if of a table's shape, or as large as one in `whole`."""
        shape = shape_of(tensor, values)
        if shape is None:
            return None
        elements = math.prod(shape)
        if shape in self._of_shape:
            origin.shape = origin.shape or shape
        elif all(value.elements != elements for value in whole):
            return None
        return _Whole(origin, _bytes(shape, tensor.dtype), elements)

    def _large(self, op: tf.Operation, values: dict) -> int:
        """Return the bytes of the first result, or 0 if they are fewer than `least_bytes`."""
        shape = shape_of(op.outputs[0], values)
        size = 0 if shape is None else _bytes(shape, op.outputs[0].dtype)
        return size if size >= self._least_bytes else 0

    def _touch(
        self, origin: _Origin, op: tf.Operation, scope: str, moved: int, copies: dict[_Table, int]
    ) -> None:
        """Record an operation that moves bytes: `copies` count for tables in copy-on-read mode."""
        if moved or copies:
            self._touches.append((origin, op, scope + op.name, moved, copies))


def _bind(whole: list[_Whole], origin: _Origin) -> None:
    """Attribute tensors as large as the origin's table to that table, if they have none yet."""
    for value in whole:
        if origin.table and value.elements == math.prod(origin.table.shape):
            value.origin.table = value.origin.table or origin.table


def _is_compiled(definition: Any) -> bool:
    """Return whether XLA compiles a function or call with the given definition."""
    return _XLA in definition.attr and definition.attr[_XLA].b


def _bytes(shape: Sequence[int], dtype: tf.DType) -> int:
    return math.prod(shape) * tf.as_dtype(dtype).size
