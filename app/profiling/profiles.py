"""Find recorded profiles, and read their events and the programs that XLA compiled.

xprof's converter gives the events, and the compiled programs the source and the bytes of kernels.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RunError, UsageError
from ..system.console import hide_stderr

# The files that TensorFlow's profiler writes below a folder of TensorBoard.
_PATTERN = "plugins/profile/*/*.xplane.pb"
_RECORD = (
    "record one with: lexrow train --workdir=DIR --profile_steps=START,STOP, or in "
    "Keras with TensorBoard(DIR, profile_batch=(START, STOP))"
)
# Instructions that read a part of their first operand, and those that write it in its place. Of the
# latter, the operand with the new values.
_READS_A_PART = ("gather", "dynamic-slice", "slice")
_WRITES_A_PART = {"scatter": 2, "dynamic-update-slice": 1}
# Instructions that call others, and all that are no kernels.
_CALLS = ("while", "call", "conditional")
_NO_KERNELS = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", *_CALLS)


class Event(NamedTuple):
    """A recorded event of a thread.

    Attributes:
        process: The process, such as `/host:CPU` or `/device:GPU:0`.
        thread: The name and the number of the thread, separated by a space.
        name: The name of the event; for an operation, its type.
        start: Microseconds.
        length: Microseconds.
        args: The recorded arguments.
    """

    process: str
    thread: str
    name: str
    start: float
    length: float
    args: dict[str, str]


def find_newest(folder: Path, flag: str = "workdir") -> Path:
    """Return the folder of the newest profile anywhere below a folder. Its name is its time.

    Args:
        folder: The folder to search, such as a workdir.
        flag: The flag that names the folder, for messages.

    Raises:
        UsageError: There is no such folder, or no profile below it.
    """
    if not folder.is_dir():
        raise UsageError(f"--{flag}={folder}: no such folder; give that of a run")
    paths = [path for path in folder.rglob("*.xplane.pb") if path.match(_PATTERN)]
    if not paths:
        raise UsageError(f"--{flag}={folder}: no profile there; {_RECORD}")
    # The folder of a profile is named by its time.
    return max(paths, key=lambda path: (path.parent.name, path)).parent


def read(file: Path) -> list[Event]:
    """Read the events of a profile, in no order.

    Output to stderr is hidden meanwhile, for the whole process.

    Args:
        file: The .xplane.pb file of the profile.

    Raises:
        RunError: The file is truncated or no profile.
    """
    with hide_stderr():
        from xprof.convert import raw_to_tool_data  # slow to import

        # A result that TensorBoard has saved may belong to a file that was replaced since.
        options = {"use_saved_result": False}
        data, _ = raw_to_tool_data.xspace_to_tool_data([str(file)], "trace_viewer", options)
    if not data:
        raise RunError(f"{file} is truncated or no profile; delete it and {_RECORD}")
    return parse(json.loads(data)["traceEvents"])


def on_stream(event: Event) -> bool:
    """Return whether the event is an operation or a copy that a device other than the CPU ran.

    Other events with the name of a device are derived by xprof.
    """
    return event.process.startswith("/device:") and event.thread.startswith("Stream #")


def parse(raw: Sequence[dict[str, Any]]) -> list[Event]:
    """Return the complete events (phase X) of Chrome's trace format; leave out all others."""
    processes = {item["pid"]: item["args"]["name"] for item in raw if _names(item, "process")}
    threads = {
        (item["pid"], item["tid"]): item["args"]["name"] for item in raw if _names(item, "thread")
    }
    return [
        Event(
            processes.get(item["pid"], ""),
            f"{threads.get((item['pid'], item['tid']), '')} {item['tid']}",
            item["name"],
            item["ts"],
            item["dur"],
            item.get("args", {}),
        )
        for item in raw
        if item.get("ph") == "X"
    ]


def _names(item: dict[str, Any], kind: str) -> bool:
    """Return whether an item is metadata with the name of a process or a thread."""
    return item.get("ph") == "M" and item["name"] == f"{kind}_name"


class Kernel(NamedTuple):
    """An instruction of a compiled program, which a GPU runs as one kernel.

    Attributes:
        source: The name of the operation that it was made of, such as `gather/ResourceGather`; if
            several were fused, that of the last. Empty if it is not known.
        bytes: The bytes that it reads and writes: of a table the rows, each once.
    """

    source: str
    bytes: int


class Programs(NamedTuple):
    """The programs that XLA compiled and that ran while a profile was recorded.

    Attributes:
        kernels: The kernels, by the name of the program and the name of the kernel.
        bandwidth: The bytes a second that the memory of the GPU can move; 0 without a GPU.
    """

    kernels: Mapping[tuple[str, str], Kernel] = {}
    bandwidth: float = 0.0


NO_PROGRAMS = Programs()


def read_programs(file: Path) -> Programs:
    """Return the compiled programs of a profile.

    Args:
        file: The .xplane.pb file of TensorFlow's profiler, which has the optimized programs.
    """
    with hide_stderr():  # TensorFlow, and so these definitions, take seconds to import
        from tensorflow.compiler.xla.service import hlo_pb2
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    kernels: dict[tuple[str, str], Kernel] = {}
    bandwidth = 0.0
    for plane in space.planes:
        if plane.name == "/host:metadata":
            stats = [stat for event in plane.event_metadata.values() for stat in event.stats]
            for stat in stats:
                module = hlo_pb2.HloProto.FromString(stat.bytes_value).hlo_module
                kernels |= {(module.name, name): it for name, it in kernels_of(module)}
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == "memory_bandwidth":
                bandwidth = float(stat.uint64_value or stat.int64_value)
    return Programs(kernels, bandwidth)


def kernels_of(module: Any) -> Iterator[tuple[str, Kernel]]:
    """Yield each kernel of a program, an `HloModuleProto`, by the name of its instruction.

    And by the name of its function on a GPU, which has no dots.
    """
    bodies = {computation.id: computation for computation in module.computations}
    callers = [value for computation in bodies.values() for value in computation.instructions]
    parts = [value.called_computation_ids for value in callers if value.opcode not in _CALLS]
    for number in bodies.keys() - set(itertools.chain(*parts)):
        values = {value.id: value for value in bodies[number].instructions}
        for value in values.values():
            if value.opcode not in _NO_KERNELS:
                kernel = Kernel(value.metadata.op_name, _moved_bytes(value, values, bodies))
                yield value.name, kernel
                yield re.sub(r"[.-]", "_", value.name), kernel


def _moved_bytes(value: Any, values: Mapping[int, Any], bodies: Mapping[int, Any]) -> int:
    """Return the bytes that an instruction reads and writes.

    Args:
        values: The instructions beside it, by id.
        bodies: The computations of the program, by id.
    """
    if value.opcode == "fusion":
        body = bodies[value.called_computation_ids[0]]
        values = {inner.id: inner for inner in body.instructions}
        operands = [inner for inner in body.instructions if inner.opcode == "parameter"]
        users, root = body.instructions, values[body.root_id]
    else:
        operands = [values[number] for number in value.operand_ids]
        users, root = [value], value
    while root.opcode == "bitcast":
        root = values[root.operand_ids[0]]
    results = [values[number] for number in root.operand_ids] if root.opcode == "tuple" else [root]
    read = sum(_read_bytes(operand, users, values, bodies) for operand in operands)
    return read + sum(_written_bytes(result, values) for result in results)


def _read_bytes(
    operand: Any, users: Any, values: Mapping[int, Any], bodies: Mapping[int, Any]
) -> int:
    """Return the bytes of an operand that instructions read: of a table, the rows that they need.

    Args:
        users: The instructions that may use it.
        values: Those and the operands, by id.
        bodies: The computations of the program, by id.
    """
    whole, moved = _size(operand.shape), 0
    for user in users:
        if operand.id not in user.operand_ids:
            continue
        is_first = user.operand_ids[0] == operand.id
        if user.opcode == "bitcast":
            moved += _read_bytes(user, users, values, bodies)
        elif is_first and user.opcode in _READS_A_PART:
            moved += _size(user.shape)
        elif is_first and user.opcode in _WRITES_A_PART:
            # A scatter that assigns reads nothing: its computation returns the new value.
            body = bodies.get(next(iter(user.called_computation_ids), None))
            adds = body and next(i for i in body.instructions if i.id == body.root_id).operand_ids
            moved += _written_bytes(user, values) if adds else 0
        else:
            moved += whole
    return min(moved, whole)


def _written_bytes(value: Any, values: Mapping[int, Any]) -> int:
    """Return the bytes that an instruction writes: to a table, the new rows."""
    if value.opcode in _WRITES_A_PART:
        return _size(values[value.operand_ids[_WRITES_A_PART[value.opcode]]].shape)
    if value.opcode == "custom-call" and value.shape.tuple_shapes:
        return sum(map(_size, value.shape.tuple_shapes[:-1]))  # the last is its scratch memory
    return _size(value.shape)


def _size(shape: Any) -> int:
    """Return the bytes of an array, or of all arrays of a tuple."""
    from tensorflow.compiler.xla import xla_data_pb2

    if shape.tuple_shapes:
        return sum(map(_size, shape.tuple_shapes))
    bits = re.search(r"\d+", xla_data_pb2.PrimitiveType.Name(shape.element_type))  # of F32, PRED
    return math.prod(shape.dimensions) * int(bits[0] if bits else 8) // 8
