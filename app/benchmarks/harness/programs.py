"""Run a side of a benchmark as a program of its own, which takes a job and returns figures."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ... import __name__ as PACKAGE
from ...system import processes
from ...system.processes import Usage


def run(
    name: str, module: str, job: Mapping[str, Any], log: Path | None = None
) -> tuple[dict[str, Any], Usage]:
    """Run a program of a benchmark to its end, and return its figures.

    Args:
        name: The name of the program, for messages.
        module: The module of the program, below `lexrow.benchmarks`. It calls `answer`.
        job: The argument of the function given to `answer`, JSON values by name.
        log: The file for its output; by default one that is deleted.

    Returns:
        The figures by name, or only `left_out` (see `answer`); the time and memory of the process.

    Raises:
        UsageError: The program ended with exit code 2.
        RunError: The program ended with another exit code than 0.
    """
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as folder:
        result = Path(folder) / "result.json"
        text = json.dumps({**job, "result": str(result)})
        arguments = ["-m", f"{PACKAGE}.benchmarks.{module}", text]
        usage = processes.run(name, arguments, log or Path(folder) / "log")
        return json.loads(result.read_text(encoding="utf-8")), usage


def answer(measure: Callable[[dict[str, Any]], Any], lacking: tuple[type[Exception], ...] = ()):
    """Call `measure` with the job in the command line, and write its result to a file as JSON.

    This is the main function of a program that `run` starts. The field `result` of the job names
    the file; `measure` does not get it.

    Args:
        measure: Called with the job; returns the figures by name, JSON values.
        lacking: Errors of a side that cannot run here. They are not raised: the only figure is then
            `left_out`, the first line of the message.
    """
    job = json.loads(sys.argv[1])
    result = Path(job.pop("result"))
    try:
        values = measure(job)
    except lacking as error:
        values = {"left_out": str(error).splitlines()[0]}
    result.write_text(json.dumps(values), encoding="utf-8")


def import_usage(statement: str) -> Usage:
    """Run a process that only imports a library, and return its time and memory.

    Args:
        statement: The statement that imports it.

    Raises:
        RunError: The library cannot be imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        return processes.run(statement, ["-c", statement], log)
