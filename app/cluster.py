"""Try a cluster on this machine.

    python -m lexrow.cluster --workers=2 --ps=2 -- FLAGS

FLAGS are the flags of lexrow.train. With --ps the tables are divided over that number of parameter
servers, and each worker trains at its own pace (--strategy=parameter_server). Without --ps the
workers train in step (--strategy=multi_worker). The command that would start each process on its
own machine is printed. The exit code is that of the chief. No process is left running.

With --data_workers a tf.data service is started as well. Without --workers only the tf.data service
is started. It runs until Ctrl-C or SIGTERM; train with the flag that it prints.

TensorFlow's servers run any work that reaches their ports: keep the ports behind a firewall.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from . import __name__ as PACKAGE
from .cli import flags
from .distributed import local_cluster
from .errors import UsageError
from .settings import flag_values

_MOST_PROCESSES = 1000  # of one kind; a larger number is taken for a typing error
_OWN_FLAGS = ("workers", "ps", "data_workers", "port", "kill_worker_after")


def main(arguments: Sequence[str]) -> None:
    """Run the cluster until its run is finished, and exit with the code of the chief.

    Without --workers, serve data until Ctrl-C or SIGTERM instead, and return.

    Args:
        arguments: The arguments after the `--`: the flags of lexrow.train.

    Raises:
        UsageError: The flags are not possible, or a port is in use.
        RunError: A process cannot be started, or keeps ending.
    """
    values = absl_flags.FLAGS
    workers, servers, port = values.workers, values.ps, values.port
    _check(arguments)
    if not workers:
        local_cluster.serve_data(values.data_workers, port)
        return
    services = min(values.data_workers, 1)
    ports = local_cluster.choose_ports(services + bool(servers) + workers + servers, port)
    added = [f"--strategy={'parameter_server' if servers else 'multi_worker'}"]
    if services:
        added.append(f"--data_service={local_cluster.HOST}:{ports[0]}")
    code = local_cluster.train(
        local_cluster.make_hosts(workers, servers, ports[services:]),
        _add_flags(arguments, added),
        flags.parsed().run,
        values.data_workers,
        ports[0],
        values.kill_worker_after,
    )
    sys.exit(code)


def define() -> None:
    """Define the flags of this command and of a training run."""
    flags.define_settings()
    bounds = 0, _MOST_PROCESSES
    flags.define("workers", 0, "The number of workers, which train.", bounds=bounds)
    flags.define("ps", 0, "The number of parameter servers.", bounds=bounds)
    flags.define("data_workers", 0, "Workers of a tf.data service to start.", bounds=bounds)
    text = "The first port of the processes; 0 takes free ports."
    flags.define("port", 0, text, bounds=(0, 2**16 - 1))
    text = "Kill the last worker once, after this many seconds of training. 0: never."
    flags.define("kill_worker_after", 0.0, text, bounds=(0, 31_536_000))


def _check(arguments: Sequence[str]) -> None:
    """Raise UsageError if a flag of this command is impossible, or one of lexrow.train misplaced.

    Flags of lexrow.train come after the `--`. They are needed if and only if there are workers.
    """
    values = absl_flags.FLAGS
    for name in flag_values.fields():
        if values[name].present:
            flag = f"--{name}={values[name].value}"
            where = "write it after the others and a --"
            raise UsageError(f"{flag} is a flag of {PACKAGE}.train; {where}")
    if not values.workers:
        if values.ps:
            raise UsageError(f"--ps={values.ps}: give --workers as well, such as --workers=2")
        if not values.data_workers:
            raise UsageError(
                "--workers=0 --data_workers=0: give the number to start, such as --workers=2"
            )
        if arguments:
            raise UsageError(f"{arguments[0]}: nothing is trained without --workers; give a number")
    elif not arguments:
        raise UsageError(
            f"--workers={values.workers}: give the flags of the run to train, as in "
            "-- --flagfile=configs/words.cfg --workdir=DIR"
        )
    if values.kill_worker_after and values.workers + bool(values.ps) < 2:
        raise UsageError(
            f"--kill_worker_after={values.kill_worker_after:g}: there is no worker but the chief; "
            "give --workers=2"
        )


def _add_flags(arguments: Sequence[str], added: Sequence[str]) -> list[str]:
    """Set the global flags of lexrow.train, together with the flags that this command adds to them.

    Args:
        arguments: The arguments after the `--` of the command line.
        added: Flags to add, as `--NAME=VALUE`.

    Returns:
        The arguments, followed by the added flags that they lack.

    Raises:
        UsageError: A flag to add has another value already, or an argument is no flag of
            lexrow.train or has a wrong value.
    """
    values = absl_flags.FLAGS
    before = {name: values[name].present for name in _OWN_FLAGS}
    others = flags.parse([sys.argv[0], *arguments])
    if others:
        raise UsageError(f"{others[0]!r} is not a flag; write it as --NAME=VALUE, see --help")
    for name in _OWN_FLAGS:
        if values[name].present != before[name]:
            raise UsageError(f"--{name} is a flag of {PACKAGE}.cluster; write it before the --")
    missing = []
    for flag in added:
        name, _, value = flag[2:].partition("=")
        if not values[name].present:
            missing.append(flag)
        elif values[name].value != value:
            raise UsageError(
                f"--{name}={values[name].value}: {PACKAGE}.cluster adds --{name}={value} itself, "
                "as the processes that it starts need it; leave the flag out"
            )
    values([sys.argv[0], *missing])
    return [*arguments, *missing]


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
