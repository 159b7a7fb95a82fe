from __future__ import annotations

import numpy as np
import pytest

from app.benchmarks.pipeline import pipeline_examples as pipelines

COUNT = 300  # no multiple of a batch


@pytest.fixture(scope="module")
def examples():
    return pipelines.make(COUNT, seed=3)


def sorted_rows(rows_NL):
    return np.array(sorted(map(tuple, np.asarray(rows_NL).tolist())))


def wanted(examples):
    return sorted_rows(np.concatenate([examples.labels_N[:, None], examples.ids_NT], axis=1))


def test_examples_are_texts_of_their_ids_and_half_of_them_of_each_label(examples):
    tokens = examples.vocabulary.tokens
    assert len(set(tokens)) == pipelines.VOCABULARY and examples.ids_NT.shape == (COUNT, 20)
    assert [text.split() for text in examples.texts] == [
        [tokens[word] for word in ids_T] for ids_T in examples.ids_NT
    ]
    assert abs(examples.labels_N.mean() - 0.5) < 0.01
    again, other = pipelines.make(COUNT, seed=3), pipelines.make(COUNT, seed=4)
    assert again.texts == examples.texts != other.texts


def test_a_word_comes_as_often_as_its_rank_says():
    counts = np.bincount(pipelines.make(20_000, seed=1).ids_NT.ravel(), minlength=1000)
    np.testing.assert_allclose(counts[:8] / counts[0], 1 / np.arange(1, 9), rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "size"),
    [
        (pipelines.naive, pipelines.NAIVE_BATCH),
        (pipelines.prefetched, pipelines.BATCH),
        (pipelines.parallel, pipelines.BATCH),
    ],
)
def test_a_peer_gets_every_example_once_an_epoch_in_an_order_of_its_own(examples, make, size):
    batches = make(examples)
    orders = []
    for _ in range(2):
        rows = [
            np.concatenate([labels_B[:, None], ids_BT], axis=1)
            for ids_BT, labels_B in batches.as_numpy_iterator()
        ]
        assert [len(batch) for batch in rows[:-1]] == [size] * (COUNT // size)
        orders.append(np.concatenate(rows))
        np.testing.assert_array_equal(sorted_rows(orders[-1]), wanted(examples))
    assert not np.array_equal(*orders)


@pytest.mark.slow
def test_ours_gives_the_same_ids_and_fills_up_the_last_call(examples):
    calls = list(pipelines.ours(examples, epochs=3, steps=2, seed=1).as_numpy_iterator())
    assert [call.shape for call in calls] == [(2, pipelines.BATCH, 21)] * 6  # 300 of 512 a epoch
    epochs = np.stack(calls).reshape(3, -1, 21)
    for rows_NL in epochs:
        np.testing.assert_array_equal(sorted_rows(rows_NL[:COUNT]), wanted(examples))
        assert (rows_NL[COUNT:, 0] == -1).all() and not rows_NL[COUNT:, 1:].any()
    assert not np.array_equal(epochs[0], epochs[1]) and not np.array_equal(epochs[1], epochs[2])


@pytest.mark.slow
def test_ours_tokenises_once(examples, monkeypatch):
    calls = []
    heavy = pipelines.heavy(examples)

    def counted(texts_M):
        import tensorflow as tf

        ids_MT = heavy(texts_M)
        with tf.control_dependencies([tf.py_function(calls.append, [tf.shape(texts_M)[0]], [])]):
            return tf.identity(ids_MT)

    monkeypatch.setattr(pipelines, "heavy", lambda examples: counted)
    assert len(list(pipelines.ours(examples, epochs=3, steps=2, seed=1))) == 6
    assert [int(size) for size in calls] == [COUNT]
