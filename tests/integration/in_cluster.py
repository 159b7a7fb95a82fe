"""A command as one process of a cluster: python -m tests.integration.in_cluster TF_CONFIG COMMAND…

TF_CONFIG: its value; empty for none. A COMMAND such as `TensorFlow=2.20.0` before the module has
the process say that it has that version.
"""

import os
import runpy
import sys

from app.distributed import rendezvous
from tests.integration.commands import ROOT


def main() -> None:
    """Runs the module that is named, with the other arguments."""
    config, *command = sys.argv[1:]
    os.environ["TF_CONFIG"] = config
    os.environ["PYTHONPATH"] = str(ROOT)  # for a program that starts itself again
    name, _, version = command[0].partition("=")
    if version:
        package, known = rendezvous._PACKAGES[name], rendezvous._version
        rendezvous._version = lambda other: version if other == package else known(other)
        command = command[1:]
    sys.argv = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
