from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.exporting import saved_model
from app.text.subwords import compose_unseen
from app.types import NgramRule, NgramVectors, WordVectors
from tests.text.test_subwords import random_strings


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [None, range(97), range(0, 97, 3), [96], []])
def test_unseen_strings_get_the_mean_of_their_ngrams(tmp_path, buckets):
    random = np.random.default_rng(0)
    rows = random.normal(size=(97, 4)).astype(np.float32)
    ngrams = NgramVectors(NgramRule(3, 6, 97), rows)
    if buckets is not None:
        kept = np.array(buckets, np.int32)
        ngrams = ngrams._replace(rows_ND=rows[kept], buckets_N=kept)
    known = ["the", "日本語"]
    vectors = WordVectors(known, random.normal(size=(2, 4)).astype(np.float32), None, ngrams)
    saved_model.write(vectors, tmp_path / "model")
    model = tf.saved_model.load(tmp_path / "model")
    words = [*known, "", "</s>", "x" * 10_000, *random_strings(1000)]
    answer = model.signatures["lookup"](words=tf.constant([word.encode() for word in words]))
    assert answer["known"].numpy().tolist() == [word in known for word in words]
    np.testing.assert_array_equal(answer["vectors"][:2], vectors.matrix)
    expected = compose_unseen(words[2:], ngrams)
    np.testing.assert_allclose(answer["vectors"][2:], expected, rtol=1e-5, atol=1e-6)
    assert not answer["vectors"][3].numpy().any()  # the end of a line has no n-grams
    empty = model.signatures["lookup"](words=tf.zeros([0], tf.string))
    assert empty["vectors"].shape == (0, 4)
