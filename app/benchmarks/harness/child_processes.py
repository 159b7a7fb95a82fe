"""A command as a process of its own, with its wall time and peak memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ... import __name__ as PACKAGE
from ...errors import RunError, UsageError


class Usage(NamedTuple):
    """What a process took.

    started: seconds since 1970. seconds: from its start to its end. peak_bytes: the most memory
    that it had resident (ru_maxrss).
    """

    started: float
    seconds: float
    peak_bytes: int


def run(
    name: str,
    arguments: Sequence[str],
    log: Path,
    input: Path | str = os.devnull,
    output: Path | None = None,
) -> Usage:
    """Runs this Python with the arguments, its output in the file `log`, to its end.

    name: what to call it in a message. input: what it reads as its standard input. output: where
    its standard output goes instead. An exit code of 2 becomes UsageError, any other but 0
    RunError; both give the last line of the output. Nothing of it is left running when this
    process is interrupted.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        open(input, "rb") as read,
        open(log, "wb") as told,
        open(output, "wb") if output else contextlib.nullcontext(told) as written,
    ):
        result = Path(folder) / "usage.json"
        launcher = [sys.executable, "-m", f"{PACKAGE}.benchmarks.harness.launcher", str(result)]
        process = subprocess.Popen(
            [*launcher, sys.executable, *arguments],
            stdin=read,
            stdout=written,
            stderr=told,
            start_new_session=True,  # a group to end as one
        )
        try:
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        assert process.returncode == 0, log.read_text(errors="replace")
        values = json.loads(result.read_text(encoding="utf-8"))
    code = values.pop("code")
    if code:
        error = UsageError if code == 2 else RunError
        raise error(f"{name} ended with exit code {code}: {_last_line(log)}")
    return Usage(**values)


def importing(module: str) -> Usage:
    """What a process takes that imports a module and does nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        return run(f"import {module}", ["-c", f"import {module}"], Path(folder) / "log")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")
