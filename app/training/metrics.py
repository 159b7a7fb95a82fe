"""What a run reports: metrics.jsonl and TensorBoard scalars, and a line or a bar for the person."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import tensorflow as tf
import tqdm
from absl import logging

from ..errors import RunError
from ..system.checked_files import fits
from ..system.files import replacing


class Metrics:
    """Writes each logged step to `jsonl` and to TensorBoard's `folder`.

    step: the step that the run resumes from; lines after it, of a run that was killed, are removed.
    """

    def __init__(self, jsonl: Path, folder: Path, step: int):
        self._jsonl, self._folder = jsonl, folder
        if jsonl.exists():
            _truncate(jsonl, step)
        with _writing(folder):
            self._summary = tf.summary.create_file_writer(str(folder))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Values by name at a step. RunError if they cannot be written."""
        with _writing(self._jsonl), open(self._jsonl, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        with _writing(self._folder), self._summary.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def close(self) -> None:
        """Writes out what TensorBoard is to show. RunError if it cannot be written."""
        with _writing(self._folder):
            self._summary.close()


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow's reason ends its first line: "<operation> <path>; File too large".
        known = error.strerror if isinstance(error, OSError) else error.message.splitlines()[0]
        reason = str(known).rpartition("; ")[2]
        raise RunError(f"cannot write {path}: {reason}; free the disk and run again") from error


def _truncate(jsonl: Path, step: int) -> None:
    """Remove the lines of later steps, and those that are damaged, which is logged."""
    damaged = 0
    with (
        replacing(jsonl) as temporary,
        open(jsonl, "rb") as lines,
        open(temporary, "wb") as kept,
    ):
        for line in lines:
            try:
                value = json.loads(line.decode())
            except (ValueError, RecursionError):
                value = None
            if not fits(value, {"step": float}):
                damaged += line.endswith(b"\n")  # the last line of a killed run may be half-written
            elif value["step"] <= step:
                kept.write(line.rstrip(b"\n") + b"\n")
    if damaged:
        logging.warning("%s: %d damaged line(s) are left out; the run goes on", jsonl, damaged)


class Display:
    """The progress of a run: a bar on a terminal, one line an interval elsewhere.

    batches: of the whole run. done: those made before it was resumed. unit: of what is counted.
    """

    def __init__(self, batches: int, done: int, unit: str):
        self._unit = unit
        self._bar = (
            tqdm.tqdm(total=batches, initial=done, unit="call", desc="training", dynamic_ncols=True)
            if sys.stderr.isatty()
            else None
        )

    def advance(self) -> None:
        """One more batch."""
        if self._bar is not None:
            self._bar.update()

    def show(self, step: int, values: dict[str, float]) -> None:
        """The latest values."""
        perplexity = f" (perplexity {values['perplexity']:,.1f})" if "perplexity" in values else ""
        speed = values[f"{self._unit}_per_second"]
        text = (
            f"epoch {values['epoch']:.2f}, {speed:,.0f} {self._unit}/s, "
            f"loss {values['loss']:.4f}{perplexity}, rate {values['learning_rate']:.4f}, "
            f"waiting for input {values['input_wait']:.1%}"
        )
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        else:
            minutes, seconds = divmod(round(values["seconds_left"]), 60)
            logging.info("step %d: %s, %d:%02d left", step, text, minutes, seconds)

    def say(self, step: int, values: dict[str, float]) -> None:
        """Values that are no part of an interval, by their names."""
        told = ", ".join(f"{name.replace('_', ' ')} {value:,.6g}" for name, value in values.items())
        with tqdm.tqdm.external_write_mode() if self._bar is not None else nullcontext():
            logging.info("step %d: %s", step, told)

    def close(self) -> None:
        """Leaves the bar as it is."""
        if self._bar is not None:
            self._bar.close()


class Quiet:
    """In place of `Metrics` and of `Display` where another process writes and tells."""

    def write(self, step: int, values: dict[str, float]) -> None:
        """Nothing."""

    def advance(self) -> None:
        """Nothing."""

    def show(self, step: int, values: dict[str, float]) -> None:
        """Nothing."""

    def say(self, step: int, values: dict[str, float]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
