"""The training loop, the same for every task."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import tensorflow as tf
from absl import logging

from ..auditing.findings import Findings
from ..checkpoints import stored
from ..checkpoints.checkpoint import Checkpoints, Position, newest_position
from ..checkpoints.workdir import Workdir, read_flags, write_flags
from ..config import RunConfig
from ..errors import RunError, UsageError
from ..optimizers.row_updates import slots
from ..system.signals import asked_to_stop
from ..tables.base import Table
from . import profile_hooks
from .interval import Interval, not_finite
from .job import Job
from .metrics import Display, Metrics, Quiet
from .profile_hooks import Profiler
from .runner import Here, Runner
from .scoring import Scoring
from .staging import InPlace


def is_finished(workdir: Workdir, wanted: int | None = None) -> bool:
    """Whether all epochs that the workdir's flags ask for are done; and as many as are wanted."""
    at = newest_position(workdir.checkpoints)
    flags = read_flags(workdir.flags)
    epochs, patience = (int(flags.get(name, 0)) for name in ("epochs", "patience"))
    return at is not None and _done(at, epochs, patience) and wanted in (None, epochs)


def _done(at: Position, epochs: int, patience: int) -> bool:
    return at.epoch >= epochs or 0 < patience <= at.since


def _in_file(table: Table) -> bool:
    return stored.layout(table)["kind"] == "file"


def prepare(job: Job, settings: RunConfig, workdir: Workdir) -> None:
    """Makes the optimizer's slots, so that the bytes of the tables are known.

    UsageError for a window of --profile_steps that the run has no steps for, and for --patience
    where nothing is scored, or where tables cannot be kept twice.
    """
    if settings.patience and (job.epoch_end is None or job.monitor is None):
        raise UsageError(
            f"--patience={settings.patience} goes by the score of what is held out, and nothing "
            "is; give --heldout=FILE or --heldout_share"
        )
    if settings.patience and any(map(_in_file, job.tables.values())):
        raise UsageError(
            f"--patience={settings.patience} keeps the tables of the best epoch beside those of "
            "the newest checkpoint, and tables in a file are there once only; leave it out"
        )
    trained = {name for name, spec in job.model.tables().items() if spec.trained}
    for name, table in job.tables.items():  # there are none for --plan_only
        if name in trained:
            slots(job.optimizer, table)
    # Windows that the workdir knows already may be behind; they were in the run that took them.
    if settings.profile_steps != read_flags(workdir.flags).get("profile_steps"):
        at = _expecting(newest_position(workdir.checkpoints) or Position(), job)
        left = (settings.epochs - at.done) * at.batches * job.steps_per_batch
        profile_hooks.check(settings, at.step, job.steps_per_batch, at.step + round(left))


def train(
    job: Job,
    settings: RunConfig,
    workdir: Workdir,
    runner: Runner | None = None,
    flags: Mapping[str, Any] | None = None,
) -> bool:
    """Train, or go on from the newest checkpoint.

    Ends early, with a checkpoint, when asked by SIGINT or SIGTERM. Nothing in the workdir is
    changed before that checkpoint is loaded.

    Args:
        job: What to train.
        settings: How to run it.
        workdir: Where it is kept.
        runner: Who makes the calls; by default this process. Only a chief writes.
        flags: Every flag of the run by name, to be kept with what the job records.

    Returns:
        Whether the last epoch was finished, or --patience was at its end.

    Raises:
        RunError: The loss or a row is not finite, the input or the newest checkpoint cannot be
            read, or a checkpoint cannot be written.
    """
    runner = runner or Here()
    kept = {**job.tables, **job.extra_state}
    checkpoints = Checkpoints(workdir.checkpoints, kept, settings.keep_checkpoints)
    best = Checkpoints(workdir.best, kept)
    staging = job.staging or InPlace(job.tables)
    runner.open(job, staging.tables, settings.seed)
    at = checkpoints.restore(mends=runner.chief) or Position()
    if at.step:
        logging.info("resuming at step %d, epoch %.2f", at.step, at.done)
    if runner.chief:
        if flags is not None:
            write_flags(workdir.flags, dict(flags))
        job.record()  # which the flags give a meaning to
        best.forget(at.step if settings.patience else -1)
    else:
        settings = dataclasses.replace(settings, profile_steps="", profile_on_slow=0.0)
    _expecting(at, job)
    _arranged(at, job)
    interval = Interval(job, settings.epochs, at, runner.totals)
    audited = not (settings.audit and runner.chief)
    saved = time.monotonic()

    with (
        asked_to_stop() as stop,
        closing(staging),
        closing(_metrics(workdir, at, runner)) as metrics,
        closing(_display(settings.epochs, at, job, runner)) as display,
        closing(Profiler(settings, workdir.tensorboard)) as profiler,
        closing(Scoring(runner.is_asynchronous and not settings.patience)) as scoring,
        closing(runner),
    ):

        def report(rate: float) -> None:
            values = {**interval.close(at, rate), **staging.values(), **runner.values()}
            metrics.write(at.step, values)
            display.show(at.step, values)

        def save() -> None:
            runner.synchronize()
            staging.write_home()
            if runner.chief:
                _save(checkpoints, job, at)

        def reach(epoch: int, rate: float) -> None:
            """Ends the epochs before this one."""
            while at.epoch < epoch:
                at.epoch, at.batches, at.batch = at.epoch + 1, max(at.batch, 1), 0
                at.words += job.words
                if job.epoch_end is None or not (runner.chief or settings.patience):
                    continue
                if scoring.is_aside and not scoring.is_idle and at.epoch < settings.epochs:
                    continue  # scores take longer than epochs
                if interval.losses:
                    report(rate)
                if not scoring.is_aside:
                    runner.synchronize()
                    staging.write_home()
                interval.apart(lambda: scoring.begin(job.epoch_end, at.step, at.epoch))
                for score in scoring.done():
                    tell(*score)

        def tell(step: int, values: dict[str, float]) -> None:
            """The scores of the tables as they were at a step."""
            metrics.write(step, values)
            if len(values) > 1:  # none may be defined, where no word of a benchmark is known
                display.say(step, values)
            if settings.patience:
                rank(runner.broadcast(job.monitor(values)))  # for all to stop at one epoch

        def rank(score: float) -> None:
            """Keeps the tables, if they are the best so far."""
            at.since += 1
            if at.best is None or score > at.best:
                at.best, at.since = score, 0
                if runner.chief:
                    best.save(at)

        rate = 0.0
        done = _done(at, settings.epochs, settings.patience)
        if done and at.epoch < settings.epochs:
            logging.info(
                "--patience=%d ended this run after epoch %d: there is nothing to do; to go on, "
                "give more, or --patience=0",
                *(settings.patience, at.epoch),
            )
        epochs = range(at.epoch, at.epoch if done else settings.epochs)
        batches = runner.batches(job, epochs, at.batch) if epochs else iter(())
        ahead = staging.ahead(batches, at.step)
        for epoch, tokens in profiler.marked(interval.waiting(ahead), at):
            reach(epoch, rate)
            if runner.is_stopping(stop.is_set()) or _done(at, settings.epochs, settings.patience):
                break
            if time.monotonic() - saved >= settings.checkpoint_minutes * 60:
                save()
                saved = time.monotonic()
                if job.epoch_end is not None and scoring.is_aside and scoring.is_idle:
                    scoring.begin(job.epoch_end, at.step, at.epoch)
            rate = job.learning_rate(at.done / settings.epochs)
            first = tf.constant(at.step, tf.int64)
            inputs = staging.locate(tokens, first), first, tf.constant(rate, tf.float32)
            if not audited:
                _tell_audited(runner.audit(*inputs), job)
                audited = True
            interval.losses.append(runner.run_steps(*inputs))
            at.step += job.steps_per_batch
            at.batch += 1
            display.advance()
            for score in scoring.done():
                tell(*score)
            if interval.seconds() >= settings.log_seconds:
                report(rate)
        else:
            if epochs:
                reach(settings.epochs, rate)
        if interval.losses:
            report(rate)
        save()
        for score in scoring.rest():
            tell(*score)
    return _done(at, settings.epochs, settings.patience)


def _metrics(workdir: Workdir, at: Position, runner: Runner) -> Metrics | Quiet:
    return Metrics(workdir.metrics, workdir.tensorboard, at.step) if runner.chief else Quiet()


def _display(epochs: int, at: Position, job: Job, runner: Runner) -> Display | Quiet:
    if not runner.chief:
        return Quiet()
    return Display(epochs * at.batches, round(at.done * at.batches), job.unit)


def _expecting(at: Position, job: Job) -> Position:
    """The position, with the batches of an epoch as the job expects them if none was counted."""
    if at.expected != job.expected_batches:  # no epoch of this text is behind
        at.batches = at.expected = job.expected_batches
    return at


def _arranged(at: Position, job: Job) -> None:
    """Notes how the batches of the job's epochs are arranged; warns if it was otherwise so far."""
    if job.is_arranged and at.batch and at.micro_batches != job.micro_batches:
        logging.warning(
            "this epoch was begun with %d micro-batches a step, and goes on with %d: some rows of "
            "it come twice or not at all; the next ones are whole",
            *(at.micro_batches, job.micro_batches),
        )
    at.micro_batches = job.micro_batches


def _tell_audited(found: Findings, job: Job) -> None:
    if found:
        logging.warning("in each call of %d steps, %s", job.steps_per_batch, found)


def _save(checkpoints: Checkpoints, job: Job, at: Position) -> None:
    """Saves tables that are finite; a loss is read now and then only, so it might not tell."""
    for name, table in job.tables.items():
        if not table.is_finite():
            between = f"the last checkpoint and step {at.step}"
            raise RunError(not_finite(f"a row of table {name!r}", between))
    checkpoints.save(at)
