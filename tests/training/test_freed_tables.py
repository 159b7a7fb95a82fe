"""The memory of the tables that a train function has read."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.adagrad import rowwise_adagrad
from app.tables.device import DeviceTable
from app.training.step import train_function
from tests.reference.batches import MODELS, make_model, make_tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_deleted_train_function_does_not_keep_its_tables(name):
    def train_once():
        optimizer = rowwise_adagrad()
        tables = {
            table: DeviceTable(30, 6, tf.ones, slots=optimizer.slots)
            for table in ("input", "output")
        }
        train = train_function(make_model(name, np.ones(30)), tables, optimizer, seed=1)
        data_S = tf.constant(make_tokens(range(1, 25))[np.newaxis])
        loss, _ = train(data_S, tf.constant(0, tf.int64), tf.constant(0.1))
        assert loss > 0
        variables = [table.values for table in tables.values()]
        return [weakref.ref(variable.handle) for variable in variables]

    handles = train_once()
    gc.collect()
    assert [handle() for handle in handles] == [None, None]
