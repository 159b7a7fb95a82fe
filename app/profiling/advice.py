"""Advise which flag to change, to which value, and estimate the gain."""

from __future__ import annotations

import math

from .. import __name__ as PACKAGE
from ..config import Config, OptimizerConfig
from ..config.settings import by_name, fields
from ..system.processor import has_fast_bfloat16
from .changes import Change
from .division import Division
from .long_waits import LongWaits
from .operations import Work
from .program_advice import advise_program
from .stages import Stage

# Stages before the cache of --cache, which run in the first epoch only.
_CACHED = ("tokenize", "read")
# Stages that --map_parallelism runs in parallel, and that a data service runs on its workers.
_PARALLEL = ("tokenize", "rows")
_LEAST_SPEEDUP = 1.05  # smaller ones are not reported
_UPDATE_SHARE = 0.25  # of a step, from which on another optimizer is proposed

_MEASURED = "data/benchmarks/README.md"


def advise(
    division: Division,
    stage: Stage | None,
    work: Work,
    config: Config | None,
    cores: int,
    waits: LongWaits | None = None,
) -> list[Change]:
    """Return changes that would make a run faster, by the verdict of the division.

    Args:
        division: The parts of a step.
        stage: The slowest stage of the pipeline, or None.
        work: The operations.
        config: The settings of the run; None if it was not a run of lexrow.train.
        cores: The cores of the machine.
        waits: The steps that wait far longer for input than the others, or None.

    Returns:
        First the changes whose speedup the profile cannot tell, then those with a speedup of 1.05
        or more, the greatest first; empty if none is known.
    """
    if config is None:
        changes = advise_program(division, stage, work, cores, waits)
    elif division.verdict == "input-bound":
        changes = _for_input(division, stage, config, cores)
    elif division.verdict == "launch-bound":
        changes = [_double("batch_tokens", config, division.shares["launch"])]
    elif division.verdict == "host-bound":
        host = division.shares["host_compute"] + division.shares["other"]
        changes = [_double("steps_per_call", config, host)]
    else:
        changes = _for_device(division, work, config)
    known = [change for change in changes if (change.speedup or _LEAST_SPEEDUP) >= _LEAST_SPEEDUP]
    return sorted(known, key=lambda change: -(change.speedup or math.inf))


def _for_input(division: Division, stage: Stage | None, config: Config, cores: int) -> list[Change]:
    """Return changes for a run whose steps wait for input, by its slowest stage.

    They are --prefetch=-1 if it is 0, and --map_parallelism=-1 if that stage leaves cores idle.
    With a data service, if there is no other change, it is to get more workers. Without one, a run
    of several epochs that reads or tokenizes gets --cache=memory, or, if a cache was being filled
    and there is no other change, only the advice to record a later epoch. If nothing is proposed by
    then, the task `words` gets --data_service.
    """
    waiting = division.shares["input"]
    most = 1 / max(1 - waiting, 0.01)  # the speedup when no step waits
    name = stage.name if stage else ""
    settings, changes = config.input, []
    if settings.prefetch == 0:
        gain = 1 / max(waiting, 1 - waiting)
        changes.append(_change("prefetch", -1, gain, "batches are made while the steps run"))
    calls = stage.parallelism if stage else 0
    if name in _PARALLEL and settings.map_parallelism != -1 and 0 < calls < cores:
        gain = 1 / max(1 - waiting, calls / cores)
        why = f"{stage} runs {calls} at a time on {cores} cores"
        changes.append(_change("map_parallelism", -1, gain, why))
    if settings.data_service:
        if not changes:
            why = "more processes, on more machines, make the batches of the data service"
            changes.append(Change(f"{PACKAGE}.cluster --data_workers=N", most, why))
        return changes
    if name in _CACHED and config.run.epochs > 1:
        if settings.cache == "none":
            why = "text is tokenised in the first epoch only, so later epochs are faster"
            changes.append(_change("cache", "memory", most, why))
        elif not changes:
            why = "the cache was being filled (`auto`: of at most 1 GiB); record a later epoch"
            return [Change("--profile_steps=START,STOP", most, why)]
    if not changes and config.run.task == "words" and name in (*_PARALLEL, *_CACHED):
        cache = " --cache=none" if settings.cache in ("memory", "disk") else ""
        why = (
            "other machines make the batches; run there: "
            f"python -m {PACKAGE}.cluster --data_workers=N"
        )
        changes.append(Change(f"--data_service=HOST:PORT{cache}", most, why))
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
        changes.append(_change("optimizer", "rowwise_adagrad", 1 / (1 - update / 2), why))
    is_slow = config.model.compute_dtype == "float32" and has_fast_bfloat16()
    if division.cpu_only and is_slow:
        why = f"products in bfloat16 made a step 1.3 times as fast ({_MEASURED})"
        changes.append(_change("compute_dtype", "auto", 1.32, why))
    return changes


def _double(name: str, config: Config, share: float) -> Change:
    """Return the change that doubles a flag, which saves half of `share` of the time.

    So its `speedup` is 1 / (1 - share / 2).

    Args:
        name: The flag, a number of tokens a step or of steps a call.
        config: The settings of the run.
        share: The share of the time that is spent once a step or a call, whatever this number is.
    """
    why = f"{share:.0%} of the time does not grow with this number"
    return _change(name, 2 * by_name(config)[name], 1 / (1 - share / 2), why)


def _change(name: str, value: object, speedup: float, why: str) -> Change:
    """Return the change of a flag to a value; its setting says whether it needs a new workdir."""
    return Change(f"--{name}={value}", speedup, why, fields()[name].metadata["fixed"])
