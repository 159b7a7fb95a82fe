"""What a worker or a parameter server does: it serves the chief until that has no more for it."""

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
from . import arrivals, joining
from .cluster_spec import Hosts


def serve(config: Config, hosts: Hosts, workdir: Workdir) -> None:
    """Serves until the run is finished, or until SIGINT or SIGTERM.

    A chief that ends before is waited for: this program starts itself again, as what it holds is of
    no use to the next chief, which begins with a checkpoint. RunError where somebody does not
    arrive within --cluster_timeout.
    """
    with asked_to_stop() as stop, joining.present(config, hosts):
        cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in hosts.tasks.items()})
        server = tf.distribute.Server(
            cluster, hosts.kind, hosts.index, protocol="grpc", config=_threads(hosts)
        )
        assert server is not None  # it runs as long as it is kept
        logging.info("%s is ready", hosts.name(*hosts.task))
        joining.await_all(config, hosts)
        arrivals.until_gone(hosts, stop.is_set)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if not stop.is_set() and not is_finished(workdir):
        logging.info("%s is gone; starting again, to wait for it", hosts.name(*hosts.chief))
        os.execv(sys.executable, [sys.executable, "-m", f"{PACKAGE}.train", *sys.argv[1:]])
    os._exit(0)  # a server of TensorFlow cannot be ended otherwise


def _threads(hosts: Hosts) -> tf.compat.v1.ConfigProto:
    """The threads of this process, and enough for others' calls, which hold one each and may wait
    for one another.
    """
    threads = tf.config.threading
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=max(
            threads.get_inter_op_parallelism_threads(), len(hosts.everyone)
        ),
    )
