"""The findings of an audit: operations on whole tables, their causes, and the printed report."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from ..system.console import aligned, size_text
from ..system.loops import creation_stack

_TENSORFLOW = str(pathlib.PurePath(tf.__file__).parent)
_READ = "look rows up with tf.gather on the variable itself, not on its value"
_WRITE = "write the rows of the step with tf.raw_ops.ResourceScatterUpdate or its like"
_COMPUTE = "compute on the rows of the step: gather them, and keep gradients tf.IndexedSlices"


@dataclasses.dataclass(frozen=True)
class Touch:
    """One operation of a step on a whole table.

    Attributes:
        name: The name of the operation, after the names of the calls that contain it, such as
            `call/operation`.
    """

    variable: str
    operation: tf.Operation
    name: str

    @property
    def frames(self) -> list[Any]:
        """The Python call stack that made the operation, outermost frame first.

        It is empty for an operation of a SavedModel.
        """
        return creation_stack(self.operation)


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

    least_bytes: int
    notes: tuple[str, ...]

    def __new__(
        cls, findings: Iterable[Finding], least_bytes: int, notes: Iterable[str] = ()
    ) -> Findings:
        """Return the findings in descending order of bytes.

        Args:
            findings: The findings in any order.
            least_bytes: The size of the smallest table that was audited, in bytes.
            notes: Further lines of the report.
        """
        self = super().__new__(cls, sorted(findings, key=lambda finding: -finding.bytes))
        self.least_bytes, self.notes = least_bytes, tuple(notes)
        return self

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


def explained(touch: Touch) -> tuple[str, str]:
    """Return the line of source that made an operation, and what to use instead; for a report."""
    return source_line(touch.frames), instead(touch.operation)


def source_line(frames: Iterable[Any], foreign: Callable[[str], bool] = lambda path: False) -> str:
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
