"""Run TensorFlow's server in a worker or a parameter server of --strategy=parameter_server."""

from __future__ import annotations

import os
import sys

import tensorflow as tf
from absl import logging

from ..checkpoints.checkpoint import is_finished
from ..checkpoints.workdir import Workdir
from ..settings import Config
from ..system.signals import asked_to_stop
from . import rendezvous
from .cluster_spec import Hosts


def serve(config: Config, hosts: Hosts, workdir: Workdir) -> None:
    """Serve the chief until the run is finished, or until SIGINT or SIGTERM; then exit with code 0.

    This function does not return. If the chief ends before the run is finished, this program starts
    itself again and waits for the next chief. The next chief begins from a checkpoint, so the state
    of this process is not needed.

    Raises:
        RunError: A process did not arrive within --cluster_timeout.
        UsageError: This process cannot serve, or processes differ; see `rendezvous`.
    """
    rendezvous.check_own_address(hosts, config.run.cluster_timeout)
    with asked_to_stop() as stop:
        server = tf.distribute.Server(
            make_resolver(hosts).cluster_spec(),
            hosts.kind,
            hosts.index,
            protocol="grpc",
            config=_threads(hosts),
        )
        assert server is not None  # it runs as long as this reference exists
        logging.info("%s is ready", hosts.name(*hosts.task))
        presence = rendezvous.meet(config, hosts)
        presence.wait_for_end_of_chief(stop.is_set)
    if not stop.is_set() and not is_finished(workdir, config.run):
        rendezvous.start_again(hosts.name(*hosts.chief))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # there is no other way to end a server of TensorFlow


def make_resolver(hosts: Hosts) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Return the processes of a run, and which of them this one is, for TensorFlow's strategies."""
    cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in hosts.tasks.items()})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=hosts.kind, task_id=hosts.index, rpc_layer="grpc"
    )


def _threads(hosts: Hosts) -> tf.compat.v1.ConfigProto:
    """Return the numbers of threads for the server: as set, but one or more for each process.

    Calls of other processes hold a thread each and may wait for one another.
    """
    threads = tf.config.threading
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=max(
            threads.get_inter_op_parallelism_threads(), len(hosts.everyone)
        ),
    )
