"""Replicas that train alone for some steps, beside one device for each of them and numpy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from app.training.step import train_function
from tests.distributed.local_replicas import (
    BLOCK_ROWS,
    CASES,
    FIRST,
    OPTIMIZERS,
    RATE,
    ROWS,
    Rows,
    ids_of,
    make_table,
    variables,
)
from tests.integration.commands import done

EXACT = [name for name, case in CASES.items() if case.dtype == "float32"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The rows and slots of every replica by case, and the metrics."""
    folder = tmp_path_factory.mktemp("local")
    out = done(folder, "tests.distributed.local_replicas", folder / "rows.npz").out
    return np.load(folder / "rows.npz"), json.loads(out.splitlines()[-1])


def damped_sum(changes, steps):
    """The changes of rows, all of one owner: (replicas, rows, columns) to (rows, columns).

    The sum, with what the replicas have in common counted once, by least squares; and 2 in
    (steps + 1) parts of the plain sum.
    """
    sums = changes.sum(axis=0)
    is_shared = changes.any(axis=2).sum(axis=0) > 1
    if not is_shared.any():
        return sums
    shared = changes[:, is_shared]
    each = np.einsum("rmi,rmj->ij", shared, shared)
    both = sums[is_shared].T @ sums[is_shared]
    prior = np.trace(each) / is_shared.sum() * np.eye(len(each))
    damped = sums @ np.linalg.inv(both + prior) @ (each + prior)
    share = 2 / (steps + 1)
    return np.where(is_shared[:, None], share * sums + (1 - share) * damped, sums)


MERGES = {
    "accumulator": lambda changes, touched: sum(changes),
    "momentum": lambda changes, touched: sum(changes) / max(1, sum(touched)),
    "velocity": lambda changes, touched: sum(changes) / max(1, sum(touched)),
    "last_step": lambda changes, touched: max(changes, key=lambda change: change[0]),
}


def exchange(case, base, own, touched, due, steps):
    """Merge the first `due` rows of all replicas after so many steps, owner by owner."""
    for name, values in base.items():
        narrow = case.sync_dtype == "float32" or values.shape[1] == 1
        rounded = (lambda change: change) if narrow else half
        changes = np.stack([rounded(of_replica[name][:due] - values[:due]) for of_replica in own])
        for owner in range(case.replicas):
            rows = np.flatnonzero(np.arange(due) // BLOCK_ROWS % case.replicas == owner)
            if name == "rows":
                merged = damped_sum(changes[:, rows].astype(np.float64), steps)
            else:
                of_rows = zip(changes[:, rows].swapaxes(0, 1), touched[:, rows].T, strict=True)
                merged = [MERGES[name](list(of_row), by) for of_row, by in of_rows]
            values[rows] += rounded(np.reshape(merged, values[rows].shape).astype(np.float32))
        for of_replica in own:
            of_replica[name][:due] = values[:due]
    touched[:, :due] = False


def expected(case):
    """The rows and slots after all exchanges, of one device for each replica."""
    optimizer, ids, replicas = OPTIMIZERS[case.optimizer](), ids_of(case), range(case.replicas)
    table = make_table(case)
    train = train_function(Rows(), {"rows": table}, optimizer, seed=1)
    parts = variables(table)
    base = {name: part.numpy() for name, part in parts.items()}
    own = [{name: values.copy() for name, values in base.items()} for _ in replicas]
    touched = np.zeros((case.replicas, ROWS), bool)
    since = 0
    for step, ids_RN in enumerate(ids):
        for replica in replicas:
            for name, part in parts.items():
                part.assign(own[replica][name])
            data = tf.constant(ids_RN[replica][None])
            train(data, tf.constant(FIRST + step, tf.int64), tf.constant(RATE))
            own[replica] = {name: part.numpy() for name, part in parts.items()}
            touched[replica, ids_RN[replica]] = True
        since += 1
        if since == case.sync_steps:
            exchange(case, base, own, touched, ROWS, since)
            since = 0
        else:
            exchange(case, base, own, touched, case.frequent, 1)
    exchange(case, base, own, touched, ROWS, since)
    return base


def half(values):
    """Rounded to bfloat16."""
    return tf.cast(tf.cast(values, tf.bfloat16), tf.float32).numpy()


@pytest.mark.parametrize("name", EXACT)
def test_rows_are_those_of_each_replica_alone_and_merged(trained, name):
    arrays, _ = trained
    # A rounded change may fall on the other side of the middle of two bfloat16 numbers.
    precision = 1e-2 if CASES[name].sync_dtype == "bfloat16" else 1e-5
    for part, values in expected(CASES[name]).items():
        found = arrays[f"{name}/0/{part}"]
        np.testing.assert_allclose(found, values, rtol=precision, atol=precision / 100)


@pytest.mark.parametrize("name", CASES)
def test_replicas_are_equal_after_an_exchange(trained, name):
    arrays, _ = trained
    for key in arrays:
        case, _, part = key.split("/")
        if case == name:
            np.testing.assert_array_equal(arrays[key], arrays[f"{name}/0/{part}"], err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_an_idle_row_stays(trained, name):
    arrays, _ = trained
    np.testing.assert_array_equal(
        arrays[f"{name}/0/rows"][12], variables(make_table(CASES[name]))["rows"][12]
    )


def test_metrics(trained):
    _, metrics = trained
    for name, case in metrics.items():
        each = CASES[name].sync_steps
        assert case["ready"] == [(step + 1) % each == 0 for step in range(5)]
        assert case["exchanged_bytes"] > 0 and 0 < case["exchange_share"] < 1
    assert metrics["half_adam"]["exchanged_bytes"] < metrics["adam"]["exchanged_bytes"]
    replicas, step_units = 4, 100 / 5
    sent = replicas * (replicas - 1) * metrics["four"]["exchanged_bytes"] / step_units
    assert metrics["four"]["bytes_per_word"] == pytest.approx(sent, rel=0.02)
