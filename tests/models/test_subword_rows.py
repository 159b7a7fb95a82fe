"""Words composed of rows, against sums in numpy, and models of such words against the reference."""

import numpy as np
import pytest
import tensorflow as tf

from app.models.row_lists import SubwordRows
from app.tables.row_reads import join_partitions, take, unique
from app.text.subwords import hash_words
from app.types import NgramRule, Rows
from tests.reference.batches import (
    MODELS,
    PER_PAIR,
    loss_and_gradients,
    make_batch,
    make_model,
    make_tokens,
    pairs_of,
    samples_of,
)

TOKENS = [f"{stem}{end}" for stem in ("walk", "sing", "aaaa", "日本", "x") for end in "abcdef"]
RULE, DIM = NgramRule(2, 4, 50), 6
SIZE = len(TOKENS)
COUNTS = np.arange(SIZE, 0, -1)


def dense_shares():
    """The share of each row in each word, (V, V + buckets)."""
    ngrams = hash_words(TOKENS, RULE)
    shares = np.zeros((SIZE, SIZE + RULE.buckets))
    for word, (start, stop) in enumerate(zip(ngrams.starts[:-1], ngrams.starts[1:], strict=True)):
        shares[word, word] = 1
        np.add.at(shares[word], SIZE + ngrams.buckets_N[start:stop], 1)
    return shares / shares.sum(axis=1, keepdims=True)


def random_rows(seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(SIZE + RULE.buckets, DIM)).astype(np.float32)


def test_a_word_is_the_mean_of_its_rows():
    rows = random_rows()
    words = tf.constant([5, 29, 0, 17])
    found = SubwordRows(TOKENS, RULE).compose(words, lambda ids_U: tf.gather(rows, ids_U))
    np.testing.assert_allclose(found, (dense_shares() @ rows)[words], rtol=1e-5, atol=1e-6)


def test_a_bucket_that_no_word_has_is_left_out():
    rule, words = RULE._replace(buckets=5000), tf.range(SIZE)
    used = np.unique(hash_words(TOKENS, rule).buckets_N)
    table = np.random.default_rng(3).normal(size=(SIZE + 5000, DIM)).astype(np.float32)
    kept = np.concatenate([table[:SIZE], table[SIZE + used]])
    subwords = SubwordRows(TOKENS, rule)
    assert subwords.buckets_N.tolist() == used.tolist() and len(used) < 500
    found = subwords.compose(words, lambda ids_U: tf.gather(kept, ids_U))
    of_words = [
        [SIZE + bucket for bucket in hash_words([token], rule).buckets_N] for token in TOKENS
    ]
    expected = [table[[word, *rows]].mean(axis=0) for word, rows in enumerate(of_words)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # added in another order


def test_repeated_words_are_looked_up_once():
    subwords = SubwordRows(TOKENS, RULE)
    once = join_partitions(subwords.lookups(tf.constant([3, 7]))).numpy().tolist()
    again = subwords.lookups(tf.constant([[3, 7, 3], [7, 7, 3]]))
    assert join_partitions(again).numpy().tolist() == once


def test_partitions_have_no_row_in_common_and_are_about_as_large():
    partitions = [ids_N.numpy() for ids_N in SubwordRows(TOKENS, RULE).lookups(tf.range(SIZE))]
    assert not set(partitions[0]) & set(partitions[1])
    assert 0.6 < len(partitions[0]) / len(partitions[1]) < 1.6


def test_vectors_of_no_words():
    subwords = SubwordRows(TOKENS, RULE)
    assert join_partitions(subwords.lookups(tf.zeros([0], tf.int32))).shape == (0,)
    found = subwords.compose(tf.zeros([0], tf.int32), lambda ids_U: tf.zeros([0, DIM]))
    assert found.shape == (0, DIM)


@pytest.mark.parametrize("is_split", [True, False])
@pytest.mark.parametrize("static", [True, False])
def test_the_gradient_of_a_row_is_its_share_of_every_use(static, is_split):
    subwords, table = SubwordRows(TOKENS, RULE), random_rows()
    words = np.random.default_rng(1).integers(0, SIZE, 40).astype(np.int32)
    upstream = np.random.default_rng(2).normal(size=(40, DIM)).astype(np.float32)

    def gradient(words, upstream):
        lookups = subwords.lookups(words)
        ids = [unique(ids_N) for ids_N in (lookups if is_split else [join_partitions(lookups)])]
        values = [tf.gather(table, ids_U) for ids_U, _ in ids]
        with tf.GradientTape() as tape:
            tape.watch(values)
            partitions = [
                Rows(rows_UD, inverse_N)
                for rows_UD, (_, inverse_N) in zip(values, ids, strict=True)
            ]
            rows = Rows(None, None, partitions=partitions) if is_split else partitions[0]
            vectors = take(subwords.take_unique(words, rows), tf.float32)
            total = tf.reduce_sum(vectors * upstream)
        gradients = tape.gradient(total, values)
        return tf.concat([ids_U for ids_U, _ in ids], 0), vectors, tf.concat(gradients, 0)

    shape = [40] if static else [None]
    specs = [tf.TensorSpec(shape, tf.int32), tf.TensorSpec([*shape, DIM])]
    graph = tf.function(gradient, autograph=False, input_signature=specs)
    ids_U, vectors, values = graph(tf.constant(words), tf.constant(upstream))
    shares = dense_shares()[words]
    np.testing.assert_allclose(vectors, shares @ table, rtol=1e-4, atol=1e-5)
    dense = np.zeros((SIZE + RULE.buckets, DIM))
    dense[ids_U.numpy()] = values
    np.testing.assert_allclose(dense, shares.T @ upstream, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", range(2))
def test_loss_and_gradients_equal_the_reference_on_composed_vectors(name, step):
    model = make_model(name, COUNTS, subwords=SubwordRows(TOKENS, RULE))
    tables = {"input": random_rows(step), "output": random_rows(9)[:SIZE]}
    batch = make_batch(make_tokens(range(SIZE), seed=step), step)
    total, examples, gradients = loss_and_gradients(model, batch, tables)
    shares = dense_shares()
    inputs, outputs = shares @ tables["input"], tables["output"].astype(np.float64)
    samples = samples_of(model, batch)
    loss, count, d_words, d_outputs = MODELS[name][1](
        inputs, outputs, batch.data.numpy(), pairs_of(name, batch), samples, PER_PAIR
    )
    np.testing.assert_allclose(total, loss, rtol=1e-5)
    assert count > 0
    np.testing.assert_allclose(examples, count, rtol=1e-5)
    np.testing.assert_allclose(gradients["input"], shares.T @ d_words, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients["output"], d_outputs, rtol=1e-4, atol=1e-5)


def test_the_table_has_rows_for_words_and_buckets():
    spec = make_model("skipgram", COUNTS, subwords=SubwordRows(TOKENS, RULE)).tables()["input"]
    assert (spec.rows, spec.columns) == (SIZE + RULE.buckets, DIM)
    assert abs(spec.initial((SIZE, DIM))).numpy().max() > 0.5 / DIM  # up to 1 / D, as in fastText
