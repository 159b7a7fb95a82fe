"""Output layers: probabilities, gradients, masks, ids in any order, and what they refuse."""

import copy
import functools
import json
import os
import re
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    NCE,
    SGD,
    AdaptiveSoftmax,
    ClassSoftmax,
    HierarchicalSoftmax,
    LazyAdam,
    LossScaleOptimizer,
    RowEmbedding,
    RowwiseAdagrad,
    SampledSoftmax,
    Softmax,
    compile_steps,
    load_model,
    output_as_loss,
    prefetch_rows,
    save_model,
)
from app.keras.layers import softmax_base, softmax_gradients
from app.keras.optimizers.row_accumulation import Streamed
from app.keras.tables.table_variable import record_ids
from app.losses import softmax
from app.losses.classes import padded
from tests.keras.graphs import as_large_as
from tests.keras.models import dtype_policy
from tests.keras.softmax_models import (
    COUNTS,
    DIM,
    LAYERS,
    SAMPLED,
    WORDS,
    built,
    distribution,
    draw_again,
    gradients,
    make_model,
    planted,
    vectors,
    words,
)
from tests.reference.gpu import LOOP

every = pytest.mark.parametrize("name", LAYERS)
SELDOM = [pytest.param(name, marks=pytest.mark.slow) for name in LAYERS if name != "samples"]


@every
def test_the_distribution_is_one_and_gives_each_word_its_probability(name):
    layer, hidden = built(name), vectors()
    log_p = distribution(layer, hidden)
    assert log_p.shape == (3, 4, WORDS)
    np.testing.assert_allclose(np.exp(log_p).sum(axis=-1), 1, atol=1e-5)
    each = tf.repeat(hidden[:, :1], WORDS, axis=1)
    found = layer.log_probability(each, np.tile(np.arange(WORDS), (3, 1)))
    np.testing.assert_allclose(found, log_p[:, 0], atol=1e-5)
    np.testing.assert_array_equal(layer(each[:, :2], words((3, 2))) > 0, True)


@every
def test_the_likeliest_words_are_those_of_the_whole_distribution(name):
    layer, hidden = built(name), vectors((7,))
    log_p = distribution(layer, hidden)
    ids, found = layer.top_k(hidden, 4)
    expected = np.argsort(-log_p, axis=-1)[:, :4]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(found, np.take_along_axis(log_p, expected, axis=1), atol=1e-6)


@pytest.mark.parametrize(
    "name", ["classes of classes", *(pytest.param(n, marks=pytest.mark.slow) for n in LAYERS)]
)
def test_the_likeliest_words_of_a_saved_model(name, tmp_path):
    layer = built(name)

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        @tf.function(input_signature=[tf.TensorSpec([None, None, DIM])], autograph=False)
        def top(self, hidden):
            return layer.top_k(hidden, 4)

    tf.saved_model.save(Served(), tmp_path / "saved")
    loaded = tf.saved_model.load(tmp_path / "saved")
    for hidden in (vectors(), 0 * vectors((2, 1)), vectors((0, 3))):
        found, expected = loaded.top(hidden), layer.top_k(hidden, 4)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)


@pytest.mark.parametrize(("use_bias", "compiled"), [(False, False), (True, True)])
def test_the_full_softmax_is_that_of_dense(use_bias, compiled):
    layer, hidden, targets = built("softmax", use_bias=use_bias), vectors(), words()
    upstream = vectors()[..., 0]
    (table,) = layer.get_weights()
    dense = keras.layers.Dense(WORDS, use_bias=use_bias)
    dense.build((None, DIM))
    dense.set_weights([table[:, :DIM].T, table[:, DIM]] if use_bias else [table.T])
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        losses = keras.losses.sparse_categorical_crossentropy(
            targets, dense(hidden), from_logits=True
        )
        loss = tf.reduce_sum(losses * upstream)
    by_hidden, by_kernel, *by_bias = tape.gradient(loss, [hidden, *dense.trainable_variables])
    np.testing.assert_allclose(layer(hidden, targets), losses, atol=1e-5)
    found_hidden, (found_table,) = gradients(layer, hidden, targets, upstream, compiled)
    np.testing.assert_allclose(found_hidden, by_hidden, atol=1e-5)
    expected = tf.concat([by_kernel, *(by[None] for by in by_bias)], axis=0)
    np.testing.assert_allclose(found_table, tf.transpose(expected), atol=1e-5)


def test_nothing_as_large_as_the_table_is_made():
    layer = built("classes")

    def run(hidden, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(hidden, targets))
        return [(each.indices, each.values) for each in tape.gradient(loss, layer.weights)]

    inputs = tf.TensorSpec([None, DIM]), tf.TensorSpec([None], tf.int32)
    assert (
        as_large_as(tf.function(run, autograph=False).get_concrete_function(*inputs), WORDS) == []
    )


@every
def test_gradients_are_the_slopes_of_the_loss(name):
    layer, hidden, targets = built(name), vectors(), words()
    upstream = vectors(seed=5)[..., 0]
    by_hidden, by_tables = gradients(layer, hidden, targets, upstream)
    random, step = np.random.default_rng(7), 1e-2

    def total(*weights, hidden=hidden):
        layer.set_weights(weights)
        draw_again(layer)
        return float(tf.reduce_sum(layer(hidden, targets, training=True) * upstream))

    before = layer.get_weights()
    for place, slopes in enumerate([*by_tables, by_hidden]):
        way = random.normal(size=slopes.shape).astype(np.float32)
        ends = []
        for sign in (1, -1):
            weights = list(before)
            if place < len(weights):
                weights[place] = weights[place] + sign * step * way
                ends.append(total(*weights))
            else:
                ends.append(total(*weights, hidden=hidden + sign * step * way))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert slope == pytest.approx(float(tf.reduce_sum(slopes * way)), rel=1e-2, abs=1e-2)


@pytest.mark.parametrize(("weights", "times"), [(None, 1), (np.full((30, 6), 2.0), 2)])
def test_a_step_scores_a_block_once_unless_targets_have_weights(weights, times, monkeypatch):
    scored, differentiated = [], []
    for name, calls in (
        ("_losses_and_shares", scored),
        ("_losses_and_gradients", differentiated),
    ):
        done = getattr(softmax, name)

        def count(*inputs, done=done, calls=calls):
            return calls.append(0) or done(*inputs)

        monkeypatch.setattr(softmax, name, count)
    model, _, _ = make_model("softmax", SGD(0.1), run_eagerly=True)  # with a mask
    x, y = planted()
    model.train_on_batch([x, y], y, weights)
    assert (len(scored), len(differentiated)) == (times, 1)
    model([x, y], training=True)  # without a tape
    model.evaluate([x, y], y, verbose=0)
    assert (len(scored), len(differentiated)) == (times + 2, 1)


@pytest.mark.parametrize("name", sorted({*LAYERS} - {*SAMPLED}))
def test_whether_a_layer_trains_can_be_a_tensor(name):
    layer = built(name)
    losses = tf.function(lambda training: layer(vectors(), words(), training=training))
    np.testing.assert_allclose(losses(True), layer(vectors(), words()), rtol=1e-6)


@every
def test_masked_words_cost_nothing_and_may_be_anything(name):
    layer, hidden, targets = built(name), vectors(), words()
    mask = np.random.default_rng(0).random(targets.shape) < 0.5
    dirty = np.where(mask, targets, -1)
    expected = np.where(mask, layer(hidden, targets), 0)
    np.testing.assert_allclose(layer(hidden, dirty, hidden_mask=mask), expected, atol=1e-6)
    masked = tf.identity(hidden)
    masked._keras_mask = tf.constant(mask)
    found = layer(masked, dirty)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(found._keras_mask, mask)
    nothing = layer(hidden, dirty, hidden_mask=np.zeros_like(mask))
    np.testing.assert_array_equal(nothing, np.zeros(targets.shape))


@every
def test_shapes_and_dtypes(name):
    layer = built(name)
    expected = layer(vectors((6,)), words((6,)))
    for shape in ((6,), (2, 3), (1, 2, 3)):
        hidden = tf.reshape(vectors((6,)), (*shape, DIM))
        for dtype in ("int64", "uint8"):
            targets = words((6,)).reshape(shape).astype(dtype)
            found = layer(hidden, targets)
            assert found.dtype == tf.float32 and found.shape == shape
            np.testing.assert_allclose(tf.reshape(found, [-1]), expected, atol=1e-6)
    assert layer(vectors((0,)), words((0,))).shape == (0,)
    spec = layer(keras.Input((None, DIM)), keras.Input((None,), dtype="int32"))
    assert spec.shape == (None, None) and spec.dtype == "float32"


@pytest.mark.parametrize("size", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
@pytest.mark.parametrize(
    "kind",
    [
        Softmax,
        ClassSoftmax,
        HierarchicalSoftmax,
        AdaptiveSoftmax,
        lambda size: SampledSoftmax(size, samples=3),
    ],
)
def test_tiny_vocabularies(kind, size):
    layer, hidden = kind(size), vectors((4,))
    ids, log_p = layer.top_k(hidden, 9)
    np.testing.assert_array_equal(np.sort(ids), np.tile(np.arange(size), (4, 1)))
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-6)


@every
def test_the_layer_is_made_again_from_its_config(name):
    layer = LAYERS[name](name="out", use_bias=False, dtype="mixed_bfloat16")
    config = json.loads(json.dumps(keras.layers.serialize(layer)))
    made = keras.layers.deserialize(config)
    assert type(made) is type(layer) and made.get_config() == layer.get_config()
    made.build((None, DIM))
    layer.build((None, DIM))
    assert [w.shape for w in made.weights] == [w.shape for w in layer.weights]
    made.set_weights([np.random.default_rng(0).normal(size=w.shape) for w in made.weights])
    layer.set_weights(made.get_weights())
    np.testing.assert_array_equal(layer(vectors(), words()), made(vectors(), words()))


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_are_for_training_and_other_calls_are_exact(name):
    layer, hidden, targets = built(name), vectors(), words()
    softmax = built("softmax")
    (rows,) = layer.get_weights()
    ranks = (
        np.argsort(np.argsort(-COUNTS, kind="stable")) if name == "samples" else np.arange(WORDS)
    )
    softmax.set_weights([rows[ranks]])
    np.testing.assert_allclose(layer(hidden, targets), softmax(hidden, targets), atol=1e-5)
    first, second = (layer(hidden, targets, training=True) for _ in range(2))
    assert (first != second).numpy().all(), "each batch draws its own"
    draw_again(layer)
    np.testing.assert_array_equal(layer(hidden, targets, training=True), first)


def test_stateless_calls_take_the_weights_that_they_are_given():
    layer, hidden, targets = built("classes"), vectors(), words()
    given = [tf.constant(weight) / 2 for weight in layer.get_weights()]
    with tf.GradientTape() as tape:
        tape.watch(given)
        found, _ = layer.stateless_call(given, [], hidden, targets)
    slopes = tape.gradient(found, given)
    layer.set_weights(given)
    np.testing.assert_allclose(found, layer(hidden, targets), atol=1e-6)
    _, expected = gradients(layer, hidden, targets, 1.0)
    for ours, theirs in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(ours), theirs, atol=1e-5)


@pytest.mark.parametrize(("wrong", "compiled"), [(-1, False), (WORDS, True)])
def test_words_outside_of_the_vocabulary_are_named(wrong, compiled):
    layer = ClassSoftmax(WORDS, COUNTS, name="out")
    call = tf.function(layer.__call__, autograph=False) if compiled else layer
    targets = words()
    targets[1, 2] = wrong
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(vectors(), targets)
    text = " ".join(str(raised.value).replace("[", "").replace("]", "").replace("'", "").split())
    assert f"out: ids must be from 0 to 39; the smallest id out of range is {wrong}" in text


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ClassSoftmax(0), "vocabulary_size=0: give an integer from 1"),
        (lambda: ClassSoftmax(2**31), "vocabulary_size=2147483648"),
        (lambda: Softmax(3, [1, 2, 3]), r"use_bias=\[1, 2, 3\]: give True or False"),
        (lambda: ClassSoftmax(2.5), "vocabulary_size=2.5: give an integer"),
        (lambda: ClassSoftmax(4, np.ones(3)), r"shape \(3,\); give one for each of the 4 words"),
        (lambda: ClassSoftmax(2, [0.5, 1]), "counts hold 0.5; give numbers of occurrences"),
        (lambda: ClassSoftmax(2, [1, -4]), "counts hold -4; give"),
        (lambda: ClassSoftmax(4, classes=5), "classes=5: give at most the 4 words"),
        (lambda: ClassSoftmax(4, batch_targets=0), "batch_targets=0: give a positive number"),
        (lambda: NCE(4, samples=0), "samples=0: give a positive number"),
        (lambda: NCE(4, sampler="even"), "sampler='even': choose from log_uniform, uni"),
        (lambda: AdaptiveSoftmax(4, cutoffs=[1, 4]), r"cutoffs=\[1, 4\]: .* from 1 to 3"),
        (lambda: AdaptiveSoftmax(4, divisor=0), "divisor=0: give a number of 1 or more"),
        (lambda: ClassSoftmax(4, levels=1), "levels=1: give 2 or 3"),
        (lambda: ClassSoftmax(4, rule="best"), "rule='best': choose from equal_size, "),
        (lambda: built("classes")(vectors(), words().astype("f")), "targets are float32"),
        (lambda: built("classes")(vectors(), words((3, 5))), r"needs targets of shape \(3, 4\)"),
        (lambda: built("classes")(vectors(), words((3, 4, 1))), r"not \(3, 4, 1\)"),
        (lambda: built("classes")(vectors()[..., 1:], words()), "expected axis -1 .* value 6"),
        (lambda: built("classes").top_k(vectors(), 0), "k=0: give a positive number"),
        (lambda: ClassSoftmax(4).build((None, None)), "hidden has an unknown last dimension"),
    ],
)
def test_misuse_is_a_line_that_says_what_to_do(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize(
    "counts", [[5], [0, 0], [3, 9, 9, 0, 2**40], np.random.default_rng(0).zipf(1.5, 1000)]
)
def test_counts_come_back_from_their_packed_form(counts):
    given = softmax_base.checked_counts(counts, len(counts), "out")
    assert given.dtype == np.int64
    text = softmax_base.packed_counts(given)
    assert isinstance(text, str)
    np.testing.assert_array_equal(softmax_base.unpacked_counts(text, len(given)), given)


def test_sorted_counts_are_packed_small():
    counts = (10**9 / np.arange(1, 100_001)).astype(np.int64)
    assert len(softmax_base.packed_counts(counts)) < 250_000  # of 800,000 bytes


def test_ranks_are_by_descending_count_and_the_lower_id_first():
    counts = np.array([2, 7, 2, 9, 7])
    order = softmax_base.order_by_count(counts)
    np.testing.assert_array_equal(order, [3, 1, 4, 0, 2])
    assert order.dtype == np.int32


@pytest.mark.parametrize("counts", [[4], [3, 3], [9, 5, 5, 0]])
def test_counts_that_are_in_order_need_no_ranks(counts):
    assert softmax_base.order_by_count(np.array(counts)) is None


# Models with output layers: fit, row-sparse updates, files, precision, replicas.


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_fit_learns_a_planted_problem_and_the_mask_is_left_out(name):
    model, predictor, layer = make_model(name, LazyAdam(0.1))
    x, y = planted()
    epochs, most, right = (25, 0.2, 0.9) if name != "noise" else (150, 1.0, 0.7)
    model.fit([x, y], y, epochs=epochs, batch_size=20, verbose=0)  # the last batch is shorter
    loss = model.evaluate([x, y], y, verbose=0)
    losses = model([x, y]).numpy()
    real = x != 0
    assert (losses[~real] == 0).all()
    # A loss is the difference of two float32 numbers, of which some differ in a graph.
    assert loss == pytest.approx(losses[real].mean(), rel=1e-5, abs=1e-6)
    assert loss < most
    ids, _ = layer.top_k(predictor(x), 1)
    assert (ids[real][:, 0] == y[real]).mean() > right
    log_p = layer.log_probability(predictor(x), np.maximum(y, 0))
    np.testing.assert_allclose(log_p[real], -losses[real], atol=1e-5)


@pytest.mark.parametrize("name", ["samples", *SELDOM])
def test_xla_computes_the_same_loss_and_gradients_of_rows(name):
    layer, hidden, targets = built(name), vectors(), words()
    mask = np.random.default_rng(0).random(targets.shape) < 0.7
    targets, found = np.where(mask, targets, -1), {}
    for jit in (False, True):

        @tf.function(jit_compile=jit, autograph=False)
        def run(targets):
            with tf.GradientTape() as tape:
                tape.watch(hidden)
                losses = layer(hidden, targets, hidden_mask=tf.constant(mask), training=True)
            slopes = tape.gradient(losses, [hidden, *layer.trainable_variables])
            return losses, *map(tf.convert_to_tensor, slopes)

        draw_again(layer)
        found[jit] = run(targets)
    for one, other in zip(found[True], found[False], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    wrong = np.where(mask, WORDS, -1)
    wrong[mask.nonzero()[0][0], mask.nonzero()[1][0]] = 3
    losses, _, *by_tables = run(wrong)
    np.testing.assert_array_equal(np.isnan(losses), mask & (wrong == WORDS))
    assert all(np.isfinite(by_table).all() for by_table in by_tables)


def test_only_rows_of_touched_classes_change():
    model, _, layer = make_model("classes", RowwiseAdagrad(0.1), run_eagerly=True)
    x, y = planted()
    x, y = x[:2, :3], np.zeros_like(y[:2, :3])
    before = layer.get_weights()
    model.train_on_batch([x, y], y)
    output, classes = (
        (now != was).any(axis=1) for now, was in zip(layer.get_weights(), before, strict=True)
    )
    assert classes.all() and 0 < output.sum() < WORDS / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "tree", "adaptive", "samples"])
def test_a_saved_model_goes_on_as_if_it_had_never_stopped(name, tmp_path):
    model, _, _ = make_model(name, LazyAdam(0.1), run_eagerly=True)
    x, y = planted()
    model.train_on_batch([x, y], y)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.run_eagerly = True
    for one in (model, loaded):
        one.train_on_batch([x, y], y)
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.get_layer("out").get_config() == model.get_layer("out").get_config()


def test_every_file_has_the_state_of_the_draws_but_an_old_one(tmp_path):
    layer, weights = built(SAMPLED[0]), tmp_path / "model.weights.h5"
    layer._seeds.state.assign([7, 5])
    checkpoint = tf.train.Checkpoint(layer).write(str(tmp_path / "at"))

    def model(layer):
        return keras.Model(
            inputs := [keras.Input((DIM,)), keras.Input((), dtype="int32")], layer(*inputs)
        )

    model(layer).save_weights(weights)
    for load in (
        lambda other: tf.train.Checkpoint(other).read(checkpoint).assert_consumed(),
        lambda other: model(other).load_weights(weights),
    ):
        load(other := built(SAMPLED[0]))
        assert [*other._seeds.state.numpy()] == [7, 5]
    with h5py.File(weights, "r+") as file:
        del file["layers/sampled_softmax/vars/draws"]
    load(other := built(SAMPLED[0]))
    assert [*other._seeds.state.numpy()] == [other.seed, 0]


@pytest.mark.slow
def test_checkpoints_have_what_the_layer_needs(tmp_path):
    models = [make_model("classes", LazyAdam(0.1))[0] for _ in range(2)]
    models[1].set_weights([weight + 1 for weight in models[1].get_weights()])
    path = tf.train.Checkpoint(model=models[0]).save(tmp_path / "at")
    tf.train.Checkpoint(model=models[1]).restore(path).assert_consumed()
    for saved, restored in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(restored, saved)
    x, y = planted()
    np.testing.assert_array_equal(*(model([x, y]) for model in models))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_exports_have_what_the_layer_needs(name, tmp_path):
    model, _, _ = make_model(name, LazyAdam(0.1), mask=False)
    x, y = planted()
    y %= WORDS
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(loaded.serve([x, y]), model([x, y]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["mixed_float16", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
def test_narrow_precision_trains_nearly_the_same(policy):
    x, y = planted()
    found = []
    for each in ("float32", policy):
        optimizer = LazyAdam(0.1)
        if each == "mixed_float16":
            optimizer = LossScaleOptimizer(optimizer)
        with dtype_policy(each):
            model, _, layer = make_model("classes", optimizer, run_eagerly=True)
            losses = [model.train_on_batch([x, y], y) for _ in range(4)]
        assert model.output.dtype == "float32"
        assert layer.weights[0].dtype == ("bfloat16" if each == "bfloat16" else "float32")
        found.append(losses)
    assert found[0][-1] < found[0][0] - 0.3
    np.testing.assert_allclose(*found, rtol=0.2 if policy == "bfloat16" else 3e-2)


def test_xla_is_declined_in_one_line_by_a_layer_that_searches_for_the_likeliest_words():
    options = {"metrics": ["accuracy"]}
    with pytest.warns(UserWarning, match="Proceeding with `jit_compile=False`") as told:
        model, _, _ = make_model("classes", LazyAdam(0.1), jit_compile=True, options=options)
    assert len(told) == 1 and not model.jit_compile
    assert make_model("classes", LazyAdam(0.1), jit_compile=True)[0].jit_compile
    assert not LAYERS["classes"](table="sharded").supports_jit


def fitted(name, jit, steps=1, optimizer=LazyAdam, **options):
    """What two epochs, whose last batch is shorter, and an evaluation give with XLA and without."""
    options = {"metrics": ["perplexity"]} | options
    made = {"steps_per_execution": steps, "jit_compile": jit}
    model, _, _ = make_model(
        name, optimizer(0.01), options=options, words=options.get("tied_to"), **made
    )
    assert model.jit_compile == jit
    if jit and steps > 1:
        compile_steps(model)
    x, y = planted()
    logs = model.fit([x, y], y, 12, 2, validation_data=([x, y], y), shuffle=False, verbose=0)
    return [
        *logs.history.values(),
        *(v.numpy() for v in (*model.weights, *model.optimizer.variables)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in LAYERS),
        *((name, {"steps": 2}) for name in ("samples", "classes")),
        *((name, {"tied_to": True}) for name in ("samples", "classes")),
        ("samples", {"evaluation": "sampled", "metrics": ["sampled_loss"]}),
        ("samples", {"table": "host"}),
    ],
)
def test_a_model_that_xla_compiles_trains_as_one_that_is_not(name, options):
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        tied = {"tied_to": embedding()} if "tied_to" in options else {}
        found.append(fitted(name, jit, **(options | tied)))
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=3e-4, atol=3e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "softmax"])
def test_xla_compiles_a_step_that_updates_a_table_in_blocks(name, streamed, monkeypatch):
    expected = fitted(name, False)
    monkeypatch.setattr(Streamed, "_merged", None)
    for ours, theirs in zip(fitted(name, True), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=3e-4, atol=3e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "adaptive"])
def test_a_weight_of_nan_changes_what_it_changes_without_blocks(name, monkeypatch):
    """Of the first target: only its own classes and clusters, and what is below."""
    x, y = planted()
    weights, found = np.ones(y.shape, np.float32), []
    weights[0, 0] = np.nan
    for jit in (False, True):
        monkeypatch.setattr(softmax_gradients, "_STREAMED_BYTES", 0 if jit else 1 << 30)
        model, _, layer = make_model(name, SGD(0.1), jit_compile=jit)
        model.train_on_batch([x, y], y, weights)
        found.append({variable.path: np.isnan(variable) for variable in model.weights})
    for path, is_nan in found[0].items():
        np.testing.assert_array_equal(found[1][path], is_nan, err_msg=path)
    assert not all(np.isnan(rows).all() for rows in layer.get_weights())


def loops_and_copies(name):
    """The loops of a compiled step, and its copies of a table."""
    model, _, layer = make_model(name, LazyAdam(0.1), mask=False, jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    x, y = (tf.constant(np.maximum(each, 0)) for each in planted())
    step = tf.function(model.train_step, autograph=False, jit_compile=True)
    program = step.experimental_get_compiler_ir(((x, y), y))
    lowered, optimized = program(stage="hlo"), program(stage="optimized_hlo")
    copies = []
    for table in layer._tables.values():
        shape = re.escape(f"f32[{table.shape[0]},{table.shape[1]}]")
        # Not of zeros for the gradient of a projection, of which a step reads all rows.
        copies += re.findall(rf"{shape}\S* (?:copy|transpose)\((?!%wrapped_broadcast)", optimized)
    return lowered.count(LOOP), copies


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAYERS if name != "classes of classes"])
def test_a_compiled_step_has_no_loop_over_words_and_copies_no_table(name):
    loops, copies = loops_and_copies(name)
    assert loops <= {"classes": 16, "softmax": 6}.get(name, 0) and not copies  # blocks and chunks


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", ["softmax", "classes", "adaptive"])
def test_loops_over_blocks_of_words_copy_no_table(name, is_streamed, monkeypatch):
    monkeypatch.setattr(padded, "_ROWS", 8 * DIM)  # a cluster or a class in several blocks
    monkeypatch.setattr(padded, "_SCORES", 1 << 9)
    monkeypatch.setattr(softmax_gradients, "_STREAMED_BYTES", 0 if is_streamed else 1 << 30)
    loops, copies = loops_and_copies(name)
    # At most four for the blocks and chunks of each of three tables or kinds of block, in the
    # loss, in its gradients, and in the update.
    assert loops <= (36 if is_streamed else 24) and not copies


MEMORY = """
import sys, keras, tensorflow as tf
from app.keras import ClassSoftmax, SGD, output_as_loss
from app.keras.layers import softmax_gradients
softmax_gradients._STREAMED_BYTES = 0  # as of a table of 1 GiB
words, targets, columns = map(int, sys.argv[1:])
hidden, following = keras.Input((columns,)), keras.Input((), dtype="int32")
model = keras.Model([hidden, following], ClassSoftmax(words)(hidden, following))
model.compile(SGD(0.1), output_as_loss, jit_compile=True)
model.optimizer.build(model.trainable_variables)
step = tf.function(model.train_step, autograph=False, jit_compile=True)
words = tf.zeros([targets], tf.int32)
step.experimental_get_compiler_ir(((tf.zeros([targets, columns]), words), words))("optimized_hlo")
"""


@pytest.mark.slow
def test_a_compiled_step_on_classes_takes_memory_for_its_blocks_and_not_for_all_words(tmp_path):
    """Of 40,000 targets and 300 columns, less than 1 GB beside the parameters."""
    found, sizes = [], {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for vocabulary in (200_000, 800_000):
        dump = tmp_path / str(vocabulary)
        flags = f"--xla_dump_to={dump} --xla_dump_hlo_as_text"
        environment = os.environ | {"XLA_FLAGS": flags, "CUDA_VISIBLE_DEVICES": "-1"}
        command = [sys.executable, "-c", MEMORY, str(vocabulary), "40000", "300"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        (report,) = dump.glob("*train_step*memory-usage-report.txt")
        line = re.search(r"size ([\d.]+)(\w+), preallocated-temp", report.read_text())
        found.append(float(line[1]) * sizes[line[2]])
    # The rows of the larger table take 0.7 GB more.
    assert found[1] < 1e9 and found[1] < found[0] + 10e6


def compiled(name, **options):
    """A model with an output layer that is made with some options, and its data."""
    model, _, layer = make_model(name, LazyAdam(0.01), mask=False)
    config = layer.get_config() | options
    tokens, following = model.inputs
    again = type(layer).from_config(config)(model.get_layer("hidden").output, following)
    model = keras.Model([tokens, following], again)
    model.compile(LazyAdam(0.01), loss=output_as_loss, run_eagerly=True)
    x, y = planted()
    return model, x, np.maximum(y, 0)


@pytest.mark.parametrize(
    "name", ["softmax", *(pytest.param(n, marks=pytest.mark.slow) for n in ("classes", "samples"))]
)
def test_the_layer_measures_perplexity_and_accuracy(name):
    model, x, y = compiled(name, metrics=["perplexity", "accuracy"])
    shown = model.fit([x, y], y, validation_data=([x, y], y), epochs=1, batch_size=20, verbose=0)
    logs = {key: values[-1] for key, values in shown.history.items()}
    layer = model.layers[-1]
    hidden = keras.Model(model.inputs[0], layer.input[0])(x)
    hits = layer.top_k(hidden, 1)[0][..., 0] == y
    assert logs["val_accuracy"] == pytest.approx(hits.mean()) and np.isnan(logs["accuracy"])
    losses = model([x, y]).numpy()
    assert logs["val_perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-4)
    if name == "samples":
        assert np.isnan(logs["perplexity"])  # its loss is an estimate
    else:
        assert logs["perplexity"] == pytest.approx(np.exp(logs["loss"]), rel=0.05)


@pytest.mark.parametrize("name", [SAMPLED[0], pytest.param(SAMPLED[1], marks=pytest.mark.slow)])
def test_a_sampled_loss_of_evaluation_is_that_of_training(name):
    model, x, y = compiled(name, evaluation="sampled", metrics=["sampled_loss"])
    layer = model.layers[-1]
    found = [model.evaluate([x, y], y, batch_size=30, verbose=0) for _ in range(2)]
    assert found[0] == found[1] and found[0][0] == pytest.approx(found[0][1], rel=1e-5)
    assert layer._seeds.state.numpy().tolist() == [layer.seed, 0]  # evaluation draws on its own
    trained = np.mean([model([x, y], training=True).numpy().mean() for _ in range(20)])
    assert found[0][0] == pytest.approx(trained, rel=0.1)
    hidden = vectors()
    exact = built(name)
    exact.set_weights([np.ones_like(w) for w in exact.get_weights()])
    config = exact.get_config() | {"evaluation": "sampled"}
    other = type(exact).from_config(config)
    other.build((None, DIM))
    other.set_weights(exact.get_weights())
    np.testing.assert_array_equal(
        other.log_probability(hidden, words()), exact.log_probability(hidden, words())
    )
    model, x, y = compiled(name, metrics=["sampled_loss", "perplexity"])
    loss, sampled, perplexity = model.evaluate([x, y], y, batch_size=30, verbose=0)
    assert perplexity == pytest.approx(np.exp(loss), rel=1e-4)
    assert sampled == pytest.approx(found[0][0], rel=1e-4)


def own(targets, output):
    return output


@pytest.fixture(scope="module")
def to_classes():
    return compiled("classes")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": ["accuracy"]}, r"out: metrics=\['accuracy'\] compares"),
        ({"weighted_metrics": ["acc"]}, r"out: metrics=\['acc'\] compares"),
        ({"metrics": {"out": keras.metrics.TopKCategoricalAccuracy()}}, "out: metrics=.* compares"),
        ({"metrics": [keras.metrics.sparse_categorical_accuracy]}, "out: metrics=.* compares"),
        ({"loss": "sparse_categorical_crossentropy"}, "out: loss='sparse_.* compares .*as_loss"),
        ({"loss": keras.losses.MeanSquaredError()}, "out: loss=.* compares .*output_as_loss"),
        ({"metrics": [own, keras.metrics.MeanMetricWrapper(own, name="mean")]}, None),
    ],
)
def test_what_compares_the_output_with_classes_is_refused_by_name(to_classes, given, message):
    model, x, y = to_classes
    model.compile(LazyAdam(0.01), **{"loss": output_as_loss, "run_eagerly": True} | given)
    for run in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
        options = {"verbose": 0} if run in (model.fit, model.evaluate) else {}
        if message is None:
            model.evaluate([x, y], y, verbose=0)
            return
        with pytest.raises(ValueError, match=message):
            run([x, y], y, **options)


@pytest.mark.parametrize("name", ["softmax", *(n for n in SELDOM if "softmax" not in n.values)])
@pytest.mark.parametrize("run", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_batches_without_y_are_refused_with_what_to_give(name, run):
    model, _, _ = make_model(name, SGD(0.1), run_eagerly=run == "evaluate")
    x, y = planted()
    with pytest.raises(ValueError, match=r"out: the batches have no y, .*fit\(\[x, y\], y\)"):
        getattr(model, run)([x, y])
    model.predict([x, y], verbose=0)  # needs none


@every
@pytest.mark.parametrize("targets", [(), (None,)])
def test_missing_targets_are_named(name, targets):
    with pytest.raises(ValueError, match=r"the targets are missing; .*fit\(\[x, y\], y\)"):
        LAYERS[name]()(vectors(), *targets)


def test_a_loss_of_ones_own_needs_no_y():
    class OwnLoss(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, *_, **options):
            return tf.reduce_mean(y_pred)

    model, _, _ = make_model("softmax", SGD(0.1))
    own = OwnLoss(model.inputs, model.outputs)
    own.compile(SGD(0.1), loss=output_as_loss, run_eagerly=True)
    x, y = planted()
    assert own.train_on_batch([x, y]) > 0


# A large table is updated block by block.


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr(softmax_gradients, "_STREAMED_BYTES", 0)


def trained(model, steps=2):
    x, y = planted()
    for _ in range(steps):
        model.train_on_batch([x, y], y)
    return model.get_weights()


@pytest.mark.parametrize(
    ("name", "kind", "optimizer"),
    [
        ("softmax", "device", LazyAdam),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("classes of classes", "file", RowwiseAdagrad),
                # Gradients of 1e-10 differ in their last bits between a graph and eager mode.
                ("classes", "host", functools.partial(LazyAdam, epsilon=1e-3)),
                ("adaptive", "sharded", SGD),
                ("tree", "device", functools.partial(LazyAdam, epsilon=1e-3)),
            )
        ),
    ],
)
def test_a_table_in_blocks_is_updated_as_by_a_whole_gradient(
    name, kind, optimizer, tmp_path, monkeypatch
):
    # Eagerly: the same numbers, without a second graph.
    expected = trained(make_model(name, optimizer(0.1), run_eagerly=True)[0])
    monkeypatch.setattr(softmax_gradients, "_STREAMED_BYTES", 0)
    # Who reads the gradient as a whole would make it.
    monkeypatch.setattr(Streamed, "_merged", None)
    visits = []
    visited = softmax_gradients.Streamed.__init__
    monkeypatch.setattr(Streamed, "__init__", lambda *a: visits.append(a) or visited(*a))
    found = trained(make_model(name, optimizer(0.1), options=place(kind, tmp_path))[0])
    assert visits
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", "file"])
def test_rows_in_blocks_are_rounded_at_random_and_right_on_average(kind, streamed, tmp_path):
    options = place(kind, tmp_path) | {"dtype": "bfloat16"}
    means = []
    for rounding in ("nearest", "stochastic"):
        model, _, layer = make_model("softmax", SGD(0.02, rounding=rounding), options=options)
        layer.set_weights([np.ones((WORDS, 2 * DIM + 1))])  # a step is less than half a digit
        trained(model, 20)
        means.append(layer.get_weights()[0].astype("f")[:, -1])
        options |= place(kind, tmp_path, 1)
    assert (means[0] == 1).all() and (means[1] != 1).any() and len(set(means[1])) > 1


def test_a_layer_that_is_called_twice_has_its_gradients_added(streamed, monkeypatch):
    def twice(**compiled):
        tokens, following = (keras.Input((None,), dtype="int32") for _ in range(2))
        layer = Softmax(WORDS, name="out")
        hidden = RowEmbedding(WORDS, DIM, "ones", name="words")(tokens)
        losses = layer(hidden, following % WORDS) + 2 * layer(3 * hidden, following % WORDS)
        model = keras.Model([tokens, following], losses)
        model.compile(SGD(0.1), loss=output_as_loss, **compiled)
        return trained(model, 1)

    found = twice()
    monkeypatch.setattr(softmax_gradients, "_STREAMED_BYTES", 1 << 30)
    for ours, theirs in zip(found, twice(run_eagerly=True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clipnorm": 0.01}, "clipnorm"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ({"global_clipnorm": 0.01}, "global_clipnorm"),
                ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
                (None, "LossScaleOptimizer"),
            )
        ),
    ],
)
def test_an_optimizer_that_needs_whole_gradients_says_so(options, reason, monkeypatch):
    def make(**compiled):
        optimizer = SGD(0.1, **options or {})
        optimizer = optimizer if options else LossScaleOptimizer(optimizer)
        return make_model("softmax", optimizer, **compiled)[0]

    expected = trained(make(run_eagerly=True))
    monkeypatch.setattr(softmax_gradients, "_STREAMED_BYTES", 0)
    with pytest.warns(UserWarning, match=f"out/output: {reason} needs the gradients of all rows"):
        found = trained(make())
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


# The rows in another place, or those of an embedding.


def place(kind, folder, number=0):
    return {"table": kind} | (
        {"table_file": str(folder / f"{number}.rows")} if kind == "file" else {}
    )


def state(model):
    return [v.numpy().tobytes() for v in (*model.weights, *model.optimizer.variables)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(n, k, marks=[] if (n, k) == ("samples", "host") else pytest.mark.slow)
        for n in LAYERS
        for k in ("host", "file", "sharded")
    ],
)
def test_a_table_of_every_kind_trains_as_one_of_the_device(name, kind, tmp_path):
    x, y = planted()
    models = []
    for each in ("device", kind):
        options = place(each, tmp_path)
        model, predictor, layer = make_model(name, LazyAdam(0.1), options=options)
        model.train_on_batch([x, y], y)
        models.append(model)
    device, ours = models
    assert state(ours) == state(device) and layer.count_params() > WORDS
    ids, log_p = layer.top_k(predictor(x), 3)
    expected = device.get_layer("out").top_k(predictor(x), 3)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(log_p, expected[1])
    assert ours.evaluate([x, y], y, verbose=0) == device.evaluate([x, y], y, verbose=0)
    save_model(ours, tmp_path / "model.keras")
    for other in (load_model(tmp_path / "model.keras"), keras.models.clone_model(ours)):
        out = other.get_layer("out")
        assert out.table == kind and (kind != "file" or out.table_file != layer.table_file)
    assert state(load_model(tmp_path / "model.keras")) == state(device)
    tf.train.Checkpoint(ours).write(str(tmp_path / "at"))
    device.set_weights([0 * w for w in device.get_weights()])
    tf.train.Checkpoint(device).read(str(tmp_path / "at")).assert_consumed()
    for model in (ours, device):
        draw_again(model.get_layer("out"))
        model.train_on_batch([x, y], y)
    assert state(ours) == state(device)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_a_loss_scale_reaches_no_row_in_another_place(name, tmp_path):
    x, y = planted()
    states = []
    for kind in ("device", "host", "file", "sharded"):
        with dtype_policy("mixed_float16"):
            model, _, _ = make_model(name, SGD(0.1), options=place(kind, tmp_path))
            for _ in range(2):
                model.train_on_batch([x, y], y)
        assert type(model.optimizer) is LossScaleOptimizer
        states.append(state(model))
    assert all(each == states[0] for each in states)


@pytest.mark.parametrize("kind", ["file", pytest.param("sharded", marks=pytest.mark.slow)])
def test_the_losses_of_steps_on_a_table_elsewhere_are_those_before_each_update(kind, tmp_path):
    x, y = planted()
    x, y = x[:8], y[:8] % WORDS
    ends = []
    for each in ("device", kind):
        model, _, _ = make_model("softmax", SGD(1.0), mask=False, options=place(each, tmp_path))
        ends.append([[model.train_on_batch([x, y], y) for _ in range(4)], state(model)])
    assert ends[0] == ends[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "file"])
@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_another_place_has_the_precision_and_can_be_frozen(kind, policy, tmp_path):
    x, y = planted()
    with dtype_policy(policy):
        model, _, layer = make_model("classes", LazyAdam(0.1), options=place(kind, tmp_path))
    assert layer.weights[0].dtype == ("bfloat16" if policy == "bfloat16" else "float32")
    losses = [model.train_on_batch([x, y], y) for _ in range(4)]
    assert losses[-1] < losses[0] - 0.3
    layer.trainable = False
    model.compile(LazyAdam(0.1), loss=output_as_loss)
    before = layer.get_weights()
    model.train_on_batch([x, y], y)
    for now, was in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, was)


def test_a_layer_that_was_frozen_when_it_was_built_can_be_trained():
    layer = built("samples", table="host", trainable=False)
    assert not layer.trainable_variables
    layer.trainable = True
    assert len(layer.trainable_variables) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "file", "sharded"])
def test_an_export_has_the_rows_of_another_place(kind, tmp_path):
    model, _, _ = make_model("classes", LazyAdam(0.1), mask=False, options=place(kind, tmp_path))
    x, y = planted()
    y %= WORDS
    model.train_on_batch([x, y], y)
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(loaded.serve([x, y]), model([x, y]), atol=1e-6)


def embedding(kind="device", folder=None, rows=WORDS + 2):
    return RowEmbedding(rows, DIM, "normal", mask_zero=True, name="words", table=kind)


@pytest.mark.parametrize(
    ("name", "use_bias", "kind"),
    [("softmax", True, "device"), ("classes", True, "host"), ("samples", False, "host")],
)
def test_tied_rows_are_those_of_the_embedding(name, use_bias, kind):
    table = embedding(kind)
    layer = LAYERS[name](name="out", tied_to=table, use_bias=use_bias)
    untied, x, y = LAYERS[name](use_bias=use_bias), vectors(), words()
    for each in (layer, untied):
        each.build((None, DIM))
    random = np.random.default_rng(3)
    layer.set_weights([random.normal(size=w.shape) for w in layer.get_weights()])
    order = np.argsort(-COUNTS, kind="stable") if name != "softmax" else np.arange(WORDS)
    rows = table.get_weights()[0][order]
    if use_bias:
        rows = np.concatenate([rows, layer._tables["bias"].numpy()[order]], axis=1)
    own = [layer._tables[n].numpy() for n in layer._tables if n != "bias"]
    untied.set_weights([rows, *own])
    np.testing.assert_array_equal(layer.top_k(x, 5)[0], untied.top_k(x, 5)[0])
    np.testing.assert_allclose(layer.log_probability(x, y), untied.log_probability(x, y), atol=1e-6)
    by_hidden, by_tables = gradients(untied, x, y, 1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        draw_again(layer)
        loss = tf.reduce_sum(layer(x, y, training=True))
    found, by_words, *by_own = tape.gradient(loss, [x, *table.weights, *layer.trainable_weights])
    assert isinstance(by_words, tf.IndexedSlices), "not a product over the whole table"
    np.testing.assert_allclose(found, by_hidden, atol=1e-5)
    own = {
        w.name: tf.convert_to_tensor(g).numpy() for w, g in zip(layer.weights, by_own, strict=True)
    }
    whole = tf.math.unsorted_segment_sum(by_words.values, by_words.indices, WORDS + 2).numpy()
    whole = np.concatenate([whole[:WORDS], *([own.pop("bias")] if use_bias else [])], axis=1)
    for ours, theirs in zip([whole[order], *own.values()], by_tables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("kind", ["device", pytest.param("host", marks=pytest.mark.slow)])
@pytest.mark.parametrize("given", ["name", pytest.param("layer", marks=pytest.mark.slow)])
def test_a_tied_model_trains_as_a_dense_product_and_keeps_its_tie(given, kind, tmp_path):
    x, y = planted()
    words = embedding(kind)
    tied = {"tied_to": words if given == "layer" else "words"}
    model, _, _ = make_model("softmax", SGD(0.5), options=tied, words=words)
    keras.utils.set_random_seed(0)
    kernel, bias = model.get_layer("hidden").get_weights()
    weights = [tf.Variable(w) for w in (words.get_weights()[0], kernel, bias, np.zeros(WORDS, "f"))]
    for _ in range(2):
        with tf.GradientTape() as tape:
            rows, kernel, bias, biases = map(tf.convert_to_tensor, weights)
            logits = tf.tanh(tf.gather(rows, x) @ kernel + bias) @ tf.transpose(rows[:WORDS])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                np.maximum(y, 0), logits + biases
            )
            loss = tf.reduce_mean(tf.boolean_mask(losses, x != 0))
        for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.5 * slope)
        assert model.train_on_batch([x, y], y) == pytest.approx(float(loss), rel=1e-5)
    np.testing.assert_allclose(words.get_weights()[0], weights[0], atol=1e-5)
    assert model.count_params() == sum(np.size(w) for w in weights)  # the rows count once
    save_model(model, tmp_path / "model.keras")
    for other in (load_model(tmp_path / "model.keras"), keras.models.clone_model(model)):
        assert other.get_layer("out")._tied.rows() is other.get_layer("words")._embeddings
        other.set_weights(model.get_weights())
        np.testing.assert_array_equal(other([x, y]), model([x, y]))


def test_a_tied_step_changes_the_rows_that_it_reads():
    words = RowEmbedding(3000, DIM, mask_zero=True, name="words")
    layer = SampledSoftmax(3000, samples=5, seed=1, tied_to=words)
    tokens, following = keras.Input((6,), dtype="int32"), keras.Input((6,), dtype="int32")
    model = keras.Model([tokens, following], layer(words(tokens), following))
    model.compile(LazyAdam(0.1), loss=output_as_loss)
    x, y = planted()
    (before,) = words.get_weights()
    model.train_on_batch([x, y], y)
    changed = (words.get_weights()[0] != before).any(axis=1)
    read = np.union1d(x[x > 0], y[y >= 0])
    assert changed[read].all() and len(read) <= changed.sum() <= len(read) + 5


@pytest.mark.slow
def test_the_cache_of_a_tied_embedding_changes_no_number(far_host):
    x, y = planted()
    batches = tf.data.Dataset.from_tensor_slices(((x, y), y)).batch(10)
    states = []
    for options in ({}, {"table": "host", "hot_rows": 30}):
        words = RowEmbedding(WORDS, DIM, "ones", mask_zero=True, name="words", **options)
        layer = {"tied_to": words, "metrics": ["perplexity"]}
        model, _, layer = make_model("samples", LazyAdam(0.1), options=layer, words=words)
        model.fit(prefetch_rows(batches, model), epochs=2, shuffle=False, verbose=0)
        states.append(state(model))
    assert states[0] == states[1]


@pytest.mark.usefixtures("far_host")
@pytest.mark.parametrize(
    "name",
    ["samples", *(pytest.param(n, marks=pytest.mark.slow) for n in LAYERS if n != "samples")],
)
@pytest.mark.parametrize("options", [{"hot_rows": 9}, {}])
@pytest.mark.parametrize("call", ["__call__", "log_probability"])
def test_xla_reads_no_rows_that_are_not_on_the_device(name, options, call):
    if ties := LAYERS[name](metrics=["perplexity"])._can_be_tied:
        words_of = RowEmbedding(WORDS, DIM, name="words", table="host", **options)
        layer = LAYERS[name](name="out", tied_to=words_of)
        match = "XLA cannot compile look-ups in tied_to='words', which has table='host'"
        match += " and hot_rows=9;" if options else "; leave out jit_compile"
    if not ties or not options:
        layer, match = LAYERS[name](name="out", table="host"), "out: XLA cannot compile look-ups"
    layer.build((None, DIM))
    run = tf.function(getattr(layer, call), autograph=False, jit_compile=True)
    with pytest.raises(ValueError, match=match):
        run(vectors(), words())


def test_xla_compiles_no_search_for_the_likeliest_words():
    layer = built("samples")
    run = tf.function(layer.top_k, autograph=False, jit_compile=True)
    with pytest.raises(ValueError, match="XLA cannot compile top_k, .*; leave out jit_comp"):
        run(vectors(), 3)


def test_a_pipeline_that_calls_the_model_for_its_ids_reads_no_output_rows():
    layer = built("classes", table="host", metrics=["perplexity", "accuracy"])
    with record_ids() as recorded:
        found = layer(vectors(), words())
    np.testing.assert_array_equal(found, np.zeros((3, 4)))
    assert recorded == [] and all(float(mean.count) == 0 for mean in layer._means)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ClassSoftmax(4, table="disk"), "table='disk'; give one of device, host, file, sh"),
        (lambda: ClassSoftmax(4, table="file"), "table='file' and table_file=None; name a file"),
        (lambda: HierarchicalSoftmax(4, tied_to="words"), "tied_to is given, and Hierarchical"),
        (lambda: AdaptiveSoftmax(9, tied_to=embedding()), "tied_to is given, and AdaptiveSoftmax"),
        (lambda: Softmax(4, tied_to=keras.layers.Dense(2, name="d")), "tied_to='d' is a Dense; gi"),
        (lambda: Softmax(99, tied_to=embedding()), "'words' has 42 rows, fewer than the 99 words"),
        (
            lambda: Softmax(40, tied_to=embedding(), name="out").build((None, 5)),
            "out: the hidden vectors have 5 numbers, and the rows of words have 6; put",
        ),
        (lambda: built("softmax", tied_to="word")(vectors(), words()), "no layer 'word' is before"),
    ],
)
def test_a_place_or_a_tie_that_cannot_be(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def two_towers(tie, names=("words", "words")):
    """Hidden vectors of one embedding; the layer is tied to another, in a branch of its own."""
    first, other = (RowEmbedding(WORDS, DIM, name=name) for name in names)
    tokens, following = keras.Input((6,), dtype="int32"), keras.Input((6,), dtype="int32")
    hidden = keras.Model(tokens, first(tokens), name="one")(tokens)
    if tie == "both":
        hidden += keras.Model(tokens, other(tokens), name="two")(tokens)
    Softmax(WORDS, name="out", tied_to=other)(hidden, following)


@pytest.mark.parametrize(
    ("tie", "names", "match"),
    [
        ("both", ("words", "words"), "out: 2 layers before this one have the name of tied_to='wor"),
        (
            "one",
            ("first", "words"),
            "out: tied_to='words' is no layer that the hidden vectors come",
        ),
        (
            "one",
            ("words", "words"),
            "out: tied_to='words' is no layer that the hidden vectors come",
        ),
    ],
)
def test_a_tie_that_a_saved_model_would_lose(tie, names, match):
    with pytest.raises(ValueError, match=match):
        two_towers(tie, names)


def test_a_tied_embedding_gets_no_lora_later():
    table = RowEmbedding(WORDS, DIM, name="words")
    layer = Softmax(WORDS, name="out", tied_to=table)
    layer.build((None, DIM))
    table.enable_lora(2)
    with pytest.raises(ValueError, match="out: tied_to='words' has LoRA; leave out one"):
        layer.log_probability(vectors(), words())


def call(layer, hidden, targets):
    return layer(hidden, targets)


@pytest.mark.parametrize("tied", [False, True])
def test_a_step_of_ones_own_logs_nothing_of_the_layer(tied, caplog):
    layer = Softmax(WORDS, **({"tied_to": embedding()} if tied else {}))
    tf.function(call)(layer, tf.zeros([2, DIM]), tf.zeros([2], tf.int32))
    assert "AutoGraph" not in caplog.text


class OfHidden(keras.Model):
    """A model that is given hidden vectors, and does not call the embedding of its output layer."""

    def __init__(self, words, has_words):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(DIM), Softmax(WORDS, tied_to=words, name="out")
        self.words = words if has_words else None
        self.compile(SGD(0.1), loss=output_as_loss, run_eagerly=True)

    def call(self, inputs):
        return self.out(self.hidden(inputs[0]), inputs[1])


def test_rows_that_a_model_would_not_train_are_refused():
    x, y = vectors((8,)).numpy(), words((8,))
    table = RowEmbedding(WORDS, DIM, name="words")
    with pytest.raises(ValueError, match="tied_to='words' is no layer of of_hidden.*attribute"):
        OfHidden(table, has_words=False).train_on_batch([x, y], y)
    (before,) = table.get_weights()
    OfHidden(table, has_words=True).train_on_batch([x, y], y)
    assert not np.array_equal(table.get_weights()[0], before)
    table.trainable = False
    OfHidden(table, has_words=False).train_on_batch([x, y], y)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_deep_copy_of_a_tied_layer_is_tied_to_what_is_copied_with_it(is_first):
    table = RowEmbedding(WORDS, DIM, name="words")
    layer = Softmax(WORDS, tied_to=table)
    expected = layer(vectors(), words())
    alone = copy.deepcopy(layer)
    pair = copy.deepcopy([layer, table] if is_first else [table, layer])
    both, other = pair if is_first else reversed(pair)
    other.set_weights([0 * other.get_weights()[0]])
    np.testing.assert_allclose(both(vectors(), words()), np.log(WORDS), rtol=1e-5)
    np.testing.assert_array_equal(alone(vectors(), words()), expected)
    table.set_weights([0 * table.get_weights()[0]])
    np.testing.assert_allclose(alone(vectors(), words()), np.log(WORDS), rtol=1e-5)
