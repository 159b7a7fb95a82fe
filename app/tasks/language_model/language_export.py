"""Export a language model as a SavedModel that needs TensorFlow only."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import tensorflow as tf

from ...assembly import placing
from ...checkpoints.workdir import Workdir
from ...exporting import saved_model
from ...losses import inference
from ...models.language_model import LanguageModel
from ...settings import Config
from ...tables.base import Table
from ...text import vocabulary
from ...text.vocabulary import EOS, UNK, Vocabulary
from .language_model_job import make_model


class _NextWord(tf.Module):
    """Predicts the words that follow rows of tokens, each read from the beginning of a text.

    Args:
        words_file: A file with the word of each id, a word a line.
    """

    def __init__(
        self, model: LanguageModel, tables: Mapping[str, Table], words: Vocabulary, words_file: str
    ):
        super().__init__()
        self._model = model
        self._unknown, self._end = map(words.tokens.index, (UNK, EOS))
        self.tables = {
            name: tf.Variable(table.gather(tf.range(table.rows)), trainable=False, name=name)
            for name, table in tables.items()
            if name != "state"
        }
        with tf.device("CPU"):  # hash tables have no GPU kernel
            self.ids = saved_model.line_table(words_file)
            self.names = saved_model.line_table(words_file, is_inverse=True)
        # A loss may have variables of its own, which are only saved if they are found here.
        self.others = list(self.predict.get_concrete_function().graph.variables)

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None, None], tf.string, name="tokens")]
    )
    def predict(self, tokens):
        """Return {"words": (V,) strings, "log_probabilities": (B, V) float32} of tokens (B, T)."""
        ids_BT = self.ids.lookup(tokens)
        ids_BT = tf.where(ids_BT < 0, tf.constant(self._unknown, tf.int64), ids_BT)
        first_B1 = tf.fill([tf.shape(tokens)[0], 1], tf.constant(self._end, tf.int64))
        hidden_BH = self._read(
            tf.concat([first_B1, ids_BT], axis=1),
            tf.concat([tf.ones_like(first_B1, tf.bool), tokens != ""], axis=1),
        )
        hidden_BH = tf.concat([hidden_BH, tf.ones_like(hidden_BH[:, :1])], axis=1)
        log_p_BV = inference.log_probabilities(
            self._model.output, hidden_BH, self._gather, self._model.size
        )
        return {
            "words": self.names.lookup(tf.range(self._model.size, dtype=tf.int64)),
            "log_probabilities": log_p_BV,
        }

    def _gather(self, name: str, ids_U: tf.Tensor) -> tf.Tensor:
        """Return rows of a table, (U, D) float32."""
        return tf.gather(self.tables[name], ids_U)

    def _read(self, ids_BT: tf.Tensor, is_token_BT: tf.Tensor) -> tf.Tensor:
        """Return the output of the cell after the tokens, (B, H); padding leaves its state."""
        model = self._model
        kernel_DG, recurrent_HG = (
            tf.cast(self.tables[name], model.dtype) for name in ("kernel", "recurrent")
        )
        biases = tf.unstack(self.tables["bias"], num=model.cell.biases)

        def step(index: tf.Tensor, state_BS: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Read one token of each row; return the next index and the states."""
            vectors_BD = self._gather(model.words, ids_BT[:, index])[:, : model.dim]
            vectors_BD = tf.cast(vectors_BD, model.dtype)
            output_BH = tf.cast(state_BS[:, : model.hidden], model.dtype)
            input_BG = tf.cast(tf.matmul(vectors_BD, kernel_DG), tf.float32) + biases[0]
            inner_BG = tf.cast(tf.matmul(output_BH, recurrent_HG), tf.float32)
            for bias_G in biases[1:]:
                inner_BG += bias_G
            next_BS = model.cell.next_state(input_BG, inner_BG, state_BS)
            return index + 1, tf.where(is_token_BT[:, index, tf.newaxis], next_BS, state_BS)

        start = 0, tf.zeros([tf.shape(ids_BT)[0], model.cell.states * model.hidden])
        _, state_BS = tf.while_loop(lambda index, _: index < tf.shape(ids_BT)[1], step, start)
        return tf.cast(state_BS[:, : model.hidden], model.dtype)


def _saved_model(config: Config, workdir: Workdir, path: str) -> str:
    """Write a trained language model as a SavedModel, and return a message.

    The signature `predict`, also the serving default, takes `tokens`, (B, T) strings in UTF-8, the
    tokens of each text from its beginning, with "" after the last one. It returns `words`, (V,)
    strings, and `log_probabilities`, (B, V) float32, of the word that follows. An earlier
    SavedModel in the folder is replaced.

    Raises:
        UsageError: The folder has other files.
        RunError: There is no checkpoint, or the SavedModel cannot be written.
    """
    words = vocabulary.load(str(workdir.vocabulary))
    model = make_model(config, words)
    tables, _ = placing.load_tables(config, model, workdir)
    make_module = functools.partial(_NextWord, model, tables, words)
    saved_model.save(make_module, "predict", {"words": words.tokens}, path)
    return f"{path}: a language model of {len(words.tokens):,} words"


EXPORTS = {"saved_model": _saved_model}
