"""The metrics of a run: measured, written to metrics.jsonl and TensorBoard, and shown."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf
import tqdm
from absl import logging

from ..checkpoints.checkpoint import Position
from ..errors import RunError
from ..system import console
from ..system.files import remedy, replacing, system_error
from . import event_files
from .job import Job
from .metric_names import parse

Item = TypeVar("Item")


class Interval:
    """Measures the loss and the speed of the steps since the last logged step.

    The caller appends to `losses`. They stay on the device until the interval is closed.

    Args:
        epochs: The number of epochs of the whole run.
        position: Where the run is.

    Attributes:
        losses: The results of `Runner.run_steps` since the last logged step.
        step: The last logged step.
    """

    def __init__(self, job: Job, epochs: int, position: Position):
        self._job, self._epochs = job, epochs
        self._before = position.seconds
        self._began = time.perf_counter()
        self._first_call = 0.0  # the seconds of the first call, if it is in this interval
        self._start(position)

    def _start(self, position: Position) -> None:
        """Begin an interval at a position: clear the losses and the time of waits."""
        self.step, self._seconds = position.step, self._train_seconds()
        self._words = self._count_words(position)
        self.losses: list[Any] = []
        self._waited = 0.0

    def measure_waits(self, batches: Iterator[Item]) -> Iterator[Item]:
        """Yield the batches, and add up how long the loop waits for them (`input_wait`)."""
        for number in itertools.count():
            began = time.perf_counter()
            item = next(batches, None)
            self._waited += time.perf_counter() - began
            if item is None:
                return
            yield item
            if number == 0 and self.losses:  # else its interval is closed
                self._first_call = time.perf_counter() - began

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Return a context whose time is not counted as training."""
        began = time.perf_counter()
        yield
        self._began += time.perf_counter() - began

    def seconds(self) -> float:
        """Return the training time since the last logged step, in seconds."""
        return self._train_seconds() - self._seconds

    def close(self, position: Position, rate: float) -> dict[str, float]:
        """Return the metrics of this interval by name, and begin the next one.

        It waits until the device has made all steps. Log a warning if they had no examples.

        Args:
            position: Where the run is; its `seconds` are set.
            rate: The learning rate of the last step.

        Returns:
            The epochs made, the mean loss of an example and the further metrics of the job, the
            rate, the units of data a second, the share of the time spent waiting for input, the
            units and the seconds of training of the whole run, and the estimated seconds left.

        Raises:
            RunError: The mean loss is not finite. The interval then stays open.
        """
        losses, all_examples, *_ = zip(*self.losses, strict=True)
        total, examples = float(tf.add_n(losses)), float(tf.add_n(all_examples))
        loss = total / max(examples, 1.0)
        if not math.isfinite(loss):
            raise RunError(not_finite("the loss", f"steps {self.step} and {position.step}"))
        if not examples:
            logging.warning(
                "the measured steps from %d to %d have no example, so nothing is learnt from them; "
                "a line of text is an example if it has two words of the vocabulary",
                *(self.step + 1, position.step),
            )
        position.seconds = self._train_seconds()
        seconds = max(self.seconds(), 1e-9)
        words = self._count_words(position)
        speed, data = (words - self._words) / seconds, self._job.data
        # The first call traces and compiles, which later calls do not.
        steady = seconds - self._first_call if len(self.losses) > 1 else seconds
        rest = self._epochs - position.done
        values = {
            "epoch": round(position.done, 4),
            "loss": loss,
            **self._job.loss_metrics(loss),
            "learning_rate": rate,
            f"{data.unit}_per_second": speed,
            "input_wait": self._waited / seconds,
            data.unit: round(words),
            "train_seconds": position.seconds,
            "seconds_left": data.epoch_size * rest * steady / max(words - self._words, 1e-9),
        }
        self._first_call = 0.0
        self._start(position)
        return values

    def _train_seconds(self) -> float:
        """Return the training time of the whole run, earlier processes included."""
        return self._before + time.perf_counter() - self._began

    def _count_words(self, position: Position) -> float:
        """Return about how many words, or other units of the data, the run has trained on."""
        return position.words + self._job.data.epoch_size * (position.done - position.epoch)


def not_finite(subject: str, between: str) -> str:
    """Return the error message for numbers that are not finite.

    Args:
        subject: The name of the numbers, with an article.
        between: The last step with finite numbers and the current step, as text.
    """
    return (
        f"{subject} is not finite between {between}; lower --learning_rate "
        "(run again to resume from the last checkpoint)"
    )


class Metrics:
    """Writes the metrics of each logged step to metrics.jsonl and to TensorBoard.

    Args:
        jsonl: The path of metrics.jsonl.
        folder: The folder of the run for TensorBoard. Its event files are written anew from
            metrics.jsonl.
        step: The step that the run resumes from. The constructor removes the lines of later steps
            in metrics.jsonl: a killed run wrote them, and this run makes these steps again.
        settings: Flag name -> value, of all flags of the run, for TensorBoard; empty for none.
        is_scored: Whether the scores of the step, if there are some, are complete. If not, they are
            removed, too, as the run computes them again.

    Raises:
        RunError: The folder or metrics.jsonl cannot be written.
    """

    def __init__(
        self,
        jsonl: Path,
        folder: Path,
        step: int,
        settings: Mapping[str, Any] | None = None,
        is_scored: bool = True,
    ):
        self._jsonl, self._folder = jsonl, folder
        if jsonl.exists():
            _truncate(jsonl, step, is_scored)
        with _writing(folder):
            self._events = event_files.begin(folder, jsonl, settings or {})

    def write(self, step: int, values: dict[str, float]) -> None:
        """Append metrics to metrics.jsonl and to the event file.

        Raises:
            RunError: A file cannot be written.
        """
        _append(self._jsonl, step, values)
        with _writing(self._folder):
            self._events.write(step, values)

    def close(self) -> None:
        """Close the event file.

        Raises:
            RunError: The file cannot be written.
        """
        with _writing(self._folder):
            self._events.close()


def write_closing_scores(jsonl: Path, folder: Path, step: int, scores: dict[str, float]) -> None:
    """Write the scores of a finished run, unless they are the last line of metrics.jsonl.

    Args:
        jsonl: The path of metrics.jsonl.
        folder: The folder of TensorBoard.
        step: The last step of the run.

    Raises:
        RunError: A file cannot be written.
    """
    last = jsonl.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2] if jsonl.exists() else b""
    if scores and last != json.dumps({"step": step, **scores}).encode():
        if jsonl.exists():
            _truncate(jsonl, step)
        _append(jsonl, step, scores)
        with _writing(folder), contextlib.closing(event_files.EventFile(folder)) as events:
            events.write(step, scores)


def _append(jsonl: Path, step: int, values: Mapping[str, float]) -> None:
    """Append metrics to metrics.jsonl; raise RunError if it cannot be written."""
    with _writing(jsonl), open(jsonl, "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **values}) + "\n")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Convert an OSError or an error of TensorFlow in the block to a RunError about the path."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        known = error if isinstance(error, OSError) else system_error(error.message)
        reason = known.strerror or known
        raise RunError(f"cannot write {path}: {reason}; {remedy(known)} and run again") from error


def _truncate(jsonl: Path, step: int, is_scored: bool = True) -> None:
    """Remove the lines of later steps from metrics.jsonl, and damaged lines with a warning.

    If the step is not scored, remove its scores. Other lines of a step have the loss.
    A half-written last line is removed without a warning. The file is replaced as a whole.
    """
    damaged = 0
    with replacing(jsonl) as temporary, open(jsonl, "rb") as lines, open(temporary, "wb") as kept:
        for line in lines:
            value = parse(line)
            if value is None:
                damaged += line.endswith(b"\n")  # the last line of a killed run may be half-written
            elif value["step"] < step or (value["step"] == step and (is_scored or "loss" in value)):
                kept.write(line.rstrip(b"\n") + b"\n")
    if damaged:
        logging.warning("%s: %d damaged line(s) are left out; the run goes on", jsonl, damaged)


class Display:
    """Shows the progress of a run: a bar (see `console.progress`), or a line for each interval.

    Args:
        batches: The number of batches of the whole run.
        done: The number of batches made before the run was resumed.
        unit: The unit that the job counts, such as "words".
    """

    def __init__(self, batches: int, done: int, unit: str):
        self._unit = unit
        how = {"unit": "call", "desc": "training", "dynamic_ncols": True}
        self._bar = console.make_bar(total=batches, initial=done, **how)

    def advance(self) -> None:
        """Count one more batch."""
        self._bar.update()

    def show(self, step: int, values: dict[str, float]) -> None:
        """Show the metrics of an interval: beside the bar, or without a bar as a line of the log.

        Args:
            values: The metrics by name, as `Interval.close` returns them.
        """
        perplexity = f" (perplexity {values['perplexity']:,.1f})" if "perplexity" in values else ""
        speed = values[f"{self._unit}_per_second"]
        text = (
            f"epoch {values['epoch']:.2f}, {speed:,.0f} {self._unit}/s, "
            f"loss {values['loss']:.4f}{perplexity}, rate {values['learning_rate']:.4f}, "
            f"waiting for input {values['input_wait']:.1%}"
        )
        if "exchange_share" in values:
            text += f", for the exchange {values['exchange_share']:.1%}"
        self._bar.set_postfix_str(text)
        if self._bar.disable:
            minutes, seconds = divmod(round(values["seconds_left"]), 60)
            console.log_progress(f"step {step}: {text}, {minutes}:{seconds:02d} left")

    def show_scores(self, step: int, values: dict[str, float]) -> None:
        """Show scores as a line of the log, also above a bar."""
        text = ", ".join(f"{name.replace('_', ' ')} {value:,.6g}" for name, value in values.items())
        with tqdm.tqdm.external_write_mode():
            console.log_progress(f"step {step}: {text}")

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        self._bar.close()


class Quiet:
    """Takes the place of `Metrics` and `Display` in processes that neither write nor print."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a function that does nothing, whatever it is called with."""
        return lambda *arguments: None
