"""Changes a table on two parameter servers: python -m tests.tables.two_servers

Prints, as JSON: by optimizer how far its rows and slots are from those of a table of this process;
how often each row was raised by workers that race, and how many updates the servers have counted;
and the operations on rows that run elsewhere than on the servers.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import tensorflow as tf

from app.distributed.tensorflow_server import make_resolver
from app.optimizers.adagrad import rowwise_adagrad
from app.optimizers.adam import lazy_adam
from app.optimizers.base import Optimizer, update_rows
from app.tables import served, sharded
from app.tables.device import DeviceTable
from app.tables.initial import Uniform
from app.tables.served import ServedTables
from tests import in_process

ROWS, COLUMNS, STEPS, CALLS = 37, 3, 5, 30
INITIAL = Uniform(0.5, 1)
OPTIMIZERS = {
    "rowwise_adagrad": rowwise_adagrad(),
    "lazy_adam": lazy_adam(correct_skipped=True),
}


def main() -> None:
    """Updates by one worker against those of this process, then updates of two that race."""
    hosts, kept = in_process.start(2, 2)
    strategy = tf.distribute.ParameterServerStrategy(make_resolver(hosts))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    found = {name: differ(coordinator, OPTIMIZERS[name]) for name in OPTIMIZERS}
    print(json.dumps({**found, **raced(coordinator)}))
    sys.stdout.flush()
    os._exit(0)  # the servers' destructors would wait for one another
    del kept


def tables(devices: list[str], slots=None) -> dict:
    """Two tables of unlike widths; on servers, or here where there are none."""
    columns = {"input": COLUMNS, "output": COLUMNS + 2}
    if not devices:
        return {n: DeviceTable(ROWS, count, INITIAL, slots=slots) for n, count in columns.items()}
    return {
        name: sharded.make(ROWS, count, INITIAL, devices, slots=slots)
        for name, count in columns.items()
    }


def differ(coordinator, optimizer: Optimizer) -> float:
    """The greatest difference of a row or a slot; of rows, some have a gradient of zeros."""
    here, there = (tables(devices, optimizer.slots) for devices in ([], served.devices()))

    def change(name, part, ids_U, gradients_UD, rate, number):
        update_rows(optimizer.rule, part, ids_U, gradients_UD, rate, number)

    remote = ServedTables(there, change)
    remote.start(7)
    rate = tf.constant(0.1)

    @tf.function(autograph=False)
    def train(first: tf.Tensor) -> tf.Tensor:
        for step in range(STEPS):
            wanted = {"input": tf.range(step, ROWS, step + 1), "output": tf.range(step * 9)}
            rows = remote.gather(wanted)
            touched = {n: (wanted[n], gradient(n, rows[n])) for n in wanted}
            remote.update(touched, rate)
        return first

    coordinator.schedule(train, args=(tf.constant(0),))
    coordinator.join()
    for step in range(STEPS):
        wanted = {"input": tf.range(step, ROWS, step + 1), "output": tf.range(step * 9)}
        for name, ids_U in wanted.items():
            number, rows_UD = tf.constant(8 + step, tf.int64), here[name].gather(ids_U)
            by_rows = gradient(name, rows_UD)
            update_rows(optimizer.rule, here[name], ids_U, by_rows, rate, number, rows_UD)
    pairs = [
        (one, other)
        for name in here
        for one, other in (
            (here[name], there[name]),
            *((here[name].slots[slot], there[name].slots[slot]) for slot in optimizer.slots),
        )
    ]
    every = tf.range(ROWS)
    return max(float(np.abs(one.gather(every) - other.gather(every)).max()) for one, other in pairs)


def gradient(name: str, rows_UD: tf.Tensor) -> tf.Tensor:
    """Some gradient; that of every third row is zeros."""
    idle_U1 = tf.range(tf.shape(rows_UD)[0])[:, tf.newaxis] % 3 == 0
    return tf.where(idle_U1, 0.0, tf.sin(9 * rows_UD))


def raced(coordinator) -> dict:
    """What two workers make of a change that reads and then writes."""
    there = tables(served.devices())
    for table in there.values():
        table.assign(tf.range(ROWS), tf.zeros((ROWS, table.columns)))

    def change(name, part, ids_U, gradients_UD, rate, number):
        part.assign(ids_U, part.gather(ids_U) + gradients_UD)

    remote = ServedTables(there, change)

    @tf.function(autograph=False)
    def train(first: tf.Tensor) -> tf.Tensor:
        for _ in range(STEPS):
            ids_U = tf.range(ROWS)
            rows = remote.gather(dict.fromkeys(there, ids_U))
            touched = {name: (ids_U, tf.ones_like(found)) for name, found in rows.items()}
            remote.update(touched, tf.constant(1.0))
        return first

    for _ in range(CALLS):
        coordinator.schedule(train, args=(tf.constant(0),))
    coordinator.join()
    values = tf.concat([table.gather(tf.range(ROWS)) for table in there.values()], axis=1)
    graph = train.get_concrete_function(tf.constant(0)).graph
    operations = [graph, *(f.graph for f in graph._functions.values() if hasattr(f, "graph"))]
    elsewhere = {
        op.type
        for part in operations
        for op in part.get_operations()
        if op.type.startswith(("Resource", "AssignAdd")) and "/job:ps" not in op.device
    }
    return {
        "raised": np.unique(values).tolist(),
        "updates": [int(server.updates.read_value()) for server in remote._servers],
        "elsewhere": sorted(elsewhere),
    }


if __name__ == "__main__":
    main()
