"""Write a SavedModel that returns the vectors of words, for TensorFlow Serving and Python.

The matrix is a variable and the words are an asset file. As constants of the graph they could
exceed 2 GB, the limit of a serialised graph.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..system.files import replacing_folder, system_error
from ..text.subwords import hash_ngrams
from ..text.unicode_rules import normalize_strings
from ..text.vector_files import without_repeated
from ..text.vocabulary import JOINT
from ..types import NgramVectors, WordVectors


class _Lookup(tf.Module):
    """A module whose `lookup` takes words (N,) string, and returns vectors (N, D) and known (N,).

    The vectors are float32. An unknown word is looked up as the words of the text were written, and
    then, with white space, as a phrase. The vector of a word that is still unknown is the mean of
    its n-grams' vectors, or zero without any. `known` is bool.

    Args:
        matrix: The vectors, (V, D).
        ngrams: The vectors of n-grams, or None.
        form: The form of the words, see `unicode_rules.normalize`.
        words_file: A file with the word of each row, a word a line.
    """

    def __init__(self, matrix: np.ndarray, ngrams: NgramVectors | None, form: str, words_file: str):
        super().__init__()
        self._form = form
        # Hash tables have no GPU kernel.
        with tf.device("CPU"):
            self._matrix_VD = np.require(matrix, np.float32, ["C", "ALIGNED"])
            rows_VD = _share_memory(self._matrix_VD)
            self.rows_VD = tf.Variable(rows_VD, trainable=False, name="vectors")
            self.rows = line_table(words_file)
            if ngrams is not None:
                buckets_N = ngrams.buckets_N
                buckets_N = np.arange(len(ngrams.rows_ND)) if buckets_N is None else buckets_N
                # The last row is of all buckets that have none, and no bucket has its number.
                buckets_N = np.append(buckets_N, ngrams.rule.buckets).astype(np.int32)
                rows_ND = tf.pad(ngrams.rows_ND, [[0, 1], [0, 0]])
                self.ngrams_ND = tf.Variable(rows_ND, trainable=False, name="ngrams")
                self.buckets_N = tf.Variable(buckets_N, trainable=False, name="buckets")
        self.rule = ngrams.rule if ngrams else None

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def lookup(self, words):
        """Return {"vectors": (N, D) float32, "known": (N,) bool} of words (N,)."""
        # A phrase may be written with white space: `new york` for the token `new_york`.
        written_N = normalize_strings(words, self._form)
        joined_N = tf.strings.regex_replace(tf.strings.strip(written_N), r"\s+", JOINT)
        rows_N = self.rows.lookup(words)
        for words_N in (written_N, joined_N):
            rows_N = tf.where(rows_N >= 0, rows_N, self.rows.lookup(words_N))
        known_N = rows_N >= 0
        vectors_ND = tf.gather(self.rows_VD, tf.maximum(rows_N, 0))
        unknown_ND = 0.0 if self.rule is None else self._compose(written_N)
        return {"vectors": tf.where(known_N[:, None], vectors_ND, unknown_ND), "known": known_N}

    def _compose(self, words: tf.Tensor) -> tf.Tensor:
        """Return the mean of the vectors of each word's n-grams, (N, D); 0 without n-grams."""
        buckets = hash_ngrams(words, self.rule)
        buckets_M, owners_M = buckets.values, buckets.value_rowids()
        rows_M = tf.searchsorted(self.buckets_N, buckets_M)
        has_row_M = tf.gather(self.buckets_N, rows_M) == buckets_M
        rows_M = tf.where(has_row_M, rows_M, tf.size(self.buckets_N) - 1)
        return tf.math.unsorted_segment_mean(
            tf.gather(self.ngrams_ND, rows_M), owners_M, tf.size(words)
        )


def _share_memory(matrix_VD: np.ndarray) -> tf.Tensor:
    """Return a tensor that shares the memory of a matrix, which must live as long.

    `tf.constant` would copy the matrix twice. Only its bytes may be used, to write them: TensorFlow
    computes with memory that is aligned to 64 bytes.
    """
    # DLPack refuses arrays that are read-only, as those are that TensorFlow has read.
    address, size = matrix_VD.ctypes.data, matrix_VD.size
    numbers_M = np.frombuffer((ctypes.c_float * size).from_address(address), np.float32)
    return tf.experimental.dlpack.from_dlpack(numbers_M.reshape(matrix_VD.shape).__dlpack__())


def write(vectors: WordVectors, folder: str | Path) -> None:
    """Write a SavedModel with the signature `lookup`, which is also the serving default.

    The signature takes `words`, (N,) strings in UTF-8. It returns `vectors`, (N, D) float32, and
    `known`, (N,) bool. With n-grams the vector of an unknown word is computed from them in the
    graph, else it is zero. To load it a program needs only TensorFlow if the words were left as
    they were, else also tensorflow_text. An earlier SavedModel in the folder is replaced.

    Args:
        vectors: Word vectors; of a repeated word the first row is used, with a warning.

    Raises:
        UsageError: The folder has other content, or there is no word, or a word has a line break.
        RunError: The folder cannot be written.
    """
    vectors = without_repeated(vectors)
    if not vectors.tokens:
        raise UsageError(f"--output={folder}: there is no word to write; train or choose others")
    for row, token in enumerate(vectors.tokens):
        if "\n" in token or "\r" in token:  # TextFileInitializer reads lines
            raise UsageError(
                f"--format=saved_model: word {token!r} of row {row} holds a line break; rename it"
            )
    make_module = functools.partial(_Lookup, vectors.matrix, vectors.ngrams, vectors.form)
    save(make_module, "lookup", {"words": vectors.tokens}, folder)


def save(
    make_module: Callable[..., tf.Module],
    signature: str,
    assets: Mapping[str, Sequence[str]],
    folder: str | Path,
) -> None:
    """Write a SavedModel with one signature, which is also the serving default.

    An earlier SavedModel in the folder is replaced.

    Args:
        make_module: Called with the path of each asset; returns the module.
        signature: The name of the signature, and of the module's method for it.
        assets: The lines of each text file that is stored beside the model, by name of the file.

    Raises:
        UsageError: The folder has other content.
        RunError: The folder cannot be written.
    """
    with (
        replacing_folder(folder, "saved_model.pb") as temporary,
        tempfile.TemporaryDirectory() as assets_folder,
    ):
        files = [Path(assets_folder) / f"{name}.txt" for name in assets]
        for file, lines in zip(files, assets.values(), strict=True):
            file.write_bytes(b"".join(line.encode("utf-8", "replace") + b"\n" for line in lines))
        module = make_module(*map(str, files))
        signatures = dict.fromkeys((signature, "serving_default"), getattr(module, signature))
        try:
            tf.saved_model.save(module, str(temporary), signatures=signatures)
        except tf.errors.OpError as error:  # TensorFlow's file system raises no OSError
            raise system_error(error.message) from error


def line_table(file: str, is_inverse: bool = False) -> tf.lookup.StaticHashTable:
    """Return a table from each line of a text file to its number from 0, int64; -1 for others.

    If `is_inverse`, it is from numbers to lines.
    """
    line = tf.string, tf.lookup.TextFileIndex.WHOLE_LINE
    number = tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    keys, values = (number, line) if is_inverse else (line, number)
    initializer = tf.lookup.TextFileInitializer(file, *keys, *values)
    return tf.lookup.StaticHashTable(initializer, default_value="" if is_inverse else -1)
