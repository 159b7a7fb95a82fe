"""The optimizers, and variables and a stream of gradients for them outside of any model."""

import functools

import keras
import numpy as np
import tensorflow as tf

from app.keras import SGD, Adagrad, LazyAdam, LazyAdamW, RowwiseAdagrad
from tests.reference import optimizers as reference

ROWS, COLUMNS, IDS, STEPS, RATE = 8, 3, 6, 8, 0.1

CORRECTED = {"correct_skipped": True}
# Ours, Keras', the paper's rule, and the options that each takes.
KINDS = {
    "sgd": (SGD, keras.optimizers.SGD, reference.sgd, {}),
    "momentum": (SGD, keras.optimizers.SGD, reference.momentum, {"momentum": 0.9}),
    "nesterov": (
        SGD,
        keras.optimizers.SGD,
        reference.momentum,
        {"momentum": 0.5, "nesterov": True},
    ),
    "adagrad": (Adagrad, keras.optimizers.Adagrad, reference.adagrad, {"epsilon": 1e-3}),
    "adam": (LazyAdam, keras.optimizers.Adam, reference.lazy_adam, {"beta_1": 0.8}),
    "amsgrad": (
        LazyAdam,
        keras.optimizers.Adam,
        reference.lazy_adam,
        {"beta_2": 0.9, "amsgrad": True},
    ),
    "corrected": (LazyAdam, keras.optimizers.Adam, reference.lazy_adam, CORRECTED),
    "adamw": (LazyAdamW, keras.optimizers.AdamW, reference.lazy_adam, {"weight_decay": 0.1}),
    "adamw, corrected": (
        LazyAdamW,
        keras.optimizers.AdamW,
        reference.lazy_adam,
        {"weight_decay": 0.1} | CORRECTED,
    ),
}
# On the table it is defined for RowEmbedding's alone; elsewhere it is Adagrad.
ROWWISE = (RowwiseAdagrad, keras.optimizers.Adagrad, reference.rowwise_adagrad, {"epsilon": 1e-3})


def make_variables(table=(ROWS, COLUMNS), dtype="float32"):
    """The table first, then a kernel and a bias."""
    random = np.random.default_rng(1)
    shapes = {"embeddings": table, "kernel": (COLUMNS, 2), "bias": (2,)}
    return [
        keras.Variable(random.normal(size=shape), dtype=dtype, name=name)
        for name, shape in shapes.items()
    ]


def make_stream(all_rows=False, columns=(COLUMNS,), scale=1.0):
    """STEPS of ids with repeats, a gradient for each, and those of the kernel and the bias.

    Row 0 is never among them, and some rows have gradients of zeros only, or that cancel; with
    all_rows neither.
    """
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        ids = random.integers(1, ROWS, IDS).astype(np.int32)
        values = random.normal(size=(IDS, *columns)).astype("f")
        values[ids == random.integers(1, ROWS)] = 0
        if (ids == 5).sum() == 2:
            values[ids == 5] = np.stack([values[ids == 5][0], -values[ids == 5][0]])
        if all_rows:
            ids = np.append(ids, np.arange(ROWS, dtype=np.int32))
            values = random.normal(size=(len(ids), *columns)).astype("f")
        dense = [random.normal(size=shape).astype("f") for shape in ((COLUMNS, 2), (2,))]
        yield ids, scale * values, [scale * each for each in dense]


def whole(ids, values):
    """The dense gradient of the table."""
    gradient = np.zeros((ROWS, *values.shape[1:]), np.float32)
    np.add.at(gradient, ids, values)
    return gradient


def train(optimizer, variables, stream, sparse=True):
    """Applies the stream; gives what all variables are after each step, the optimizer's last."""
    history = []
    for ids, values, dense in stream:
        table = tf.convert_to_tensor(whole(ids, values))
        if sparse:
            table = tf.IndexedSlices(tf.constant(values), tf.constant(ids), table.shape)
        optimizer.apply([table, *map(tf.constant, dense)], variables)
        history.append([v.numpy().copy() for v in (*variables, *optimizer.variables)])
    return history


def near(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        # In float32 Keras' 1 - 0.999**t is off by 1e-5 at first; ours is not.
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def identical(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def ours(name, **options):
    make, _, _, own = (KINDS | {"rowwise": ROWWISE})[name]
    return make(RATE, **own, **options)


def theirs(name, **options):
    _, make, _, own = (KINDS | {"rowwise": ROWWISE})[name]
    return make(RATE, **{k: v for k, v in own.items() if k != "correct_skipped"}, **options)


@functools.cache
def trained(name, all_rows=False):
    """Our history, and the optimizer."""
    variables = make_variables()
    variables[0].is_table = name == "rowwise"
    optimizer = ours(name)
    return train(optimizer, variables, make_stream(all_rows)), optimizer


@functools.cache
def trained_by_keras(name, all_rows=False):
    """The history with gradients of whole tables."""
    return train(theirs(name), make_variables(), make_stream(all_rows), sparse=False)


def shared(optimizer):
    """Where those of the optimizer's variables are that Keras' has, too."""
    return [i for i, v in enumerate(optimizer.variables) if "last_step" not in v.path]
