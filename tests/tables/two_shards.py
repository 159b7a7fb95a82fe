"""Trains a table dealt over two logical CPU devices: python -m tests.tables.two_shards

Prints, as JSON, the devices of the parts, how many of the numbers differ from those of a
table on one device, and on what devices a step reads and writes rows.
"""

import json

import tensorflow as tf

from app.optimizers.adam import lazy_adam
from app.optimizers.base import update_rows
from app.tables import sharded
from app.tables.device import DeviceTable
from app.tables.initial import Uniform

ROWS, COLUMNS, STEPS = 101, 3, 4
INITIAL = Uniform(0.5, 1)


def trained(table) -> tuple[tf.Tensor, set[str]]:
    """Rows and moments after a few steps, and where rows were read and written."""
    optimizer, rate = lazy_adam(), tf.constant(0.1)

    @tf.function(autograph=False)
    def step(ids_U: tf.Tensor, number: tf.Tensor) -> None:
        rows_UD = table.gather(ids_U)
        update_rows(optimizer.rule, table, ids_U, tf.sin(9 * rows_UD), rate, number, rows_UD)

    concrete = step.get_concrete_function(
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int64)
    )
    for number in range(1, STEPS + 1):
        concrete(tf.range(number, ROWS, number), tf.constant(number, tf.int64))
    everything = [part.gather(tf.range(ROWS)) for part in (table, *table.slots.values())]
    places = {op.device for op in concrete.graph.get_operations() if op.type.startswith("Resource")}
    return tf.concat(everything, axis=1), places


def main() -> None:
    """A table on one device against a table on two."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    slots = lazy_adam().slots
    expected, _ = trained(DeviceTable(ROWS, COLUMNS, INITIAL, slots=slots))
    table = sharded.make(ROWS, COLUMNS, INITIAL, sharded.local_devices(), slots=slots)
    ended, places = trained(table)
    found = {
        "devices": [part.values.device[-5:] for part in table.parts],
        "differ": int(tf.math.count_nonzero(ended != expected)),
        "steps": sorted(place[-5:] for place in places),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
