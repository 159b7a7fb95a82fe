"""A profile in words, and as JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ..config import Config
from ..errors import RunError
from .advice import Change, advice
from .division import TRUSTED_CALLS, Division, division
from .operations import Work, work
from .profiles import read
from .stages import Stage, slowest

_HEAVIEST = 5  # operations that are told
_HARDLY = 0.05  # of a step: what xprof calls not input-bound
MEANINGS = {
    "input-bound": "steps wait for their input",
    "device-bound": "the operations of the steps are the work",
    "launch-bound": "operations are so small that starting them is the work",
    "copy-bound": "copies to the device are the work",
    "host-bound": "what the host does between and beside the operations is the work",
}


class Diagnosis(NamedTuple):
    """profile: its folder. steps: of a call. tokens: of a step, 1 where it is not known. changes:
    best first.
    """

    profile: Path
    steps: int
    tokens: int
    division: Division
    stage: Stage | None
    work: Work
    changes: list[Change]

    @property
    def milliseconds(self) -> float:
        """Of a step."""
        return self.division.milliseconds / self.steps


def diagnose(profile: Path, config: Config | None) -> Diagnosis:
    """What the profile in a folder says.

    config: of the run that was recorded, or None if it was not one of ours. RunError if it is
    damaged, or has no whole call.
    """
    recorded = read(profile)
    done = work(recorded.events)
    divided = division(recorded, done)
    if not divided.calls:
        raise RunError(
            f"{profile} has no whole step: record more of them (--profile_steps=START,STOP), each "
            "marked as by tf.profiler.experimental.Trace(NAME, step_num=STEP, _r=1)"
        )
    stage = slowest(recorded.events)
    changes = advice(divided, stage, done, config, os.cpu_count() or 1)
    steps, tokens = (config.input.steps_per_call, config.input.batch_tokens) if config else (1, 1)
    return Diagnosis(profile, steps, tokens, divided, stage, done, changes)


def text(found: Diagnosis) -> str:
    """The diagnosis as a person reads it."""
    divided, stage = found.division, found.stage
    shares = sorted(divided.shares.items(), key=lambda item: -item[1])
    parts = ", ".join(
        f"{part.replace('_', ' ')} {share:.0%}" for part, share in shares if share >= 0.005
    )
    calls = "steps" if found.steps == 1 else f"calls of {found.steps} steps"
    lines = [f"profile    {found.profile}: {divided.calls} {calls}"]
    if not divided.trusted:
        lines.append(
            "           too short to trust: record at least "
            f"{(TRUSTED_CALLS + 2) * found.steps} steps"
        )
    call = f" ({divided.milliseconds:.3g} ms a call)" if found.steps > 1 else ""
    lines += [
        f"step       {found.milliseconds:.3g} ms{call}: {parts}",
        f"verdict    {divided.verdict}: {MEANINGS[divided.verdict]}"
        + ("; the CPU is the device" if divided.cpu_only else ""),
        "tf.data    "
        + (
            f"the slowest stage is {stage}: {stage.share:.0%} of the pipeline's time"
            + (", for which steps hardly wait" if divided.shares["input"] < _HARDLY else "")
            if stage
            else "no pipeline ran meanwhile"
        ),
        "heaviest   share of what all operations took (input included), part, operation, runs",
    ]
    for operation in found.work.operations[:_HEAVIEST]:
        kind = operation.kind.removeprefix("_Mkl")
        kind = "" if operation.name.endswith(kind) else f" ({kind})"
        lines.append(
            f"           {operation.share:4.0%}  {operation.part:<9} {operation.name}{kind}, "
            f"{operation.count:,}"
        )
    if not found.changes:
        lines.append("change     nothing: no flag is known to make this faster")
    for number, change in enumerate(found.changes):
        new = "; needs a new --workdir" if change.new_workdir else ""
        lines.append(
            f"{'change' if number == 0 else 'or':<10} {change.what}: up to {change.speedup:.2f} "
            f"times as fast; {change.why}{new}"
        )
    return "\n".join(lines)


def compared(before: Diagnosis, now: Diagnosis) -> str:
    """What has changed between two profiles, in a line."""
    ratio = before.milliseconds * now.tokens / (now.milliseconds * before.tokens)
    return (
        f"before     {before.milliseconds:.3g} ms a step, {before.division.verdict}, waiting for "
        f"input {before.division.shares['input']:.0%}; now {ratio:.2f} times as fast"
    )


def record(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis for programs."""
    divided = found.division
    return {
        "profile": str(found.profile),
        "calls": divided.calls,
        "steps_per_call": found.steps,
        "call_ms": divided.milliseconds,
        "step_ms": found.milliseconds,
        "trusted": divided.trusted,
        "shares": divided.shares,
        "verdict": divided.verdict,
        "cpu_only": divided.cpu_only,
        "stage": found.stage and {"label": str(found.stage), **found.stage._asdict()},
        "parts": found.work.parts,
        "operations": [o._asdict() for o in found.work.operations[:_HEAVIEST]],
        "changes": [change._asdict() for change in found.changes],
    }
