"""Advise changes of a program that is not lexrow.train, such as `keras.Model.fit`."""

from __future__ import annotations

import re

from .. import __name__ as PACKAGE
from .changes import Change
from .division import Division
from .long_waits import LongWaits
from .operations import INPUT, Work
from .stages import Stage

# Types of stages that take num_parallel_calls.
_MAP = re.compile(r"(Parallel)?Map(AndBatch)?(V\d+)?$")
# Types of operations that call Python, which runs one call at a time.
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_PYTHON_SHARE = 0.5  # of the time of the input, from which on Python is its cause
# Optimizers of Keras by their name scope, and the optimizer of Lexrow that replaces each.
_ROW_OPTIMIZERS = {
    "adam": "LazyAdam",
    "adamw": "LazyAdamW",
    "adagrad": "Adagrad",
    "SGD": "SGD",
    "sgd": "SGD",
} | dict.fromkeys(("adadelta", "adamax", "ftrl", "lamb", "lion", "nadam", "rmsprop"), "LazyAdam")
# Operations that write a whole variable. A step that spends a millisecond on them writes 10 MB or
# more, at the 30 GB/s of two cores and three passes.
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_LARGE_SECONDS = 1e-3
_DENSE_SHARE = 0.25  # of the operations of a step, from which on row-sparse updates are proposed
_COMPILED = ("StatefulPartitionedCall", "PartitionedCall", "XlaLaunch")
_COMPILED_SHARE = 0.8  # of the operations of a step, from which on XLA hides what takes the time
# The share of a step outside of its operations from which on fewer calls are proposed.
_OVERHEAD_SHARE = 0.35
_STEPS = 16  # per call, as proposed


def advise_program(
    division: Division, stage: Stage | None, work: Work, cores: int, waits: LongWaits | None
) -> list[Change]:
    """Return changes of a program that is not lexrow.train, in no order; empty if none is known.

    If it is input-bound, they are for long waits if these are half of the waiting, otherwise for
    the slowest stage. If not, they are for the first cause that applies: updates of a whole
    variable, overhead between operations, a step that XLA compiled.

    Args:
        division: The parts of a step.
        stage: The slowest stage of the pipeline, or None.
        work: The operations.
        cores: The cores of the machine.
        waits: The steps that wait far longer for input than the others, or None.
    """
    waiting = division.shares["input"]
    if division.verdict == "input-bound" and waits and waits.share >= waiting / 2:
        return [_for_long_waits(waits)]
    if division.verdict == "input-bound":
        most = 1 / max(1 - waiting, 0.01)  # the speedup when no step waits
        return _for_input(stage, work, most, cores)
    dense = _for_dense_updates(division, work)
    return [dense] if dense else _for_overhead(division, work) or _for_compiled_step(work)


def _for_long_waits(waits: LongWaits) -> Change:
    """Return the change of a program that waits before the first step of an epoch.

    Its speedup is not known, as it depends on how many steps an epoch has.
    """
    if waits.shuffles:
        what = "shuffle(buffer_size) with a smaller buffer, and before the map"
        why = "the buffer is filled at the start of each epoch; before a map it holds elements "
        return Change(what, None, why + "that cost nothing yet")
    why = "the pipeline starts again at each epoch; after cache() it does not repeat what is before"
    return Change("cache() after the slowest stage, or less work at its start", None, why)


def _for_input(stage: Stage | None, work: Work, most: float, cores: int) -> list[Change]:
    """Return changes of a tf.data pipeline.

    For a map that calls Python, they are a batch before it, and a cache; for a map that leaves
    cores idle, more parallel calls only; in all other cases a cache and a prefetch.

    Args:
        stage: The slowest stage, or None.
        work: The operations.
        most: The speedup when no step waits.
        cores: The cores of the machine.
    """
    cache = Change("cache() after the slowest stage", most, "it then runs in the first epoch only")
    if stage and _MAP.match(stage.kind) and _is_python(work):
        why = (
            f"{stage} calls a Python function, and Python runs one call at a time, whatever "
            "num_parallel_calls is; a call for a batch, or operations of TensorFlow, do more"
        )
        return [Change("batch() before the map, or TensorFlow operations in it", None, why), cache]
    if stage and _MAP.match(stage.kind) and stage.parallelism < cores:
        calls = max(stage.parallelism, 1)
        why = f"{stage} runs {calls} at a time on {cores} cores"
        gain = min(most, cores / calls)
        return [Change("num_parallel_calls=tf.data.AUTOTUNE", gain, why)]
    why = "batches are made while the steps run"
    return [cache, Change("prefetch(tf.data.AUTOTUNE)", most, why)]


def _is_python(work: Work) -> bool:
    """Return whether Python functions take half of the time of the input or more."""
    share = sum(o.share for o in work.operations if o.part == INPUT and o.kind in _PYTHON)
    return share >= _PYTHON_SHARE * work.parts.get(INPUT, 0.0) > 0


def _for_dense_updates(division: Division, work: Work) -> Change | None:
    """Propose `RowEmbedding` and a row optimizer where a Keras optimizer writes whole variables.

    An optimizer of `_ROW_OPTIMIZERS` is recognized by the name scope of its operations. The change
    is proposed for the first whose operations take a quarter of the time of all operations except
    those of the input, and whose assignments take a millisecond a step. Sizes are not checked.
    Return None if there is no such optimizer.
    """
    by_optimizer: dict[str, list] = {}
    for operation in work.operations:
        scopes = [part for part in operation.name.split("/")[:-1] if part in _ROW_OPTIMIZERS]
        if scopes and operation.part != INPUT:
            by_optimizer.setdefault(scopes[-1], []).append(operation)
    steps = max(division.calls, 1)
    computing = 1 - work.parts.get(INPUT, 0.0) or 1.0
    for name, operations in by_optimizer.items():
        written = sum(o.seconds for o in operations if o.kind in _ASSIGNMENTS) / steps
        share = sum(o.share for o in operations) / computing
        if written >= _LARGE_SECONDS and share >= _DENSE_SHARE:
            gain = 1 / max(1 - share * division.shares["device_compute"], 0.01)
            why = (
                f"{name} takes {share:.0%} of the operations to update whole variables; if one is "
                "an embedding table, a step needs only the rows of its batch: "
                f"{PACKAGE}.keras.audit(model) names the table"
            )
            what = f"{PACKAGE}.keras.RowEmbedding with {PACKAGE}.keras.{_ROW_OPTIMIZERS[name]}"
            return Change(what, gain, why)
    return None


def _for_overhead(division: Division, work: Work) -> list[Change]:
    """Return the change of a program with 35 % or more of a step outside of operations, or [].

    Waits for input and copies to the device do not count.
    """
    own = 1 - work.parts.get(INPUT, 0.0)
    waiting = sum(o.share for o in work.operations if o.kind.startswith("IteratorGetNext"))
    busy = division.shares["device_compute"] * (1 - waiting / own if own else 0.0)
    overhead = 1 - busy - division.shares["host_to_device"] - division.shares["input"]
    if overhead < _OVERHEAD_SHARE:
        return []
    why = (
        f"{overhead:.0%} of a step is not spent in its operations; one call from Python then runs "
        f"{_STEPS} steps (in a loop of your own: several steps in one tf.function)"
    )
    gain = 1 / (1 - overhead * (1 - 1 / _STEPS))
    return [Change(f"steps_per_execution={_STEPS} in model.compile", gain, why)]


def _for_compiled_step(work: Work) -> list[Change]:
    """Return the advice to audit a step if compiled calls take 80 % of its operations, or []."""
    compiled = sum(o.share for o in work.operations if o.part != INPUT and o.kind in _COMPILED)
    if compiled < _COMPILED_SHARE * (1 - work.parts.get(INPUT, 0.0)) or not compiled:
        return []
    why = (
        "XLA made one operation of the step, whose parts the profile does not show; the audit "
        "finds updates of a whole table"
    )
    return [Change(f"{PACKAGE}.keras.audit(model), for a large embedding table", None, why)]
