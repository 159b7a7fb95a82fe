"""Run a command, and write its time and memory to a file.

Linux counts the memory of the process that starts a program into the peak of that program. So this
is a program of its own, small, with the standard library only. The command never outlives it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Run a command to its end, and write its exit code, time and memory to a file.

    The file is a JSON object of `code` (negative for a signal) and the fields of `processes.Usage`.
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


def end_with_parent(parent: int) -> Callable[[], None] | None:
    """Return a function for a child process, by which Linux kills it when its parent ends.

    The function exits at once if the parent has ended already. Elsewhere than on Linux, return
    None.

    Args:
        parent: The id of the parent process.
    """
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def ask() -> None:
        """Ask Linux to send SIGKILL when the parent ends; exit if it has ended already."""
        library.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, <linux/prctl.h>
        if os.getppid() != parent:  # the parent ended before this call
            os._exit(1)

    return ask


if __name__ == "__main__":
    main(sys.argv[1:])
