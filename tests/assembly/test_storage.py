"""Tables of --table=dynamic whose ids the data has, such as users."""

from __future__ import annotations

import types

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import memory_plan, storage
from app.checkpoints import stored
from app.checkpoints.checkpoint import Position
from app.checkpoints.table_checkpoints import Checkpoints
from app.checkpoints.workdir import Workdir
from app.errors import RunError, UsageError
from app.settings import Config, TableConfig
from app.tables.base import Slot, TableSpec
from app.tables.device import DeviceTable
from app.tables.disk.table_file import TableFile
from app.tables.dynamic.dynamic import DynamicTable
from app.tables.initial import Uniform

FIRST = Uniform(0.5, 1)
SPECS = {
    "users": TableSpec(1000, 8, FIRST, grows=True),
    "items": TableSpec(50, 8, FIRST, grows=True),
    "kernel": TableSpec(8, 2, tf.zeros),
}
ROW = 8 * 4 + 4 + memory_plan.ID_BYTES  # with the accumulator of row-wise Adagrad
SLOTS = {"accumulator": Slot(1, 0.1)}
IDS = tf.constant([7, 3, 900, 7], tf.int32)


def config(rows):
    """With room for so many rows."""
    return TableConfig(table="dynamic", table_gb=rows * ROW / 1e9)


def rows_of(rows):
    return memory_plan.rows_for_ids(SPECS, SLOTS, config(rows))


def made(rows):
    maker = storage.by_id(rows_of(rows))
    return storage.make_tables(SPECS, config(rows), ["CPU:0"], 1, maker=maker)


def test_tables_share_the_room_and_take_no_more_than_there_are_ids():
    assert rows_of(40) == {"items": 20, "users": 20}
    assert rows_of(200) == {"items": 50, "users": 150}
    assert rows_of(5000) == {"items": 50, "users": 1000}
    with pytest.raises(UsageError, match=r"^--table_gb=.*: a row of each table takes \d+ bytes"):
        rows_of(1)


def test_only_tables_that_grow_are_by_id():
    tables = made(200)
    kinds = {name: type(table) for name, table in tables.items()}
    assert kinds == {"users": DynamicTable, "items": DynamicTable, "kernel": DeviceTable}


def test_scoring_makes_no_rows_and_sees_those_that_are_there():
    users = made(200)["users"]
    users.assign(tf.constant([3, 7]), tf.ones((2, 8)))
    known = storage.scoring_tables({"users": users})["users"]
    expected = DeviceTable(1000, 8, FIRST).gather(IDS).numpy()
    expected[[0, 1, 3]] = 1
    for gather in (known.gather, tf.function(known.gather, autograph=False)):
        np.testing.assert_array_equal(gather(IDS), expected)
    assert len(users.key_map) == 2
    assert users.key_map.counts_V[users.key_map.in_use()].tolist() == [1, 1]


def test_a_checkpoint_by_id_is_read_into_a_table_of_all_ids(tmp_path):
    users = made(200)["users"]
    users.assign(tf.constant([3, 7]), tf.ones((2, 8)))
    Checkpoints(tmp_path, {"users": users}).save(Position(step=1))
    table = DeviceTable(1000, 8, FIRST)
    Checkpoints(tmp_path, {"users": table}).read()
    expected = DeviceTable(1000, 8, FIRST).values.numpy()
    expected[[3, 7]] = 1
    np.testing.assert_array_equal(table.values, expected)
    table = DeviceTable(1000, 8, FIRST, slots={"accumulator": Slot(1, 0.1)})
    with pytest.raises(RunError, match="go on with it, or train in a new workdir"):
        Checkpoints(tmp_path, {"users": table}).restore()


def test_the_plan_counts_the_rows_there_will_be(monkeypatch):
    monkeypatch.setattr(memory_plan, "step_bytes", lambda *_: 0)
    rows, model = rows_of(200), types.SimpleNamespace(tables=lambda: SPECS)
    others = [memory_plan.id_map(rows)]
    found = memory_plan.plan(
        model, None, None, Config(table=config(200)), ["CPU:0"], others, rows
    ).items
    sizes = {item.name: item.size for item in found}
    assert sizes["users"] == "150 x 8"
    assert sizes["items"] == "50 x 8"
    assert sizes["kernel"] == "8 x 2"
    assert sizes["ids and their counts"] == "200 ids"
    counted = [item for item in found if item.name.startswith(("users", "items", "ids"))]
    assert sum(item.bytes for item in counted) == 200 * ROW


def test_ids_that_have_rows_are_read_in_order(tmp_path):
    users = made(200)["users"]
    users.assign(tf.constant([7, 3]), tf.constant([[7.0] * 8, [3.0] * 8]))
    Checkpoints(tmp_path, {"users": users}).save(Position(step=1))
    (path,) = tmp_path.iterdir()
    ids, rows = stored.read_ids(path, "users")
    assert ids.tolist() == [3, 7] and rows[:, 0].tolist() == [3, 7]


def test_trained_tables_are_made_with_slots_and_others_without():
    specs = {"input": TableSpec(9, 2, tf.zeros), "state": TableSpec(9, 2, tf.zeros, trained=False)}
    tables = storage.make_tables(specs, TableConfig(), ["CPU:0"], 1, SLOTS)
    assert {name: list(table.slots) for name, table in tables.items()} == {
        "input": ["accumulator"],
        "state": [],
    }
    tables = storage.make_tables(specs, TableConfig(), ["CPU:0"], 1)  # to read them
    assert not any(table.slots for table in tables.values())


@pytest.mark.parametrize("kind", ["folder", "file of another run", "no table"])
def test_a_table_file_that_is_refused_leaves_the_workdir_as_it_was(tmp_path, kind):
    place, path = Workdir(tmp_path / "run"), tmp_path / "rows"
    place.path.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "no table":
        path.write_bytes(b"text")
    else:
        TableFile(path, "another", resume=False)
    with pytest.raises(UsageError, match=f"^--table_file={path}"):
        storage.in_file(str(path), place)
    assert not [*place.path.iterdir()]
