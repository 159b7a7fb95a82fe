"""What models with layers and optimizers of lexrow.keras would do on a GPU."""

import keras
import pytest
import tensorflow as tf

import app.keras
from app.keras import LazyAdam, LossScaleOptimizer
from app.tables.cached import cached_rows_only
from app.tables.device import ON_HOST
from tests.integration.gpu_jobs import GPU, JOINED, check, report_of
from tests.keras.softmax_models import LAYERS, SAMPLED, built, make_model, vectors, words
from tests.reference.gpu import DEVICE, LOOP
from tests.reference.gpu_calls import recorded

REFUSED = ("If", "SelectV2")  # of the branch that refuses an id out of range
# The update is in a branch, taken if gradients are finite, and so is a new scale.
SCALED = {("All", "If"), ("Equal", "If")}
# Under a mask, which words of the tree are real, how many they are, and the loss of each.
WEIGHTS = {("OnesLike", "Reshape")}
SEED = ("Mul", "StatelessRandomGetKeyCounter")  # Keras keeps its seed on the device
# The shape of the gradient of words that a mask chooses.
CHOSEN = ("DynamicStitch", "Reshape")
OTHERS = ("LazyAdamW", "Adagrad", "RowwiseAdagrad", "Ftrl", "SGD")


def embedded(optimizer, **options) -> keras.Model:
    inputs = keras.Input((5,), dtype="int32")
    rows = keras.layers.Flatten()(app.keras.RowEmbedding(50, 8, **options)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(rows))
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def in_host_memory(model) -> list[tf.Variable]:
    table = model.layers[1].embeddings.table
    parts = [table, *table.slots.values()]
    return [table._positions_V.read(), table._writes, *(part.backing.values for part in parts)]


def trained(model, on_cpu=()):
    batch = tf.TensorSpec([16, 5], tf.int32), tf.TensorSpec([16, 3], tf.float32)
    return report_of(lambda x, y: model.train_step((x, y)), *batch, on_cpu=on_cpu)


@pytest.mark.parametrize(
    "name", ["LazyAdam", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_step_of_a_keras_model(name):
    check(trained(embedded(getattr(app.keras, name)(0.1))), {REFUSED})


@pytest.mark.slow
@pytest.mark.usefixtures("far_host")
def test_a_step_waits_for_rows_only_if_it_writes_rows_that_are_not_cached():
    model = embedded(LazyAdam(0.1), table="host", hot_rows=20)
    model.optimizer.build(model.trainable_variables)
    on_cpu = in_host_memory(model)
    check(trained(model, on_cpu), {REFUSED, ("GatherV2", "ResourceScatterUpdate")})
    with cached_rows_only():
        step = tf.function(lambda x, y: model.train_step((x, y)), jit_compile=True, autograph=False)
        batch = tf.TensorSpec([16, 5], tf.int32), tf.TensorSpec([16, 3], tf.float32)
        report = report_of(step, *batch, on_cpu=on_cpu)
    copied = [(copy.value.made_by, copy.to) for copy in report.copies]
    assert not report.lacking and len(report.compiled) == 1
    assert copied == 2 * [("argument", DEVICE)]  # the batch


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)
@pytest.mark.parametrize("name", ["LazyAdam", *OTHERS])
def test_a_step_with_a_loss_scale(policy, name):
    made = getattr(app.keras, name)
    for scale in (LossScaleOptimizer, keras.optimizers.LossScaleOptimizer):
        check(trained(embedded(scale(made(0.1)))), {REFUSED, *SCALED})


@pytest.mark.parametrize(
    "name", ["LazyAdam", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
@pytest.mark.parametrize("layer", [app.keras.RowEmbedding, app.keras.RowEmbeddingReduce])
def test_a_compiled_step_has_no_loop_and_no_sort(layer, name):
    inputs = keras.Input((5,), dtype="int32")
    rows = keras.layers.Flatten()(layer(50, 8)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(rows))
    model.compile(getattr(app.keras, name)(0.1, global_clipnorm=1.0), "mse", jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False, jit_compile=True)
    batch = tf.zeros([16, 5], tf.int32), tf.zeros([16, 3])
    hlo = step.experimental_get_compiler_ir(*batch)(stage="hlo")
    assert "scatter(" in hlo and LOOP not in hlo and " sort(" not in hlo


SPEC = tf.TensorSpec([4, 6], tf.int32)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in LAYERS if name != "samples"]
CLASSES = ("classes", "classes of classes", "adaptive")
# What a step waits for, then a prediction; and what they wait for besides with a mask.
PLAIN = {n: ({JOINED}, {JOINED}) for n in CLASSES} | {n: ({SEED}, set()) for n in SAMPLED}
MASKED = {
    "softmax": ({JOINED}, {JOINED}),
    "tree": (WEIGHTS | {("StridedSlice", "Reshape")}, WEIGHTS),
    **{name: ({CHOSEN}, {JOINED}) for name in SAMPLED},
}
NONE = set(), set()


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("name", ["samples", *SLOW])
def test_an_output_layer(name, mask):
    model, _, layer = make_model(name, LazyAdam(0.1), mask, jit_compile=False)
    on_cpu = [variable for variable in layer._made if ON_HOST in variable.name]
    more = MASKED.get(name, NONE) if mask else NONE
    runs = [lambda x, y: model.train_step(((x, y), y)), lambda x, y: model.predict_step(((x, y),))]
    for run, usual, masked in zip(runs, PLAIN.get(name, NONE), more, strict=True):
        report = report_of(run, SPEC, SPEC, on_cpu=on_cpu)
        check(report, {REFUSED} | usual | masked)


@pytest.mark.parametrize("name", ["samples", *SLOW])
def test_the_likeliest_words(name, monkeypatch):
    layer = built(name)
    with tf.device(GPU), recorded(monkeypatch) as calls:
        layer.top_k(vectors(), 4)
        layer.log_probability(vectors(), words())
    assert calls.operations and not calls.lacking
