"""A cluster on this machine, for a trial: python -m app.cluster --workers=2 --ps=2 -- FLAGS

FLAGS are those of app.train. With --ps the workers go their own pace and the tables are dealt over
so many parameter servers (--strategy=parameter_server); without, the workers go in step
(--strategy=multi_worker). What each process would be started with on a machine of its own is
printed. It ends with the exit code of the chief, and leaves no process behind.

With --data_workers a tf.data service is started as well; without --workers nothing but that, until
Ctrl-C or SIGTERM: then train with the flag that it prints.

TensorFlow's servers take work from whoever reaches their ports: keep those behind a firewall.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from .cli import flags
from .config import settings
from .distributed import local_cluster
from .errors import UsageError

_MOST = 1000  # processes of a kind: a slip of the finger, where it is more
_OWN = ("workers", "ps", "data_workers", "port", "kill_worker_after")


def main(arguments: Sequence[str]) -> None:
    """Runs the cluster to its end."""
    given = absl_flags.FLAGS
    workers, servers, port = given.workers, given.ps, given.port
    _check(arguments)
    if not workers:
        local_cluster.serve_data(given.data_workers, port)
        return
    services = min(given.data_workers, 1)
    ports = local_cluster.chosen_ports(services + bool(servers) + workers + servers, port)
    more = [f"--strategy={'parameter_server' if servers else 'multi_worker'}"]
    if services:
        more.append(f"--data_service={local_cluster.HOST}:{ports[0]}")
    trial = local_cluster.Trial(
        local_cluster.hosts(workers, servers, ports[services:]),
        _completed(arguments, more),
        given.data_workers,
        ports[0],
        given.kill_worker_after,
    )
    sys.exit(local_cluster.train(trial, flags.parsed().run))


def define() -> None:
    """Defines the flags of this command, beside those of a training run."""
    flags.define()
    absl_flags.DEFINE_integer("workers", 0, "Processes that train.")
    absl_flags.DEFINE_integer("ps", 0, "Parameter servers.")
    absl_flags.DEFINE_integer("data_workers", 0, "Workers of a tf.data service to start.")
    absl_flags.DEFINE_integer("port", 0, "The first port of the processes; 0: any that are free.")
    absl_flags.DEFINE_float(
        "kill_worker_after", None, "Kill the last worker once, after so many seconds of training."
    )


def _check(arguments: Sequence[str]) -> None:
    """Raises UsageError for flags of this command that cannot be."""
    given = absl_flags.FLAGS
    for name in settings.fields():
        if given[name].present:
            value = f"--{name}={given[name].value}"
            raise UsageError(f"{value} is of app.train; write it after the others and a --")
    for name in _OWN:
        if given[name].value is not None and not 0 <= given[name].value < math.inf:
            raise UsageError(f"--{name}={given[name].value}: give a number from 0 on")
        if name in ("workers", "ps", "data_workers") and given[name].value > _MOST:
            raise UsageError(f"--{name}={given[name].value}: give at most {_MOST} on one machine")
    if given.port >= 2**16:
        raise UsageError(f"--port={given.port}: give a number from 1 to 65535, or 0 for a free one")
    if not given.workers:
        if given.ps:
            raise UsageError(f"--ps={given.ps}: give --workers as well, such as --workers=2")
        if not given.data_workers:
            raise UsageError(
                "--workers=0 --data_workers=0: give the number to start, such as --workers=2"
            )
        if arguments:
            raise UsageError(f"{arguments[0]}: nothing is trained without --workers; give a number")
    elif not arguments:
        raise UsageError(
            f"--workers={given.workers}: give what to train, as in -- --flagfile=configs/words.cfg "
            "--workdir=DIR"
        )
    if given.kill_worker_after is not None and given.workers + bool(given.ps) < 2:
        raise UsageError(
            f"--kill_worker_after={given.kill_worker_after:g}: there is no worker but the chief; "
            "give --workers=2"
        )


def _completed(arguments: Sequence[str], more: Sequence[str]) -> list[str]:
    """The flags of app.train, parsed, with those that this command adds.

    UsageError where one of those has another value already.
    """
    given = absl_flags.FLAGS
    before = {name: given[name].present for name in _OWN}
    others = flags.parse([sys.argv[0], *arguments])
    if others:
        raise UsageError(f"{others[0]!r} is not a flag; write it as --NAME=VALUE, see --help")
    for name in _OWN:
        if given[name].present != before[name]:
            raise UsageError(f"--{name} is of this command; write it before the --")
    added = []
    for flag in more:
        name, _, value = flag[2:].partition("=")
        if not given[name].present:
            added.append(flag)
        elif given[name].value != value:
            raise UsageError(
                f"--{name}={given[name].value}: app.cluster adds --{name}={value} itself, by what "
                "it starts; leave it out"
            )
    given([sys.argv[0], *added])
    return [*arguments, *added]


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
