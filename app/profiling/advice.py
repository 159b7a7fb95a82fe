"""Which flag to change, to what, and what that should gain."""

from __future__ import annotations

import re
from typing import NamedTuple

from .. import __name__ as PACKAGE
from ..config import Config, ModelConfig, OptimizerConfig
from ..config.settings import by_name, fields
from .division import Division
from .operations import Work
from .stages import Stage

# What --cache keeps: the stages before it run in the first epoch only.
_CACHED = ("tokenize", "read")
# What --map_parallelism runs in parallel, and a data service on its workers.
_PARALLEL = ("tokenize", "rows", "bags")
# Stages that take num_parallel_calls.
_MAP = re.compile(r"(Parallel)?Map(AndBatch)?(V\d+)?$")
_LEAST = 1.05  # of a speedup that is worth telling
_UPDATE_SHARE = 0.25  # of a step, for another rule to be worth a change

_MEASURED = "data/benchmarks/README.md"


class Change(NamedTuple):
    """One thing to change.

    what: a flag with its value, or a call of tf.data. speedup: the most that it should gain, as the
    ratio of the speeds after and before. why: a sentence. new_workdir: whether the flag gives a
    meaning to what a workdir holds, so that only a new run can have it.
    """

    what: str
    speedup: float
    why: str
    new_workdir: bool = False


def advice(
    division: Division, stage: Stage | None, work: Work, config: Config | None, cores: int
) -> list[Change]:
    """What to change, best first; nothing where the step itself is the work.

    config: that of the run, or None if it was not one of ours. cores: of the machine.
    """
    found = []
    if division.verdict == "input-bound":
        found = _input(division, stage, config, cores)
    elif config is not None and division.verdict == "launch-bound":
        found = [_twice("batch_tokens", config, division.shares["launch"])]
    elif config is not None and division.verdict == "host-bound":
        host = division.shares["host_compute"] + division.shares["other"]
        found = [_twice("steps_per_call", config, host)]
    elif config is not None:
        found = _device(division, work, config)
    worth = [change for change in found if change.speedup >= _LEAST]
    return sorted(worth, key=lambda change: -change.speedup)


def _input(
    division: Division, stage: Stage | None, config: Config | None, cores: int
) -> list[Change]:
    waiting = division.shares["input"]
    most = 1 / max(1 - waiting, 0.01)  # once no step waits any more
    if config is None:
        return _tf_data(stage, most, cores)
    name = stage.name if stage else ""
    settings, found = config.input, []
    if settings.prefetch == 0:
        gain = 1 / max(waiting, 1 - waiting)
        found.append(_change("prefetch", -1, gain, "batches are made while the steps run"))
    calls = stage.parallelism if stage else 0
    if name in _PARALLEL and settings.map_parallelism != -1 and 0 < calls < cores:
        gain = 1 / max(1 - waiting, calls / cores)
        why = f"{stage} runs {calls} at a time on {cores} cores"
        found.append(_change("map_parallelism", -1, gain, why))
    if settings.data_service:
        if not found:
            why = "more processes, on more machines, make the batches of the data service"
            found.append(Change(f"{PACKAGE}.cluster --data_workers=N", most, why))
        return found
    if name in _CACHED and config.run.epochs > 1:
        if settings.cache == "none":
            why = "text is tokenised in the first epoch only; the gain is that of the later ones"
            found.append(_change("cache", "memory", most, why))
        elif not found:
            why = "the cache was being filled; record steps of a later epoch"
            return [Change("--profile_steps=START,STOP", most, why)]
    if not found and config.run.task == "words" and name in (*_PARALLEL, *_CACHED):
        cached = " --cache=none" if settings.cache != "none" else ""
        why = (
            f"other machines make the batches; there: python -m {PACKAGE}.cluster --data_workers=N"
        )
        found.append(Change(f"--data_service=HOST:PORT{cached}", most, why))
    return found


def _tf_data(stage: Stage | None, most: float, cores: int) -> list[Change]:
    """For a pipeline that is not ours."""
    if stage and _MAP.match(stage.kind) and stage.parallelism < cores:
        calls = max(stage.parallelism, 1)
        why = f"{stage} runs {calls} at a time on {cores} cores"
        gain = min(most, cores / calls)
        return [Change("num_parallel_calls=tf.data.AUTOTUNE", gain, why)]
    return [
        Change("cache() after the slowest stage", most, "it then runs in the first epoch only"),
        Change("prefetch(tf.data.AUTOTUNE)", most, "batches are made while the steps run"),
    ]


def _device(division: Division, work: Work, config: Config) -> list[Change]:
    found = []
    update = work.parts.get("update", 0.0) * division.shares["device_compute"]
    plain = OptimizerConfig(optimizer=config.optimizer.optimizer)  # else its options are refused
    if (
        update >= _UPDATE_SHARE
        and plain.optimizer != "rowwise_adagrad"
        and plain == config.optimizer
    ):
        why = (
            "it keeps one number a row, so that an update moves little more than the row; it "
            "learns otherwise, so compare the scores"
        )
        found.append(_change("optimizer", "rowwise_adagrad", 1 / (1 - update / 2), why))
    if division.cpu_only and config.model.compute_dtype == "float32":
        why = f"products in bfloat16 where the processor has it took 1.3 times less ({_MEASURED})"
        found.append(_change("compute_dtype", "auto", 1.32, why))
    if config.model == ModelConfig():
        why = f"half as many products of samples; scores fell by less than .01 ({_MEASURED})"
        found.append(Change("--shared_negatives=32 --group_tokens=128", 1.15, why, True))
    return found


def _twice(name: str, config: Config, share: float) -> Change:
    """What is done once a call, or once a step, is done half as often for the same words."""
    why = f"{share:.0%} of the time goes to what does not grow with it"
    return _change(name, 2 * by_name(config)[name], 1 / (1 - share / 2), why)


def _change(name: str, value: object, speedup: float, why: str) -> Change:
    return Change(f"--{name}={value}", speedup, why, fields()[name].metadata["fixed"])
