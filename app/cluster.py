"""Starts servers on this machine: python -m app.cluster --data_workers=2

Then train with the flag that it prints. They run until Ctrl-C or SIGTERM. TensorFlow's servers take
work from whoever reaches their ports: keep those behind a firewall.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from app import flags
from app.errors import UsageError
from app.training import cluster


def main(_: Sequence[str]) -> None:
    """Serves until it is told to stop."""
    workers, port = absl_flags.FLAGS.data_workers, absl_flags.FLAGS.port
    if workers < 1:
        raise UsageError(f"--data_workers={workers}: give the number to start, such as 2")
    if not 0 <= port < 2**16:
        raise UsageError(f"--port={port}: give a number from 1 to 65535, or 0 for a free one")
    cluster.serve_data(workers, port)


def define() -> None:
    """Defines the flags of this command."""
    absl_flags.DEFINE_integer("data_workers", 0, "Workers of a tf.data service to start.")
    absl_flags.DEFINE_integer("port", 0, "Where the service answers; 0: any free port.")


if __name__ == "__main__":
    define()
    flags.run(main)
