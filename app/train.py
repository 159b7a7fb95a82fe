"""Trains what --task names: python -m app.train --flagfile=FILE --workdir=DIR

Run it again with the same workdir and it goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
from collections.abc import Sequence

from absl import logging

from . import __name__ as PACKAGE
from .checkpoints import workdir
from .cli import flags
from .config.settings import by_name
from .distributed.cluster_spec import of_environment
from .errors import RunError


def main(_: Sequence[str]) -> None:
    """Trains, then scores."""
    settings = flags.parsed()
    planned = settings.run.plan_only  # which needs nobody else
    hosts = None if planned else of_environment(settings.run.strategy, os.environ.get("TF_CONFIG"))
    flags.start_tensorflow()
    from .build import strategies
    from .checkpoints import checkpoint
    from .distributed import serving
    from .system import devices
    from .tasks import all_tasks
    from .training import banner, loop, progress

    devices.use_machine(settings.run)
    # A plan looks at the workdir, if one is given, and writes nothing there.
    place = workdir.Workdir(settings.run.workdir or os.devnull)
    try:
        if strategies.serves(settings, hosts):
            serving.serve(settings, hosts, place)
            return
        runner = strategies.runner(settings, hosts)
    except RunError as error:
        if hosts is None or not progress.is_finished(place, settings.run.epochs):
            raise
        logging.info("%s; nor need it: the run is finished", error)
        return
    writes = runner.chief and not settings.run.plan_only
    with runner.error_context(), place.held() if writes else contextlib.nullcontext():
        at = checkpoint.newest_position(place.checkpoints)
        config = strategies.settled(settings, runner.replicas, at)
        with runner.scope():
            job = all_tasks.JOBS[settings.run.task](config, place, progress.is_finished(place))
            loop.prepare(job, settings.run, place)
        if runner.chief:
            about = strategies.about(config, hosts, runner.replicas)
            print(banner.banner(settings, job, about), flush=True)
        if settings.run.plan_only:
            return
        finished = loop.train(job, settings.run, place, runner, by_name(settings))
        closing = job.finish if runner.chief else lambda place: ""
        del job  # and its tables, in whose place those to score can come
        gc.collect()
        told = closing(place) if finished else ""
        if finished:
            runner.wait_for_chief(place)
    if not finished:
        alone = f"python -m {PACKAGE}.train --workdir={shlex.quote(str(place.path))}"
        again = "the same commands, one for each process" if hosts else alone
        raise RunError(f"stopped as asked, and saved; go on with: {again}")
    if told:
        logging.info("%s", told)


if __name__ == "__main__":
    flags.define()
    flags.run(main)
