"""Measure the time of an empty message between two processes of this machine.

Each process gathers one number of both, by the operation of the replicas, over 127.0.0.1: so the
time is that of TensorFlow.
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
from ..harness import programs

_MESSAGES = 8  # of a call, one after the other
_WARM, _CALLS = 5, 40
_POLL_SECONDS = 0.2


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Start the second process, and measure messages to it.

    Args:
        job: Not used.

    Returns:
        `message_seconds`, the median over calls.
    """
    chosen = ports.free(2)
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", f"{PACKAGE}.benchmarks.scaling.scaling_message", json.dumps(chosen)]
        with Process("the second process", arguments, Path(folder) / "log").running() as other:
            done = threading.Event()
            threading.Thread(target=_watch, args=(other, done), daemon=True).start()
            seconds = _exchange(0, chosen)
            done.set()
    return {"message_seconds": seconds}


def _watch(other: Process, done: threading.Event) -> None:
    """End this process if the other one ends too early: TensorFlow would wait for it forever."""
    while not done.wait(_POLL_SECONDS):
        if other.code is not None:
            print(f"{other.name} ended: {other.reason()}", file=sys.stderr, flush=True)
            os._exit(1)


def _exchange(index: int, ports: list[int]) -> float:
    """Return the median seconds of a message, as one of two processes."""
    cluster = tf.train.ClusterSpec({"worker": [f"{HOST}:{port}" for port in ports]})
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=index, rpc_layer="grpc"
        )
    )
    exchange = Exchange(strategy)

    def replica(number: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        for message in range(_MESSAGES):
            number = exchange.gather(number, key + message)[:1]
        return number

    @tf.function(autograph=False)
    def call(number: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica, args=(number, key))

    seconds = []
    for _ in range(_WARM + _CALLS):
        start = time.perf_counter()
        made = call(tf.zeros([1]), exchange.keys(_MESSAGES))
        strategy.experimental_local_results(made)[0].numpy()  # waits for the call
        seconds.append((time.perf_counter() - start) / _MESSAGES)
    return statistics.median(seconds[_WARM:])


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    if isinstance(job, list):  # the ports, in the second process
        _exchange(1, job)
    else:
        programs.answer(measure)
