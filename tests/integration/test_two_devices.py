"""Classes dealt over devices train as on one."""

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import learning, storage
from app.losses.classes import classes
from app.models.cbow import Cbow
from app.optimizers.adagrad import rowwise_adagrad
from app.settings import ModelConfig, TableConfig
from app.training.step import train_function
from tests.integration.commands import fresh
from tests.losses.toy import counts
from tests.reference.batches import WINDOW, make_batch, make_tokens

WORDS, DIM, TARGETS = 60, 8, 32


@pytest.mark.slow
def test_two_devices_train_the_same_rows():
    ended = fresh("tests.integration.test_two_devices")
    assert ended.code == 0, ended.err
    devices, *differences = ended.out.splitlines()
    assert devices == "['CPU:0', 'CPU:1']"
    assert len(differences) == 2 and all(float(value) < 1e-5 for value in differences)


def main() -> None:
    """Two runs of a few steps, on one device and on two logical ones.

    Prints the devices of the tables, then how far the words' rows are from those of one device.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    one, two = _trained(1), _trained(2)
    print(sorted({table.device.rpartition("/device:")[2] for table in two.values()}))
    starts = classes.partition(counts(WORDS), 2, "fewest_rows", 10, TARGETS)[-1]
    device_C = classes.assign_devices(counts(WORDS), starts, TARGETS, 2)
    rows = one["output"].values.numpy()
    for device in range(2):
        numbers = np.flatnonzero(device_C == device)
        chosen = np.concatenate([np.arange(*starts[c : c + 2]) for c in numbers])
        print(abs(two[f"output{device}"].values.numpy() - rows[chosen]).max())


def _trained(devices: int) -> dict:
    settings = ModelConfig(loss="class_softmax", classes=10, class_devices=devices)
    loss = learning.make_loss(settings, learning.OutputSpec(counts(WORDS), DIM, TARGETS, seed=1))
    model, optimizer = Cbow(WORDS, DIM, WINDOW, loss, seed=1), rowwise_adagrad()
    places = [f"CPU:{number}" for number in range(devices)]
    tables = storage.make_tables(
        model.tables(), TableConfig(), places, seed=0, slots=optimizer.slots
    )
    function = train_function(model, tables, optimizer, seed=1)
    batches = tf.stack([make_batch(make_tokens(range(WORDS), seed=n)).data for n in range(3)])
    with tf.device("CPU:0"):
        function(batches, tf.constant(0, tf.int64), tf.constant(0.3))
    return tables


if __name__ == "__main__":
    main()
