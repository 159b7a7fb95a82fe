"""A small language model against the same in numpy, a token at a time."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from app.input.token_rows import PAD
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.sampled_losses import SampledSoftmax
from app.models.language_model import LanguageModel, gru, lstm, run_cell
from app.optimizers.adagrad import adagrad
from app.optimizers.sgd import sgd
from app.tables.device import DeviceTable
from app.tables.row_reads import gather_unique
from app.training.step import train_function, train_step
from app.types import Batch
from tests.reference.dense_optimizers import apply_adagrad

SIZE, DIM, UNITS, STREAMS, STEPS = 7, 3, 4, 2, 3
CELLS = {"gru": gru, "lstm": lstm}
# Two rows that go on, with an end in the second; then one stream anew, and one that is over.
FIRST = [[~6, 1, 2, 3], [~3, 4, 5, PAD]]
SECOND = [[3, 0, 6, 2], [PAD] * 4]
THIRD = [[~0, 1, 1, 1], [~1, 2, PAD, PAD]]


class Trained:
    """A model of random rows, and its steps."""

    def __init__(self, cell="gru", rate=0.0, dropout=0.0):
        output = ClassSoftmax(SIZE, UNITS + 1)
        self.model = LanguageModel(
            SIZE, DIM, CELLS[cell](), UNITS, STREAMS, output, {}, seed=3, dropout=dropout
        )
        self.rate = rate
        draw = np.random.default_rng(0)
        self.tables = {}
        for name, spec in self.model.tables().items():
            self.tables[name] = DeviceTable(spec.rows, spec.columns, tf.zeros)
            if spec.trained:
                shape = (spec.rows, spec.columns)
                self.tables[name].values.assign(draw.normal(size=shape).astype(np.float32))

    def train(self, *batches):
        """The losses of steps, and how many tokens were predicted in them."""

        @tf.function(autograph=False)
        def train(tokens_BL):
            batch = Batch(tokens_BL, tf.constant([1, 1], tf.int64))
            rate, number = tf.constant(self.rate), tf.constant(1, tf.int64)
            return train_step(self.model, self.tables, sgd(), [batch], rate, number)

        signature = tf.TensorSpec([STREAMS, STEPS + 1], tf.int32)
        made = train.get_concrete_function(signature)
        return [tuple(map(float, made(tf.constant(tokens, tf.int32)))) for tokens in batches]

    def values(self):
        return {
            name: table.values.numpy().astype(np.float64) for name, table in self.tables.items()
        }


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def after(cell, values, vector, state):
    """The state after a word vector, as the papers have it; Keras' order of the gates."""
    product = vector @ values["kernel"] + values["bias"][0]
    if cell == "lstm":
        output, memory = np.split(state, 2)
        i, f, c, o = np.split(product + output @ values["recurrent"], 4)
        memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(c)
        return np.concatenate([sigmoid(o) * np.tanh(memory), memory])
    inner = np.split(state @ values["recurrent"] + values["bias"][1], 3)
    update, reset, candidate = np.split(product, 3)
    update, reset = sigmoid(update + inner[0]), sigmoid(reset + inner[1])
    return update * state + (1 - update) * np.tanh(candidate + reset * inner[2])


def factors(share, columns, stream):
    """The factors of dropout: of each step of each stream, columns numbers."""
    seed = [1 + (stream << 40), 1]
    drawn = tf.random.stateless_uniform((STEPS * STREAMS * columns,), seed).numpy()
    return np.reshape(drawn >= share, (STEPS, STREAMS, columns)) / (1 - share)


def expected(cell, values, batches, share=0.0):
    """The loss and the tokens of each batch, and the states in the end."""
    inputs, outputs = factors(share, DIM, 8), factors(share, UNITS, 9)
    states = [np.zeros(UNITS * (2 if cell == "lstm" else 1)) for _ in range(STREAMS)]
    found = []
    for batch in batches:
        total = count = 0
        for stream, tokens in enumerate(batch):
            if tokens[0] < 0:
                states[stream] = np.zeros_like(states[stream])
            ids = [~token if token < 0 else token for token in tokens]
            for step, (before, target) in enumerate(zip(ids, ids[1:], strict=False)):
                if target == PAD:
                    break
                vector = values["input"][before] * inputs[step, stream]
                states[stream] = after(cell, values, vector, states[stream])
                hidden = np.append(states[stream][:UNITS] * outputs[step, stream], 1)
                scores = values["output"] @ hidden
                total += np.log(np.exp(scores).sum()) - scores[target]
                count += 1
        found.append((total, count))
    return found, states


@pytest.mark.parametrize(
    ("cell", "dropout"), [("lstm", 0.4), pytest.param("gru", 0.0, marks=pytest.mark.slow)]
)
def test_losses_are_those_of_a_model_that_reads_token_by_token(cell, dropout):
    trained = Trained(cell, dropout=dropout)
    values = trained.values()
    batches = (FIRST, SECOND, THIRD)
    found = trained.train(*batches)
    losses, states = expected(cell, values, batches, dropout)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert [count for _, count in found] == [5, 3, 4]
    # The state of the stream without padding is what the next batch begins with.
    np.testing.assert_allclose(trained.tables["state"].values[0], states[0], rtol=1e-4, atol=1e-6)


def test_nothing_is_dropped_but_in_training():
    trained = Trained(dropout=0.9)
    (expected_loss, _), *_ = expected("gru", trained.values(), [FIRST])[0]
    rows = gather_unique(
        trained.model.input_lookups(tf.constant(FIRST)),
        lambda name, ids: trained.tables[name].gather(ids),
    )
    state = tf.zeros([STREAMS, UNITS])
    predictions, _ = trained.model.predictions(tf.constant(FIRST), rows, state)
    scores = predictions.hidden_GND[:, 0] @ tf.transpose(trained.tables["output"].values)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.maximum(predictions.targets_GM[:, 0], 0), scores
    )
    found = tf.reduce_sum(losses * predictions.weights_GNM[:, 0, 0])
    np.testing.assert_allclose(found, expected_loss, rtol=1e-5)


WORDS = 20  # more than a step has inputs
TIED = {
    "softmax": lambda: ClassSoftmax(WORDS, UNITS + 1),
    "classes": lambda: ClassSoftmax(WORDS, UNITS + 1, [np.array([0, 2, WORDS])]),
    "samples": lambda: SampledSoftmax(np.arange(WORDS, 0, -1), UNITS + 1, 9, "log_uniform"),
}


@pytest.mark.parametrize(
    ("loss", "micro", "by_xla"),
    [
        ("samples", 1, False),
        ("classes", 1, False),
        *(
            pytest.param(loss, micro, by_xla, marks=pytest.mark.slow)
            for loss in TIED
            for micro, by_xla in [(1, True), (2, False), (2, True)]
        ),
        pytest.param("softmax", 1, False, marks=pytest.mark.slow),
    ],
)
def test_a_tied_step_is_one_of_dense_adagrad_by_both_gradients(loss, micro, by_xla):
    """The gradients are those of a model with two tables of equal rows: SGD subtracts them."""
    # Some words are inputs and targets, several times.
    tokens = tf.constant([[[~6, 1, 1, 3, 6], [3, 4, 1, 6, PAD]]], tf.int32)
    draw, rows, moved = np.random.default_rng(0), {}, {}
    for tied, optimizer in ((False, sgd()), (True, adagrad(0.01))):
        model = LanguageModel(
            *(WORDS, UNITS, gru(), UNITS, STREAMS // micro, TIED[loss](), {}),
            seed=3, micro_batches=micro, dropout=0.3, is_tied=tied,
        )  # fmt: skip
        tables = {}
        for name, spec in model.tables().items():
            if name not in rows:
                rows[name] = draw.normal(size=(spec.rows, spec.columns)).astype(np.float32)
            tables[name] = DeviceTable(
                spec.rows, spec.columns, tf.zeros, slots=optimizer.slots if spec.trained else {}
            )
        rows["input"] = rows["output"][:, :-1]
        for name, table in tables.items():
            table.values.assign(rows[name])
        train = train_function(model, tables, optimizer, 1, micro, by_xla=by_xla)
        total, _ = train(tokens, tf.constant(0, tf.int64), tf.constant(1.0))
        assert not by_xla or train.is_by_xla
        moved[tied] = {name: rows[name] - table.values.numpy() for name, table in tables.items()}
        moved[tied]["loss"] = total
    gradients = moved[False]
    gradients["output"] = gradients["output"] + np.pad(gradients.pop("input"), [[0, 0], [0, 1]])
    np.testing.assert_allclose(moved[True].pop("loss"), gradients.pop("loss"), rtol=1e-5)
    assert moved[True].keys() == gradients.keys()
    del moved[True]["state"]
    for name, found in moved[True].items():
        parts = {"rows": tf.Variable(rows[name])}
        parts["accumulator"] = tf.Variable(tf.fill(found.shape, 0.01))
        apply_adagrad(parts, gradients[name], 1.0, step=None)
        changed = rows[name] - parts["rows"].numpy()
        np.testing.assert_allclose(found, changed, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_a_step_changes_what_it_read_and_the_gradient_is_that_of_the_whole():
    trained = Trained(rate=1e-3)
    before = trained.values()
    ((loss, _),) = trained.train(FIRST)
    after_step = trained.values()
    moved = np.flatnonzero((after_step["input"] != before["input"]).any(axis=1))
    assert moved.tolist() == [1, 2, 3, 4, 6]  # inputs; 5 is only predicted
    # A small step down the gradient takes the loss down by rate times its square.
    change = {name: after_step[name] - before[name] for name in before if name != "state"}
    square = sum((part**2).sum() for part in change.values()) / 1e-3
    ((less, _),), _ = expected("gru", after_step | {"state": before["state"]}, [FIRST])
    assert loss - less == pytest.approx(square, rel=0.05)


@pytest.mark.slow
def test_initial_values():
    model = Trained().model
    initial = {
        name: spec.initial((spec.rows, spec.columns)).numpy()
        for name, spec in model.tables().items()
    }
    recurrent_HG = initial["recurrent"]
    np.testing.assert_allclose(recurrent_HG @ recurrent_HG.T, np.eye(UNITS), atol=1e-5)
    limit = np.sqrt(6 / (DIM + 3 * UNITS))
    assert 0.8 * limit < np.abs(initial["kernel"]).max() <= limit
    assert 0.04 < np.abs(initial["input"]).max() <= 0.05
    assert not initial["bias"].any() and not initial["state"].any()
    other = LanguageModel(
        SIZE, DIM, gru(), UNITS, STREAMS, ClassSoftmax(SIZE, UNITS + 1), {}, seed=4
    )
    for name in ("input", "kernel", "recurrent"):
        shape = initial[name].shape
        assert not np.array_equal(other.tables()[name].initial(shape), initial[name])
        again = model.tables()[name].initial(shape)
        np.testing.assert_array_equal(again, initial[name])
    assert [name for name, spec in model.tables().items() if not spec.trained] == ["state"]
    prior_V = np.linspace(-3, -1, SIZE, dtype=np.float32)
    biased = dataclasses.replace(model, priors={"output": prior_V}).tables()["output"]
    output_VH = biased.initial((biased.rows, biased.columns)).numpy()
    np.testing.assert_array_equal(output_VH[:, -1], prior_V)
    assert not output_VH[:, :-1].any()


CELL_STEPS, ROWS, INPUTS, CELL_UNITS = 10, 3, 4, 6
KERAS_CELLS = {"gru": (gru, keras.layers.GRU), "lstm": (lstm, keras.layers.LSTM)}


def drawn(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("by_xla", [False, True])
def test_a_cell_has_the_outputs_the_states_and_the_gradients_of_keras(cell_name, by_xla):
    make, layer_class = KERAS_CELLS[cell_name]
    cell = make()
    columns = cell.gates * CELL_UNITS
    layer = layer_class(CELL_UNITS, return_sequences=True, return_state=True)
    layer.build((ROWS, CELL_STEPS, INPUTS))
    bias = drawn(cell.biases, columns)
    weights = [drawn(INPUTS, columns), drawn(CELL_UNITS, columns) * 0.5, np.squeeze(bias)]
    shapes = [weight.shape for weight in layer.weights]
    layer.set_weights([w.reshape(shape) for w, shape in zip(weights, shapes, strict=True)])
    inputs_BTD, state_BS = drawn(ROWS, CELL_STEPS, INPUTS), drawn(ROWS, cell.states * CELL_UNITS)

    @tf.function(autograph=False, jit_compile=by_xla)
    def run(*given):
        kernel, recurrent_kernel, biases, state_BS = given
        with tf.GradientTape() as tape:
            tape.watch(given)
            inputs_TBG = tf.einsum("btd,dg->tbg", inputs_BTD, kernel) + biases[0]
            outputs_TBH, last_BS = run_cell(
                cell, inputs_TBG, state_BS, recurrent_kernel, *tf.unstack(biases)[1:]
            )
            total = tf.reduce_sum(tf.square(outputs_TBH)) + tf.reduce_sum(tf.sin(last_BS))
        return outputs_TBH, last_BS, tape.gradient(total, given)

    outputs_TBH, last_BS, found = run(*map(tf.constant, (*weights[:2], bias, state_BS)))

    states = [tf.constant(state) for state in np.split(state_BS, cell.states, axis=1)]
    with tf.GradientTape() as tape:
        tape.watch(states)
        expected_BTH, *expected_states = layer(
            inputs_BTD, initial_state=states if cell.states > 1 else states[0]
        )
        total = tf.reduce_sum(tf.square(expected_BTH)) + tf.reduce_sum(tf.sin(expected_states))
    gradients, by_states = tape.gradient(total, [layer.trainable_variables, states])
    gradients = [*gradients, np.concatenate(by_states, axis=1)]

    np.testing.assert_allclose(outputs_TBH, tf.transpose(expected_BTH, [1, 0, 2]), atol=1e-5)
    np.testing.assert_allclose(last_BS, np.concatenate(expected_states, axis=1), atol=1e-5)
    for one, other in zip(found, gradients, strict=True):
        np.testing.assert_allclose(one, np.reshape(other, one.shape), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_gradients_replace_the_products_that_are_kept_under_xla(cell_name):
    cell, steps, units = KERAS_CELLS[cell_name][0](), 40, 64
    columns = cell.gates * units
    sizes = [steps, ROWS, columns], [ROWS, cell.states * units], [units, columns], [columns]
    given = [*map(tf.zeros, sizes)]

    @tf.function(autograph=False, jit_compile=True)
    def run(*given):
        with tf.GradientTape() as tape:
            tape.watch(given)
            outputs_TBH, _ = run_cell(cell, 2 * given[0], *given[1:])
        return tape.gradient(outputs_TBH, given)

    program = run.experimental_get_compiler_ir(*given)(stage="optimized_hlo_proto_serialized")
    buffers = hlo_pb2.HloProto.FromString(program).buffer_assignment.buffer_allocations
    temporary = max(b.size for b in buffers if not b.is_entry_computation_parameter)
    assert temporary < 3 * 4 * steps * ROWS * columns  # of the input, and the state; and the states


@pytest.fixture(params=KERAS_CELLS)
def cell_name(request):
    return request.param


def test_biases_begin_as_those_of_keras(cell_name):
    make, layer_class = KERAS_CELLS[cell_name]
    layer = layer_class(CELL_UNITS)
    layer.build((ROWS, CELL_STEPS, INPUTS))
    cell = make()
    bias = cell.bias(CELL_UNITS)
    assert bias.shape == (cell.biases, cell.gates * CELL_UNITS)
    np.testing.assert_array_equal(np.ravel(bias), np.ravel(layer.weights[2]))
