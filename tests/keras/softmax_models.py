"""Small output layers with random rows, hidden vectors and words, and a planted problem."""

import keras
import numpy as np
import tensorflow as tf

from app.keras import (
    NCE,
    AdaptiveSoftmax,
    ClassSoftmax,
    HierarchicalSoftmax,
    RowEmbedding,
    SampledSoftmax,
    Softmax,
    output_as_loss,
)

WORDS, DIM, CLASSES = 40, 6, 8
# Of ids in no order; two words were never seen.
COUNTS = np.random.default_rng(0).permutation(1000 // np.arange(1, WORDS + 1)) - 25
COUNTS = np.maximum(COUNTS, 0)

LAYERS = {
    "softmax": lambda **options: Softmax(WORDS, **options),
    "classes": lambda **options: ClassSoftmax(WORDS, COUNTS, classes=CLASSES, **options),
    "classes of classes": lambda **options: ClassSoftmax(WORDS, COUNTS, levels=3, **options),
    "tree": lambda **options: HierarchicalSoftmax(WORDS, COUNTS, **options),
    "adaptive": lambda **options: AdaptiveSoftmax(WORDS, COUNTS, [6, 20], 2, **options),
    "samples": lambda **options: SampledSoftmax(WORDS, COUNTS, samples=20, seed=1, **options),
    # Noise is to be about as the words that are predicted, here of equal frequency.
    "noise": lambda **options: NCE(
        WORDS, np.ones(WORDS), samples=20, sampler="unigram", seed=1, **options
    ),
}
SAMPLED = ("samples", "noise")


def built(name, **options):
    """The layer with random rows."""
    layer = LAYERS[name](**options)
    layer.build((None, DIM))
    random = np.random.default_rng(3)
    layer.set_weights([random.normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


def vectors(shape=(3, 4), seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=(*shape, DIM)), tf.float32)


def words(shape=(3, 4), seed=2):
    return np.random.default_rng(seed).integers(WORDS, size=shape).astype(np.int32)


def distribution(layer, hidden):
    """log P of every id, (..., V), from the blocks."""
    blocks = list(layer.distribution(hidden))
    ids = np.concatenate([ids_M for ids_M, _ in blocks])
    assert sorted(ids) == list(range(WORDS)), "every word once"
    return np.concatenate([found for _, found in blocks], axis=-1)[..., np.argsort(ids)]


def draw_again(layer):
    """The next call draws the samples of the first."""
    if hasattr(layer, "_seeds"):
        layer._seeds.state.assign([layer.seed, 0])


def gradients(layer, hidden, targets, upstream, compiled=False):
    """By the hidden vectors, and row-sparse by the tables."""

    def run(hidden):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            loss = tf.reduce_sum(layer(hidden, targets, training=True) * upstream)
        by_hidden, *by_tables = tape.gradient(loss, [hidden, *layer.trainable_variables])
        assert all(isinstance(each, tf.IndexedSlices) for each in by_tables)
        return by_hidden, [(each.indices, each.values) for each in by_tables]

    run = tf.function(run, autograph=False).get_concrete_function(hidden) if compiled else run
    draw_again(layer)
    by_hidden, by_tables = run(hidden)
    whole = [
        tf.math.unsorted_segment_sum(values, ids, table.shape[0])
        for (ids, values), table in zip(by_tables, layer.trainable_variables, strict=True)
    ]
    return by_hidden, whole


def planted():
    """Tokens (30, 6), and the word that follows from each; padded with 0 and -1."""
    x = np.random.default_rng(0).integers(1, WORDS, (30, 6)).astype(np.int32)
    y = (x * 7 + 3) % WORDS
    x[::2, 4:], y[::2, 4:] = 0, -1
    return x, y


def make_model(name, optimizer, mask=True, options=None, words=None, **compiled):
    """The model, that of its hidden vectors, and its output layer.

    With an embedding `words` its vectors are as wide as its rows, and a name ties the layer to it.
    """
    keras.utils.set_random_seed(0)
    tokens, following = (keras.Input((None,), dtype="int32") for _ in range(2))
    units = 2 * DIM if words is None else words.output_dim
    words = words or RowEmbedding(WORDS, DIM, mask_zero=mask, name="words")
    hidden = keras.layers.Dense(units, "tanh", name="hidden")(words(tokens))
    layer = LAYERS[name](name="out", **options or {})
    model = keras.Model([tokens, following], layer(hidden, following))
    model.compile(optimizer, loss=output_as_loss, **compiled)
    return model, keras.Model(tokens, hidden), layer
