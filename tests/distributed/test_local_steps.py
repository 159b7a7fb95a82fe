"""Replicas that train alone for some steps, beside one device for each of them and numpy."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from app.distributed.local_steps import ALL_ROWS, LocalSteps, Synchronizer
from app.distributed.local_steps import FREQUENT_ROWS as MANY
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

QUICK = ("four", "in_step")
ALL = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]
EXACT = [param for param in ALL if CASES[param.values[0]].dtype == "float32"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """From a case to the rows and slots of every replica by case, and the metrics.

    The quick cases are of one process, and the others of another one.
    """

    @functools.cache
    def train(are_quick):
        folder = tmp_path_factory.mktemp("local")
        names = [name for name in CASES if (name in QUICK) == are_quick]
        out = done(folder, "tests.distributed.local_replicas", folder / "rows.npz", *names).out
        return np.load(folder / "rows.npz"), json.loads(out.splitlines()[-1])

    return lambda name: train(name in QUICK)


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
    """The rows and slots after all exchanges, of a device for each replica, or in step for all."""
    optimizer, ids, replicas = OPTIMIZERS[case.optimizer](), ids_of(case), range(case.replicas)
    table = make_table(case)
    in_step = case.sync_steps == 1
    micro = case.replicas if in_step else 1
    train = train_function(Rows(), {"rows": table}, optimizer, seed=1, micro_batches=micro)
    if in_step:
        for step, ids_RN in enumerate(ids):
            data = tf.constant(ids_RN.reshape(1, -1))
            train(data, tf.constant(FIRST + step, tf.int64), tf.constant(RATE))
        return {name: part.numpy() for name, part in variables(table).items()}
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
    arrays, _ = trained(name)
    # A rounded change may fall on the other side of the middle of two bfloat16 numbers.
    precision = 1e-2 if CASES[name].sync_dtype == "bfloat16" else 1e-5
    for part, values in expected(CASES[name]).items():
        found = arrays[f"{name}/0/{part}"]
        np.testing.assert_allclose(found, values, rtol=precision, atol=precision / 100)


@pytest.mark.parametrize("name", ALL)
def test_replicas_are_equal_after_an_exchange(trained, name):
    arrays, _ = trained(name)
    for key in arrays:
        case, _, part = key.split("/")
        if case == name:
            np.testing.assert_array_equal(arrays[key], arrays[f"{name}/0/{part}"], err_msg=key)


@pytest.mark.parametrize("name", ALL)
def test_an_idle_row_stays(trained, name):
    arrays, _ = trained(name)
    np.testing.assert_array_equal(
        arrays[f"{name}/0/rows"][12], variables(make_table(CASES[name]))["rows"][12]
    )


@pytest.mark.slow
def test_metrics(trained):
    metrics = trained("four")[1] | trained("adam")[1]
    metrics = {name: case for name, case in metrics.items() if CASES[name].sync_steps > 1}
    for name, case in metrics.items():
        each = CASES[name].sync_steps
        assert case["ready"] == [(step + 1) % each == 0 for step in range(5)]
        assert case["exchanged_bytes"] > 0 and 0 < case["exchange_share"] < 1
    assert metrics["half_adam"]["exchanged_bytes"] < metrics["adam"]["exchanged_bytes"]
    replicas, step_units = 4, 100 / 5
    sent = replicas * (replicas - 1) * metrics["four"]["exchanged_bytes"] / step_units
    assert metrics["four"]["bytes_per_word"] == pytest.approx(sent, rel=0.02)


class Exchange:
    """An exchange of one replica."""

    def in_replicas(self, function):
        return function

    def first(self, value):
        return value


class Exchanges(Synchronizer):
    """Notes how many rows it would exchange, and after how many steps."""

    def __init__(self, sync_steps):
        super().__init__(Exchange(), LocalSteps, sync_steps)
        self.made, self.alone, self.done = [], [], 0
        self._function = self.exchange

    def exchange(self, most, steps):
        rows = int(most)
        self.alone.append(int(steps))
        self.made.append(("all" if rows == ALL_ROWS else rows, self.done))
        return 0

    def run(self, steps, until):
        """Make calls of so many steps."""
        while self.done < until:
            self.done += steps
            self.count(steps, self.done)
        return self.made


@pytest.mark.parametrize(
    ("sync_steps", "start", "expected"),
    [
        (4, 96, [("all", 100), ("all", 104)]),
        (6, 96, [("all", 102), ("all", 108)]),
        (64, 384, [("all", 448)]),
        (128, 384, [(MANY, 448), ("all", 512)]),
        (1024, 2048, [(MANY, 2304), (MANY, 2560), (MANY, 2816), ("all", 3072)]),
    ],
)
def test_frequent_rows_are_exchanged_more_often(sync_steps, start, expected):
    replicas = Exchanges(sync_steps)
    replicas.done = start
    assert replicas.run(2, expected[-1][1]) == expected


def test_no_level_is_exchanged_more_often_than_after_each_call():
    replicas = Exchanges(128)
    replicas.done = 384
    assert replicas.run(32, 512) == [(MANY, 448), ("all", 512)]
    replicas = Exchanges(4)
    assert replicas.run(8, 24) == [("all", 8), ("all", 16), ("all", 24)]


def test_an_exchange_is_told_the_steps_since_the_last_one_of_its_level():
    replicas = Exchanges(256)
    replicas.done = 512
    replicas.run(32, 800)
    replicas.synchronize()
    assert replicas.made == [
        *((MANY, done) for done in (576, 640, 704)),
        ("all", 768),
        ("all", 800),
    ]
    assert replicas.alone == [64, 64, 64, 256, 32]


def test_frequent_rows_are_exchanged_sooner_at_the_start():
    """A sixth of 24 steps is 4; from 384 steps on it is all 64."""
    made = Exchanges(256).run(4, 1024)
    assert [done for kind, done in made if kind == "all"] == [256, 512, 768, 1024]
    frequent = [done for kind, done in made if kind == MANY]
    assert frequent[:10] == [4, 8, 12, 16, 20, 24, 28, 36, 44, 52]
    assert [done for done in frequent if done > 512] == [576, 640, 704, 832, 896, 960]


def test_an_end_exchanges_what_is_left_once():
    replicas = Exchanges(8)
    replicas.done = 96
    replicas.run(2, 100)
    replicas.synchronize()
    replicas.synchronize()
    assert [kind for kind, _ in replicas.made].count("all") == 1
    assert replicas.waiting == 0
