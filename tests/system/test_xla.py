"""Graphs that XLA compiles: their random draws, and the way without XLA."""

import logging
import sys

import numpy as np
import pytest
import tensorflow as tf
import tqdm

from app.system import xla

SEEDS = [[1, 2], [(2 << 40) + 1, 12345], [12345, (2 << 40) + 5], [-5, 7]]
DRAWS = {
    "uniform": lambda seed: xla.uniform(1001, seed),
    "fractions": lambda seed: xla.uniform_fractions(1001, seed),
    "window": lambda seed: xla.uniform_integers((7, 5), seed, 1, 6),
    "items": lambda seed: xla.uniform_integers((999,), seed, 0, 123_457),
}
EXPECTED = {
    "uniform": lambda seed: tf.random.stateless_uniform((1001,), seed),
    "fractions": lambda seed: tf.random.stateless_uniform((1001,), seed, dtype=tf.float64),
    "window": lambda seed: tf.random.stateless_uniform((7, 5), seed, 1, 6, tf.int32),
    "items": lambda seed: tf.random.stateless_uniform((999,), seed, 0, 123_457, tf.int32),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_tensorflow_with_and_without_xla(name):
    with_xla = tf.function(DRAWS[name], autograph=False, jit_compile=True)
    without = tf.function(DRAWS[name], autograph=False)
    for seed in SEEDS:
        seed = tf.constant(seed, tf.int64)
        expected = EXPECTED[name](seed).numpy()
        np.testing.assert_array_equal(with_xla(seed), expected)
        np.testing.assert_array_equal(without(seed), expected)


def _counted_up(variable):
    (found,) = tf.while_loop(lambda n: n < variable[0], lambda n: (n + 1,), (tf.constant(0),))
    return found


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (lambda variable: tf.unique_with_counts(variable).y, "it has no UniqueWithCounts"),
        (
            lambda variable: tf.range(_counted_up(variable)),
            "it cannot make a Range of a computed size",
        ),
    ],
)
def test_a_function_that_xla_refuses_runs_without_it(caplog, count, reason):
    variable, calls = tf.Variable([2, 1, 2]), []

    def counted():
        calls.append(xla.under_xla())
        return tf.size(count(variable))

    make = [tf.function(counted, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
    function = xla.CompiledIfPossible(*make, "a count")
    assert [int(function()) for _ in range(2)] == [2, 2]
    assert calls == [True, False]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("XLA cannot compile a count") and message.endswith(f": {reason}")


def test_the_reason_is_a_line_of_the_console_once_also_beside_a_bar(capsys):
    variable = tf.Variable([2, 1, 2])

    def counted():
        return tf.size(tf.unique_with_counts(variable).y)

    make = [tf.function(counted, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
    console = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(console)
    try:
        with tqdm.tqdm(total=2, desc="training") as bar:
            function = xla.CompiledIfPossible(*make, "a call of steps")
            for _ in range(2):
                function()
                bar.update()
    finally:
        logging.getLogger().removeHandler(console)
    shown = [line.rpartition("\r")[2] for line in capsys.readouterr().err.split("\n")]
    (said,) = [line for line in shown if "XLA cannot" in line]
    assert said.startswith("XLA cannot compile a call of steps") and said.endswith(
        ": it has no UniqueWithCounts"
    )


def test_an_error_that_is_none_of_xla_is_raised():
    def fail(values):
        raise KeyError("mine")

    make = [tf.function(fail, autograph=False, jit_compile=by_xla) for by_xla in (True, None)]
    with pytest.raises(KeyError, match="mine"):
        xla.CompiledIfPossible(*make, "a failure")(tf.constant(1))
