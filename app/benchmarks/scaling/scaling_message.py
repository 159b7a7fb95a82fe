"""How long two processes take to exchange next to nothing, as a program of its own:
python -m app.benchmarks.scaling.scaling_message JOB

Each gathers a number of both, by the operation that replicas use, over 127.0.0.1: so it is
TensorFlow's own time.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from ... import __name__ as PACKAGE
from ...distributed.exchange import Exchange
from ...distributed.local_cluster import HOST
from ...system import ports
from ...system.processes import Process

_EXCHANGES = 8  # of a call, one after the other
_WARM, _CALLS = 5, 40
_LOOK_SECONDS = 0.2


def main(job: dict[str, Any]) -> None:
    """Measures, and writes what it measured.

    job: `result` (JSON, to write): `message_seconds`, the median over calls. The second process,
    which this one starts, has `ports` instead.
    """
    if "ports" in job:
        _exchange(1, job["ports"])
        return
    chosen = ports.free(2)
    with tempfile.TemporaryDirectory() as folder:
        spec = json.dumps({"ports": chosen})
        arguments = ["-m", f"{PACKAGE}.benchmarks.scaling.scaling_message", spec]
        with Process("the second process", arguments, Path(folder) / "log").running() as other:
            done = threading.Event()
            threading.Thread(target=_watch, args=(other, done), daemon=True).start()
            seconds = _exchange(0, chosen)
            done.set()
    Path(job["result"]).write_text(json.dumps({"message_seconds": seconds}), encoding="utf-8")


def _watch(other: Process, done: threading.Event) -> None:
    """Ends this process when the other one ends too early, for which TensorFlow would wait."""
    while not done.wait(_LOOK_SECONDS):
        if other.code is not None:
            print(f"{other.name} ended: {other.reason()}", file=sys.stderr, flush=True)
            os._exit(1)


def _exchange(index: int, ports: list[int]) -> float:
    """Seconds of an exchange, as one of two processes."""
    cluster = tf.train.ClusterSpec({"worker": [f"{HOST}:{port}" for port in ports]})
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=index, rpc_layer="grpc"
        )
    )

    exchange = Exchange(strategy)

    def replica(number: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        for index in range(_EXCHANGES):
            number = exchange.gather(number, key + index)[:1]
        return number

    @tf.function(autograph=False)
    def call(number: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica, args=(number, key))

    found = []
    for _ in range(_WARM + _CALLS):
        start = time.perf_counter()
        made = call(tf.zeros([1]), exchange.keys(_EXCHANGES))
        strategy.experimental_local_results(made)[0].numpy()  # waits for the call
        found.append((time.perf_counter() - start) / _EXCHANGES)
    return statistics.median(found[_WARM:])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
