"""Train the task of a configuration and score the result: one run, from start to end.

This is also the entry for Python programs:

    from lexrow.settings.checks import make_config
    from lexrow.training.run import train_and_evaluate

    config = make_config({"task": "words", "corpus": "text.txt", "epochs": 3})
    print(train_and_evaluate(config, "runs/words"))

It does not set TensorFlow's threads, which belong to the program. The commands set them by
`build.threads.use_machine`, which is faster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import shlex

from absl import logging

from .. import __name__ as PACKAGE
from ..assembly import strategies
from ..checkpoints.checkpoint import Position, newest_position
from ..checkpoints.workdir import Workdir, read_settings
from ..distributed import tensorflow_server
from ..distributed.cluster_spec import Hosts, parse_tf_config
from ..errors import RunError, StoppedError, UsageError
from ..settings import Config, RunConfig, checks
from ..settings.flag_values import by_name, typed_value
from ..system import devices
from ..system.signals import stoppable
from ..tasks import all_tasks
from . import banner, grown_tables, loop, profile_hooks, progress
from .job import Job
from .runner import Runner


def train_and_evaluate(
    config: Config, workdir: str | os.PathLike[str], is_quiet: bool = False
) -> str:
    """Train from the newest checkpoint of a workdir, or from the start, then score the result.

    It reads the cluster from the environment (TF_CONFIG), locks the workdir, and prints a banner. A
    worker or a parameter server of --strategy=parameter_server serves the chief instead. Threads of
    one program may train runs at the same time.

    Args:
        config: The settings of the run. With --plan_only the plan is printed, and nothing is made.
        workdir: The workdir, in the place of --workdir. It may be empty for --plan_only.
        is_quiet: Whether no banner is printed.

    Returns:
        The scores as text; "" for --plan_only and for every process but the chief.

    Raises:
        UsageError: The settings, the input and the workdir do not fit together.
        RunError: Training failed. If the processes cannot meet, but the run is already finished, ""
            is returned instead.
        StoppedError: SIGINT or SIGTERM stopped training or scoring, and the run is saved.
    """
    settings = dataclasses.replace(config.run, workdir=typed_value("workdir", workdir))
    checks.check_workdir(settings)
    config, hosts = dataclasses.replace(config, run=settings), None
    if not settings.plan_only:  # a plan is made without the other processes
        hosts = parse_tf_config(settings.strategy, os.environ.get("TF_CONFIG"))
    devices.name(settings)  # raises UsageError before anything is made
    # --plan_only reads the workdir, if one is given, and writes nothing there.
    place = Workdir(settings.workdir or os.devnull)
    try:
        if strategies.is_server(config, hosts):
            tensorflow_server.serve(config, hosts, place)
            return ""
        runner = strategies.make_runner(config, hosts)
    except RunError as error:
        if hosts is None or not progress.is_finished(place, settings):
            raise
        logging.info("%s (ignored: the run is already finished)", error)
        return ""
    writes = runner.chief and not settings.plan_only
    with (
        runner.error_context(),
        place.lock() if writes else contextlib.nullcontext(),
        devices.float32_products(config.model.compute_dtype),
    ):
        report = _train_and_finish(config, place, runner, hosts, is_quiet)
    if report is None:
        command = f"python -m {PACKAGE}.train --workdir={shlex.quote(str(place.path))}"
        again = "start all processes again to continue" if hosts else f"continue with: {command}"
        raise StoppedError(f"stopped as asked, and saved; {again}")
    return report


def _train_and_finish(
    config: Config, place: Workdir, runner: Runner, hosts: Hosts | None, is_quiet: bool
) -> str | None:
    """Make the job, print the banner, train and score; return the scores as text.

    Return None if training was stopped early, "" for --plan_only and in processes that are not the
    chief; these wait until the chief has finished.
    """
    settings, stored = config.run, read_settings(place.path)
    position = newest_position(place.checkpoints)
    checks.check_fixed(stored, config)
    job_config = strategies.with_micro_batches(config, runner.replicas, position)
    with runner.scope():
        is_finished = progress.is_finished(place)
        job = all_tasks.JOBS[settings.task](job_config, place, is_finished, runner.team)
        # A resumed run may be past the windows that its workdir already has in flags.cfg.
        is_new = settings.profile_steps != stored.get("profile_steps")
        check_flags(job, settings, position, checks_profile=is_new)
        if job.growth is not None:
            grown_tables.check_growth(job, config, place)
    if runner.chief and not is_quiet:
        trainers = strategies.describe(job_config, hosts, runner.replicas)
        print(banner.banner(config, job, position, trainers), flush=True)
    if settings.plan_only:
        return ""
    if job.growth is not None:
        grown_tables.grow_workdir(job, config, place)
    is_done = loop.train(job, settings, place, runner, by_name(config))
    finish = job.finish
    runner.close()
    del job  # frees the tables, as scoring loads tables of the same size
    gc.collect()
    if not is_done:
        return None
    report = ""
    if runner.chief:
        path, files = shlex.quote(str(place.path)), settings.task in all_tasks.SCORES
        command = f"python -m {PACKAGE}.evaluate --workdir={path}{' --heldout=FILE' * files}"
        saved = "stopped while scoring; the run is finished and saved"
        with stoppable(f"{saved}; score it with: {command}"):
            report = finish(place)
    runner.wait_for_chief(place)
    return report


def check_flags(
    job: Job, settings: RunConfig, position: Position | None = None, checks_profile: bool = True
) -> None:
    """Raise UsageError if --epochs, --patience, --sync_steps or --profile_steps does not fit.

    Args:
        job: The job to train.
        settings: How to run it.
        position: The position of the newest checkpoint, or None; it is not changed.
        checks_profile: Whether to check the windows of --profile_steps.

    Raises:
        UsageError: --epochs is less than the run has trained, --patience is given where nothing is
            scored or where a table cannot be saved twice, --sync_steps is more than the steps of an
            epoch, or --profile_steps asks for steps that the run does not have.
    """
    if position is not None and settings.epochs < position.epoch:
        raise UsageError(
            f"--epochs={settings.epochs}: the run in --workdir={settings.workdir} has trained "
            f"{position.epoch} already; give more, or a new --workdir"
        )
    if settings.patience and (job.evaluator is None or not job.evaluator.is_monitored):
        raise UsageError(
            f"--patience={settings.patience} needs scores on held-out data, and there is none; "
            "give --heldout=FILE or --heldout_share"
        )
    tables = job.placed.tables  # none for --plan_only
    if settings.patience and any(table.layout()["kind"] == "file" for table in tables.values()):
        raise UsageError(
            f"--patience={settings.patience} saves the tables of the best epoch beside the newest "
            "checkpoint, but a table in a file exists only once; leave out --patience"
        )
    epoch = job.data.expected_batches * job.data.steps_per_batch
    if settings.sync_steps > max(epoch, 1):
        raise UsageError(
            f"--sync_steps={settings.sync_steps}: an epoch has about {epoch} steps, and its end is "
            "an exchange; give less"
        )
    if checks_profile:
        step = position.step if position else 0
        last = step + progress.steps_left(position, settings.epochs, job)
        profile_hooks.check(settings, step, job.data.steps_per_batch, last)
