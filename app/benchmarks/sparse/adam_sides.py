"""One side of `adam`, a program of its own: python -m app.benchmarks.sparse.adam_sides JOB

A step brings the inner products of the rows of some users and items nearer to a rating (squared
error). Rows at first, pairs and ratings are the same for every side.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...input.pairs import Pairs
from ...losses.pair_losses import SquaredError
from ...models.factorization import MatrixFactorization
from ...models.recommender import Recommender
from ...optimizers import adam
from ...tables.device import DeviceTable
from ...training.step import train_step
from ...types import Batch
from ..harness.trainer import OURS

RATE = 0.001  # the paper's and Keras'; the speed of no side depends on it
# Batches that are gone through again and again: so many that the rows of one have left the
# processor's caches before it comes again.
_POOL = 64
_BLOCKS = 3
_BLOCK_SECONDS = 3.0
_FEWEST_STEPS = 3


class Side(NamedTuple):
    """train: makes so many steps and waits for them. users: ids to rows. bytes: of all state."""

    train: Callable[[int], None]
    users: Callable[[np.ndarray], tf.Tensor]
    bytes: Callable[[], int]


class Case(NamedTuple):
    """What every side gets. users_SB, items_SB: int32, S batches. ratings_B: float32."""

    model: Recommender
    users_SB: np.ndarray
    items_SB: np.ndarray
    ratings_B: np.ndarray


def main(job: dict[str, Any]) -> None:
    """Measures, and writes what it measured.

    job: `side`, `users`, `items`, `dim`, `pairs` (of a step), `seed`, and `result` (JSON, to
    write): `step_seconds` (the median over blocks), `block_steps`, `state_bytes` (of tables and
    slots).
    """
    case = make_case(job["users"], job["items"], job["dim"], job["pairs"], job["seed"])
    side = SIDES[job["side"]](case)
    before = side.users(case.users_SB[0]).numpy()
    side.train(_FEWEST_STEPS)  # compiles, and touches memory for the first time
    steps = min(_POOL, max(_FEWEST_STEPS, round(_BLOCK_SECONDS / _seconds(side, _FEWEST_STEPS))))
    found = [_seconds(side, steps) for _ in range(_BLOCKS)]
    after = side.users(case.users_SB[0]).numpy()
    if not ((before != after).any(axis=1).all() and np.isfinite(after).all()):
        raise RunError(f"{job['side']} did not train its rows, so its speed means nothing")
    values = {
        "step_seconds": float(np.median(found)),
        "block_steps": steps,
        "state_bytes": side.bytes(),
    }
    Path(job["result"]).write_text(json.dumps(values), encoding="utf-8")


def make_case(users: int, items: int, dim: int, pairs: int, seed: int) -> Case:
    """Users, items and ratings drawn uniformly."""
    random = np.random.default_rng(seed)
    factors = MatrixFactorization(dim, biased=False)
    return Case(
        model=Recommender(users, items, factors, SquaredError(0.0), seed),
        users_SB=random.integers(0, users, (_POOL, pairs), dtype=np.int32),
        items_SB=random.integers(0, items, (_POOL, pairs), dtype=np.int32),
        ratings_B=random.random(pairs, dtype=np.float32),
    )


def _seconds(side: Side, steps: int) -> float:
    """Of one step, on average over these."""
    start = time.perf_counter()
    side.train(steps)
    return (time.perf_counter() - start) / steps


def _lexrow(case: Case) -> Side:
    """The trainer's step on tables, with lazy Adam."""
    tables = {
        name: DeviceTable(spec.rows, spec.columns, spec.initial)
        for name, spec in case.model.tables().items()
    }
    rule = adam.lazy_adam()
    ratings_B, ones_B = tf.constant(case.ratings_B), tf.ones(len(case.ratings_B))

    def one(users_B: tf.Tensor, items_B: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        batch = Batch(Pairs(users_B, items_B, ratings_B, ones_B), None)
        return train_step(case.model, tables, rule, [batch], tf.constant(RATE), number)[0]

    return Side(
        _loop(one, case), tables["users"].gather, lambda: sum(t.bytes() for t in tables.values())
    )


def _dense(case: Case) -> Side:
    """Plain TensorFlow: the gradient as large as the table, TensorFlow's own Adam on all of it."""
    specs = case.model.tables()
    tables = [
        tf.Variable(lambda spec=specs[name]: spec.initial((spec.rows, spec.columns)))
        for name in ("users", "items")
    ]
    slots = [
        [tf.Variable(lambda table=table: tf.zeros(table.shape)) for _ in range(2)]
        for table in tables
    ]
    ratings_B = tf.constant(case.ratings_B)

    def one(users_B: tf.Tensor, items_B: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            users_BD, items_BD = tf.gather(tables[0], users_B), tf.gather(tables[1], items_B)
            scores_B = tf.reduce_sum(users_BD * items_BD, axis=1)
            loss = tf.reduce_sum(tf.square(scores_B - ratings_B))
        gradients = tape.gradient(loss, tables)
        power = tf.cast(number, tf.float32)
        for table, (momentum, velocity), gradient in zip(tables, slots, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=table.handle,
                m=momentum.handle,
                v=velocity.handle,
                beta1_power=tf.pow(0.9, power),
                beta2_power=tf.pow(0.999, power),
                lr=RATE,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=tf.math.unsorted_segment_sum(
                    gradient.values, gradient.indices, table.shape[0]
                ),
            )
        return loss

    return Side(
        _loop(one, case),
        lambda ids: tf.gather(tables[0], ids),
        lambda: sum(3 * 4 * int(np.prod(table.shape)) for table in tables),
    )


def _keras(case: Case) -> Side:
    """Stock Keras: two Embedding layers, Adam and keras.fit."""
    tables = [
        keras.layers.Embedding(
            spec.rows,
            spec.columns,
            embeddings_initializer=lambda shape, dtype, initial=spec.initial: initial(shape),
        )
        for spec in case.model.tables().values()
    ]
    inputs = [keras.Input((), dtype="int32") for _ in tables]
    vectors = [table(ids) for table, ids in zip(tables, inputs, strict=True)]
    model = keras.Model(inputs, keras.layers.Dot(axes=1)(vectors))
    model.compile(keras.optimizers.Adam(RATE), loss="mse")
    target_B1 = tf.constant(case.ratings_B[:, np.newaxis])
    batches = (
        tf.data.Dataset.from_tensor_slices((case.users_SB, case.items_SB))
        .map(lambda users_B, items_B: ((users_B, items_B), target_B1))
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
    )
    return Side(
        lambda steps: model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0),
        lambda ids: tf.gather(tables[0].embeddings.value, ids),
        lambda: sum(4 * int(np.prod(v.shape)) for v in model.optimizer.variables + model.weights),
    )


SIDES = {OURS: _lexrow, "dense": _dense, "keras": _keras}


def _loop(one: Callable[..., tf.Tensor], case: Case) -> Callable[[int], None]:
    """One call of `one` a step."""
    compiled = tf.function(one, autograph=False)
    pool = [*zip(map(tf.constant, case.users_SB), map(tf.constant, case.items_SB), strict=True)]
    done = 0

    def train(steps: int) -> None:
        nonlocal done
        for _ in range(steps):
            loss = compiled(*pool[done % len(pool)], tf.constant(done + 1, tf.int64))
            done += 1
        loss.numpy()  # Waits for the device.

    return train


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
