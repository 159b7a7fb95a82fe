import numpy as np
import tensorflow as tf

from app.input.token_rows import PAD, decode, encode


def test_ids_and_firsts_survive_the_round_trip():
    random = np.random.default_rng(0)
    ids = random.integers(0, PAD, size=1000).astype(np.int32)
    ids[:3] = 0, 1, PAD - 1
    for share in (0.0, 0.1, 1.0):
        first = random.random(1000) < share
        tokens = encode(tf.constant(ids), tf.constant(first))
        assert tokens.dtype == tf.int32
        decoded = decode(tokens[tf.newaxis])
        np.testing.assert_array_equal(decoded.ids[0], ids)
        np.testing.assert_array_equal(decoded.document[0], np.cumsum(first))
        assert decoded.real.numpy().all()


def test_padding_is_no_token_and_has_an_id_that_can_be_looked_up():
    tokens = tf.constant([[PAD, ~0, 5, PAD], [PAD, PAD, PAD, ~7]], tf.int32)
    decoded = decode(tokens)
    np.testing.assert_array_equal(decoded.ids, [[0, 0, 5, 0], [0, 0, 0, 7]])
    np.testing.assert_array_equal(
        decoded.real, [[False, True, True, False], [False, False, False, True]]
    )


def test_documents_are_numbered_in_each_row_alone():
    decoded = decode(tf.constant([[1, 2, ~3, 4, ~5], [~1, 2, 3, 4, 5]], tf.int32))
    np.testing.assert_array_equal(decoded.document, [[0, 0, 1, 1, 2], [1, 1, 1, 1, 1]])
