"""Measure the bytes that replicas exchange as the vocabulary grows.

Two replicas on logical devices of this process train on the same batches of text for every size V
of the vocabulary: the words of the text keep their ids, and the other rows never occur.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import tensorflow as tf

from ...distributed.replicas import Replicas
from ...errors import RunError
from ...system import devices
from ..harness import programs
from . import scaling_jobs

REPLICAS = 2
_RATE = 0.01  # the bytes do not depend on the rate
_DRAWN = 16  # batches of a text by Zipf's law
_WARM = 2  # calls that compile, and use memory for the first time


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train two replicas with V rows in each table, and measure what they exchange.

    It divides the CPU of this process into two logical devices, so that it can run only once.

    Args:
        job: `workdir` (of an earlier run, whose flags and text are used), `rows` (V), `columns`,
            `batch_tokens`, `steps` (in each call) and `calls` (at most so many are timed, after
            calls to warm up).

    Returns:
        `exchanged_bytes` (that a replica sends in a step), `step_ms` (the median over calls),
        `table_bytes` (of the tables and slots of one replica) and `zipf_bytes` (of a text in which
        all V words occur, see `scaling_jobs.zipf_bytes`).

    Raises:
        RunError: The loss is not positive, or the text has too few calls to time one.
    """
    config = scaling_jobs.read_config(job["workdir"], job["batch_tokens"], job["steps"], REPLICAS)
    devices.use_machine(config.run)
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * REPLICAS
    tf.config.set_logical_device_configuration(cpu, logical)
    text = scaling_jobs.load_text(config)
    runner = Replicas(tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)]))
    with runner.scope():
        made = scaling_jobs.make_job(config, text, job["rows"], job["columns"])
    runner.open(made, made.placed.tables, config.run.seed)
    seconds = []
    for number, call in enumerate(scaling_jobs.first_calls(made, _WARM + job["calls"])):
        if number == _WARM:
            runner.values()
        start = time.perf_counter()
        loss, _ = runner.totals([runner.run_steps(*call, tf.constant(_RATE))])  # waits for the call
        seconds.append(time.perf_counter() - start)
        if not loss > 0:
            raise RunError(f"the replicas have a loss of {loss}, so their bytes mean nothing")
    if len(seconds) <= _WARM:
        raise RunError(f"the text has only {len(seconds)} calls; give more text as --corpus")
    return {
        "exchanged_bytes": runner.values()["exchanged_bytes"],
        "step_ms": 1000 * statistics.median(seconds[_WARM:]) / job["steps"],
        "table_bytes": sum(table.bytes() for table in made.placed.tables.values()),
        "zipf_bytes": scaling_jobs.zipf_bytes(config, job["rows"], job["columns"], _DRAWN),
    }


if __name__ == "__main__":
    programs.answer(measure)
