"""The keys and sizes of operations between replicas."""

import itertools

import tensorflow as tf

from app.distributed.exchange import Exchange, key_of_size, round_up

SIZES = [*range(200), *(2**k + d for k in range(8, 30) for d in (-1, 0, 1)), 999_999, 123_456_789]


def test_sizes_are_rounded_up_by_three_percent_at_most():
    for size in SIZES:
        rounded = int(round_up(tf.constant(size)))
        assert size <= rounded <= size * 33 / 32
        assert int(round_up(tf.constant(rounded))) == rounded


def test_every_size_and_operation_has_its_own_key():
    exchange = Exchange(tf.distribute.MirroredStrategy(["CPU:0"]))
    first, second = exchange.keys(2)
    (third,) = exchange.keys(1)
    sizes = {int(round_up(tf.constant(size))) for size in SIZES}
    keys = [
        int(key_of_size(key, tf.constant(size)))
        for key, size in itertools.product((first, second, third), sizes)
    ]
    assert len(set(keys)) == len(keys) == 3 * len(sizes)
    assert min(keys) >= first
