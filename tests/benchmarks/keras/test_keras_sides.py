from __future__ import annotations

import keras
import numpy as np
import pytest

from app.benchmarks.keras import keras_models, keras_sides
from app.benchmarks.keras.keras_batches import make_batches
from app.benchmarks.keras.keras_job import OURS, PEERS, Job, TableSize
from app.errors import RunError

TABLES = {
    "two_tower": [TableSize("users", 60, 5), TableSize("items", 40, 5)],
    "dlrm": [TableSize("a", 20, 6), TableSize("b", 30, 6, 4), TableSize("c", 40, 3)],
}


def make_job(model, side="keras"):
    return Job(model, side, TABLES[model], batch=8, steps=3, hot=50)


def embed(table, ids):
    vectors = keras.layers.Embedding(table.rows, table.columns, name=f"{table.name}_rows")(ids)
    return vectors if table.ids == 1 else keras.layers.GlobalAveragePooling1D()(vectors)


def make(model):
    """The model on layers of Keras, a batch, and the vectors of its ids in numpy."""
    built = keras_models.MODELS[model](TABLES[model], embed)
    x, y = next(iter(make_batches(make_job(model), 1, seed=1)))
    vectors = {}
    for table in TABLES[model]:
        (rows,) = built.model.get_layer(f"{table.name}_rows").get_weights()
        rows = rows[x[table.name]]
        vectors[table.name] = rows if table.ids == 1 else rows.mean(axis=1)
    found = built.vectors({table.name: x[table.name] for table in TABLES[model]})
    for own, expected in zip(found, vectors.values(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-5)
    return built, x, y, vectors


def dense(model, name, inputs, count):
    """The output of the dense layers of a name; ReLU is between them."""
    for number in range(count):
        kernel, bias = model.get_layer(f"{name}_{number}").get_weights()
        inputs = np.maximum(inputs, 0) if number else inputs
        inputs = inputs @ kernel + bias
    return inputs


def test_the_towers_score_every_user_with_every_item():
    built, x, y, vectors = make("two_tower")
    users, items = (dense(built.model, name, vectors[name], 2) for name in ("users", "items"))
    scores = users @ items.T
    np.testing.assert_allclose(built.model(x), scores, rtol=1e-4, atol=1e-7)
    assert y.numpy().tolist() == list(range(8))
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diagonal(scores))
    assert float(built.loss(y, built.model(x))) == pytest.approx(expected, rel=1e-4)


def test_the_dlrm_multiplies_every_pair_once():
    built, x, y, vectors = make("dlrm")
    first = dense(built.model, "dense", x["dense"].numpy(), 2)
    codes = [first, *(dense(built.model, name, own, 1) for name, own in vectors.items())]
    pairs = [(a * b).sum(axis=1) for i, a in enumerate(codes) for b in codes[i + 1 :]]
    inputs = np.concatenate([first, np.stack(pairs, axis=1)], axis=1)
    logits = dense(built.model, "top", inputs, 3)[:, 0]
    np.testing.assert_allclose(built.model(x), logits, rtol=1e-4, atol=1e-6)
    expected = np.mean(np.log1p(np.exp(logits)) - y.numpy() * logits)
    assert float(built.loss(y, built.model(x))) == pytest.approx(expected, rel=1e-4)


def test_no_batch_comes_twice_before_all_were_used():
    batches = make_batches(make_job("dlrm"), 3, seed=1).take(6)
    inputs = [x["dense"].numpy() for x, _ in batches]
    assert all((inputs[i] == inputs[i + 3]).all() for i in range(3))
    assert len({values.tobytes() for values in inputs}) == 3


# `sharded` needs a process of its own; see `test_keras_case`.
SIDES = [side for side in (*OURS, *PEERS) if side not in ("sharded", "keras_rs")]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["two_tower", pytest.param("dlrm", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "side",
    [side if side == "device" else pytest.param(side, marks=pytest.mark.slow) for side in SIDES],
)
def test_a_side_returns_its_figures(tmp_path, model, side):
    spec = make_job(model, side)._asdict() | {"seed": 3, "folder": str(tmp_path)}
    values = keras_sides.measure(spec)
    assert values["block_steps"] == 3 and len(values["blocks_ms"]) == 5
    assert min(values["blocks_ms"]) <= values["step_ms"] <= max(values["blocks_ms"])
    assert values["own_peak_bytes"] > 10**8 and values["device_peak_bytes"] is None
    rows = 12 * sum(table.rows * table.columns for table in TABLES[model])  # with both moments
    weights = 12 * sum(
        width * units + units
        for width, units in {
            "two_tower": [(5, 64), (64, 32)] * 2,
            "dlrm": [(13, 64), (64, 32), (6, 32), (6, 32), (3, 32), (38, 64), (64, 32), (32, 1)],
        }[model]
    )
    others = values["state_bytes"] - weights - rows  # the rate and the number of the step
    assert 0 < others <= 64 or (side == "dynamic" and -rows < others < 0)


def test_a_side_that_does_not_train_has_no_speed(tmp_path, monkeypatch):
    monkeypatch.setattr(keras_sides, "fit_seconds", lambda model, data, count, steps: [1.0] * count)
    spec = make_job("two_tower", "device")._asdict() | {"seed": 3, "folder": str(tmp_path)}
    with pytest.raises(RunError, match="two_tower, device: 0 of 8 vectors of users changed to"):
        keras_sides.measure(spec)


def test_small_tables_have_larger_caches():
    job = make_job("dlrm", "host_cache")._replace(hot=25)
    rows = [job.hot_rows(TableSize("a", rows, 2)) for rows in (100, 200, 2_000)]
    assert rows == [100, 16 * 8, 500]
    assert job.hot_rows(TableSize("b", 2_000, 2, 5)) == 16 * 8 * 5
    job = job._replace(tables=[TableSize("a", 2_000, 2), TableSize("b", 200, 3)])
    assert job.cache_bytes == 500 * 2 * 12 + 128 * 3 * 12
    assert job._replace(side="host").cache_bytes == 0


def test_every_side_has_its_layers():
    assert keras_sides.LAYERS.keys() == {*OURS, *PEERS}
