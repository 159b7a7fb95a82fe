"""A SavedModel that answers words with their vectors, for TensorFlow Serving and Python.

The matrix is a variable and the words are an asset file: neither is a constant of the graph, whose
serialised form may not exceed 2 GB.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import tensorflow as tf

from ..errors import RunError, UsageError
from ..system.files import replacing_folder
from ..types import WordVectors
from .unique import unique


class _Lookup(tf.Module):
    """Words (N,) string -> vectors (N, D) float32 and known (N,) bool."""

    def __init__(self, matrix, words_file: str):
        super().__init__()
        # Serving tables live in host memory; hash tables have no GPU kernel either.
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
        rows_N = self.rows.lookup(words)
        known_N = rows_N >= 0
        vectors_ND = tf.gather(self.rows_VD, tf.maximum(rows_N, 0))
        return {"vectors": tf.where(known_N[:, None], vectors_ND, 0.0), "known": known_N}


def write(vectors: WordVectors, folder: str | Path) -> None:
    """Writes a SavedModel with the signature `lookup`, which is also the serving default.

    It takes `words`, (N,) strings in UTF-8, and gives `vectors`, (N, D) float32, zero for an
    unknown word, and `known`, (N,) bool. An earlier SavedModel in `folder` is replaced. UsageError
    if the folder holds anything else, there is no word, or one holds a line break; RunError if the
    folder cannot be written.
    """
    vectors = unique(vectors)
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
        except tf.errors.OpError as error:  # TensorFlow's own file system, so no OSError
            reason = error.message.splitlines()[0].rpartition("; ")[2]  # after the operation
            raise RunError(f"--output={folder}: {reason}; choose a place with room") from error
