"""The training loop, the same for every task: run steps, log, save checkpoints, evaluate."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import tensorflow as tf
from absl import logging

from ..checkpoints.checkpoint import Checkpoints, Position
from ..checkpoints.workdir import Workdir, write_flags
from ..errors import RunError, StoppedError
from ..settings import RunConfig
from ..system.signals import asked_to_stop
from ..tables.prefetch import InPlace
from .job import Job, Scores
from .metrics import Display, Interval, Metrics, Quiet, not_finite
from .profile_hooks import Profiler
from .runner import Runner

_SAVING = "saving the run; press Ctrl-C again to stop without saving"
# Seconds. The system may give a signal to another thread than the main one, whose wait goes on
# then. Python calls the handler of the signal only when the main thread runs again.
_WAKE_SECONDS = 0.2


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
        return _train(job, settings, workdir, runner or Runner(), flags, staging)


def _train(
    job: Job,
    settings: RunConfig,
    workdir: Workdir,
    runner: Runner,
    flags: Mapping[str, Any] | None,
    staging: InPlace,
) -> bool:
    """Train as `train` does, with rows that `staging` brings to the steps."""
    state: dict[str, Any] = {**job.placed.tables, **job.extra_state}
    checkpoints = Checkpoints(workdir.checkpoints, state, settings.keep_checkpoints)
    best = Checkpoints(workdir.best, state)
    runner.open(job, staging.tables, settings.seed)
    position = checkpoints.restore(rename_damaged=runner.chief)
    position = position or Position()
    if position.step:
        logging.info("resuming at step %d, epoch %.2f", position.step, position.done)
    if runner.chief:
        if flags is not None:
            write_flags(workdir.flags, dict(flags))
        job.data.record()  # after the flags, which say how to read these files
        best.remove_after(position.step if settings.patience else -1)
    else:
        settings = dataclasses.replace(settings, profile_steps="", profile_on_slow=0.0)
    was_at_end = position.is_at_end(settings.epochs, settings.patience) and not position.unscored
    if runner.chief and not was_at_end:
        checkpoints.check_room()
    position.expect_batches(job.data.expected_batches)
    _set_micro_batches(position, job)
    metrics: Metrics | Quiet = Quiet()
    display: Display | Quiet = Quiet()
    if runner.chief:
        metrics = Metrics(workdir.metrics, workdir.tensorboard, position.step)
        batches, done = position.batches, round(position.done * position.batches)
        display = Display(settings.epochs * batches, done, job.data.unit)
    with (
        asked_to_stop(_SAVING if runner.chief else "") as stop,
        closing(metrics),
        closing(display),
        closing(Profiler(settings, workdir.tensorboard)) as profiler,
        closing(Scoring(runner.is_asynchronous and not settings.patience, stop.is_set)) as scoring,
    ):
        loop = _Loop(
            job, settings, runner, staging, position, checkpoints, best, metrics, display, scoring
        )
        loop.run(profiler, stop.is_set)
    is_at_end = position.is_at_end(settings.epochs, settings.patience) and not position.unscored
    if settings.patience and runner.chief and is_at_end and not was_at_end:
        _log_kept_epoch(position, settings)
    return is_at_end


def _log_kept_epoch(position: Position, settings: RunConfig) -> None:
    """Log which epoch --patience has kept, and that it has ended the run, if it has."""
    kept = position.epoch - position.since
    if position.epoch < settings.epochs:
        logging.info(
            "--patience=%d: stopped after epoch %d of %d, as the last %d did not score better; the "
            "rows of epoch %d are kept",
            *(settings.patience, position.epoch, settings.epochs, position.since, kept),
        )
    else:
        logging.info("--patience=%d: the rows of epoch %d are kept", settings.patience, kept)


@dataclasses.dataclass
class _Loop:
    """The loop of one run, with everything that it reads and writes."""

    job: Job
    settings: RunConfig
    runner: Runner
    staging: InPlace
    position: Position
    checkpoints: Checkpoints
    best: Checkpoints
    metrics: Metrics | Quiet
    display: Display | Quiet
    scoring: Scoring

    def __post_init__(self) -> None:
        """Begin the first interval; drop an evaluator for which training would wait needlessly."""
        self.interval = Interval(self.job, self.settings.epochs, self.position, self.runner)
        self.rate = 0.0  # the learning rate of the last call
        self.saved = time.monotonic()  # the time of the last checkpoint
        self.saved_step = -1  # its step
        self.is_stopped = False  # for all processes, while an epoch was scored
        self.is_audited = not (self.settings.audit and self.runner.chief)
        # Training would wait for scores that nothing but the log needs.
        is_scored = self.job.evaluator and (
            self.scoring.is_aside or self.job.evaluator.is_monitored
        )
        self.evaluator = self.job.evaluator if is_scored else None

    def run(self, profiler: Profiler, is_asked: Callable[[], bool]) -> None:
        """Train until the last epoch, the end by --patience, or a request to stop; then save.

        Logs and checkpoints are written every --log_seconds and --checkpoint_minutes, scores after
        each epoch. `is_asked` returns whether this process is asked to stop.
        """
        settings, position = self.settings, self.position
        if position.unscored:  # an earlier process was stopped or killed meanwhile
            self._score_epoch()
        epochs = self._epochs()
        batches = self.runner.batches(self.job, epochs, position.batch) if epochs else iter(())
        ready = self.interval.measure_waits(self.staging.prefetch(batches, position.step))
        for epoch, data in profiler.trace(ready, position):
            self._finish_epochs(epoch)
            if self.is_stopped or self.runner.is_stopping(is_asked()) or self._is_done():
                break
            is_due = time.monotonic() - self.saved >= settings.checkpoint_minutes * 60
            if is_due and self.runner.is_synchronized:
                self._save_and_score()
            self._run_steps(data)
            self._report_scores(self.scoring.done())
            if self.interval.seconds() >= settings.log_seconds:
                self._log()
        else:
            if epochs:
                self._finish_epochs(settings.epochs)
        if self.interval.losses:
            self._log()
        self._save()
        self._report_scores(self.scoring.rest())

    def _epochs(self) -> range:
        """Return the epochs that are left, with the current one; an empty range if the run is done.

        If --patience ended it before the last epoch, log that.
        """
        settings, position = self.settings, self.position
        if self.is_stopped:
            return range(0)
        if not self._is_done():
            return range(position.epoch, settings.epochs)
        if position.epoch < settings.epochs:
            logging.info(
                "--patience=%d ended this run after epoch %d: there is nothing to do; to train "
                "on, give a greater --patience, or --patience=0",
                *(settings.patience, position.epoch),
            )
        return range(0)

    def _is_done(self) -> bool:
        """Return whether the run is at its end: by its last epoch or by --patience."""
        return self.position.is_at_end(self.settings.epochs, self.settings.patience)

    def _run_steps(self, data: Any) -> None:
        """Train on one batch (S steps), keep its loss, and advance the position and the display.

        With --audit, the chief first audits the first call, and logs a warning with its findings.
        """
        job, position = self.job, self.position
        self.rate = job.learning_rate(position.done / self.settings.epochs)
        first = tf.constant(position.step, tf.int64)
        rate = tf.constant(self.rate, tf.float32)
        located = self.staging.locate(data, first)
        if not self.is_audited:
            findings = self.runner.audit(located, first, rate)
            if findings:
                logging.warning("in each call of %d steps, %s", job.data.steps_per_batch, findings)
            self.is_audited = True
        self.interval.losses.append(self.runner.run_steps(located, first, rate))
        position.step += job.data.steps_per_batch
        position.batch += 1
        position.unscored = False
        self.display.advance()

    def _log(self) -> None:
        """Write and show the metrics of the steps since the last call, and begin a new interval.

        Raise RunError if the loss is not finite. Also if the metrics cannot be written; the run is
        saved before, unless it has to wait for an exchange.
        """
        values = {
            **self.interval.close(self.position, self.rate),
            **self.staging.values(),
            **self.runner.values(),
        }
        try:
            self.metrics.write(self.position.step, values)
        except RunError:
            if self.runner.is_synchronized:
                with suppress(RunError):  # the first error says what is wrong
                    self._save()
            raise
        self.display.show(self.position.step, values)

    def _save(self) -> None:
        """Wait until every step is made; then, in the chief only, write a checkpoint.

        Cached rows are written back to the tables before. Raise RunError, and write no checkpoint,
        if a row of a table is not finite.
        """
        self.runner.synchronize()
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
            newest = self.checkpoints.newest()
            start = f"step {newest.step}" if newest else "the start, as none is saved yet"
            raise RunError(f"{error}; with this --workdir, a run goes on from {start}") from error

    def _save_and_score(self) -> None:
        """Write a checkpoint; begin to compute scores if a thread for them exists and is idle."""
        self._save()
        if self.evaluator is not None and self.scoring.is_aside and self.scoring.is_idle:
            self.scoring.begin(self.evaluator.scores, self.position.step, self.position.epoch)

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

    def _score_epoch(self) -> None:
        """Save the run, then compute and report the scores of the epoch that has ended.

        Scoring may take longer than training: whatever happens meanwhile, the epoch is saved.

        Do nothing without an evaluator, and outside of the chief without --patience. If scores are
        computed in a thread, training goes on: they are reported later, nothing is saved here, and
        an epoch is not scored while the scores of an earlier one are not ready, except for the last
        epoch.
        """
        evaluator, position, scoring = self.evaluator, self.position, self.scoring
        position.unscored = False
        if evaluator is None or not (self.runner.chief or self.settings.patience):
            return
        if scoring.is_aside and not scoring.is_idle and position.epoch < self.settings.epochs:
            return  # the scores of an earlier epoch are not ready yet
        if self.interval.losses:
            self._log()
        if not scoring.is_aside:
            position.unscored = True
            self.interval.exclude(self._save)
        self.interval.exclude(
            lambda: scoring.begin(evaluator.scores, position.step, position.epoch)
        )
        self._report_scores(scoring.done())
        if self.runner.chief and not scoring.is_aside:
            self._write_checkpoint()  # that it is scored, and the best epoch

    def _report_scores(self, finished: Iterable[tuple[int, int, dict[str, float] | None]]) -> None:
        """Write and show scores, each with its step and epoch; with --patience keep the best.

        Empty scores are written, but not shown. None stands for scores that were not completed.
        """
        for step, epoch, scores in finished:
            if scores is not None:
                values = {"epoch": epoch, **scores}
                self.metrics.write(step, values)
                if scores:  # none where the vocabulary has no word of a benchmark
                    self.display.show_scores(step, values)
            if self.settings.patience:
                self._save_if_best(scores)
            elif scores is not None:
                self.position.unscored = False

    def _save_if_best(self, scores: dict[str, float] | None) -> None:
        """If the score is the best so far, set it in the position, and save the tables as the best.

        Only the chief saves. Otherwise count one more epoch since the best one. If the chief has no
        scores, as it is asked to stop, all processes stop here.
        """
        own, position = math.nan, self.position
        if scores is not None:
            own = self.evaluator.monitor(scores)
            own = -math.inf if math.isnan(own) else own
        score = self.runner.broadcast(own)  # all processes must stop at the same epoch
        self.is_stopped = position.unscored = math.isnan(score)
        if self.is_stopped:
            return
        position.since += 1
        if position.best is None or score > position.best:
            position.best, position.since = score, 0
            if self.runner.chief:
                self.best.save(position)


def _set_micro_batches(position: Position, job: Job) -> None:
    """Store the job's number of micro-batches, and warn if an epoch was begun with another one.

    The warning is logged only if the order of the data depends on the number.
    """
    if (
        job.data.depends_on_micro_batches
        and position.batch
        and position.micro_batches != job.placed.micro_batches
    ):
        logging.warning(
            "this epoch was begun with %d micro-batches a step, and goes on with %d: some rows of "
            "it come twice or not at all; the next epochs are complete",
            *(position.micro_batches, job.placed.micro_batches),
        )
    position.micro_batches = job.placed.micro_batches


class Scoring:
    """Computes scores one after the other, and keeps each result until `done` yields it.

    Args:
        is_aside: Whether to compute them in a thread while training goes on.
        is_asked: Returns whether this process is asked to stop; scoring then ends early.
    """

    def __init__(self, is_aside: bool, is_asked: Callable[[], bool] = lambda: False):
        self.is_aside, self._is_asked = is_aside, is_asked
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "scoring")
        self._pending: list[tuple[int, int, concurrent.futures.Future]] = []

    @property
    def is_idle(self) -> bool:
        """Return whether `done` has yielded the result of everything that was begun."""
        return not self._pending

    def begin(self, scores: Scores, step: int, epoch: int) -> None:
        """Begin to compute scores in the thread; wait for them here, unless `is_aside`.

        With `is_aside`, training may change the tables meanwhile, so the step is approximate.
        The scores come from `done` in both cases.

        Args:
            scores: Returns the scores by name.
            step: The step that the run is at.
            epoch: The epochs that are finished.
        """
        future = self._thread.submit(scores, self._end_if_asked)
        self._pending.append((step, epoch, future))
        if not self.is_aside:
            _wait([future])

    def done(self) -> Iterator[tuple[int, int, dict[str, float] | None]]:
        """Yield the step, the epoch and the scores of each result that is ready, and forget it.

        The scores are None if this process was asked to stop before they were complete. Wait for
        none. An error in computing scores is raised here.
        """
        while self._pending and self._pending[0][2].done():
            step, epoch, future = self._pending.pop(0)
            try:
                scores = future.result()
            except StoppedError:
                scores = None
            yield step, epoch, scores

    def rest(self) -> Iterator[tuple[int, int, dict[str, float] | None]]:
        """Wait for all scores, and yield and forget them as `done` does."""
        _wait([future for *_, future in self._pending])
        yield from self.done()

    def close(self) -> None:
        """Drop the waiting work of the thread, and wait for its end."""
        self._thread.shutdown(cancel_futures=True)

    def _end_if_asked(self) -> None:
        """Raise StoppedError if this process is asked to stop."""
        if self._is_asked():
            raise StoppedError("scoring was stopped")


def _wait(futures: Sequence[concurrent.futures.Future]) -> None:
    """Wait for the end of all futures, and let handlers of signals be called meanwhile."""
    while concurrent.futures.wait(futures, _WAKE_SECONDS).not_done:
        pass
