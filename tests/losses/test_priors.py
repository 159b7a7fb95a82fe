"""With a bias of its prior in each row, a loss gives words their share of the text."""

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import learning
from app.settings import ModelConfig
from tests.losses import toy

WORDS = 50
COUNTS = toy.counts(WORDS)
SHARES = COUNTS / COUNTS.sum()


def shares_at_first(**flags):
    """Of the words, for a vector that is zeros but for the 1 of the bias."""
    wanted = learning.OutputSpec(COUNTS, toy.DIM, targets=20, seed=1)
    loss = learning.make_loss(ModelConfig(**flags), wanted)
    tables = toy.make_tables(loss)
    priors = loss.priors(COUNTS)
    assert priors.keys() <= tables.keys()
    assert sum(map(len, priors.values())) == sum(tables[name].rows for name in priors)
    for name, table in tables.items():
        if "projection" not in name:
            prior_V = priors.get(name, np.zeros(table.rows, np.float32))
            table.assign(tf.range(table.rows), tf.pad(prior_V[:, None], [[0, 0], [4, 0]]))
    bias_1D = tf.constant([[0.0] * (toy.DIM - 1) + [1.0]])
    return np.exp(toy.all_log_probabilities(loss, bias_1D, tables))[0]


@pytest.mark.parametrize(
    "flags",
    [
        {"loss": "softmax"},
        {"loss": "sampled_softmax"},
        {"loss": "nce"},
        {"loss": "class_softmax", "classes": 8},
        {"loss": "class_softmax", "classes": 12, "class_levels": 3},
        {"loss": "class_softmax", "classes": 8, "class_devices": 2},
    ],
    ids=lambda flags: "-".join(map(str, flags.values())),
)
def test_words_have_their_share(flags):
    np.testing.assert_allclose(shares_at_first(**flags), SHARES, rtol=1e-4)


def test_words_of_a_tail_share_what_their_cluster_has():
    found = shares_at_first(loss="adaptive_softmax", cutoffs="10,30")
    np.testing.assert_allclose(found[:10], SHARES[:10], rtol=1e-4)
    np.testing.assert_allclose(found[10:30], SHARES[10:30].mean(), rtol=1e-4)
    np.testing.assert_allclose(found[30:], SHARES[30:].mean(), rtol=1e-4)


def test_a_tree_comes_near_without():
    found = shares_at_first(loss="hierarchical_softmax")
    assert 0.7 < (SHARES * np.log(SHARES)).sum() / (SHARES * np.log(found)).sum() <= 1
