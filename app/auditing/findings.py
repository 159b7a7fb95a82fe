"""What was found about whole tables in a step, as a report for people."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

_TENSORFLOW = str(pathlib.PurePath(tf.__file__).parent)
_READ = "look rows up with tf.gather on the variable itself, not on its value"
_WRITE = "write the rows of the step with tf.raw_ops.ResourceScatterUpdate or its like"
_COMPUTE = "compute on the rows of the step: gather them, and keep gradients tf.IndexedSlices"


@dataclasses.dataclass(frozen=True)
class Touch:
    """An operation of a step on a whole table.

    variable: the table's name. operation: the operation itself. name: its name, after those of the
    operations that call the function it is in.
    """

    variable: str
    operation: tf.Operation
    name: str

    @property
    def frames(self) -> list[Any]:
        """The call stack that made the operation, outermost first; empty if it was loaded."""
        return list(self.operation.traceback or ())


@dataclasses.dataclass(frozen=True)
class Finding:
    """What operations of one type and one cause do to a whole table.

    variable, shape: the table. operation: the type. cause: who makes them. bytes: read and written
    by all of them in a call of the function. count: how many they are. instead: what to use.
    """

    variable: str
    shape: tuple[int, ...]
    operation: str
    cause: str
    bytes: int
    count: int
    instead: str


class Findings(tuple[Finding, ...]):
    """Findings, heaviest first; as a string, aligned lines and what to use instead.

    least_bytes: of the smallest table that counts.
    """

    least_bytes: int

    def __new__(cls, found: Iterable[Finding], least_bytes: int) -> Findings:
        """Sorts the findings."""
        self = super().__new__(cls, sorted(found, key=lambda finding: -finding.bytes))
        self.least_bytes = least_bytes
        return self

    @property
    def total(self) -> int:
        """Bytes of all findings."""
        return sum(finding.bytes for finding in self)

    def __str__(self) -> str:
        if not self:
            return f"no operation on a whole table of {_size(self.least_bytes)} or more"
        rows = [
            (
                _size(finding.bytes),
                f"{finding.count} x",
                finding.operation,
                f"{finding.variable} {' x '.join(f'{size:,}' for size in finding.shape)}",
                finding.cause,
            )
            for finding in self
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        aligned = [str.rjust, str.rjust, str.ljust, str.ljust]
        count = sum(finding.count for finding in self)
        operations = "1 operation" if count == 1 else f"{count} operations"
        lines = [f"{operations} on whole tables, {_size(self.total)} read and written:"]
        for *cells, cause in rows:
            columns = zip(aligned, cells, widths, strict=True)
            lines.append(
                "  ".join(["", *(put(cell, width) for put, cell, width in columns), cause])
            )
        lines.append("use instead:")
        advice = dict.fromkeys((finding.cause, finding.instead) for finding in self)
        lines += [f"  {cause}: {instead}" for cause, instead in advice]
        return "\n".join(lines)


def explained(touch: Touch) -> tuple[str, str]:
    """The line of source that made the operation, and the row by row way to do the same."""
    return source_line(touch.frames), instead(touch.operation)


def source_line(frames: Iterable[Any], foreign: Callable[[str], bool] = lambda path: False) -> str:
    """The innermost line of the stack that made an operation, outside of TensorFlow.

    frames: as of a `Touch`. foreign: the paths of further files to pass over, while there
    are others. Looks like `folder/folder/file.py:12 function`.
    """
    outside = [frame for frame in frames if not frame.filename.startswith(_TENSORFLOW)]
    if not outside:
        return "TensorFlow, or a function that was loaded"
    last = ([frame for frame in outside if not foreign(frame.filename)] or outside)[-1]
    path = pathlib.PurePath(last.filename)
    return f"{'/'.join(path.parts[-3:])}:{last.lineno} {last.name}"


def instead(operation: tf.Operation) -> str:
    """What does row by row what the operation does to a whole table."""
    if operation.type == "ReadVariableOp":
        return _READ
    return _WRITE if operation.type.startswith(("Assign", "Resource")) else _COMPUTE


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count / 1e3:,.2f} kB"
