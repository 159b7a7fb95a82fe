"""Advise which flag to change, to which value, and estimate the gain."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..settings import Config, OptimizerConfig
from ..settings.settings import by_name, fields
from ..system.processor import has_fast_bfloat16
from .changes import (
    Change,
    saved_by_cache,
    saved_by_fewer_calls,
    saved_by_overlap,
    saved_by_parallel_calls,
    speedup,
)
from .division import Division
from .operations import Run, Work
from .program_advice import advise_program
from .stages import Pipeline

# Stages before the cache of --cache, which run in the first epoch only.
_CACHED = ("tokenize", "read")
# Stages that --map_parallelism runs in parallel.
_PARALLEL = ("tokenize", "rows")
_LEAST_SPEEDUP = 1.05  # smaller ones are not reported
_UPDATE_SHARE = 0.25  # of a step, from which on another optimizer is proposed

_MEASURED = "data/benchmarks/README.md"


def advise(
    division: Division,
    pipeline: Pipeline | None,
    runs: Sequence[Run],
    work: Work,
    config: Config | None,
    cores: int,
) -> list[Change]:
    """Return changes that would make a run faster, for each cause that its profile shows.

    Args:
        division: The parts of a step.
        pipeline: The slow stages of the pipeline, or None.
        runs: The runs of operations.
        work: The operations.
        config: The settings of the run; None if it was not a run of `lexrow train`.
        cores: The cores of the machine.

    Returns:
        First the changes whose speedup the profile cannot tell, then those with a speedup of 1.05
        or more, the greatest first, and those with a condition at the end; empty if none is known.
    """
    changes = []
    if not division.launch_counts:
        changes = _with_graphs(division.shares["launch"])
        division = division._replace(shares={**division.shares, "launch": 0.0})
    if config is None:
        changes += advise_program(division, pipeline, runs, work, cores)
    else:
        host, launch = division.shares["host_compute"], division.shares["launch"]
        changes += [
            *_for_input(division, pipeline, config, cores),
            _double("batch_tokens", config, launch, "; the model learns differently"),
            _double("steps_per_call", config, host),
            *_for_device(division, work, config),
        ]
    return sorted(
        filter(_is_worth, changes),
        key=lambda change: (bool(change.condition), -(change.speedup or math.inf)),
    )


def _with_graphs(launch: float) -> list[Change]:
    """Return the advice to record CUDA graphs, if the start of kernels takes time."""
    if speedup(launch) < _LEAST_SPEEDUP:
        return []
    why = (
        f"starting kernels one by one takes {launch:.0%} of the time, as XLA uses no CUDA graphs "
        "while a profile is recorded, unless it is told to"
    )
    what = "XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true, and record again"
    return [Change(what, None, why)]


def _is_worth(change: Change) -> bool:
    """Return whether a change gains `_LEAST_SPEEDUP` or more, or the profile cannot tell."""
    return change.speedup is None or change.speedup >= _LEAST_SPEEDUP


def _for_input(
    division: Division, pipeline: Pipeline | None, config: Config, cores: int
) -> list[Change]:
    """Return changes for a run whose steps wait for input, or share the cores with it.

    They are --prefetch=-1 if nothing is made ahead, and --map_parallelism=-1 if the slowest stage
    leaves cores idle. A run of several epochs that reads or tokenizes gets --cache=memory, or, if a
    cache was being filled and there is no other change, only the advice to record a later epoch.
    """
    most = speedup(saved_by_cache(division))
    stage = pipeline.slowest if pipeline else None
    name = stage.name if stage else ""
    settings, changes = config.input, []
    if settings.prefetch == 0 and not (pipeline and pipeline.is_ahead):
        gain = speedup(saved_by_overlap(division))
        changes.append(_change("prefetch", -1, gain, "batches are made while the steps run"))
    calls = stage.parallelism if stage else 0
    if stage and name in _PARALLEL and settings.map_parallelism != -1 and 0 < calls < cores:
        gain = speedup(saved_by_parallel_calls(division, stage, cores))
        why = f"{stage} runs {calls} at a time on {cores} cores"
        changes.append(_change("map_parallelism", -1, gain, why))
    changes = [change for change in changes if _is_worth(change)]
    # Another profile is worth it only where the input is what takes long.
    is_bound = division.verdict == "input-bound" and not changes
    if name in _CACHED and config.run.epochs > 1:
        if settings.cache == "none":
            why = "text is tokenised in the first epoch only, so later epochs are faster"
            changes.append(_change("cache", "memory", most, why))
        elif is_bound:
            why = "the cache was being filled (`auto`: of at most 1 GiB); record a later epoch"
            return [Change("--profile_steps=START,STOP", most, why)]
    return changes


def _for_device(division: Division, work: Work, config: Config) -> list[Change]:
    """Return changes for a device-bound or copy-bound run.

    They are --optimizer=rowwise_adagrad if updates take a quarter of the step and the optimizer has
    no options, and --compute_dtype=auto on a CPU with float32.
    """
    changes = []
    update = work.parts.get("update", 0.0) * division.shares["device_compute"]
    # An optimizer with options of its own is not replaced, as another one would refuse them.
    plain = OptimizerConfig(optimizer=config.optimizer.optimizer)
    if (
        update >= _UPDATE_SHARE
        and plain.optimizer != "rowwise_adagrad"
        and plain == config.optimizer
    ):
        why = (
            "it keeps one number for each row, so an update moves fewer bytes; the model learns "
            "differently, so compare the scores"
        )
        changes.append(_change("optimizer", "rowwise_adagrad", speedup(update / 2), why))
    is_slow = config.model.compute_dtype == "float32" and has_fast_bfloat16()
    if division.cpu_only and is_slow:
        why = f"products in bfloat16 made a step 1.3 times as fast ({_MEASURED})"
        changes.append(_change("compute_dtype", "auto", 1.32, why))
    return changes


def _double(name: str, config: Config, share: float, note: str = "") -> Change:
    """Return the change that doubles a flag, which saves half of `share` of the time.

    Args:
        name: The flag, a number of tokens a step or of steps a call.
        config: The settings of the run.
        share: The share of the time that is spent once a step or a call, whatever this number is.
        note: What else it changes.
    """
    why = f"{share:.0%} of the time does not grow with this number{note}"
    return _change(name, 2 * by_name(config)[name], speedup(saved_by_fewer_calls(share, 2)), why)


def _change(name: str, value: object, speedup: float, why: str) -> Change:
    """Return the change of a flag to a value; its setting says whether it needs a new workdir."""
    return Change(f"--{name}={value}", speedup, why, fields()[name].metadata["fixed"])
