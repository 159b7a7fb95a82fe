"""The event files of TensorBoard: the metrics of a run, its settings and its hyperparameters.

An event file is a TFRecord file of `Event` messages. TensorBoard names a run by the folder of its
files, so that folder has the name of the workdir.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT
from tensorboard.plugins.scalar.metadata import create_summary_metadata

from ..settings import RunConfig
from ..settings.flag_values import defaults, lacking
from ..system.checked_files import fits
from . import metric_names

_PREFIX = "events.out.tfevents."
# What earlier versions, or a run in a workdir of another name, wrote elsewhere.
_MOVED = (f"{_PREFIX}*", "projector_config.pbtxt", "vectors.tsv", "metadata.tsv")
# Settings of the run that change what is trained.
_OF_TRAINING = {"epochs", "patience", "seed", "strategy", "sync_steps", "sync_dtype"}
_OF_RUN = {field.name for field in dataclasses.fields(RunConfig)} - _OF_TRAINING


class EventFile:
    """A new event file in the folder of a run.

    Args:
        folder: The folder, which is made if need be.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        name = f"{_PREFIX}{time.time():.6f}.{socket.gethostname()}"
        self._file = tf.io.TFRecordWriter(str(folder / name))
        self._described: set[str] = set()
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, step: int, values: Mapping[str, float], wall_time: float | None = None) -> None:
        """Write metrics.

        Args:
            values: The metrics, by their names in metrics.jsonl.
            wall_time: Seconds since 1970; None for now.
        """
        summary = Summary()
        for name, value in values.items():
            tensor = TensorProto(
                dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), float_val=[float(value)]
            )
            tag, text = metric_names.describe(name)
            added = summary.value.add(tag=tag, tensor=tensor)
            if name not in self._described:  # only the first is read
                added.metadata.CopyFrom(create_summary_metadata("", text))
                self._described.add(name)
        self._write(Event(step=step, wall_time=wall_time or time.time(), summary=summary))

    def describe(self, settings: Mapping[str, Any], workdir: Path, began: float) -> None:
        """Write the settings of the run as hyperparameters and as a table, changed ones first.

        Args:
            settings: Flag name -> value.
            began: When the run began, in seconds since 1970.
        """
        # These take .03 s, and not every start trains.
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.summary_v2 import text_pb

        chosen, usual = hyperparameters(settings), defaults(settings)
        rows = ["setting | value | default", "---|---|---"]
        for name in sorted(chosen, key=lambda name: chosen[name] == usual[name]):
            value, default = chosen[name], usual[name]
            shown = f"`{value}`" if value == default else f"**`{value}`**"
            rows.append(f"{name} | {shown} | `{default}`")
        # Runs of one trial would be one row, so the trial has the name of the workdir.
        numbers = hparams_pb(chosen, f"{workdir.name} ({workdir.parent})", began)
        for summary in (text_pb("settings", "\n".join(rows)), numbers):
            self._write(Event(step=0, wall_time=began, summary=summary))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        """Write an event, so that TensorBoard can show it at once."""
        self._file.write(event.SerializeToString())
        self._file.flush()


def begin(folder: Path, jsonl: Path, settings: Mapping[str, Any]) -> EventFile:
    """Return a new event file with all metrics so far, which replaces the earlier ones of a run.

    So each metric has one curve under one name, whatever version wrote it, and no step twice. The
    time of a line is computed from the seconds of training, which do not count pauses.

    Args:
        folder: The folder of the run for TensorBoard; files beside and above it are of this run.
        jsonl: The metrics.jsonl of the run, without damaged lines; it may not exist.
        settings: Flag name -> value; empty if they are not known.
    """
    for path in (*folder.glob(f"{_PREFIX}*"), *_find_moved(folder)):
        path.unlink()
    lines = []
    if jsonl.exists():
        with open(jsonl, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    seconds = max((line.get("train_seconds") or 0.0 for line in lines), default=0.0)
    began = now = time.time() - seconds
    events = EventFile(folder)
    if settings:
        events.describe(settings, jsonl.parent, began)
    for line in lines:
        now = began + (line.get("train_seconds") or now - began)
        values = {name: one for name, one in line.items() if fits(one, float)}
        events.write(int(values.pop("step")), values, now)
    return events


def _find_moved(folder: Path) -> list[Path]:
    """Return the files of the run that are above its folder, or in a folder of another name."""
    beside = [one for one in folder.parent.glob("*") if one.is_dir() and one != folder]
    places = [folder.parent, *beside] if folder.parent.name == "tensorboard" else []
    return [path for place in places for name in _MOVED for path in place.glob(name)]


def hyperparameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that change what is trained: those with an effect, and not empty."""
    return {
        name: value
        for name, value in settings.items()
        if value not in ("", None) and name not in _OF_RUN and not lacking(name, settings)
    }
