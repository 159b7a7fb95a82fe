"""Run a command, and write its time and memory to a file.

Linux counts the memory of the process that starts a program into the peak of that program. So this
is a small program of its own. The command never outlives it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from app.system.processes import end_with_parent


def main(arguments: Sequence[str]) -> None:
    """Run a command to its end, and write its exit code, time and memory to a file.

    The file is a JSON object of `code` (negative for a signal) and the fields of `programs.Usage`.
    This program itself ends with exit code 0, whatever the code of the command.

    Args:
        arguments: The file to write, then the command.

    Raises:
        OSError: The command cannot be started (no file is then written), or the file not written.
    """
    result, *command = arguments
    started, clock = time.time(), time.perf_counter()
    process = subprocess.Popen(command, preexec_fn=end_with_parent(os.getpid()))
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - clock
    process.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it again
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2)
    values = {
        "code": process.returncode,
        "started": started,
        "seconds": seconds,
        "peak_bytes": usage.ru_maxrss * unit,
    }
    Path(result).write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
