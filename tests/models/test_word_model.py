from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from app.input.token_rows import decode
from app.models.base import draw_seed
from app.models.word_model import draw_contexts, weigh_contexts
from tests.reference import words
from tests.reference.batches import WINDOW, make_batch, make_tokens, reach_of

SEED = tf.constant([1, 2], tf.int64)


def open_row(size, centres, window):
    """Rows that are full and of one document."""
    return decode(tf.ones([size, centres + 2 * window], tf.int32))


@pytest.mark.parametrize("step", range(5))
def test_contexts_are_those_of_the_reference(step):
    batch = make_batch(make_tokens(range(1, 9), size=6, seed=step), step)
    found = draw_contexts(decode(batch.data), WINDOW, draw_seed(batch, "window"))
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, words.pairs(batch.data.numpy(), reach_of(batch)))
    assert 0 < found.numpy().sum() < 2 * reach_of(batch).sum()


@pytest.mark.parametrize("step", range(3))
def test_the_weights_of_pairs_are_those_of_the_reference(step):
    batch = make_batch(make_tokens(range(1, 9), size=6, seed=step), step)
    found = weigh_contexts(decode(batch.data), WINDOW)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, words.weights(batch.data.numpy(), WINDOW), rtol=1e-6)
    assert found.numpy().any()


@pytest.mark.slow
def test_pairs_are_drawn_as_often_as_their_weights_say():
    tokens = decode(make_batch(make_tokens(range(1, 9), seed=1)).data)
    drawn = [draw_contexts(tokens, WINDOW, tf.constant([1, step])) for step in range(2_000)]
    np.testing.assert_allclose(np.mean(drawn, axis=0), weigh_contexts(tokens, WINDOW), atol=0.05)


def test_a_centre_looks_equally_far_to_both_sides_and_never_at_itself():
    window, centres = 4, 16
    found = draw_contexts(open_row(8, centres, window), window, SEED).numpy()
    reach = found.sum(axis=2) / 2
    place = np.arange(centres)[:, None] + window
    distance = abs(np.arange(centres + 2 * window)[None] - place)
    expected = (distance > 0) & (distance <= reach[:, :, None])
    np.testing.assert_array_equal(found, expected)


def test_reach_is_uniform_over_1_to_the_window():
    window = 5
    reach = draw_contexts(open_row(64, 128, window), window, SEED).numpy().sum(axis=2) / 2
    counts = np.bincount(reach.astype(int).ravel(), minlength=window + 1)
    assert counts[0] == 0 and len(counts) == window + 1
    assert stats.chisquare(counts[1:]).pvalue > 1e-3


def test_reach_is_a_function_of_the_seed():
    tokens = open_row(4, 8, 5)
    one, same, other = (
        draw_contexts(tokens, 5, tf.constant([1, step])).numpy() for step in (2, 2, 3)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_a_window_of_one_pairs_neighbours():
    found = draw_contexts(decode(tf.constant([[7, 8, ~9, 10, 11]])), 1, SEED).numpy()[0]
    np.testing.assert_array_equal(found, [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 1]])
