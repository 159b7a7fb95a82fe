"""Advise what to change of a run or a program, and estimate the gain.

A saving is a share of the time of a step. It is at most what the profile allows: work that is done
at the same time saves no more than the shorter part, and all operations need the cores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..settings import Config
from ..settings.flag_values import by_name, defaults, fields
from ..system.machine import has_fast_bfloat16
from .division import Division
from .operations import INPUT, Operation, Run, Work
from .stages import Pipeline, Stage

# Stages before the cache of --cache, which run in the first epoch only.
_CACHED = ("tokenize", "read")
# Stages that --map_parallelism runs in parallel.
_PARALLEL = ("tokenize", "rows")
_LEAST_SPEEDUP = 1.1  # smaller ones are as uncertain as the profile itself
_UPDATE_SHARE = 0.25  # of a step, from which on another optimizer is proposed

_MEASURED = "data/benchmarks/README.md"
_PYTHON_SHARE = 0.5  # of the time of the input, from which on Python is its cause
# Optimizers of Keras by their name scope, and the optimizer of Lexrow that replaces each.
_ROW_OPTIMIZERS = {
    "adam": "LazyAdam",
    "adamw": "LazyAdamW",
    "adagrad": "Adagrad",
    "SGD": "SGD",
    "sgd": "SGD",
} | dict.fromkeys(("adadelta", "adamax", "ftrl", "lamb", "lion", "nadam", "rmsprop"), "LazyAdam")
# The operation that makes a dense gradient of that of an embedding table.
_MAKES_DENSE = "UnsortedSegmentSum"
_STEPS = 16  # per call, as proposed
_BATCH = 4  # times the examples of a batch, as proposed
# The time of tf.data to call a function of TensorFlow's operations, as measured for the addition of
# two numbers (two cores of an AMD EPYC).
_CALL_SECONDS = 3e-5
_WAITING_CALLS = 16  # calls at the same time of a function that waits, as proposed


class Change(NamedTuple):
    """A proposed change.

    Attributes:
        what: A flag with its value, a command, or a call of tf.data or Keras.
        speedup: The greatest speed to expect after the change, over the speed before it. None if
            the profile cannot tell.
        why: The reason, a sentence.
        new_workdir: Whether the change needs a new workdir, as files in it depend on the flag.
        condition: What the profile cannot tell and must be so for the change to help; empty if
            nothing.
    """

    what: str
    speedup: float | None
    why: str
    new_workdir: bool = False
    condition: str = ""


def speedup(saved: float) -> float:
    """Return how many times as fast a step is that saves a share of its time."""
    return 1 / max(1 - saved, 0.01)


def saved_by_cache(division: Division) -> float:
    """Return the saving where the input costs nothing any more: no wait, and cores for the step."""
    return division.shares["input"] + division.competing


def saved_beside_steps(division: Division, most: float) -> float:
    """Return the saving of at most `most` by work of the input that then runs beside the steps."""
    return max(min(most, 1 - division.shares["input"], 1 - division.crowding), 0.0)


def saved_by_parallel_calls(division: Division, stage: Stage, calls: int) -> float:
    """Return the saving where a stage of the input makes more calls at the same time.

    It is none where steps lose more to operations of the input than they wait for it: more calls
    would take more of the cores (`data/benchmarks/README.md`).
    """
    faster = _share(stage.seconds, division) * (1 - max(stage.parallelism, 1) / calls)
    waited = division.shares["input"] - division.competing
    return max(min(faster, waited, 1 - division.crowding), 0.0)


def saved_by_fewer_calls(share: float, times: int) -> float:
    """Return the saving where work that takes a share of the time is done so many times less."""
    return share * (1 - 1 / times)


def _share(seconds: float, division: Division) -> float:
    """Return the share of the time of all steps that some seconds are, at most 1."""
    return min(seconds / (division.seconds or 1.0), 1.0)


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
        config: The settings of the run; None if it was not a run of `lexrow train`.

    Returns:
        First the changes whose speedup the profile cannot tell, then those with a speedup of 1.1
        or more, the greatest first, and those with a condition at the end; empty if none is known.
    """
    changes = []
    launch, host = division.shares["launch"], division.shares["host_compute"]
    if not division.launch_counts:
        why = (
            f"starting kernels one by one takes {launch:.0%} of the time, as XLA uses no CUDA "
            "graphs while a profile is recorded, unless it is told to"
        )
        what = "XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true, and record again"
        if speedup(launch) >= _LEAST_SPEEDUP:
            changes = [Change(what, None, why)]
        launch = 0.0
        division = division._replace(shares={**division.shares, "launch": launch})
    if config is None:
        changes += _advise_program(division, pipeline, runs, work, cores)
    else:
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
        gain = speedup(saved_beside_steps(division, division.shares["input"]))
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
    values = by_name(config)
    usual = defaults(values) | {"optimizer": values["optimizer"]}
    # An optimizer with options of its own is not replaced, as another one would refuse them.
    is_plain = all(values[name] == usual[name] for name in vars(config.optimizer) if name in values)
    if update >= _UPDATE_SHARE and is_plain and values["optimizer"] != "rowwise_adagrad":
        why = (
            "it keeps one number for each row, so an update moves fewer bytes; the model learns "
            "differently, so compare the scores"
        )
        changes.append(_change("optimizer", "rowwise_adagrad", speedup(update / 2), why))
    if division.cpu_only and config.model.compute_dtype == "float32" and has_fast_bfloat16():
        why = f"products in bfloat16 made a step 1.3 times as fast ({_MEASURED})"
        changes.append(_change("compute_dtype", "auto", 1.32, why))
    return changes


def _double(name: str, config: Config, share: float, note: str = "") -> Change:
    """Return the change that doubles a flag, which saves half of `share` of the time.

    Args:
        name: The flag, a number of tokens a step or of steps a call.
        share: The share of the time that is spent once a step or a call, whatever this number is.
        note: What else it changes.
    """
    why = f"{share:.0%} of the time does not grow with this number{note}"
    return _change(name, 2 * by_name(config)[name], speedup(saved_by_fewer_calls(share, 2)), why)


def _change(name: str, value: object, speedup: float, why: str) -> Change:
    """Return the change of a flag to a value; its setting says whether it needs a new workdir."""
    return Change(f"--{name}={value}", speedup, why, fields()[name].metadata["fixed"])


def _advise_program(
    division: Division, pipeline: Pipeline | None, runs: Sequence[Run], work: Work, cores: int
) -> list[Change]:
    """Return changes of a program that is not `lexrow train`, in no order; empty if none is known.

    Each cause that the profile shows gives its own changes, whatever the verdict is.
    """
    changes = [*_for_overhead(division, runs, work), *_for_dense_updates(division, work)]
    if pipeline is None:
        return changes
    slowest = pipeline.slowest
    if pipeline.is_ahead:  # the gain by faster steps ends where they wait for the slowest stage
        most = max(1 / max(_share(slowest.seconds, division), 0.01), 1.0)
        changes = [change._replace(speedup=min(change.speedup or 0, most)) for change in changes]
    else:
        why = "batches are made while the steps run"
        gain = speedup(saved_beside_steps(division, division.shares["input"]))
        changes.append(Change("prefetch(tf.data.AUTOTUNE) at the end", gain, why))
    changes += _for_slowest_stage(division, pipeline, runs, cores)
    if division.long_waits and pipeline.has_later("Shuffle"):
        why = (
            f"{slowest} fills the buffer before the first step of an epoch; behind shuffle(), it "
            "runs beside the steps"
        )
        gain = speedup(saved_beside_steps(division, division.long_waits.share))
        changes.append(Change("shuffle() before the slowest stage", gain, why))
    return changes


def _for_slowest_stage(
    division: Division, pipeline: Pipeline, runs: Sequence[Run], cores: int
) -> list[Change]:
    """Return changes of the slowest stage: a cache, batches before a map, and parallel calls."""
    slowest = pipeline.slowest
    fed = [run for run in runs if run.part == INPUT]
    most = speedup(saved_by_cache(division))
    if slowest.caches:
        return []
    if any(stage.caches for stage in pipeline.later):
        why = "the cache was being filled, as in each first epoch; record a later one"
        return [Change("profile_batch=(START, STOP) of a later epoch", most, why)]
    draws = any("Random" in run.kind for run in fed)
    why = f"{slowest} then runs in the first epoch only; the elements must fit into memory" + (
        ", and are the same in each epoch, its random numbers too" if draws else ""
    )
    changes = [Change("cache() after the slowest stage", most, why)]
    python = sum(run.seconds for run in fed if run.python)
    is_python = python >= _PYTHON_SHARE * sum(run.seconds for run in fed) > 0
    if slowest.maps and pipeline.batch > 1:
        # What a Python function does for a call and for an element cannot be told apart.
        elements = _count_batches(division, runs) * pipeline.batch
        per_call = slowest.seconds if is_python else elements * _CALL_SECONDS
        saved = min(_share(per_call, division), division.shares["input"])
        why = f"{slowest} is called once for a batch of {pipeline.batch}, not for each element" + (
            "; its Python function must compute for a whole batch" if is_python else ""
        )
        gain = speedup(saved_by_fewer_calls(saved, pipeline.batch))
        changes.append(Change("batch() before the map", gain, why))
    return changes + _for_parallel_calls(division, slowest, is_python, cores)


def _count_batches(division: Division, runs: Sequence[Run]) -> int:
    """Return the batches that the steps asked for."""
    return max(division.calls, sum(run.kind.startswith("IteratorGetNext") for run in runs))


def _for_parallel_calls(
    division: Division, slowest: Stage, is_python: bool, cores: int
) -> list[Change]:
    """Return the change to parallel calls of the slowest stage, or [] where it cannot help."""
    if is_python and (slowest.maps or slowest.generates):
        gain = speedup(saved_by_parallel_calls(division, slowest, _WAITING_CALLS))
        what = f"map(num_parallel_calls={_WAITING_CALLS}, use_unbounded_threadpool=True)"
        what += "" if slowest.maps else ", with the work of the generator in it"
        why = "many calls may wait at the same time; calls that compute do so in turn, and slower"
        condition = f"the Python function of {slowest} waits (files, a network)"
        return [Change(what, gain, why, condition=condition)]
    if slowest.maps and not slowest.tunes and slowest.parallelism < cores:
        gain = speedup(saved_by_parallel_calls(division, slowest, cores))
        why = f"{slowest} runs {max(slowest.parallelism, 1)} at a time on {cores} cores"
        return [Change("num_parallel_calls=tf.data.AUTOTUNE", gain, why)]
    return []


def _for_dense_updates(division: Division, work: Work) -> list[Change]:
    """Propose `RowEmbedding` and a row optimizer where an optimizer updates whole large tables.

    A table is recognized by the sum of its gradient into a dense one. Only operations on large
    variables count.
    """
    changes = []
    for name, operations in _by_optimizer(work).items():
        # The type of a compiled operation is that of its kernel.
        if any(o.name.endswith(_MAKES_DENSE) and o.large for o in operations):
            share = sum(o.large for o in operations) / _of_steps(work)
            why = (
                f"{name} takes {share:.0%} of the operations to update whole variables; a step "
                "needs only the rows of its batch: lexrow.keras.audit(model, batch) names the table"
            )
            what = f"lexrow.keras.RowEmbedding with lexrow.keras.{_ROW_OPTIMIZERS[name]}"
            changes.append(Change(what, speedup(share * division.shares["device_compute"]), why))
    return changes


def _by_optimizer(work: Work) -> dict[str, list[Operation]]:
    """Return the operations of each optimizer of `_ROW_OPTIMIZERS`, by their name scope."""
    found: dict[str, list[Operation]] = {}
    for operation in work.operations:
        scopes = [part for part in operation.name.split("/")[:-1] if part in _ROW_OPTIMIZERS]
        if scopes and operation.part != INPUT:
            found.setdefault(scopes[-1], []).append(operation)
    return found


def _of_steps(work: Work) -> float:
    """Return the share of the operations of steps in the time of all operations."""
    return 1 - work.parts.get(INPUT, 0.0) or 1.0


def _for_overhead(division: Division, runs: Sequence[Run], work: Work) -> list[Change]:
    """Return the changes that make fewer calls from Python, and fewer steps."""
    host, launch = division.shares["host_compute"], division.shares["launch"]
    changes = []
    if _count_batches(division, runs) < 2 * division.calls:  # not several steps a call already
        why = (
            f"Python takes {host:.0%} of a step; one call from Python then runs {_STEPS} steps (in "
            "a loop of your own: several steps in one tf.function)"
        )
        gain = speedup(saved_by_fewer_calls(host, _STEPS))
        changes.append(Change(f"steps_per_execution={_STEPS} in model.compile", gain, why))
    updates = sum(o.share for group in _by_optimizer(work).values() for o in group)
    fixed = host + launch + division.shares["device_compute"] * updates / _of_steps(work)
    why = (
        f"{fixed:.0%} of a step does not grow with the batch: calls from Python, the start of "
        "operations and the optimizer; the model learns differently, so compare the scores"
    )
    gain = speedup(saved_by_fewer_calls(fixed, _BATCH))
    return [*changes, Change(f"a batch of {_BATCH} times the examples", gain, why)]
