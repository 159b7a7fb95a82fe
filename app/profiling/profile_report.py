"""Diagnose a profile, and report the diagnosis as text, as JSON values and as a picture."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RunError, UsageError
from ..settings import Config
from ..system.files import replacing
from .advice import Change, advise
from .division import TRUSTED_CALLS, Division, divide
from .operations import Run, Work, collect_runs, collect_work
from .profiles import NO_PROGRAMS, Event, Programs, read, read_programs
from .stages import Stage, find_pipeline

_HEAVIEST = 5  # operations in the report
_HARDLY = 0.05  # of a step; xprof calls less than this not input-bound
MEANINGS = {
    "input-bound": "steps wait for their input, or share the cores with it",
    "device-bound": "the operations of the steps take the time",
    "launch-bound": "operations are so small that their start takes the time",
    "copy-bound": "copies to the device take the time",
    "host-bound": "the host's work between and beside the operations takes the time",
}


class Kernels(NamedTuple):
    """The kernels of the compiled programs of a profile.

    Attributes:
        number: The mean number of kernels of a step.
        bytes: The bytes that they move in a step, if no cache keeps any.
        bandwidth: This amount in the mean time of a step, as a share of what the memory of the GPU
            can move; 0 without a GPU.
    """

    number: float
    bytes: float
    bandwidth: float


class Diagnosis(NamedTuple):
    """The diagnosis of a profile.

    Attributes:
        profile: The folder of the profile.
        steps: The steps of a call of the train function; 1 if not known.
        tokens: The tokens of a step; 1 if not known.
        division: The parts of the time of a call.
        stage: The slowest stage of the pipeline, or None.
        work: The operations.
        kernels: The kernels of compiled steps, or None.
        changes: Proposed changes, best first.
    """

    profile: Path
    steps: int
    tokens: int
    division: Division
    stage: Stage | None
    work: Work
    kernels: Kernels | None
    changes: list[Change]

    @property
    def milliseconds(self) -> float:
        """The mean time of a step."""
        return self.division.milliseconds / self.steps


def diagnose(profile: Path, config: Config | None) -> Diagnosis:
    """Read the profile in a folder, and return its diagnosis.

    The advice depends on the number of cores of this machine.

    Args:
        config: The settings of the run; None if it was not a run of `lexrow train`.

    Raises:
        RunError: The profile is damaged, or has no complete call.
    """
    file = min(profile.glob("*.xplane.pb"))  # of the first host
    events = read(file)
    is_compiled = any("hlo_module" in event.args for event in events)
    programs = read_programs(file) if is_compiled else NO_PROGRAMS
    return diagnose_events(profile, events, programs, config, os.cpu_count() or 1)


def diagnose_events(
    profile: Path, events: Sequence[Event], programs: Programs, config: Config | None, cores: int
) -> Diagnosis:
    """Return the diagnosis of events; see `diagnose`.

    Args:
        profile: The folder of the profile, for the report.
        config: The settings of the run; None if it was not a run of `lexrow train`.
    """
    runs = collect_runs(events, programs)
    work = collect_work(runs)
    division = divide(events, runs, cores)
    if not division.calls:
        raise RunError(
            f"{profile} has no whole step: record more of them (--profile_steps=START,STOP, or "
            "profile_batch=(START, STOP) of Keras), each marked as by "
            "tf.profiler.experimental.Trace(NAME, step_num=STEP, _r=1)"
        )
    pipeline = find_pipeline(events)
    changes = advise(division, pipeline, runs, work, config, cores)
    steps, tokens = (config.input.steps_per_call, config.input.batch_tokens) if config else (1, 1)
    stage = pipeline.slowest if pipeline else None
    kernels = _count_kernels(events, runs, division, steps, programs.bandwidth)
    return Diagnosis(profile, steps, tokens, division, stage, work, kernels, changes)


def _count_kernels(
    events: Sequence[Event], runs: Sequence[Run], division: Division, steps: int, bandwidth: float
) -> Kernels | None:
    """Return the kernels of a step, or None if no step is compiled; a call has so many steps."""
    marks = [event for event in events if "step_num" in event.args]
    end = max(event.start + event.length for event in marks)
    begin = min(event.start for event in marks)
    sizes = [run.bytes for run in runs if run.kernel and begin <= run.start < end]
    if not sizes:
        return None
    used = sum(sizes) / division.seconds / bandwidth if bandwidth else 0.0
    steps *= division.calls
    return Kernels(len(sizes) / steps, sum(sizes) / steps, used)


def text(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as lines: step, verdict, kernels, slowest stage, operations, changes.

    It has the five heaviest operations, and a note if the profile is too short to trust.
    """
    division, stage = diagnosis.division, diagnosis.stage
    shares = sorted(division.shares.items(), key=lambda item: -item[1])
    parts = ", ".join(
        f"{part.replace('_', ' ')} {share:.0%}" for part, share in shares if share >= 0.005
    )
    competing = division.competing
    calls = "steps" if diagnosis.steps == 1 else f"calls of {diagnosis.steps} steps"
    lines = [f"profile    {diagnosis.profile}: {division.calls} {calls}"]
    if not division.trusted:
        lines.append(
            "           too short to trust: record at least "
            f"{(TRUSTED_CALLS + 2) * diagnosis.steps} steps"
        )
    call = f" ({division.milliseconds:.3g} ms a call)" if diagnosis.steps > 1 else ""
    lines += [
        f"step       {diagnosis.milliseconds:.3g} ms{call}: {parts}"
        + (f"; {competing:.0%} is lost to the input's operations" if competing >= 0.005 else ""),
        f"verdict    {division.verdict}: {MEANINGS[division.verdict]}"
        + ("; the CPU is the device" if division.cpu_only else "")
        + ("" if division.launch_counts else "; `launch` is partly the profile's own"),
        *([_kernels_line(diagnosis.kernels)] if diagnosis.kernels else []),
        *([f"waits      {division.long_waits}"] if division.long_waits else []),
        "tf.data    "
        + (
            f"the slowest stage is {stage}: {stage.share:.0%} of the pipeline's time"
            + (", for which steps hardly wait" if division.shares["input"] < _HARDLY else "")
            if stage
            else "no pipeline ran in this time"
        ),
        "heaviest   share of the time of all operations (with input), part, operation, runs",
    ]
    for operation in diagnosis.work.operations[:_HEAVIEST]:
        kind = operation.kind.removeprefix("_Mkl")
        kind = "" if operation.name.endswith(kind) else f" ({kind})"
        lines.append(
            f"           {operation.share:4.0%}  {operation.part:<9} {operation.name}{kind}, "
            f"{operation.count:,}"
        )
    if not diagnosis.changes:
        lines.append("change     nothing: no flag is known to make this faster")
    for number, change in enumerate(diagnosis.changes):
        new = "; needs a new --workdir" if change.new_workdir else ""
        gain = f"up to {change.speedup:.2f} times as fast; " if change.speedup else ""
        begin = "change" if number == 0 else "or"
        what = f"if {change.condition}: {change.what}" if change.condition else change.what
        lines.append(f"{begin:<10} {what}: {gain}{change.why}{new}")
    return "\n".join(lines)


def _kernels_line(kernels: Kernels) -> str:
    """Return the line about the kernels of compiled steps."""
    line = f"kernels    {kernels.number:,.0f} a step"
    if kernels.bytes:
        line += f", which read and write {kernels.bytes / 1e6:,.3g} MB"
    if kernels.bandwidth:
        line += f", {kernels.bandwidth:.0%} of what the GPU's memory can, or less by its caches"
    return line


def compare(before: Diagnosis, now: Diagnosis) -> str:
    """Return a line about an earlier profile, and how many times as fast, by tokens, it is now."""
    ratio = before.milliseconds * now.tokens / (now.milliseconds * before.tokens)
    return (
        f"before     {before.milliseconds:.3g} ms a step, {before.division.verdict}, waiting for "
        f"input {before.division.shares['input']:.0%}; now {ratio:.2f} times as fast"
    )


def record(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as values for JSON, with the five heaviest operations."""
    division = diagnosis.division
    return {
        "profile": str(diagnosis.profile),
        "calls": division.calls,
        "steps_per_call": diagnosis.steps,
        "call_ms": division.milliseconds,
        "step_ms": diagnosis.milliseconds,
        "trusted": division.trusted,
        "shares": division.shares,
        "verdict": division.verdict,
        "cpu_only": division.cpu_only,
        "competing": division.competing,
        "long_waits": division.long_waits and division.long_waits._asdict(),
        "stage": diagnosis.stage and {"label": str(diagnosis.stage), **diagnosis.stage._asdict()},
        "parts": diagnosis.work.parts,
        "kernels": diagnosis.kernels and diagnosis.kernels._asdict(),
        "operations": [o._asdict() for o in diagnosis.work.operations[:_HEAVIEST]],
        "changes": [change._asdict() for change in diagnosis.changes],
    }


FORMATS = (".png", ".svg", ".pdf")

# The colour of each part. Waiting has warm colours, so that it stands out.
_COLOURS = {
    "input": "#d1495b",
    "host_to_device": "#edae49",
    "host_compute": "#8d96a3",
    "launch": "#b9bec4",
    "device_compute": "#1f6fb4",
}
_INK = "#333333"


def check_picture(path: str) -> None:
    """Check the suffix of the file of --plot, and that matplotlib is installed.

    Raises:
        UsageError: The file name has another suffix, or matplotlib is missing.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"--plot={path}: give a name that ends in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot={path}: matplotlib is missing; pip install matplotlib")


def draw_picture(bars: Sequence[tuple[str, Diagnosis]], path: str) -> None:
    """Draw a bar for each diagnosis to a picture file, in milliseconds of a step.

    Each bar is divided into the parts of the step and is labelled with its verdict.

    Args:
        bars: The name and the diagnosis of each bar, at least one; the first is on top.
        path: The file to write or replace; its suffix names the format.

    Raises:
        UsageError: The path is a folder or a device.
        RunError: The file cannot be written.
    """
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(8, 1.1 + 0.75 * len(bars)), layout="constrained")
    axes = figure.subplots()
    longest = max(diagnosis.milliseconds for _, diagnosis in bars)
    for row, (name, diagnosis) in enumerate(bars):
        left = 0.0
        for part, colour in _COLOURS.items():
            width = diagnosis.milliseconds * diagnosis.division.shares[part]
            label = part.replace("_", " ") if row == 0 else None
            axes.barh(row, width, left=left, color=colour, label=label, height=0.5)
            left += width
        verdict = diagnosis.division.verdict
        if diagnosis.stage and verdict == "input-bound":
            verdict += f" {diagnosis.division.shares['input']:.0%}, slowest: {diagnosis.stage}"
        axes.text(0, row - 0.33, f"{name}: {verdict}", va="bottom", fontsize=9, color=_INK)
        time = f"{diagnosis.milliseconds:.3g} ms"
        axes.text(left + longest / 100, row, time, va="center", fontsize=9)
    axes.set_ylim(len(bars) - 0.6, -0.75)
    axes.set_xlim(0, longest * 1.12)
    axes.set_yticks([])
    axes.set_xlabel("milliseconds of a step", fontsize=8, color=_INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(_COLOURS), fontsize=8, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)
