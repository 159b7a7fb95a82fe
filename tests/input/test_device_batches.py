"""Batches on a device: those that are made there, on a CPU under XLA, and copies."""

import re
import threading

import numpy as np
import pytest
import tensorflow as tf

from app.input import device_batches, pipeline
from app.settings import InputConfig

WINDOW = 3
SETTINGS = InputConfig(batch_tokens=16, row_tokens=4, steps_per_call=2)
KEEP = np.linspace(0.2, 1.4, 500).clip(max=1).astype(np.float32)


def make_blocks(sizes, documents=0.05):
    random = np.random.default_rng(0)
    blocks = []
    for size in sizes:
        ids = (random.zipf(1.5, size) % len(KEEP)).astype(np.int32)
        blocks.append(np.where(random.random(size) < documents, ~ids, ids))
    return blocks


def by_pipeline(blocks, epochs, first=0, settings=SETTINGS):
    signature = tf.TensorSpec([None], tf.int32)
    dataset = tf.data.Dataset.from_generator(lambda: iter(blocks), output_signature=signature)
    rows = pipeline.make_epoch_rows(dataset, KEEP, WINDOW, settings, 1)
    made = pipeline.make_batches([rows], epochs, first, 2 * WINDOW, settings)
    return list(made.as_numpy_iterator())


def by_device(blocks, settings=SETTINGS):
    return device_batches.make_batches(lambda: blocks, KEEP, WINDOW, settings, 1, "CPU:0")


def assert_equal(made, expected):
    assert [epoch for epoch, _ in made] == [epoch for epoch, _ in expected]
    for (_, batch), (_, other) in zip(made, expected, strict=True):
        assert batch.dtype == tf.int32
        np.testing.assert_array_equal(batch, other)


def test_blocks_of_any_size_and_every_place_to_go_on_from():
    # The first programs are for blocks of 900, the others for at most 56 tokens.
    blocks = make_blocks([500, 0, 300, 900, 7, 1, 56, 57, 0, 333, 900, 12])
    make = by_device(blocks)
    expected = by_pipeline(blocks, range(4, 6))
    assert_equal(list(make(range(4, 6), 0)), expected)
    in_first = sum(epoch == 4 for epoch, _ in expected)
    for first in range(1, in_first + 2):
        assert_equal(list(make(range(4, 6), first)), expected[min(first, in_first) :])


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0], [1], [3, 0, 2]], ids=str)
def test_a_text_smaller_than_a_batch(sizes):
    blocks = make_blocks(sizes)
    expected = by_pipeline(blocks, range(3))
    assert len(expected) <= 3
    assert_equal(list(by_device(blocks)(range(3), 0)), expected)


def test_equal_keys_of_rows_keep_their_order():
    """Of 20,000 keys of 23 bits, some are equal."""
    settings = InputConfig(batch_tokens=4096, row_tokens=1, steps_per_call=5)
    blocks = make_blocks([30_000])
    keys = tf.random.stateless_uniform((20_000,), (1, 2)).numpy()
    assert len(np.unique(keys)) < len(keys)
    expected = by_pipeline(blocks, range(1), settings=settings)
    assert_equal(list(by_device(blocks, settings)(range(1), 0)), expected)


def test_the_programs_have_no_loop_and_serve_all_blocks():
    """No loop over tokens, and neither the corpus nor the block are constants of the program."""
    shape, size = (2, 4, 10), 50_000
    functions = device_batches._row_functions(KEEP, WINDOW, SETTINGS, 1, shape)
    corpus, block = tf.zeros([3 * size], tf.uint32), tf.zeros([5], tf.int64)
    for function, others in zip(functions, ((), (tf.zeros(shape, tf.uint32),)), strict=True):
        arguments = corpus, block, *others, size
        text = function.experimental_get_compiler_ir(*arguments)(stage="hlo")
        assert " while(" not in text and text.count(" sort(") == text.count("is_stable=true")
        layout = re.search(r"entry_computation_layout=\{\((.*?)\)->", text)[1]
        assert "u32[150000]" in layout and "s64[5]" in layout


def test_copies_come_in_order_and_errors_are_raised():
    def batches():
        for number in range(5):
            yield number, {"ids": tf.fill([2, 3], number), "weights": (tf.fill([2], 0.5),)}
        raise ValueError("mine")

    asked = iter([True, True, False, True, True])
    copies = device_batches.copy_ahead(batches(), "CPU:0", lambda: next(asked))
    with pytest.raises(ValueError, match="mine"):
        for expected, (number, data) in enumerate(copies):
            assert number == expected
            np.testing.assert_array_equal(data["ids"], np.full([2, 3], number))
            assert (
                data["ids"].dtype == tf.int32 and data["weights"][0].numpy().tolist() == [0.5] * 2
            )
    assert expected == 4


def test_the_thread_that_copies_is_one_batch_ahead_and_ends():
    taken = []

    def batches():
        for number in range(100):
            taken.append(number)
            yield number, tf.constant(number)

    copies = device_batches.copy_ahead(batches(), "CPU:0", lambda: True)
    for _ in range(3):
        next(copies)
    copies.close()
    assert len(taken) == 4
    assert not any(thread.name.startswith("copy") for thread in threading.enumerate())
