"""The recurrent language model, and its cells."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ..input.token_rows import decode
from ..losses.base import NormalizedLoss, Predictions
from ..system.loops import write_arrays
from ..system.python_functions import custom_gradient
from ..system.xla import under_xla, uniform
from ..tables.base import TableSpec
from ..tables.initial import Constant, LastColumn, Uniform
from ..tables.row_reads import take
from ..types import HOST, Batch, Rows
from .base import Outcome, apply_loss, draw_seed, initial_seed

# The largest initial number of a word vector, as in keras.layers.Embedding.
_LIMIT = 0.05


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """Word vectors, a recurrent cell, and a loss (Mikolov et al. 2010, with the cells of today).

    A batch has B rows of T + 1 tokens. Each row is the next part of one of B streams of text: T
    inputs, and the T tokens that follow them (see `input.sequences`). The state of each stream is
    carried from batch to batch in the table `state`, and is 0 where a stream begins. Gradients end
    at the beginning of a row (truncated backpropagation through time).

    The loss has H + 1 columns. A 1 is appended to the output of the cell, so each row of the loss
    has a bias. Biases start at `priors`, so that the shares of words need not be learned.

    A tied model has one row for a word, its vector and its bias, as an input and in the loss (Press
    & Wolf 2017). Then H equals D, and the loss has a table `output` with a row for each word.

    Attributes:
        size: The number of words, V.
        dim: The columns of a word vector, D.
        hidden: The units of the cell, H.
        streams: The number of streams of a batch, B.
        priors: The result of `output.priors`.
        micro_batches: The micro-batches of a step, each with B streams of its own.
        dropout: The share of the numbers of the inputs and of the outputs of the cell that a step
            of training takes as 0; none between the steps of the cell (Zaremba et al. 2014).
    """

    size: int
    dim: int
    cell: Cell
    hidden: int
    streams: int
    output: NormalizedLoss
    priors: Mapping[str, np.ndarray]
    seed: int
    dtype: tf.DType = tf.float32
    micro_batches: int = 1
    dropout: float = 0.0
    is_tied: bool = False

    @property
    def words(self) -> str:
        """The name of the table whose first D columns are the word vectors."""
        return "output" if self.is_tied else "input"

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the tables of word vectors, the cell, its states, and the loss.

        The tables of the loss start as 0, or as word vectors if these are tied, but for the biases
        of `priors`. `state` is not trained.
        """
        units, columns = self.hidden, self.cell.gates * self.hidden
        states = self.streams * self.micro_batches
        vectors = Uniform(_LIMIT, initial_seed("initial", self.seed))
        limit = math.sqrt(6 / (self.dim + columns))
        tables = {
            self.words: TableSpec(self.size, self.dim, vectors, by_frequency=True),
            # As Keras: Glorot & Bengio 2010, equation 16, and orthogonal rows (Saxe et al. 2014).
            "kernel": TableSpec(
                self.dim, columns, Uniform(limit, initial_seed("kernel", self.seed))
            ),
            "recurrent": TableSpec(units, columns, self._orthogonal),
            "bias": TableSpec(self.cell.biases, columns, lambda _: self.cell.bias(units)),
            "state": TableSpec(states, self.cell.states * units, Constant(0.0), trained=False),
            **self.output.tables(),
        }
        for name, prior in self.priors.items():
            with tf.init_scope():  # not a constant of a graph that is traced, as large as a column
                prior_V = tf.convert_to_tensor(prior)
            others = vectors if name == self.words else Constant(0.0)
            initial = LastColumn(others, prior_V)
            tables[name] = dataclasses.replace(tables[name], initial=initial)
        return tables

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the inputs, all rows of the cell's tables, the states, and the ids of the loss."""
        _, targets_N1, _ = _by_step(batch.data)
        seed = draw_seed(batch, "negatives")
        inputs = self.input_lookups(batch.data)
        of_loss = self.output.lookups(targets_N1, targets_N1.shape[0], seed)
        if self.words in of_loss:  # with tied words
            of_loss[self.words] = tf.concat([inputs[self.words], of_loss[self.words]], axis=0)
        states = {"state": batch.part * self.streams + tf.range(self.streams)}
        return inputs | states | of_loss

    def input_lookups(self, tokens_BL: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the ids that `predictions` needs: the inputs, and all rows of the cell's tables.

        Args:
            tokens_BL: Rows of tokens, (B, T + 1) int32.
        """
        return {
            self.words: _by_step(tokens_BL)[0],
            "kernel": tf.range(self.dim),
            "recurrent": tf.range(self.hidden),
            "bias": tf.range(self.cell.biases),
        }

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all tokens, their number, and the states for the next batch."""
        state_BS = tf.ensure_shape(rows["state"].values_UD, (self.streams, None))
        seeds = [draw_seed(batch, f"dropped_{values}") for values in ("inputs", "outputs")]
        read = rows
        if self.is_tied:  # the ids of the inputs are the first
            words, inputs = rows[self.words], batch.data.shape.num_elements() - self.streams
            with tf.device(HOST):
                parts = words.inverse_N[:inputs], words.inverse_N[inputs:]
            words = words._replace(ids=words.inverse_N.shape[0])
            read, rows = ({**rows, self.words: words._replace(inverse_N=each)} for each in parts)
        predictions, state_BS = self.predictions(batch.data, read, state_BS, seeds)
        count = tf.reduce_sum(predictions.weights_GNM)
        return apply_loss(self.output, predictions, rows, count)._replace(state={"state": state_BS})

    def predictions(
        self,
        tokens_BL: tf.Tensor,
        rows: dict[str, Rows],
        state_BS: tf.Tensor,
        seeds: Sequence[tf.Tensor | None] = (None, None),
    ) -> tuple[Predictions, tf.Tensor]:
        """Run the cell over the tokens, and return what it is to predict at each step.

        Args:
            tokens_BL: Rows of tokens, (B, T + 1) int32.
            rows: The rows of `input_lookups`, by name of the table.
            state_BS: The state of each stream before its row. It is replaced by 0 where the row
                begins a stream.
            seeds: The seeds of the dropout of inputs and of outputs; by default there is none.

        Returns:
            The predictions, in groups of one vector (a 1 is appended) and one token, step after
            step, so that no vector is moved in memory; and the states after the rows.
        """
        streams, length = tokens_BL.shape
        units, columns = self.hidden, self.cell.gates * self.hidden

        def all_rows(name: str, count: int) -> tf.Tensor:
            """Return the rows of a table of the cell, (count, columns), with a static shape."""
            # The unique rows of a range of ids are all rows, in order.
            return tf.ensure_shape(rows[name].values_UD, (count, columns))

        kernel_DG = tf.cast(all_rows("kernel", self.dim), self.dtype)
        biases = tf.unstack(all_rows("bias", self.cell.biases))
        vectors_ND = take(rows[self.words], self.dtype)
        if self.is_tied:
            vectors_ND = vectors_ND[:, : self.dim]  # without the bias
        vectors_ND = _drop(vectors_ND, self.dropout, seeds[0])
        inputs_NG = tf.cast(tf.matmul(vectors_ND, kernel_DG), tf.float32) + biases[0]
        inputs_TBG = tf.reshape(inputs_NG, (length - 1, streams, columns))
        # A stream begins at a token that is the complement of an id (see `input.token_rows`).
        starts_B1 = tokens_BL[:, :1] < 0
        hidden_TBH, state_BS = run_cell(
            self.cell,
            inputs_TBG,
            tf.where(starts_B1, 0.0, state_BS),
            tf.cast(all_rows("recurrent", units), self.dtype),
            *biases[1:],
        )
        hidden_NH = tf.cast(tf.reshape(hidden_TBH, (-1, units)), self.dtype)
        hidden_NH = _drop(hidden_NH, self.dropout, seeds[1])
        ones_N1 = tf.ones((hidden_NH.shape[0], 1), self.dtype)
        hidden_N1H = tf.concat([hidden_NH, ones_N1], axis=1)[:, tf.newaxis]
        return Predictions(hidden_N1H, *_by_step(tokens_BL)[1:]), state_BS

    def _orthogonal(self, shape: tuple[int, int]) -> tf.Tensor:
        """Return orthogonal rows of length 1; `shape` has fewer rows than columns."""
        seeds = [initial_seed("recurrent", self.seed), 0]
        normal = tf.random.stateless_normal(shape[::-1], seeds)
        orthogonal, triangular = tf.linalg.qr(normal)
        return tf.transpose(orthogonal * tf.sign(tf.linalg.diag_part(triangular)))


def _drop(values_ND: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Return the values, a share of `rate` as 0 and the others larger: their mean is the same.

    Without a seed they are returned as they are.
    """
    if not rate or seed is None:
        return values_ND
    drawn_N = uniform(values_ND.shape.num_elements(), seed)
    is_kept_ND = tf.reshape(drawn_N, values_ND.shape) >= rate
    return tf.where(is_kept_ND, values_ND / (1 - rate), 0)


def _by_step(tokens_BL: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the inputs and the targets of rows of tokens, and the weights of the targets.

    Each has the first step of all streams, then the second: the ids of all tokens but the last of
    each row, (T B,) int32; of all but the first, (T B, 1) int32; and 1 for each of these that is no
    padding, else 0, (T B, 1, 1) float32.
    """
    with tf.device(HOST):
        tokens = decode(tokens_BL)
        ids_LB = tf.transpose(tokens.ids)
        weights_TB = tf.transpose(tf.cast(tokens.real[:, 1:], tf.float32))
        inputs_N, targets_N1 = tf.reshape(ids_LB[:-1], [-1]), tf.reshape(ids_LB[1:], [-1, 1])
        return inputs_N, targets_N1, tf.reshape(weights_TB, [-1, 1, 1])


# Returns the next state (B, states H), from the product of the input and the kernel (B, gates H),
# the product of the state and the recurrent kernel (B, gates H), both with their biases, and the
# state (B, states H); all float32.
NextState = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recurrent cell of H units.

    Attributes:
        gates: The number of products of H columns that it computes of an input, and of a state.
        states: The number of vectors of H numbers in its state; the first is the cell's output.
        biases: 1 for a bias of the input's product, or 2 for one more of the state's product.
        bias: From H to the initial biases, (biases, gates H).
        next_state: The cell's formula.
    """

    gates: int
    states: int
    biases: int
    bias: Callable[[int], tf.Tensor]
    next_state: NextState


def gru() -> Cell:
    """Return a gated recurrent unit (Cho et al. 2014), in the variant of cuDNN.

    It equals `keras.layers.GRU` with its default `reset_after=True`: the reset gate acts on the
    product of the state, not on the state. The gates are update, reset, candidate.
    """

    def next_state(input_BG: tf.Tensor, inner_BG: tf.Tensor, state_BH: tf.Tensor) -> tf.Tensor:
        """Return the next state (B, H) of a GRU."""
        inputs, inner = tf.split(input_BG, 3, axis=1), tf.split(inner_BG, 3, axis=1)
        update = tf.sigmoid(inputs[0] + inner[0])
        reset = tf.sigmoid(inputs[1] + inner[1])
        candidate = tf.tanh(inputs[2] + reset * inner[2])
        return update * state_BH + (1 - update) * candidate

    return Cell(3, 1, 2, lambda units: tf.zeros((2, 3 * units)), next_state)


def lstm() -> Cell:
    """Return a long short-term memory cell (Hochreiter & Schmidhuber 1997).

    It equals `keras.layers.LSTM`, with the forget gate of Gers et al. 2000. The gates are input,
    forget, candidate, output. The bias of the forget gate starts at 1, as Jozefowicz et al. 2015
    advise ("An Empirical Exploration of Recurrent Network Architectures"). The state is the output,
    then the memory.
    """

    def next_state(input_BG: tf.Tensor, inner_BG: tf.Tensor, state_BS: tf.Tensor) -> tf.Tensor:
        """Return the next output and memory of an LSTM, (B, 2 H)."""
        input_gate, forget_gate, candidate, output_gate = tf.split(input_BG + inner_BG, 4, axis=1)
        memory = tf.sigmoid(forget_gate) * tf.split(state_BS, 2, axis=1)[1]
        memory += tf.sigmoid(input_gate) * tf.tanh(candidate)
        return tf.concat([tf.sigmoid(output_gate) * tf.tanh(memory), memory], axis=1)

    def bias(units: int) -> tf.Tensor:
        """Return the initial bias, (1, 4 units): 1 for the forget gate, else 0."""
        return tf.repeat(tf.constant([[0.0, 1.0, 0.0, 0.0]]), units, axis=1)

    return Cell(4, 2, 1, bias, next_state)


def run_cell(
    cell: Cell,
    inputs_TBG: tf.Tensor,
    state_BS: tf.Tensor,
    recurrent_HG: tf.Tensor,
    bias_G: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Run a cell over T steps, and return its outputs and its last state.

    This is a loop, not T copies of the cell, which TensorFlow takes seconds to trace. Forward and
    backward, 128 rows of 32 steps of 300 units in float32 on two cores, a GRU took 141 ms of
    processor time with the loop, 128 with copies and 165 with XLA; an LSTM 186, 154 and 186 ms.

    The gradient of `tf.while_loop` would keep each intermediate result of the cell, and add to the
    gradient of the kernel at each step; under XLA it is a loop of unknown length, too. Here the
    states and their products are kept, the rest of the cell is computed again, and the gradient of
    the kernel is one product of all steps. (cuDNN's cells cannot be part of XLA's programs.)

    Args:
        inputs_TBG: The product of each input and the kernel, with its bias, float32.
        state_BS: The state before the first step, float32.
        recurrent_HG: The kernel of the state, of the dtype in which products are computed.
        bias_G: The bias of the state's product, if the cell has two.

    Returns:
        The outputs, (T, B, H) float32, and the state after the last step.
    """
    steps, _, columns = inputs_TBG.shape
    units = recurrent_HG.shape[0]

    @custom_gradient
    def run(inputs_TBG, state_BS, recurrent_HG, bias_G):
        """Return the outputs and the last state, with a gradient."""

        def step(index: tf.Tensor, state_BS: tf.Tensor):
            """Return the next state; the state and its product are kept."""
            inner_BG = tf.matmul(tf.cast(state_BS[:, :units], recurrent_HG.dtype), recurrent_HG)
            inner_BG = tf.cast(inner_BG, tf.float32) + bias_G
            next_BS = cell.next_state(inputs_TBG[index], inner_BG, state_BS)
            return next_BS, (state_BS, inner_BG)

        sizes = state_BS.shape[1], columns
        last_BS, states_TBS, inner_TBG = _loop(steps, step, state_BS, sizes)
        kept = inputs_TBG, inner_TBG, states_TBS
        after_TBH = tf.concat([states_TBS[1:, :, :units], last_BS[tf.newaxis, :, :units]], axis=0)
        return (after_TBH, last_BS), functools.partial(_run_back, cell, kept, recurrent_HG)

    bias_G = tf.zeros([columns]) if bias_G is None else bias_G
    return run(inputs_TBG, state_BS, recurrent_HG, bias_G)


def _run_back(
    cell: Cell,
    kept: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    recurrent_HG: tf.Tensor,
    by_outputs_TBH: tf.Tensor,
    by_last_BS: tf.Tensor,
) -> Sequence[tf.Tensor]:
    """Return the gradients by the inputs, the first state, the kernel and the bias of `run_cell`.

    Args:
        kept: The arguments of `cell.next_state` at each step.
        by_outputs_TBH: The gradient by the outputs.
        by_last_BS: The gradient by the last state.
    """
    steps, _, columns = kept[0].shape
    units, dtype = recurrent_HG.shape[0], recurrent_HG.dtype
    others_H = [[0, 0], [0, kept[2].shape[2] - units]]  # the state begins with the output

    def step(place: tf.Tensor, by_next_BS: tf.Tensor, *products: tf.Tensor):
        """Return the gradient by the state; those by the products are kept."""
        by_next_BS += tf.pad(by_outputs_TBH[place], others_H)
        given = [*products, kept[2][place]]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(given)
            next_BS = cell.next_state(*given)
        by_input_BG, by_inner_BG, by_state_BS = tape.gradient(next_BS, given, by_next_BS)
        by_output_BH = tf.matmul(tf.cast(by_inner_BG, dtype), recurrent_HG, transpose_b=True)
        by_state_BS += tf.pad(tf.cast(by_output_BH, tf.float32), others_H)
        return by_state_BS, (by_input_BG, by_inner_BG)

    sizes = [columns] * 2
    by_first_BS, by_inputs_TBG, by_inner_TBG = _loop(steps, step, by_last_BS, sizes, kept[:2])
    by_inner_NG = tf.reshape(by_inner_TBG, (-1, columns))
    outputs_NH = tf.cast(tf.reshape(kept[2][:, :, :units], (-1, units)), dtype)  # before each step
    by_recurrent_HG = tf.matmul(outputs_NH, tf.cast(by_inner_NG, dtype), transpose_a=True)
    return by_inputs_TBG, by_first_BS, by_recurrent_HG, tf.reduce_sum(by_inner_NG, axis=0)


# A GPU takes longer to start the operations of a step of a cell than to compute it. So a program of
# XLA makes up to this many steps in an iteration, without a kernel to count and to store each.
_AT_ONCE = 8


def _loop(
    steps: int,
    body: Callable,
    state_BS: tf.Tensor,
    sizes: Sequence[int],
    replaced: Sequence[tf.Tensor] = (),
) -> Sequence[tf.Tensor]:
    """Return the last state, and what `body` returns for each step, stacked.

    Args:
        body: From the number of a step, the state, and `replaced` at this step, to the next state
            and the results.
        sizes: The columns of each result; a result has a row for each of the state.
        replaced: For a loop that makes the last step first: what the results replace, (T, B, size)
            each. XLA writes the results there, and has no more memory for them.
    """
    most = _AT_ONCE if under_xla() else 1
    together = max(count for count in range(1, most + 1) if steps % count == 0)
    blocks = steps // together
    shapes = [(together, state_BS.shape[0], size) for size in sizes]
    arrays = [tf.TensorArray(tf.float32, blocks, element_shape=shape) for shape in shapes]
    is_in_place = bool(replaced) and under_xla()
    if is_in_place:
        arrays = [
            array.unstack(tf.reshape(values, [blocks, *shape]))
            for array, values, shape in zip(arrays, replaced, shapes, strict=True)
        ]

    def write(index: tf.Tensor, state_BS: tf.Tensor, arrays: Sequence[tf.TensorArray]):
        """Make the steps of a block."""
        block, results = blocks - 1 - index if replaced else index, {}
        read = [array.read(block) for array in arrays] if is_in_place else replaced
        for place in reversed(range(together)) if replaced else range(together):
            number = block * together + place
            given = [values[place if is_in_place else number] for values in read]
            state_BS, results[place] = body(number, state_BS, *given)
        parts = zip(*(results[place] for place in range(together)), strict=True)
        return index + 1, state_BS, write_arrays(arrays, block, [*map(tf.stack, parts)])

    # maximum_iterations is left out: on a GPU it becomes a part of the condition on the device, and
    # every iteration waits for it.
    _, state_BS, arrays = tf.while_loop(
        lambda index, *_: index < blocks, write, (0, state_BS, arrays)
    )
    return state_BS, *(
        tf.reshape(array.stack(), [steps, *array.element_shape[1:]]) for array in arrays
    )
