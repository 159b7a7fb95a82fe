"""Try a cluster on this machine.

    lexrow cluster --workers=2 -- FLAGS

FLAGS are the flags of `lexrow train`. The workers train in step (--strategy=multi_worker). The
command that would start each process on its own machine is printed. The exit code is that of the
chief. No process is left running.

TensorFlow's servers run any work that reaches their ports: keep the ports behind a firewall.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from .cli import flags
from .distributed import local_cluster
from .errors import UsageError
from .settings import flag_values

_MOST_WORKERS = 1000  # a larger number is taken for a typing error
_STRATEGY = "multi_worker"


def main(arguments: Sequence[str]) -> None:
    """Run the cluster until its run is finished, and exit with the code of the chief.

    Args:
        arguments: The arguments after the `--`: the flags of `lexrow train`.

    Raises:
        UsageError: The flags are not possible, or are not on their side of the `--`.
        RunError: A process keeps ending.
    """
    values, strategy = absl_flags.FLAGS, f"--strategy={_STRATEGY}"
    workers = values["workers"].present
    given = [name for name in flag_values.fields() if values[name].present]
    if given:
        flag = f"--{given[0]}={values[given[0]].value}"
        where = "write it after the others and a --"
        raise UsageError(f"{flag} is a flag of `lexrow train`; {where}")
    if not arguments:
        raise UsageError(
            f"--workers={values.workers}: give the flags of the run to train, as in "
            "-- --preset=words --workdir=DIR"
        )
    others = flags.parse([sys.argv[0], *arguments])
    if others:
        raise UsageError(f"{others[0]!r} is not a flag; write it as --NAME=VALUE, see --help")
    if values["workers"].present != workers:
        raise UsageError("--workers is a flag of `lexrow cluster`; write it before the --")
    if values["strategy"].present and values.strategy != _STRATEGY:
        raise UsageError(
            f"--strategy={values.strategy}: `lexrow cluster` adds {strategy} itself, as the "
            "processes that it starts need it; leave the flag out"
        )
    values([sys.argv[0], strategy])
    hosts = local_cluster.make_hosts(values.workers)
    sys.exit(local_cluster.train(hosts, [*arguments, strategy], flags.parsed().run))


def define() -> None:
    """Define the flags of this command and of a training run."""
    flags.define_settings()
    flags.define("workers", 2, "The number of workers.", bounds=(1, _MOST_WORKERS))


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
