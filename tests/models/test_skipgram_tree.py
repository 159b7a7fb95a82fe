"""Skip-gram whose loss is a tree: words of the contexts predict the centres, in shorter rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.losses.tree.hierarchical_softmax import HierarchicalSoftmax
from app.tables.row_reads import unique
from app.types import Rows
from tests.losses import toy
from tests.reference.batches import make_batch, make_model, make_tokens, pairs_of

SIZE, DIM = 30, 6
COUNTS = np.arange(SIZE, 0, -1)


@pytest.mark.slow
@pytest.mark.parametrize("group", [2, 8, 16])
def test_each_pair_predicts_its_centre_once(group):
    with tf.device("CPU:0"):
        output = HierarchicalSoftmax(COUNTS, DIM)
        output.group_words = group
        model = dataclasses.replace(make_model("skipgram", COUNTS), output=output)
        batch, tables = make_batch(make_tokens(range(SIZE))), toy.make_tables(output)
        values_VD = np.random.default_rng(3).normal(size=(SIZE, DIM)).astype(np.float32)
        ids_U, inverse_N = unique(model.lookups(batch)["input"])
        rows = {"input": Rows(tf.gather(values_VD, ids_U), inverse_N)}
        _, examples, parts, _ = model.loss(batch, rows)
        found = [toy.stream.differentiate(part, toy.gather_from(tables), ignore) for part in parts]

    weights_BTL = pairs_of("skipgram", batch)
    log_VV = toy.all_log_probabilities(output, tf.constant(values_VD), tables)
    tokens_BL = batch.data.numpy()
    ids_BL = np.where(tokens_BL < 0, ~tokens_BL, tokens_BL)
    window = model.window
    expected = sum(
        -weight * log_VV[ids_BL[b, i], ids_BL[b, t + window]]
        for (b, t, i), weight in np.ndenumerate(weights_BTL)
        if weight
    )
    np.testing.assert_allclose(sum(float(loss) for loss, *_ in found), expected, rtol=1e-5)
    np.testing.assert_allclose(examples, weights_BTL.sum(), rtol=1e-5)


def ignore(name, ids_U, rows_UD, gradients_UD):
    """Update nothing."""
