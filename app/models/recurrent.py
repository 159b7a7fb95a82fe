"""Recurrent cells, and their run over the steps of a row.

States, gates and their order are those of Keras' layers, so that weights can be handed on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

# From a token's product with the kernel and the state's product with the recurrent kernel, biases
# included, (B, gates H) each, and the state (B, states H), to the next state; all float32.
Change = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recurrent cell of H units.

    gates: products of H columns each that it makes of an input, and of the state. states: vectors
    of H numbers that it carries on; the first is the cell's output. biases: 1, added to the product
    of the input, or 2, the second one added to that of the state. bias: from H to the biases at
    first, (biases, gates H).
    """

    gates: int
    states: int
    biases: int
    bias: Callable[[int], tf.Tensor]
    change: Change


def gru() -> Cell:
    """A gated recurrent unit (Cho et al. 2014), the variant of cuDNN.

    As `keras.layers.GRU` with its default `reset_after=True`: the reset gate acts on the product
    of the state, not on the state. Gates in Keras' order: update, reset, candidate.
    """

    def change(input_BG: tf.Tensor, inner_BG: tf.Tensor, state_BH: tf.Tensor) -> tf.Tensor:
        of_input, inner = tf.split(input_BG, 3, axis=1), tf.split(inner_BG, 3, axis=1)
        update = tf.sigmoid(of_input[0] + inner[0])
        reset = tf.sigmoid(of_input[1] + inner[1])
        candidate = tf.tanh(of_input[2] + reset * inner[2])
        return update * state_BH + (1 - update) * candidate

    return Cell(3, 1, 2, lambda units: tf.zeros((2, 3 * units)), change)


def lstm() -> Cell:
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate of Gers et al. 2000).

    As `keras.layers.LSTM`. Gates in Keras' order: input, forget, candidate, output. The bias of the
    forget gate is 1 at first, as Jozefowicz et al. 2015 advise ("An Empirical Exploration of
    Recurrent Network Architectures"). The state is the output and the memory side by side.
    """

    def change(input_BG: tf.Tensor, inner_BG: tf.Tensor, state_BS: tf.Tensor) -> tf.Tensor:
        written, kept, candidate, shown = tf.split(input_BG + inner_BG, 4, axis=1)
        memory = tf.sigmoid(kept) * tf.split(state_BS, 2, axis=1)[1]
        memory += tf.sigmoid(written) * tf.tanh(candidate)
        return tf.concat([tf.sigmoid(shown) * tf.tanh(memory), memory], axis=1)

    def bias(units: int) -> tf.Tensor:
        return tf.repeat(tf.constant([[0.0, 1.0, 0.0, 0.0]]), units, axis=1)

    return Cell(4, 2, 1, bias, change)


def run(
    cell: Cell,
    inputs_TBG: tf.Tensor,
    state_BS: tf.Tensor,
    recurrent_HG: tf.Tensor,
    bias_G: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The outputs of T steps, (T, B, H), and the state after them; float32.

    inputs_TBG: products of the inputs with their kernel and bias, float32. recurrent_HG: the
    kernel of the state; its dtype is that of the products. bias_G: added to these.

    A loop, not T copies of the cell: XLA's and those are no faster (128 rows of 32 steps of 300
    units on 2 cores, forward and backward: 69 ms so, 64 unrolled, 61 by XLA, and in bfloat16 54, 49
    and 62), and TensorFlow takes seconds to trace or compile them.
    """
    steps, rows, _ = inputs_TBG.shape
    units, _ = recurrent_HG.shape
    inputs = tf.TensorArray(tf.float32, steps).unstack(inputs_TBG)
    outputs = tf.TensorArray(tf.float32, steps, element_shape=(rows, units))

    def step(index: tf.Tensor, state_BS: tf.Tensor, outputs: tf.TensorArray):
        output_BH = tf.cast(state_BS[:, :units], recurrent_HG.dtype)
        inner_BG = tf.cast(tf.matmul(output_BH, recurrent_HG), tf.float32)
        if bias_G is not None:
            inner_BG += bias_G
        state_BS = cell.change(inputs.read(index), inner_BG, state_BS)
        return index + 1, state_BS, outputs.write(index, state_BS[:, :units])

    # Without maximum_iterations, which a GPU would join to the condition on the device, so that
    # every iteration would wait for it.
    _, state_BS, outputs = tf.while_loop(
        lambda index, *_: index < steps, step, (0, state_BS, outputs)
    )
    return outputs.stack(), state_BS
