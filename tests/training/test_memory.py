"""Tables that do not fit are refused before there are any, with their sizes."""

from __future__ import annotations

import pytest
import tensorflow as tf

from app import system
from app.errors import UsageError
from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.tables.base import TableSpec
from app.tables.device import DeviceTable
from app.training import memory

SPECS = {
    "input": TableSpec(1000, 20, tf.zeros),
    "output": TableSpec(2000, 20, tf.zeros),
    "state": TableSpec(10, 20, tf.zeros, trained=False),
}


@pytest.mark.parametrize("optimizer", [adagrad(), rowwise_adagrad()])
def test_bytes_are_those_of_the_tables_and_slots_that_are_made(optimizer):
    for spec in SPECS.values():
        table = DeviceTable(spec.rows, spec.columns, spec.initial)
        for name, slot in optimizer.slots.items() if spec.trained else ():
            table.slot(name, slot.columns or spec.columns, slot.initial)
        assert memory.table_bytes(spec, optimizer) == table.bytes()


def test_what_fits_passes(monkeypatch):
    monkeypatch.setattr(system, "free_bytes", lambda: 600_000)
    memory.check(SPECS, adagrad(), "CPU:0")


def test_what_does_not_fit_is_refused_with_its_sizes(monkeypatch):
    monkeypatch.setattr(system, "free_bytes", lambda: 400_000)
    with pytest.raises(UsageError) as refused:
        memory.check(SPECS, adagrad(), "CPU:0")
    assert str(refused.value) == (
        "--device=CPU:0 has 0.4 MB free, and the tables with the optimizer's state take 0.5 MB: "
        "output 2,000 x 20 (0.3 MB), input 1,000 x 20 (0.2 MB), state 10 x 20 (0.0 MB); lower "
        "--max_vocab_size or --dim, or give --optimizer=rowwise_adagrad, whose state is one number "
        "a row"
    )
    memory.check(SPECS, rowwise_adagrad(), "CPU:0")


def test_the_memory_of_a_gpu_is_not_known(monkeypatch):
    monkeypatch.setattr(system, "free_bytes", lambda: 0)
    memory.check(SPECS, adagrad(), "GPU:0")
