"""Train a model.

    python -m app.train --flagfile=FILE --workdir=DIR

The same command with the same workdir continues a run that was stopped.
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
from .distributed.cluster_spec import parse_tf_config
from .errors import RunError


def main(_: Sequence[str]) -> None:
    """Train the task that --task names, then score the result."""
    settings = flags.parsed()
    hosts = None
    if not settings.run.plan_only:  # a plan is made without the other processes
        hosts = parse_tf_config(settings.run.strategy, os.environ.get("TF_CONFIG"))
    flags.start_tensorflow()
    from .build import strategies
    from .checkpoints import checkpoint
    from .distributed import tensorflow_server
    from .system import devices
    from .tasks import all_tasks
    from .training import banner, loop, progress

    devices.use_machine(settings.run)
    # --plan_only reads the workdir, if one is given, and writes nothing there.
    place = workdir.Workdir(settings.run.workdir or os.devnull)
    try:
        if strategies.is_server(settings, hosts):
            tensorflow_server.serve(settings, hosts, place)
            return
        runner = strategies.make_runner(settings, hosts)
    except RunError as error:
        if hosts is None or not progress.is_finished(place, settings.run.epochs):
            raise
        logging.info("%s (ignored: the run is already finished)", error)
        return
    writes = runner.chief and not settings.run.plan_only
    with runner.error_context(), place.lock() if writes else contextlib.nullcontext():
        position = checkpoint.newest_position(place.checkpoints)
        config = strategies.with_micro_batches(settings, runner.replicas, position)
        with runner.scope():
            job = all_tasks.JOBS[settings.run.task](config, place, progress.is_finished(place))
            loop.prepare(job, settings.run, place)
        if runner.chief:
            trainers = strategies.describe(config, hosts, runner.replicas)
            print(banner.banner(settings, job, trainers), flush=True)
        if settings.run.plan_only:
            return
        finished = loop.train(job, settings.run, place, runner, by_name(settings))
        closing = job.finish if runner.chief else lambda place: ""
        del job  # frees the tables, as scoring loads tables of the same size
        gc.collect()
        report = ""
        if finished:
            report = closing(place)
            runner.wait_for_chief(place)
    if not finished:
        command = f"python -m {PACKAGE}.train --workdir={shlex.quote(str(place.path))}"
        command = "the same commands, one for each process" if hosts else command
        raise RunError(f"stopped as asked, and saved; continue with: {command}")
    if report:
        logging.info("%s", report)


if __name__ == "__main__":
    flags.define()
    flags.run(main)
