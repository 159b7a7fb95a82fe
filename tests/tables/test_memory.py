import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.tables import memory
from app.tables.base import TableSpec
from app.tables.cached import CachedTable, CacheMap, CacheSize
from app.tables.device import DeviceTable
from app.tables.memory import FILE, HOST, Item

SPEC = TableSpec(1000, 20, tf.zeros)
HALF, WHOLE = tf.bfloat16, tf.float32


@pytest.mark.parametrize("optimizer", [adagrad(), rowwise_adagrad()])
@pytest.mark.parametrize("dtypes", [(WHOLE, WHOLE), (HALF, WHOLE), (HALF, HALF)])
def test_bytes_are_those_of_the_table_and_slots_that_are_made(optimizer, dtypes):
    parts = memory.row_parts("input", SPEC, optimizer.slots, dtypes)
    items = memory.table(parts, {HOST: SPEC.rows})
    options = {"slot_dtype": dtypes[1], "slots": optimizer.slots}
    table = DeviceTable(SPEC.rows, SPEC.columns, SPEC.initial, dtypes[0], **options)
    assert memory.totals(items) == {HOST: table.bytes()}
    assert memory.row_bytes(parts) * SPEC.rows == table.bytes()
    assert [item.name for item in items] == ["input", "input.accumulator"]


def test_what_is_not_trained_has_no_slots():
    spec = TableSpec(10, 20, tf.zeros, trained=False)
    parts = memory.row_parts("state", spec, adagrad().slots, (WHOLE, WHOLE))
    (item,) = memory.table(parts, {"GPU:0": 10})
    assert item == Item("state", "10 x 20", "GPU:0", 800)


def test_bytes_on_the_device_are_those_of_a_staged_table():
    home = DeviceTable(SPEC.rows, SPEC.columns, SPEC.initial, slots=adagrad().slots)
    table = CachedTable(home, "CPU:0", CacheMap(1000, tf.range(100).numpy(), 50))
    parts = memory.row_parts("input", SPEC, adagrad().slots, (WHOLE, WHOLE))
    size = CacheSize(np.arange(100), 50, 30)
    items = memory.cache("input", parts, SPEC.rows, size, "CPU:0")
    assert memory.totals(items)["CPU:0"] == table.bytes()
    assert memory.totals(items)[HOST] == 2 * 4 * 1000 + 30 * table.row_bytes()


ITEMS = [
    Item("input", "10 x 2", "CPU:0", 600),
    Item("output", "5 x 2", HOST, 300),
    Item("rows", "", FILE, 5000),
    Item("hot", "3 rows", "GPU:0", 70),
]


def test_the_memory_of_a_cpu_is_the_machines():
    assert memory.totals(ITEMS) == {"CPU:0": 600, HOST: 300, FILE: 5000, "GPU:0": 70}
    assert memory.too_much(ITEMS, {HOST: 900, "GPU:0": 70}) == {}
    assert memory.too_much(ITEMS, {HOST: 899, "GPU:0": 69}) == {HOST: 900, "GPU:0": 70}
    assert memory.too_much(ITEMS, {"CPU:0": 599, FILE: 4999}) == {"CPU:0": 600, FILE: 5000}


def test_a_refusal_tells_sizes_and_what_would_help():
    free = {HOST: 899}
    assert str(memory.refusal(ITEMS, free, ["--a=1", "--b=2"])) == (
        "the run does not fit: host has 899 bytes free, and 900 bytes are planned there, of them "
        "input 10 x 2 (0.60 kB), output 5 x 2 (0.30 kB); --a=1; or --b=2"
    )
    assert "hot 3 rows" in str(memory.refusal(ITEMS, {"GPU:0": 1}, []))


def test_the_plan_as_lines():
    lines = memory.lines(
        [Item("input", "10 x 2", HOST, 80), Item("slot", "10 x 1", HOST, 4 * 10**9)]
    )
    assert [line.split() for line in lines] == [
        ["input", "10", "x", "2", "host", "0.08", "kB"],
        ["slot", "10", "x", "1", "host", "4.00", "GB"],
        ["total", "host", "4.00", "GB"],
    ]
    assert len({len(line) for line in lines}) == 1
