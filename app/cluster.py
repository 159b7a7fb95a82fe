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
_OWN_FLAGS = ("workers", "port")
_STRATEGY = "multi_worker"


def main(arguments: Sequence[str]) -> None:
    """Run the cluster until its run is finished, and exit with the code of the chief.

    Args:
        arguments: The arguments after the `--`: the flags of `lexrow train`.

    Raises:
        UsageError: The flags are not possible, or a port is in use.
        RunError: A process keeps ending.
    """
    values = absl_flags.FLAGS
    _check(arguments)
    hosts = local_cluster.make_hosts(values.workers, values.port)
    sys.exit(local_cluster.train(hosts, _add_strategy(arguments), flags.parsed().run))


def define() -> None:
    """Define the flags of this command and of a training run."""
    flags.define_settings()
    flags.define("workers", 2, "The number of workers.", bounds=(1, _MOST_WORKERS))
    text = "The first port of the processes; 0 takes free ports."
    flags.define("port", 0, text, bounds=(0, 2**16 - 1))


def _check(arguments: Sequence[str]) -> None:
    """Raise UsageError if a flag of this command is impossible, or one of `lexrow train` misplaced.

    Flags of `lexrow train` come after the `--`.
    """
    values = absl_flags.FLAGS
    for name in flag_values.fields():
        if values[name].present:
            flag = f"--{name}={values[name].value}"
            where = "write it after the others and a --"
            raise UsageError(f"{flag} is a flag of `lexrow train`; {where}")
    if not arguments:
        raise UsageError(
            f"--workers={values.workers}: give the flags of the run to train, as in "
            "-- --flagfile=configs/words.cfg --workdir=DIR"
        )


def _add_strategy(arguments: Sequence[str]) -> list[str]:
    """Set the global flags of `lexrow train`; return the arguments, with --strategy at the end.

    Raises:
        UsageError: --strategy has another value already, or an argument is no flag of
            `lexrow train` or has a wrong value.
    """
    values = absl_flags.FLAGS
    before = {name: values[name].present for name in _OWN_FLAGS}
    others = flags.parse([sys.argv[0], *arguments])
    if others:
        raise UsageError(f"{others[0]!r} is not a flag; write it as --NAME=VALUE, see --help")
    for name in _OWN_FLAGS:
        if values[name].present != before[name]:
            raise UsageError(f"--{name} is a flag of `lexrow cluster`; write it before the --")
    if values["strategy"].present and values.strategy != _STRATEGY:
        raise UsageError(
            f"--strategy={values.strategy}: `lexrow cluster` adds --strategy={_STRATEGY} itself, "
            "as the processes that it starts need it; leave the flag out"
        )
    values([sys.argv[0], f"--strategy={_STRATEGY}"])
    return [*arguments, f"--strategy={_STRATEGY}"]


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
