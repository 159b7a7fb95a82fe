"""Advise changes of a program that is not `lexrow train`, such as `keras.Model.fit`."""

from __future__ import annotations

from collections.abc import Sequence

from .changes import (
    Change,
    saved_by_cache,
    saved_by_fewer_calls,
    saved_by_overlap,
    saved_by_parallel_calls,
    speedup,
)
from .division import Division
from .operations import INPUT, Operation, Run, Work
from .stages import Pipeline, Stage

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


def advise_program(
    division: Division, pipeline: Pipeline | None, runs: Sequence[Run], work: Work, cores: int
) -> list[Change]:
    """Return changes of a program that is not `lexrow train`, in no order; empty if none is known.

    Each cause that the profile shows gives its own changes, whatever the verdict is.

    Args:
        division: The parts of a step.
        pipeline: The slow stages of the pipeline, or None.
        runs: The runs of operations.
        work: The operations.
        cores: The cores of the machine.
    """
    by_step = _for_overhead(division, runs, work)
    by_step += _for_dense_updates(division, work)
    if pipeline is None:
        return by_step
    changes = [_no_faster_than(pipeline, division, change) for change in by_step]
    if not pipeline.is_ahead:
        why = "batches are made while the steps run"
        gain = speedup(saved_by_overlap(division))
        changes.append(Change("prefetch(tf.data.AUTOTUNE) at the end", gain, why))
    changes += _for_slowest_stage(division, pipeline, runs, cores)
    if division.long_waits and pipeline.has_later("Shuffle"):
        why = (
            f"{pipeline.slowest} fills the buffer before the first step of an epoch; behind "
            "shuffle(), it runs beside the steps"
        )
        saved = min(division.long_waits, 1 - division.shares["input"], 1 - division.crowding)
        changes.append(Change("shuffle() before the slowest stage", speedup(saved), why))
    return changes


def _no_faster_than(pipeline: Pipeline, division: Division, change: Change) -> Change:
    """Return a change of the step, whose gain ends where steps wait for the slowest stage."""
    if change.speedup is None or not pipeline.is_ahead:
        return change
    busy = pipeline.slowest.seconds / (division.seconds or 1.0)
    return change._replace(speedup=min(change.speedup, max(1 / max(busy, 0.01), 1.0)))


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
        saved = min(per_call / (division.seconds or 1.0), division.shares["input"])
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
        saved = saved_by_parallel_calls(division, slowest, _WAITING_CALLS)
        what = f"map(num_parallel_calls={_WAITING_CALLS}, use_unbounded_threadpool=True)"
        where = "" if slowest.maps else ", with the work of the generator in it"
        why = "many calls may wait at the same time; calls that compute do so in turn, and slower"
        condition = f"the Python function of {slowest} waits (files, a network)"
        return [Change(what + where, speedup(saved), why, condition=condition)]
    if slowest.maps and not slowest.tunes and slowest.parallelism < cores:
        saved = saved_by_parallel_calls(division, slowest, cores)
        why = f"{slowest} runs {max(slowest.parallelism, 1)} at a time on {cores} cores"
        return [Change("num_parallel_calls=tf.data.AUTOTUNE", speedup(saved), why)]
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
                f"needs only the rows of its batch: lexrow.keras.audit(model) names the table"
            )
            what = f"lexrow.keras.RowEmbedding with lexrow.keras.{_ROW_OPTIMIZERS[name]}"
            gain = speedup(share * division.shares["device_compute"])
            changes.append(Change(what, gain, why))
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
