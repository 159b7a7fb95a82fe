"""Train the task of a configuration and score the result: one run, from start to end.

This is also the entry for Python programs:

    from lexrow.settings.checks import make_config
    from lexrow.training.run import train_and_evaluate

    config = make_config({"task": "words", "corpus": "text.txt", "epochs": 3})
    print(train_and_evaluate(config, "runs/words"))

It does not set TensorFlow's threads, which belong to the program. The commands set them by
`system.devices.use_machine`, which is faster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import re
import shlex
import shutil
from pathlib import Path

import tensorflow as tf
from absl import logging

from ..assembly import strategies
from ..checkpoints import growth
from ..checkpoints.checkpoint import Position, is_finished, newest_position
from ..checkpoints.workdir import Workdir, read_settings
from ..distributed.cluster_spec import parse_tf_config
from ..errors import RunError, StoppedError, UsageError
from ..settings import Config, RunConfig, checks
from ..settings.flag_values import by_name, defaults, typed_value
from ..system import devices, program_cache
from ..system.console import apart, size_text
from ..system.signals import stoppable
from ..tables import memory
from ..tasks import all_tasks
from . import loop, profile_hooks
from .job import Job, PlacedTables
from .runner import Runner

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
# The driver of CUDA 12.3. With an older one XLA makes smaller CUDA graphs (`erase_cuda` in XLA's
# command_buffer_scheduling.cc).
_GRAPHS_DRIVER = 545


def train_and_evaluate(
    config: Config, workdir: str | os.PathLike[str], is_quiet: bool = False
) -> str:
    """Train from the newest checkpoint of a workdir, or from the start, then score the result.

    It reads the cluster from the environment (TF_CONFIG), locks the workdir, and prints a banner.
    Threads of one program may train runs at the same time.

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
        runner = strategies.make_runner(config, hosts)
    except RunError as error:
        if hosts is None or not is_finished(place, settings):
            raise
        logging.info("%s (ignored: the run is already finished)", error)
        return ""
    writes = runner.chief and not settings.plan_only
    with (
        runner.error_context(),
        place.lock() if writes else contextlib.nullcontext(),
        devices.float32_products(config.model.compute_dtype),
    ):
        report = _train_and_finish(config, place, runner, is_quiet)
    if report is None:
        command = f"lexrow train --workdir={shlex.quote(str(place.path))}"
        again = "start all processes again to continue" if hosts else f"continue with: {command}"
        raise StoppedError(f"stopped as asked, and saved; {again}")
    return report


def _train_and_finish(config: Config, place: Workdir, runner: Runner, is_quiet: bool) -> str | None:
    """Make the job, print the banner, train and score; return the scores as text.

    Return None if training was stopped early, "" for --plan_only and in processes that are not the
    chief; these wait until the chief has finished.
    """
    stored = read_settings(place.path)
    position = newest_position(place.checkpoints)
    if search := all_tasks.SEARCHES.get(config.run.task):
        config = search(config, place)
    checks.check_fixed(stored, config)
    settings = config.run
    job_config = strategies.with_micro_batches(config, runner.replicas, position)
    with runner.scope():
        make_job = all_tasks.JOBS[settings.task]
        job = make_job(job_config, place, is_finished(place), runner.team)
        # A resumed run may be past the windows that its workdir already has in flags.cfg.
        is_new = settings.profile_steps != stored.get("profile_steps")
        check_flags(job, settings, position, checks_profile=is_new)
        if job.growth is not None:
            growth.check_growth(job.growth, job.model.tables(), config.model.loss, place)
    if runner.chief and not is_quiet:
        trainers = strategies.describe(job_config, runner.replicas)
        print(banner(config, job, position, trainers), flush=True)
    if settings.plan_only:
        return ""
    if job.growth is not None:
        grown = job.growth, job.model.tables(), job.placed.tables
        growth.grow_workdir(*grown, by_name(config), place)
    _warn_of_journals(job, config)
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
        command = f"lexrow evaluate --workdir={path}{' --heldout=FILE' * files}"
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
    if settings.patience and job.evaluator is None:
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
        last = step + _steps_left(position, settings.epochs, job)
        profile_hooks.check(settings.profile_steps, step, job.data.steps_per_batch, last)


def _steps_left(position: Position | None, epochs: int, job: Job) -> int:
    """Return about how many steps a run still has to make from a position, or from its start."""
    position = dataclasses.replace(position) if position else Position()
    position.expect_batches(job.data.expected_batches)
    return round((epochs - position.done) * position.batches * job.data.steps_per_batch)


def banner(config: Config, job: Job, position: Position | None = None, strategy: str = "") -> str:
    """Return the banner: devices, changed flags, data, tables, memory and number of steps.

    It is text of several lines, and nothing is printed. A line warns if there is an NVIDIA driver
    but TensorFlow finds no GPU. With --plan_only the banner lists everything that takes memory.

    Args:
        position: The position of the newest checkpoint of the run, or None.
        strategy: A description of the processes and replicas, empty for a single device.
    """
    values = by_name(config)
    usual = defaults(values) | {"task": "words"}
    changed = [f"--{name}={value}" for name, value in values.items() if value != usual[name]]
    tables = ", ".join(
        f"{item.name} {item.size} ({size_text(item.bytes)})"
        for item in job.placed.memory
        if item.name in job.model.tables()
    )
    totals = ", ".join(
        f"{place} {size_text(count)}" for place, count in memory.totals(job.placed.memory).items()
    )
    whole = memory.lines(job.placed.memory) if config.run.plan_only else ()
    return "\n".join(
        (
            *_machine(job.placed, job.model.dtype.name),
            *([f"strategy    {strategy}"] if strategy else ()),
            f"flags       {' '.join(changed) or 'all as by default'}",
            *(f"{title:<11} {text}" for title, text in job.data.summary),
            f"tables      {tables}",
            f"memory      {totals}",
            *whole,
            f"plan        {_plan(config, job, position)}",
        )
    )


def _warn_of_journals(job: Job, config: Config) -> None:
    """Log a warning if the disk of --table_file may become full of its journals."""
    most = memory.totals(job.placed.memory).get(memory.JOURNALS, 0)
    path = config.table.table_file
    free = shutil.disk_usage(Path(path).absolute().parent).free if most else 0
    if free < most:
        logging.warning(
            "--table_file=%s: its journals take up to %s if every row changes between checkpoints, "
            "and the disk has %s; if it becomes full, the run ends and goes on from its newest "
            "checkpoint; free the disk, or lower --keep_checkpoints or --checkpoint_minutes",
            *(path, apart(most, free), apart(free, most)),
        )


def _plan(config: Config, job: Job, position: Position | None) -> str:
    """Return how many steps the run has to make, or that it has none and what to do then."""
    epochs, patience = config.run.epochs, config.run.patience
    made = position.epoch if position else 0
    if made >= epochs:
        more = f"give --epochs={made + 1} or more"
        return f"nothing to train: the run has made {made} epoch(s); {more}"
    if position and position.is_at_end(epochs, patience):
        more = f"give a --patience above {patience}, or 0"
        return f"nothing to train: none of the last {position.since} epochs was better; {more}"
    steps = f"{_steps_left(position, epochs, job):,} steps"
    size = f"{config.input.batch_tokens:,} {job.data.batch_unit}"
    left = " left" if position and position.step else ""
    return f"{'1 epoch' if epochs == 1 else f'{epochs} epochs'}, about {steps} of {size}{left}"


def _machine(placed: PlacedTables, dtype: str) -> list[str]:
    """Return the lines about the device of a run: the devices that TensorFlow finds, and XLA.

    There is no warning of a missing GPU if CUDA_VISIBLE_DEVICES hides all of them.

    Args:
        dtype: The dtype of products.
    """
    used, gpus = placed.device, tf.config.list_physical_devices("GPU")
    found = [*tf.config.list_physical_devices("CPU"), *gpus]
    names = [device.name.removeprefix("/physical_device:") for device in found]
    others = "" if names == [used] else f" of {', '.join(names)}"
    lines = [f"device      {used}{others}, products in {dtype}"]
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if not gpus and not is_hidden and _NVIDIA_DRIVER.exists():
        lines.append(
            f"{'':<12}there is an NVIDIA driver, but TensorFlow finds no GPU: `make setup` again; "
            "TF_CPP_MIN_LOG_LEVEL=0 shows why"
        )
    if used.startswith("GPU"):
        folder = program_cache.folder(os.environ)
        stored = (
            f"stored in {folder}" if folder else "which stores none, so each run compiles its own"
        )
        reason = placed.uncompiled
        how = f"none, so steps are slower: {reason}" if reason else f"compiled by XLA, {stored}"
        lines.append(f"programs    {how}")
        driver = re.search(r"\s(\d{3,})\.\d", _read(_NVIDIA_DRIVER))
        if driver and int(driver[1]) < _GRAPHS_DRIVER:
            lines.append(
                f"{'':<12}the NVIDIA driver {driver[1]} starts more kernels one by one, which is "
                f"slower; update it to {_GRAPHS_DRIVER} or later"
            )
    return lines


def _read(path: Path) -> str:
    """Return the text of a file, empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""
