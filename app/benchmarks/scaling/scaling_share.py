"""What one of N replicas does in a step beside the exchange, as a program of its own:
python -m app.benchmarks.scaling.scaling_share JOB

It differentiates its part of the batch and packs it. The vectors of the others, made before, lie
there as if they had just come; it merges all of them and changes the rows.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...config import checks
from ...errors import RunError, UsageError
from ...system import devices
from ...tables.row_reads import unique
from ...training.gradients import StepGradients, compute_gradients
from ...training.job import Job
from ...training.packing import pack, unpack
from ...training.step import apply_gradients, split_steps, train_function
from . import scaling_jobs

RATE = 0.01  # the time of a step does not depend on it
_FLOAT = 4  # bytes
_STEPS = 4  # of a call: unrolled, each with the vectors of N replicas, which takes long to compile
_POOL = 4  # calls that are gone through again and again
_ROUNDS, _SECONDS = 5, 1.0

# Makes the call with a batch of the pool, by its number, and returns once it is made.
Call = Callable[[int], None]


class Prepared(NamedTuple):
    """A call with the number of its batches, compiled, and what is known of its steps."""

    call: Call
    pool: int
    values: dict[str, Any]


def main(job: dict[str, Any]) -> None:
    """Measures, and writes what it measured.

    job: `workdir` (of a run), `columns`, `shares` (a list of N and of the tokens of a step of all
    of them) and `result` (JSON, to write): for each share a dictionary of `workers`, `step_tokens`,
    `seconds` (of a step, the median over rounds), `bytes` (that a replica sends in a step, on
    average) and, where N is 1, `rows` (distinct ones of all tables that a step touches); or
    `left_out`, the reason, where the batch does not come apart.
    """
    found: list[dict[str, Any]] = []
    ready: dict[int, Prepared] = {}
    for workers, tokens in job["shares"]:
        config = scaling_jobs.of_run(job["workdir"], tokens, _STEPS, workers)
        if not found:
            devices.use_machine(config.run)
            text = scaling_jobs.text_of(config)
        found.append({"workers": workers, "step_tokens": tokens})
        try:
            checks.check_micro_batches(config)
        except UsageError as error:  # with more workers than a batch has parts for
            found[-1]["left_out"] = str(error)
            continue
        made = scaling_jobs.make_job(config, text, len(text.vocabulary.tokens), job["columns"])
        ready[len(found) - 1] = prepared(made, config.run.seed)
    # In turn, so that a drift of the machine favours no share.
    rounds = [{place: _seconds(one) for place, one in ready.items()} for _ in range(_ROUNDS)]
    for place, one in ready.items():
        seconds = statistics.median(of_round[place] for of_round in rounds) / _STEPS
        found[place] |= {"seconds": seconds, **one.values}
    Path(job["result"]).write_text(json.dumps(found), encoding="utf-8")


def prepared(job: Job, seed: int) -> Prepared:
    """What one of `job.placed.micro_batches` replicas does, with one micro-batch each."""
    pool = scaling_jobs.calls(job, _POOL)
    if not pool:
        raise RunError("the text has not one call of such batches; give more of it as --corpus")
    make = _alone if job.placed.micro_batches == 1 else _one_of
    call, values = make(job, seed, pool)
    for place in range(len(pool)):
        call(place)  # compiles, and touches memory for the first time
    return Prepared(call, len(pool), values)


def _seconds(one: Prepared) -> float:
    """Of a call, on average."""
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() - start < _SECONDS:
        one.call(count % one.pool)
        count += 1
    return (time.perf_counter() - start) / count


def _alone(job: Job, seed: int, pool: Sequence) -> tuple[Call, dict[str, Any]]:
    """The step of a single process."""
    train = train_function(job.model, job.placed.tables, job.optimizer, seed)
    rate = tf.constant(RATE)

    def call(place: int) -> None:
        train(*pool[place], rate)[0].numpy()

    rows = [
        int(tf.size(unique(ids)[0]))
        for data, first in pool
        for (batch,) in split_steps(data, first, seed, 1)
        for ids in job.model.lookups(batch).values()
    ]
    return call, {"bytes": 0.0, "rows": sum(rows) / (len(pool) * _STEPS)}


def _one_of(job: Job, seed: int, pool: Sequence) -> tuple[Call, dict[str, Any]]:
    """The first of several replicas."""
    tables, count = job.placed.tables, job.placed.micro_batches
    here = {name: table.device for name, table in tables.items()}

    def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
        return tables[name].gather(ids_U)

    def packed(data_S: Any, first: tf.Tensor) -> Iterator[tuple[StepGradients, tf.Tensor]]:
        for index, batches in enumerate(split_steps(data_S, first, seed, 1)):
            found = compute_gradients(job.model, gather, batches, here)
            if index:  # as in `distributed.replicas`, which looks at the first loss only
                found = found._replace(loss=tf.zeros([]), examples=tf.zeros([]))
            yield found, pack(found, tf.zeros([]))

    @tf.function(autograph=False)
    def vectors(data_S: Any, first: tf.Tensor) -> list[tf.Tensor]:
        return [vector for _, vector in packed(data_S, first)]

    @tf.function(autograph=False)
    def share(data_S: Any, first: tf.Tensor, rate: tf.Tensor, others: list[tf.Tensor]) -> tf.Tensor:
        losses = []
        for index, (mine, vector) in enumerate(packed(data_S, first)):
            every = tf.concat([vector, others[index]], axis=0)
            merged, _ = unpack(every, count, mine)
            apply_gradients(tables, job.optimizer, merged, rate, first + index + 1)
            losses.append(merged.loss)
        return losses[0]

    calls, sizes = [], []
    for data, first in pool:
        parts = tf.split(data, count, axis=1)
        # Draws of their own; where they come from does not matter here.
        sent = [vectors(part, first + number * _STEPS) for number, part in enumerate(parts)]
        sizes += [int(tf.size(vector)) for of_one in sent for vector in of_one]
        others = [tf.concat(of_step, axis=0) for of_step in zip(*sent[1:], strict=True)]
        calls.append((parts[0], first, tf.constant(RATE), others))
    shapes = tf.nest.map_structure(tf.type_spec_from_value, calls[0][:3])
    compiled = share.get_concrete_function(*shapes, [tf.TensorSpec([None])] * _STEPS)

    def call(place: int) -> None:
        compiled(*calls[place]).numpy()

    return call, {"bytes": _FLOAT * float(np.mean(sizes))}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
