import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import LazyAdam, backend
from app.keras.tables.table_variable import TableVariable
from app.system import ports
from tests.integration.commands import SECONDS
from tests.keras import table_models, two_workers
from tests.keras.two_replicas import BATCH, CASES, SHARED, make_data

ROOT = pathlib.Path(__file__).parents[2]


def test_the_replicas_have_rows_in_common():
    x, _ = make_data()
    for start in range(0, len(x), BATCH):
        left, right = (set(half.ravel()) for half in x[start : start + BATCH].reshape(2, -1))
        assert left & right and left - right and right - left


def test_a_seed_that_differs_between_processes_is_refused(monkeypatch):
    monkeypatch.setattr(backend, "mirrors_workers", lambda: True)
    drawn = keras.initializers.RandomUniform(seed=keras.random.SeedGenerator(1))
    with pytest.raises(ValueError, match="^RandomUniform: its seed is a SeedGenerator, .*; give a"):
        backend.with_seed_of_chief(drawn)


def test_a_model_under_a_strategy_trains_as_one_without(tmp_path):
    """With one replica: the number of devices is fixed for the life of a process."""
    losses = []
    for scope in (contextlib.nullcontext(), tf.distribute.MirroredStrategy(["CPU:0"]).scope()):
        with scope:
            model = table_models.make_model(table_models.make_layer("host", tmp_path))
        losses.append([table_models.fit(model), *table_models.state(model)])
    assert losses[0] == losses[1]
    assert not any(isinstance(v, tf.distribute.DistributedValues) for v in rows_of(model))


# What no strategy of several replicas has, by kind of table. This may only become shorter.
REFUSED = [
    ("file", {"hot_rows": 9}, {}, "words: hot_rows=9 is a cache on one device"),
    ("sharded", {"hot_rows": 9}, {}, "words: hot_rows=9 is a cache on one device"),
    *(
        (kind, {}, {"gradient_accumulation_steps": 2}, "gradients of words/embeddings in one pro")
        for kind in ("device", *table_models.KINDS)
    ),
]


@pytest.mark.parametrize(("kind", "options", "optimizer", "message"), REFUSED)
def test_what_replicas_cannot_have_is_refused(kind, options, optimizer, message, tmp_path):
    with (
        tf.distribute.MirroredStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match=rf"^[^\n]*{message}[^\n]*; leave it out$"),
    ):
        layer = table_models.make_layer(kind, tmp_path, name="words", **options)
        model = table_models.make_model(layer, LazyAdam(0.1, **optimizer))
        model.optimizer.build(model.trainable_variables)


@pytest.mark.parametrize("kind", [*table_models.KINDS, "dynamic"])
def test_replicas_that_do_not_train_in_step_are_refused(kind, tmp_path):
    strategy = tf.distribute.experimental.CentralStorageStrategy(["CPU:0"])
    message = rf"^[^\n]* has its rows .* the replicas of {type(strategy).__name__} do not train"
    with strategy.scope(), pytest.raises(ValueError, match=message):
        table_models.make_layer(kind, tmp_path).build()


def rows_of(model):
    """The variables of the rows and slots of all tables of a model."""
    variables = [*model.variables, *model.optimizer.variables]
    return [v.table.values for v in variables if isinstance(v, TableVariable)]


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    workers = [f"127.0.0.1:{port}" for port in ports.free(2)]
    started = []
    with contextlib.ExitStack() as files:
        for index in range(2):
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            (folder := tmp_path / str(index)).mkdir()
            (tables := folder / "tables").mkdir()
            command = [sys.executable, "-m", "tests.keras.two_workers", str(tables)]
            out, err = (files.enter_context((folder / name).open("w")) for name in ("out", "err"))
            environment = os.environ | {"TF_CONFIG": json.dumps(task)}
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err)
            files.callback(process.kill)  # without the other one, a process waits for ever
            started.append(process)
        codes = [process.wait(timeout=SECONDS) for process in started]
    printed = [[(tmp_path / n / f).read_text() for n in ("0", "1")] for f in ("out", "err")]
    assert codes == [0, 0], printed
    first, second = (json.loads(out.splitlines()[-1]) for out in printed[0])
    assert first == second  # initial rows without a seed included
    assert first["refused"].startswith("words: MultiWorkerMirroredStrategy cannot exchange keys")
    (folder := tmp_path / "one").mkdir()
    for kind, name in two_workers.CASES:
        found, expected = first["trained"][f"{kind} {name}"], two_workers.train(kind, name, folder)
        for ours, theirs in zip(found, expected, strict=True):
            # Sums in another order.
            error = 1e-4 if name == "classes" else 2e-5
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=error, err_msg=f"{kind} {name}")


@pytest.mark.slow
def test_two_replicas_train_as_one_device_on_tables_of_their_own_and_on_shared_ones():
    # The number of devices is fixed for the life of a process.
    ended = subprocess.run(
        [sys.executable, "-m", "tests.keras.two_replicas"], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    printed = json.loads(ended.stdout.splitlines()[-1])
    found = printed["mirrored"]
    assert found.keys() == CASES.keys() | {"class_softmax"}
    for name, case in found.items():
        assert case["apart"] < (1e-4 if name == "class_softmax" else 1e-6), name
        assert case["replicas"] == [True, True], name
        assert case["whole"] == [], name
    assert len(printed["shared"]) == len(SHARED)
    for name, case in printed["shared"].items():
        assert case["apart"] < (1e-4 if "classes" in name else 1e-5), name
        assert case.get("loaded", True), name
    assert np.isfinite(printed["elsewhere"])
    # A step is two programs in each replica. Only the exchange is outside, and what clips.
    for name, case in printed["compiled"].items():
        assert max(case["apart"], case["uncompiled"]) < (1e-4 if "output" in name else 1e-6), name
        assert case["programs"] == 4, name
        matched = re.compile("Resource|MatMul|Unique|Sort|TopK|Segment|While")
        assert not [op for op in case["outside"] if matched.match(op)], name
        assert {"ResourceScatterUpdate", "MatMul"} <= set(case["inside"]), name
        if "output" not in name:  # which sorts its targets by class
            assert {"Unique", "XlaSort", "TopKV2"}.isdisjoint(case["inside"]), name
