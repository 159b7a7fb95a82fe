"""The training loop, the same for every task: run steps, log, save checkpoints, evaluate."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import tensorflow as tf
from absl import logging

from ..checkpoints.checkpoint import Position, newest_position
from ..checkpoints.table_checkpoints import Checkpoints
from ..checkpoints.workdir import Workdir, write_flags
from ..errors import RunError, StoppedError
from ..settings import RunConfig
from ..system.signals import asked_to_stop
from ..tables.device import InPlace
from .job import Job
from .metrics import Display, Interval, Metrics, Quiet, not_finite
from .profile_hooks import Profiler
from .runner import Runner
from .side_scores import SideScores

_SAVING = "saving the run; press Ctrl-C again to stop without saving"


def train(
    job: Job,
    settings: RunConfig,
    workdir: Workdir,
    runner: Runner | None = None,
    flags: Mapping[str, Any] | None = None,
) -> bool:
    """Train from the newest checkpoint, or from the start if there is none, and save checkpoints.

    SIGINT or SIGTERM end the run early, with a checkpoint. Nothing is changed in the workdir before
    the newest checkpoint is loaded. Then the chief renames damaged newer checkpoints, writes flags
    and the job's files, and removes later metrics and best checkpoints (all without --patience).

    Args:
        job: The job to train; its staging is closed at the end.
        settings: How to run it. Only the chief records profiles.
        workdir: Where checkpoints, scores, metrics and profiles are written, by the chief only.
        runner: Makes the steps; by default in this process.
        flags: Every flag of the run by name, to write to the workdir.

    Returns:
        Whether training is finished, by the last epoch or by --patience, and scored.

    Raises:
        RunError: The loss or a row is not finite, the input or the newest checkpoint cannot be
            read, or a checkpoint cannot be written. If the disk has no room for one, nothing is
            trained.
    """
    with closing(job.placed.staging or InPlace(job.placed.tables)) as staging:
        return _Loop(job, settings, workdir, runner or Runner(), staging).train(flags)


class _Loop:
    """The loop of one run, with everything that it reads and writes; see `train`.

    The constructor restores the newest checkpoint.
    """

    metrics: Metrics | Quiet = Quiet()
    display: Display | Quiet = Quiet()

    def __init__(
        self, job: Job, settings: RunConfig, workdir: Workdir, runner: Runner, staging: InPlace
    ):
        self.job, self.settings, self.workdir = job, settings, workdir
        self.runner, self.staging = runner, staging
        state: dict[str, Any] = {**job.placed.tables, **job.extra_state}
        self.checkpoints = Checkpoints(workdir.checkpoints, state, settings.keep_checkpoints)
        self.best = Checkpoints(workdir.best, state)
        runner.open(job, staging.tables, settings.seed)
        self.position = self.checkpoints.restore(rename_damaged=runner.chief) or Position()
        self.rate = 0.0  # the learning rate of the last call
        self.saved_step = -1  # the step of the last checkpoint
        self.is_stopped = False  # for all processes, while an epoch was scored

    def train(self, flags: Mapping[str, Any] | None) -> bool:
        """Write the files of the run, train, and return whether training is finished and scored."""
        job, settings, position, chief = self.job, self.settings, self.position, self.runner.chief
        if position.step:
            logging.info("resuming at step %d, epoch %.2f", position.step, position.done)
        if chief:
            if flags is not None:
                write_flags(self.workdir.flags, dict(flags))
            job.data.record()  # after the flags, which say how to read these files
            self.best.remove_after(position.step if settings.patience else -1)
        was_at_end = self._is_done() and not position.unscored
        if chief and not was_at_end:
            self.checkpoints.check_room()
        position.expect_batches(job.data.expected_batches)
        self._set_micro_batches()
        tensorboard, windows = self.workdir.tensorboard, ""
        if chief:
            self.metrics = Metrics(
                self.workdir.metrics, tensorboard, position.step, flags, not position.unscored
            )
            batches, done = position.batches, round(position.done * position.batches)
            self.display = Display(settings.epochs * batches, done, job.data.unit)
            windows = settings.profile_steps
        with (
            asked_to_stop(_SAVING if chief else "") as stop,
            closing(self.metrics),
            closing(self.display),
            closing(Profiler(windows, tensorboard)) as profiler,
            closing(SideScores()) as self.side_scores,
        ):
            self.is_asked = stop.is_set
            self.interval = Interval(job, settings.epochs, position)
            self.saved = time.monotonic()  # the time of the last checkpoint
            self._run(profiler)
        is_at_end = self._is_done() and not position.unscored
        if settings.patience and chief and is_at_end and not was_at_end:
            self._log_kept_epoch()
        return is_at_end

    def _set_micro_batches(self) -> None:
        """Store the number of micro-batches; warn if it changes the data of an epoch begun."""
        position, count = self.position, self.job.placed.micro_batches
        is_new = position.batch and position.micro_batches != count
        if is_new and self.job.data.depends_on_micro_batches:
            logging.warning(
                "this epoch was begun with %d micro-batches a step, and goes on with %d: some rows "
                "of it come twice or not at all; the next epochs are complete",
                *(position.micro_batches, count),
            )
        position.micro_batches = count

    def _log_kept_epoch(self) -> None:
        """Log which epoch --patience has kept, and that it has ended the run, if it has."""
        settings, position = self.settings, self.position
        kept = position.epoch - position.since
        if position.epoch < settings.epochs:
            logging.info(
                "--patience=%d: stopped after epoch %d of %d, as the last %d did not score better; "
                "the rows of epoch %d are kept",
                *(settings.patience, position.epoch, settings.epochs, position.since, kept),
            )
        else:
            logging.info("--patience=%d: the rows of epoch %d are kept", settings.patience, kept)

    def _run(self, profiler: Profiler) -> None:
        """Train until the last epoch, the end by --patience, or a request to stop; then save.

        Logs and checkpoints are written every --log_seconds and --checkpoint_minutes, scores after
        each epoch.
        """
        settings, position = self.settings, self.position
        if position.unscored:  # an earlier process was stopped or killed meanwhile
            self._score_epoch()
        epochs = range(position.epoch, settings.epochs)
        if self._is_done() and epochs and not self.is_stopped:
            logging.info(
                "--patience=%d ended this run after epoch %d: there is nothing to do; to train "
                "on, give a greater --patience, or --patience=0",
                *(settings.patience, position.epoch),
            )
        if self.is_stopped or self._is_done():
            epochs = range(0)
        batches = self.runner.batches(self.job, epochs, position.batch) if epochs else iter(())
        ready = self.interval.measure_waits(self.staging.prefetch(batches, position.step))
        for epoch, data in profiler.trace(ready, position):
            self._finish_epochs(epoch)
            if self.is_stopped or self.runner.is_stopping(self.is_asked()) or self._is_done():
                break
            is_due = time.monotonic() - self.saved >= settings.checkpoint_minutes * 60
            if is_due and self.runner.is_synchronized:
                self._save()
            self._run_steps(data)
            if self.interval.seconds() >= settings.log_seconds:
                self._log()
        else:
            if epochs:
                self._finish_epochs(settings.epochs)
        if self.interval.losses:
            self._log()
        self._save()
        self._write_side_scores(waits=True)

    def _is_done(self) -> bool:
        """Return whether the run is at its end: by its last epoch or by --patience."""
        return self.position.is_at_end(self.settings.epochs, self.settings.patience)

    def _run_steps(self, data: Any) -> None:
        """Train on one batch (S steps), keep its loss, and advance the position and the display."""
        job, position = self.job, self.position
        self.rate = job.learning_rate(position.done / self.settings.epochs)
        first, rate = self.runner.numbers((position.step, self.rate), self._later_calls())
        located = self.staging.locate(data, tf.constant(position.step, tf.int64))
        self.interval.losses.append(self.runner.run_steps(located, first, rate))
        position.step += job.data.steps_per_batch
        position.batch += 1
        position.unscored = False
        self.display.advance()

    def _later_calls(self) -> Iterator[tuple[int, float]]:
        """Yield the number of steps before each of the calls after the next, and its rate."""
        position = dataclasses.replace(self.position)
        while True:
            position.step += self.job.data.steps_per_batch
            position.batch += 1
            yield position.step, self.job.learning_rate(position.done / self.settings.epochs)

    def _log(self) -> None:
        """Write and show the metrics of the steps since the last call, and begin a new interval.

        Raise RunError if the loss is not finite, or if the metrics cannot be written.
        """
        values = {
            **self.interval.close(self.position, self.rate),
            **self.staging.values(),
            **self.runner.values(),
        }
        self._write_side_scores()
        self._write_metrics(self.position.step, values)
        self.display.show(self.position.step, values)

    def _write_metrics(self, step: int, values: dict[str, float]) -> None:
        """Write values to the metrics.

        Raise RunError if that fails; the run is saved before, unless it waits for an exchange.
        """
        try:
            self.metrics.write(step, values)
        except RunError:
            if self.runner.is_synchronized:
                with suppress(RunError):  # the first error says what is wrong
                    self._save()
            raise

    def _save(self) -> None:
        """Write a checkpoint, in the chief only.

        Cached rows are written back to the tables before. Raise RunError, and write no checkpoint,
        if a row of a table is not finite.
        """
        self.staging.write_back()
        self.saved, step = time.monotonic(), self.position.step
        if not self.runner.chief:
            return
        for name, table in self.job.placed.tables.items() if step != self.saved_step else ():
            # The loss does not always show it, because it is computed for few of the steps.
            if not table.is_finite():
                between = f"the last checkpoint and step {step}"
                raise RunError(not_finite(f"a row of table {name!r}", between))
        self._write_checkpoint()
        self.saved_step = step

    def _write_checkpoint(self) -> None:
        """Write a checkpoint; if that fails, raise RunError that says where a next run begins."""
        try:
            self.checkpoints.save(self.position)
        except RunError as error:
            newest = newest_position(self.workdir.checkpoints)
            start = f"step {newest.step}" if newest else "the start, as none is saved yet"
            raise RunError(f"{error}; with this --workdir, a run goes on from {start}") from error

    def _finish_epochs(self, epoch: int) -> None:
        """Count each epoch before the given one as finished, and score the tables after each.

        `position.batches` becomes the number of batches that the epoch had.
        """
        position = self.position
        while position.epoch < epoch and not self.is_stopped:
            self.runner.finish_epoch()
            position.batches, position.batch = max(position.batch, 1), 0
            position.epoch += 1
            position.words += self.job.data.epoch_size
            self._score_epoch()
            if self.job.watch and self.runner.chief and not self._is_done():
                self._write_side_scores()
                self.side_scores.start(position.step, position.epoch, self.job.watch)

    def _write_side_scores(self, waits: bool = False) -> None:
        """Write and show scores of an epoch that were computed meanwhile; see `SideScores.take`."""
        found = self.side_scores.take(waits)
        if found is not None:
            self._write_metrics(*found)
            self.display.show_scores(*found)

    def _score_epoch(self) -> None:
        """Save the run, then compute, write and show the scores of the epoch that has ended.

        Scoring may take longer than training: whatever happens meanwhile, the epoch is saved. Do
        nothing without an evaluator, and outside of the chief without --patience.
        """
        evaluator, position = self.job.evaluator, self.position
        position.unscored = False
        if evaluator is None or not (self.runner.chief or self.settings.patience):
            return
        if self.interval.losses:
            self._log()

        def check() -> None:
            """Raise StoppedError if this process is asked to stop."""
            if self.is_asked():
                raise StoppedError("scoring was stopped")

        position.unscored, scores = True, None
        with self.interval.excluded():
            self._save()
            with suppress(StoppedError):
                scores = evaluator.scores(check)
        if scores is not None:
            values = {"epoch": position.epoch, **scores}
            self.metrics.write(position.step, values)
            if scores:
                self.display.show_scores(position.step, values)
        if self.settings.patience:
            self._save_if_best(None if scores is None else evaluator.monitor(scores))
        else:
            position.unscored = scores is None
        if self.runner.chief:
            self._write_checkpoint()  # that it is scored, and the best epoch

    def _save_if_best(self, own: float | None) -> None:
        """If the score is the best so far, set it in the position, and save the tables as the best.

        Only the chief saves. Otherwise count one more epoch since the best one. If the chief has no
        score, as it is asked to stop, all processes stop here.
        """
        position, sent = self.position, math.nan
        if own is not None:
            sent = -math.inf if math.isnan(own) else own
        score = self.runner.broadcast(sent)  # all processes must stop at the same epoch
        self.is_stopped = position.unscored = math.isnan(score)
        if self.is_stopped:
            return
        position.since += 1
        if position.best is None or score > position.best:
            position.best, position.since = score, 0
            if self.runner.chief:
                self.best.save(position)
