"""Runs lexrow train, and kills it just before the given rename of a file or folder of its growth.

    python -m tests.integration.killed_growth NUMBER [flags of lexrow train]

The renames count from 0: first those of the new files, then that of the whole, then the moves.
"""

import os
import runpy
import signal
import sys
from unittest import mock

if __name__ == "__main__":
    left = int(sys.argv.pop(1))
    replace = os.replace

    def replace_or_die(source, target):
        global left
        if "grown" in f"{source}{target}":
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        replace(source, target)

    with mock.patch("os.replace", replace_or_die):
        runpy.run_module("app.train", run_name="__main__", alter_sys=True)
