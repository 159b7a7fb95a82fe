"""A trained language model, which reads texts and gives the probabilities of words."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...assembly import placing
from ...checkpoints.workdir import Workdir
from ...input.sequences import make_block_tokenizer
from ...input.token_rows import PAD
from ...losses import inference
from ...losses.base import gather_from
from ...settings import Config
from ...tables.row_reads import gather_unique
from ...text import vocabulary
from ...text.vocabulary import EOS, UNK
from .language_model_job import make_model

_ROW = 256  # tokens that are scored at a time


class TrainedLanguage:
    """The language model of a workdir.

    Attributes:
        tokens: The V words.
        unknown: The id of `<unk>`.
        end: The id of `<eos>`.

    Raises:
        RunError: The workdir has no checkpoint that can be read.
    """

    def __init__(self, config: Config, workdir: Workdir):
        words = vocabulary.load(str(workdir.vocabulary))
        self._model = make_model(config, words)
        tables, _ = placing.load_tables(config, self._model, workdir)
        self._gather = gather_from(tables)
        self._split = make_block_tokenizer(config.corpus, words)
        self._cell = tf.function(self._run_cell, autograph=False)
        self._predict = tf.function(
            lambda hidden_1H: inference.log_probabilities(
                self._model.output, hidden_1H, self._gather, len(words.tokens)
            ),
            autograph=False,
        )
        self.tokens = words.tokens
        self.unknown, self.end = map(words.tokens.index, (UNK, EOS))

    def encode(self, text: str) -> list[int]:
        """Return the ids of the tokens of a text, without `<eos>` at its end.

        Raises:
            ValueError: It is no text.
        """
        if not isinstance(text, str):
            raise ValueError(f"{reprlib.repr(text)} is {type(text).__name__}, and not a text")
        line = " ".join(text.splitlines()).encode("utf-8", "replace")
        return self._split(tf.constant(line)).numpy().tolist()[:-1]

    def read(
        self, ids: Sequence[int], state_1S: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Read tokens one by one; return the output of the cell, with a 1, and its state.

        Without a state, `<eos>` is read first, as at the beginning of a text.
        """
        if state_1S is None:
            ids, state_1S = [self.end, *ids], self._empty_state()
        for number in ids:  # the second token is predicted, and its prediction not used
            hidden_1H, state_1S = self._step(tf.constant([[number, self.end]]), state_1S)
        return hidden_1H, state_1S

    def score(self, text: str) -> tuple[float, int]:
        """Return log P of the tokens of a text with `<eos>`, and their number."""
        ids = [self.end, *self.encode(text), self.end]
        log_p, state_1S = 0.0, self._empty_state()
        for first in range(0, len(ids) - 1, _ROW):
            targets_N = np.array(ids[first + 1 : first + 1 + _ROW], np.int32)
            # Of few lengths, as each is traced.
            length = 1 << max(len(targets_N) - 1, 0).bit_length()
            row_L = np.full(length + 1, PAD, np.int32)
            row_L[: len(targets_N) + 1] = ids[first : first + 1 + _ROW]
            hidden_NH, state_1S = self._step(tf.constant(row_L[None]), state_1S)
            hidden_NH = hidden_NH[: len(targets_N)]
            log_p_N = inference.log_probability(
                self._model.output, hidden_NH, tf.constant(targets_N), self._gather
            )
            log_p += float(tf.reduce_sum(tf.cast(log_p_N, tf.float64)))
        return log_p, len(ids) - 1

    def _step(self, tokens_1L: tf.Tensor, state_1S: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the same as `_run_cell`; each length of the tokens is traced once."""
        # TensorFlow warns of a function whose calls trace several lengths one after the other.
        return self._cell.get_concrete_function(tokens_1L, state_1S)(tokens_1L, state_1S)

    def _run_cell(self, tokens_1L: tf.Tensor, state_1S: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the outputs of the cell, each with a 1, (T, H + 1), and the state after them."""
        rows = gather_unique(self._model.input_lookups(tokens_1L), self._gather)
        predictions, state_1S = self._model.predictions(tokens_1L, rows, state_1S)
        return predictions.hidden_GND[:, 0], state_1S

    def _empty_state(self) -> tf.Tensor:
        """Return the state before a text."""
        return tf.zeros((1, self._model.cell.states * self._model.hidden))

    def log_probabilities(self, hidden_1H: tf.Tensor) -> np.ndarray:
        """Return log P of all words, (V,) float32, after an output of the cell."""
        return self._predict(hidden_1H)[0].numpy()
