"""Diagnose a profile, and report the diagnosis as text and as JSON values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..config import Config
from ..errors import RunError
from .advice import advise
from .changes import Change
from .division import TRUSTED_CALLS, Division, LongWaits, divide
from .operations import Work, collect_runs, collect_work
from .profiles import Event, read
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


class Diagnosis(NamedTuple):
    """The diagnosis of a profile.

    Attributes:
        profile: The folder of the profile.
        steps: The steps of a call of the train function; 1 if not known.
        tokens: The tokens of a step; 1 if not known.
        division: The parts of the time of a call.
        long_waits: The steps that wait far longer for input than the others, or None.
        stage: The slowest stage of the pipeline, or None.
        work: The operations.
        changes: Proposed changes, best first.
    """

    profile: Path
    steps: int
    tokens: int
    division: Division
    long_waits: LongWaits | None
    stage: Stage | None
    work: Work
    changes: list[Change]

    @property
    def milliseconds(self) -> float:
        """The mean time of a step."""
        return self.division.milliseconds / self.steps


def diagnose(profile: Path, config: Config | None) -> Diagnosis:
    """Read the profile in a folder, and return its diagnosis.

    The advice depends on the number of cores of this machine.

    Args:
        profile: The folder of the profile.
        config: The settings of the run; None if it was not a run of lexrow.train.

    Returns:
        The diagnosis.

    Raises:
        RunError: The profile is damaged, or has no complete call.
    """
    return diagnose_events(profile, read(profile), config, os.cpu_count() or 1)


def diagnose_events(
    profile: Path, events: Sequence[Event], config: Config | None, cores: int
) -> Diagnosis:
    """Return the diagnosis of events; see `diagnose`.

    Args:
        profile: The folder of the profile, for the report.
        events: The events.
        config: The settings of the run; None if it was not a run of lexrow.train.
        cores: The cores of the machine.
    """
    runs = collect_runs(events)
    work = collect_work(runs)
    division, waits = divide(events, runs, cores)
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
    return Diagnosis(profile, steps, tokens, division, waits, stage, work, changes)


def text(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as lines of text: step, verdict, slowest stage, operations, changes.

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
        + ("; the CPU is the device" if division.cpu_only else ""),
        *([f"waits      {diagnosis.long_waits}"] if diagnosis.long_waits else []),
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


def compare(before: Diagnosis, now: Diagnosis) -> str:
    """Return a line about an earlier profile, and how many times as fast, by tokens, it is now.

    Args:
        before: The earlier diagnosis.
        now: The later diagnosis.
    """
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
        "long_waits": diagnosis.long_waits and diagnosis.long_waits._asdict(),
        "stage": diagnosis.stage and {"label": str(diagnosis.stage), **diagnosis.stage._asdict()},
        "parts": diagnosis.work.parts,
        "operations": [o._asdict() for o in diagnosis.work.operations[:_HEAVIEST]],
        "changes": [change._asdict() for change in diagnosis.changes],
    }
