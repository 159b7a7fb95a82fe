from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.assembly.learning import OPTIMIZERS
from app.auditing.whole import audit
from app.optimizers.adagrad import adagrad
from app.settings import OptimizerConfig
from app.tables.device import DeviceTable
from app.training.step import train_function
from tests.reference.batches import make_model, make_tokens

SIZE, DIM = 40, 6
COUNTS = np.ones(SIZE)


class WholeTable(DeviceTable):
    """What no table may be: one that gives rows by way of all of them."""

    def gather(self, ids_U):
        return tf.gather(2.0 * self.values, ids_U) / 2.0


def audited(name, optimizer, kind=DeviceTable):
    """The findings of two steps, and how often these were traced in all."""
    slots = optimizer.slots
    tables = {table: kind(SIZE, DIM, tf.zeros, slots=slots) for table in ("input", "output")}
    function = train_function(make_model(name, COUNTS), tables, optimizer, seed=1)
    tokens_SBL = tf.stack([make_tokens(range(SIZE), seed=number) for number in range(2)])
    inputs = tokens_SBL, tf.constant(0, tf.int64), tf.constant(0.1)
    # A slot of one column counts too.
    findings = audit(function, tables, inputs, least_bytes=4 * SIZE)
    function(*inputs)
    return findings, function.experimental_get_tracing_count()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_step_touches_a_whole_table_and_each_is_traced_once(optimizer):
    made = OPTIMIZERS[optimizer](OptimizerConfig(optimizer=optimizer))
    assert audited("skipgram", made) == ((), 1)


def test_nor_does_a_step_of_the_other_model():
    assert audited("cbow", adagrad(0.1)) == ((), 1)


def test_a_table_that_is_read_whole_is_found_in_every_step():
    findings, _ = audited("skipgram", adagrad(0.1), WholeTable)
    read = {(f.variable, f.operation): f.count for f in findings}
    assert read["input", "Mul"] == read["output", "Mul"] == 2
    assert read["input", "ReadVariableOp"] == read["output", "ReadVariableOp"] == 2
    assert all("test_step_audit.py" in finding.cause for finding in findings)
