"""Workers and parameter servers of TensorFlow within the process of their chief."""

from __future__ import annotations

import tensorflow as tf

from app.distributed.cluster_spec import Hosts
from app.system import ports


def start(workers: int, servers: int) -> tuple[Hosts, list[tf.distribute.Server]]:
    """The hosts as the chief sees them, and their servers, which run as long as they are kept."""
    counts = {"chief": 1, "worker": workers, "ps": servers}
    addresses = [f"127.0.0.1:{port}" for port in ports.free(sum(counts.values()))]
    tasks = {job: tuple(addresses.pop() for _ in range(n)) for job, n in counts.items()}
    cluster = tf.train.ClusterSpec({job: list(found) for job, found in tasks.items()})
    # Calls of several workers hold threads that they would wait for.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=workers + servers + 1)
    running = [
        tf.distribute.Server(cluster, job, index, protocol="grpc", config=config)
        for job in ("worker", "ps")
        for index in range(counts[job])
    ]
    return Hosts(tasks, "chief", 0), running
