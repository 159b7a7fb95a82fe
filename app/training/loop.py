"""The training loop, the same for every task."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import tensorflow as tf
from absl import logging

from app.config import RunConfig
from app.errors import RunError
from app.models.base import Model
from app.optimizers.base import Optimizer
from app.optimizers.rows import slots
from app.tables.base import Kept, Table
from app.training import plan, profiling
from app.training.auditing import audit
from app.training.checkpoint import Checkpoints, Position, newest_position
from app.training.metrics import Display, Metrics
from app.training.profiling import Item, Profiler
from app.training.signals import asked_to_stop
from app.training.staging import InPlace, Staging
from app.training.step import TrainFunction, train_function
from app.training.workdir import Workdir, read_flags
from app.types import Batches


@dataclasses.dataclass(frozen=True)
class Job:
    """What there is to train.

    learning_rate: from the share of the training that is done. expected_batches: about how many
    an epoch has. words: in an epoch, counted as in the corpus. of_loss: further values, by name,
    that follow from the mean loss. epoch_end: called after each epoch, for values by name. memory:
    what takes it. kept: what else a checkpoint is to have. staging: what brings rows of the tables
    to the steps.
    """

    model: Model
    tables: dict[str, Table]
    optimizer: Optimizer
    learning_rate: Callable[[float], float]
    batches: Batches
    expected_batches: int
    words: int
    steps_per_batch: int
    device: str
    of_loss: Callable[[float], dict[str, float]] = lambda loss: {}
    epoch_end: Callable[[], dict[str, float]] | None = None
    memory: Sequence[plan.Item] = ()
    kept: Mapping[str, Kept] = dataclasses.field(default_factory=dict)
    staging: InPlace | Staging | None = None


def is_finished(workdir: Workdir) -> bool:
    """Whether all epochs that the workdir's flags ask for are done."""
    at = newest_position(workdir.checkpoints)
    return at is not None and at.epoch >= int(read_flags(workdir.flags).get("epochs", 0))


def prepare(job: Job, settings: RunConfig, workdir: Workdir) -> None:
    """Makes the optimizer's slots, so that the bytes of the tables are known.

    UsageError for a window of --profile_steps that the run has no steps for.
    """
    trained = {name for name, spec in job.model.tables().items() if spec.trained}
    for name in trained & job.tables.keys():  # there are none for --plan_only
        slots(job.optimizer, job.tables[name])
    # Windows that the workdir knows already may be behind; they were in the run that took them.
    if settings.profile_steps != read_flags(workdir.flags).get("profile_steps"):
        at = _expecting(newest_position(workdir.checkpoints) or Position(), job)
        left = (settings.epochs - at.done) * at.batches * job.steps_per_batch
        profiling.check(settings, at.step, job.steps_per_batch, at.step + round(left))


def train(job: Job, settings: RunConfig, workdir: Workdir) -> bool:
    """Trains, or goes on from the newest checkpoint; whether the last epoch was finished.

    Ends early, with a checkpoint, when asked by SIGINT or SIGTERM. RunError when the loss or a row
    is not finite, when the input cannot be read, or when a checkpoint cannot be written.
    """
    checkpoints = Checkpoints(
        workdir.checkpoints, {**job.tables, **job.kept}, settings.keep_checkpoints
    )
    staging = job.staging or InPlace(job.tables)
    function = train_function(job.model, staging.tables, job.optimizer, settings.seed)
    at = checkpoints.restore() or Position()
    if at.step:
        logging.info("resuming at step %d, epoch %.2f", at.step, at.done)
    _expecting(at, job)
    interval = _Interval(job, settings.epochs, at)
    audited = not settings.audit
    saved = time.monotonic()

    with (
        asked_to_stop() as stop,
        closing(staging),
        closing(Metrics(workdir.metrics, workdir.tensorboard, at.step)) as metrics,
        closing(Display(settings.epochs * at.batches, round(at.done * at.batches))) as display,
        closing(Profiler(settings, workdir.tensorboard)) as profiler,
    ):

        def report(rate: float) -> None:
            values = {**interval.close(at, rate), **staging.values()}
            metrics.write(at.step, values)
            display.show(at.step, values)

        def save() -> None:
            staging.write_home()
            _save(checkpoints, job, at)

        def reach(epoch: int, rate: float) -> None:
            """Ends the epochs before this one."""
            while at.epoch < epoch:
                at.epoch, at.batches, at.batch = at.epoch + 1, max(at.batch, 1), 0
                at.words += job.words
                if job.epoch_end is not None:
                    if interval.losses:
                        report(rate)
                    staging.write_home()
                    values = {"epoch": at.epoch, **interval.apart(job.epoch_end)}
                    metrics.write(at.step, values)
                    display.say(at.step, values)

        rate = 0.0
        epochs = range(at.epoch, settings.epochs)
        batches = job.batches(epochs, at.batch) if epochs else iter(())
        ahead = staging.ahead(batches, at.step)
        for epoch, tokens in profiler.marked(interval.waiting(ahead), at):
            reach(epoch, rate)
            if stop.is_set():
                break
            if time.monotonic() - saved >= settings.checkpoint_minutes * 60:
                save()
                saved = time.monotonic()
            rate = job.learning_rate(at.done / settings.epochs)
            inputs = tokens, tf.constant(at.step, tf.int64), tf.constant(rate, tf.float32)
            if not audited:
                _audit(function, job, staging.tables, inputs)
                audited = True
            with tf.device(job.device):
                loss = _called(function, inputs)
            at.step += job.steps_per_batch
            at.batch += 1
            interval.losses.append(loss)
            display.advance()
            if interval.seconds() >= settings.log_seconds:
                report(rate)
        else:
            reach(settings.epochs, rate)
        if interval.losses:
            report(rate)
        save()
    return at.epoch >= settings.epochs


def _called(function: TrainFunction, inputs: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """What the function gives. RunError where a table raised one within its graph."""
    try:
        return function(*inputs)
    except tf.errors.UnknownError as error:  # which has the text of the other, and where it was
        within = re.search(r"^RunError: (.*)$", error.message, re.MULTILINE)
        if within is None:
            raise
        raise RunError(within[1]) from error


def _expecting(at: Position, job: Job) -> Position:
    """The position, with the batches of an epoch as the job expects them if none was counted."""
    if at.expected != job.expected_batches:  # no epoch of this text is behind
        at.batches = at.expected = job.expected_batches
    return at


def _audit(
    function: TrainFunction, job: Job, tables: Mapping[str, Table], inputs: Sequence[tf.Tensor]
) -> None:
    with tf.device(job.device):  # where it is called, or it would be traced twice
        found = audit(function, tables, inputs)
    if found:
        logging.warning("in each call of %d steps, %s", job.steps_per_batch, found)


class _Interval:
    """What has come since the last logged step; values stay on the device until it is closed."""

    def __init__(self, job: Job, epochs: int, at: Position):
        self._job, self._epochs = job, epochs
        self._before = at.seconds
        self._began = time.perf_counter()
        self._start(at)

    def _start(self, at: Position) -> None:
        self.step, self._words, self._seconds = at.step, _words(at, self._job), self._total()
        self.losses: list[tuple[tf.Tensor, tf.Tensor]] = []
        self._waited = 0.0

    def waiting(self, batches: Iterator[Item]) -> Iterator[Item]:
        """The batches, with the time that each keeps the loop waiting."""
        while True:
            began = time.perf_counter()
            item = next(batches, None)
            self._waited += time.perf_counter() - began
            if item is None:
                return
            yield item

    def apart(self, call: Callable[[], dict[str, float]]) -> dict[str, float]:
        """What a call gives, whose time does not count."""
        began = time.perf_counter()
        values = call()
        self._began += time.perf_counter() - began
        return values

    def seconds(self) -> float:
        """How long it has been going on."""
        return self._total() - self._seconds

    def close(self, at: Position, rate: float) -> dict[str, float]:
        """Its values by name, once the device has come this far; the next one begins."""
        total, examples = (float(tf.add_n(part)) for part in zip(*self.losses, strict=True))
        loss = total / max(examples, 1.0)
        if not math.isfinite(loss):
            raise RunError(_not_finite("the loss", f"steps {self.step} and {at.step}"))
        at.seconds = self._total()
        seconds = max(self.seconds(), 1e-9)
        words = _words(at, self._job)
        speed = (words - self._words) / seconds
        values = {
            "epoch": round(at.done, 4),
            "loss": loss,
            **self._job.of_loss(loss),
            "learning_rate": rate,
            "words_per_second": speed,
            "input_wait": self._waited / seconds,
            "words": round(words),
            "train_seconds": at.seconds,
            "seconds_left": self._job.words * (self._epochs - at.done) / max(speed, 1e-9),
        }
        self._start(at)
        return values

    def _total(self) -> float:
        return self._before + time.perf_counter() - self._began


def _words(at: Position, job: Job) -> float:
    """Words of the corpus trained on."""
    return at.words + job.words * (at.done - at.epoch)


def _save(checkpoints: Checkpoints, job: Job, at: Position) -> None:
    """Saves tables that are finite; a loss is read now and then only, so it might not tell."""
    for name, table in job.tables.items():
        if not table.is_finite():
            between = f"the last checkpoint and step {at.step}"
            raise RunError(_not_finite(f"a row of table {name!r}", between))
    checkpoints.save(at)


def _not_finite(what: str, between: str) -> str:
    return (
        f"{what} is not finite between {between}; lower --learning_rate "
        "(run again to resume from the last checkpoint)"
    )
