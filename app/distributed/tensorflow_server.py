"""Run TensorFlow's server in a worker or a parameter server of --strategy=parameter_server."""

from __future__ import annotations

import os
import sys

import tensorflow as tf
from absl import logging

from .. import __name__ as PACKAGE
from ..checkpoints.workdir import Workdir
from ..config import Config
from ..system.signals import asked_to_stop
from ..training.progress import is_finished
from . import liveness, rendezvous
from .cluster_spec import Hosts


def serve(config: Config, hosts: Hosts, workdir: Workdir) -> None:
    """Serve the chief until the run is finished, or until SIGINT or SIGTERM.

    If the chief ends before the run is finished, this program starts itself again and waits for the
    next chief. That one begins from a checkpoint, so the state of this process is not needed.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.
        workdir: The workdir of the run.

    Raises:
        RunError: A process did not arrive within --cluster_timeout.
        UsageError: This process cannot serve, or processes differ; see `rendezvous`.
    """
    rendezvous.check_own_address(hosts, config.run.cluster_timeout)
    with asked_to_stop() as stop:
        cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in hosts.tasks.items()})
        server = tf.distribute.Server(
            cluster, hosts.kind, hosts.index, protocol="grpc", config=_threads(hosts)
        )
        assert server is not None  # it runs as long as this reference exists
        logging.info("%s is ready", hosts.name(*hosts.task))
        rendezvous.meet(config, hosts)
        liveness.wait_for_end_of_chief(hosts, config.run.cluster_timeout, stop.is_set)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if not stop.is_set() and not is_finished(workdir):
        logging.info("%s is gone; starting again to wait for it", hosts.name(*hosts.chief))
        os.execv(sys.executable, [sys.executable, "-m", f"{PACKAGE}.train", *sys.argv[1:]])
    os._exit(0)  # there is no other way to end a server of TensorFlow


def _threads(hosts: Hosts) -> tf.compat.v1.ConfigProto:
    """Return the numbers of threads of this process.

    Calls of other processes hold a thread each and may wait for one another. So there is at least
    one thread for each process.
    """
    threads = tf.config.threading
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=max(
            threads.get_inter_op_parallelism_threads(), len(hosts.everyone)
        ),
    )
