"""Measure what replicas exchange as the vocabulary grows: python -m MODULE JOB

Two replicas on logical devices of this process train on the same batches of text, whatever V is:
the words of the text keep their ids, and further rows are there that nobody asks for. And what it
would be for a text that has V words, by Zipf's law: of rare ones more come in a batch, at most as
many as it has tokens.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...distributed.replicas import Replicas
from ...errors import RunError
from ...system import devices
from . import scaling_jobs

REPLICAS = 2
RATE = 0.01  # what is exchanged does not depend on it
_DRAWN = 16  # batches of a text by Zipf's law
_WARM = 2  # calls that compile, and touch memory for the first time


def main(job: dict[str, Any]) -> None:
    """Measures, and writes what it measured.

    job: `workdir` (of a run), `rows` (V), `columns`, `batch_tokens`, `steps` (of a call), `calls`,
    and `result` (JSON, to write): `exchanged_bytes` (that a replica sends in a step), `step_ms`
    (the median over calls), `table_bytes` (of one replica's tables and slots) and `zipf_bytes` (of
    a text of V words, see `scaling_case.zipf_bytes`).
    """
    config = scaling_jobs.of_run(job["workdir"], job["batch_tokens"], job["steps"], REPLICAS)
    devices.use_machine(config.run)
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * REPLICAS
    tf.config.set_logical_device_configuration(cpu, logical)
    text = scaling_jobs.text_of(config)
    runner = Replicas(tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)]))
    with runner.scope():
        made = scaling_jobs.make_job(config, text, job["rows"], job["columns"])
    runner.open(made, made.placed.tables, config.run.seed)
    seconds = []
    for number, call in enumerate(scaling_jobs.calls(made, _WARM + job["calls"])):
        if number == _WARM:
            runner.values()
        start = time.perf_counter()
        loss, _ = runner.totals([runner.run_steps(*call, tf.constant(RATE))])  # waits for the call
        seconds.append(time.perf_counter() - start)
        if not loss > 0:
            raise RunError(
                f"the replicas have a loss of {loss}, so what they exchange means nothing"
            )
    if len(seconds) <= _WARM:
        raise RunError(f"the text has {len(seconds)} calls only; give more of it as --corpus")
    values = {
        "exchanged_bytes": runner.values()["exchanged_bytes"],
        "step_ms": 1000 * statistics.median(seconds[_WARM:]) / job["steps"],
        "table_bytes": sum(table.bytes() for table in made.placed.tables.values()),
        "zipf_bytes": scaling_jobs.zipf_bytes(config, job["rows"], job["columns"], _DRAWN),
    }
    Path(job["result"]).write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
