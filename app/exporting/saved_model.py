"""Write a SavedModel that returns the vectors of words, for TensorFlow Serving and Python.

The matrix is a variable and the words are an asset file. As constants of the graph they could
exceed 2 GB, the limit of a serialised graph.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tensorflow as tf
from absl import logging

from ..errors import RunError, UsageError
from ..system.files import replacing_folder
from ..types import WordVectors


class _Lookup(tf.Module):
    """A module whose `lookup` takes words (N,) string, and returns vectors (N, D) and known (N,).

    The vectors are float32, zero for an unknown word. `known` is bool.

    Args:
        matrix: The vectors, (V, D).
        words_file: A file with the word of each row, a word a line.
    """

    def __init__(self, matrix, words_file: str):
        super().__init__()
        # Hash tables have no GPU kernel.
        with tf.device("CPU"):
            self.rows_VD = tf.Variable(matrix, dtype=tf.float32, trainable=False, name="vectors")
            initializer = tf.lookup.TextFileInitializer(
                words_file,
                key_dtype=tf.string,
                key_index=tf.lookup.TextFileIndex.WHOLE_LINE,
                value_dtype=tf.int64,
                value_index=tf.lookup.TextFileIndex.LINE_NUMBER,
            )
            self.rows = tf.lookup.StaticHashTable(initializer, default_value=-1)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def lookup(self, words):
        """Return {"vectors": (N, D) float32, 0 if unknown, "known": (N,) bool} of words (N,)."""
        rows_N = self.rows.lookup(words)
        known_N = rows_N >= 0
        vectors_ND = tf.gather(self.rows_VD, tf.maximum(rows_N, 0))
        return {"vectors": tf.where(known_N[:, None], vectors_ND, 0.0), "known": known_N}


def write(vectors: WordVectors, folder: str | Path) -> None:
    """Write a SavedModel with the signature `lookup`, which is also the serving default.

    The signature takes `words`, (N,) strings in UTF-8. It returns `vectors`, (N, D) float32, zero
    for an unknown word, and `known`, (N,) bool. An earlier SavedModel in the folder is replaced.

    Args:
        vectors: Word vectors; of a repeated word the first row is used, with a warning.
        folder: The folder to write.

    Raises:
        UsageError: The folder has other content, or there is no word, or a word has a line break.
        RunError: The folder cannot be written.
    """
    vectors = _drop_repeated(vectors)
    if not vectors.tokens:
        raise UsageError(f"--output={folder}: there is no word to write; train or choose others")
    for row, token in enumerate(vectors.tokens):
        if "\n" in token or "\r" in token:  # TextFileInitializer reads lines
            raise UsageError(
                f"--format=saved_model: word {token!r} of row {row} holds a line break; rename it"
            )
    with (
        replacing_folder(folder, "saved_model.pb") as temporary,
        tempfile.TemporaryDirectory() as words_folder,
    ):
        words_file = Path(words_folder) / "words.txt"
        lines = (token.encode("utf-8", "replace") + b"\n" for token in vectors.tokens)
        words_file.write_bytes(b"".join(lines))
        module = _Lookup(vectors.matrix, str(words_file))
        signatures = {"lookup": module.lookup, "serving_default": module.lookup}
        try:
            tf.saved_model.save(module, str(temporary), signatures=signatures)
        except tf.errors.OpError as error:  # TensorFlow's file system raises no OSError
            reason = error.message.splitlines()[0].rpartition("; ")[2]  # after the operation
            raise RunError(f"--output={folder}: {reason}; choose a place with room") from error


def _drop_repeated(vectors: WordVectors) -> WordVectors:
    """Return the vectors with only the first row of each word, as gensim does.

    A warning names the number of dropped rows.
    """
    rows: dict[str, int] = {}
    for row, token in enumerate(vectors.tokens):
        rows.setdefault(token, row)
    repeated = len(vectors.tokens) - len(rows)
    if not repeated:
        return vectors
    logging.warning("%d rows repeat an earlier word: left out", repeated)
    kept = list(rows.values())
    counts = None if vectors.counts is None else vectors.counts[kept]
    return WordVectors(list(rows), vectors.matrix[kept], counts)
