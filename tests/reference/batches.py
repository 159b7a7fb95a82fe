"""Small batches of words for the models: random, or as a model drew them."""

import numpy as np
import tensorflow as tf

from app.input.token_rows import PAD, decode
from app.losses.negative_sampling import NegativeSampling
from app.models.base import draw_seed
from app.models.cbow import Cbow
from app.models.skipgram import SkipGram
from app.models.word_model import draw_contexts
from app.tables.row_reads import join_partitions, unique
from app.types import Batch, Rows
from tests.reference import words

WINDOW, SAMPLES, GROUP, PER_PAIR = 3, 5, 16, 7
MODELS = {"skipgram": (SkipGram, words.skipgram), "cbow": (Cbow, words.cbow)}


def make_model(name, counts, dim=6, **changes):
    """A model over len(counts) words, whose negatives have a weight of PER_PAIR."""
    output = NegativeSampling(counts, dim, 0.75, GROUP, SAMPLES, PER_PAIR)
    return MODELS[name][0](len(counts), dim, WINDOW, output, seed=1, **changes)


def loss_and_gradients(model, batch, tables):
    """The loss, the examples, and the gradients as dense tables."""
    wanted = {name: unique(join_partitions(ids)) for name, ids in model.lookups(batch).items()}
    values = {name: tf.gather(tables[name], ids_U) for name, (ids_U, _) in wanted.items()}
    with tf.GradientTape() as tape:
        tape.watch(values)
        rows = {
            name: Rows(values[name], inverse_N, ids_U)
            for name, (ids_U, inverse_N) in wanted.items()
        }
        total, examples, *_ = model.loss(batch, rows)
    dense = {name: np.zeros_like(table) for name, table in tables.items()}
    for name, gradient in tape.gradient(total, values).items():
        dense[name][wanted[name][0].numpy()] = gradient
    return total, examples, dense


def make_tokens(ids, size=4, centres=8, seed=0):
    """Rows of these ids with documents of some 6 words and padding at two ends, (B, L) int32."""
    random = np.random.default_rng(seed)
    tokens_BL = random.choice(ids, size=(size, centres + 2 * WINDOW)).astype(np.int32)
    tokens_BL = np.where(random.random(tokens_BL.shape) < 1 / 6, ~tokens_BL, tokens_BL)
    tokens_BL[0, :WINDOW] = tokens_BL[-1, -WINDOW - 2 :] = PAD
    return tokens_BL


def make_batch(tokens_BL, step=0, seed=1):
    return Batch(tf.constant(tokens_BL), tf.constant([seed, step], tf.int64))


def reach_of(batch):
    """How far the model's centres look, (B, T), as seen in a row without ends."""
    open_BL = decode(tf.ones_like(batch.data))
    mask_BTL = draw_contexts(open_BL, WINDOW, draw_seed(batch, "window")).numpy()
    return mask_BTL.sum(axis=2).astype(int) // 2


def pairs_of(name, batch):
    """The weights of a model's pairs, (B, T, L): drawn for CBOW, expected for skip-gram."""
    if name == "skipgram":
        return words.weights(batch.data.numpy(), WINDOW)
    return words.pairs(batch.data.numpy(), reach_of(batch))


def samples_of(model, batch):
    """The negatives that the model drew, (G, K)."""
    output = model.lookups(batch)["output"].numpy()
    size, length = batch.data.shape
    return output[-(size * (length - 2 * WINDOW) // GROUP * SAMPLES) :].reshape(-1, SAMPLES)
