"""Export a classifier: as a SavedModel of raw texts, or its word vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from ...assembly.learning import ROW_PER_WORD
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...exporting import saved_model, word2vec
from ...input import labelled_files
from ...settings import ClassifyConfig
from ...text.fasttext import line_features
from ...types import WordVectors
from . import fasttext_export
from .classify_model import TrainedClassifier, load_trained


class _Classifier(tf.Module):
    """Classifies texts (E,): labels (E, C) and their probabilities (E, C), most probable first.

    Unknown words are ignored; a text without a known word gets the scores of a zero vector.

    Args:
        words_file: A file with the word of each id, a word a line.
        labels_file: A file with the label of each id, a label a line.
    """

    def __init__(
        self, trained: TrainedClassifier, config: ClassifyConfig, words_file: str, labels_file: str
    ):
        super().__init__()
        self._split_words = labelled_files.make_word_splitter(config.corpus, config.labelled)
        self._features = trained.features
        self._labels, tables = len(trained.labels.tokens), trained.tables
        is_multi_label = trained.model.output.is_multi_label
        self._probabilities = tf.sigmoid if is_multi_label else tf.nn.softmax
        rows_VD, outputs_CD = (
            tables[name].gather(tf.range(tables[name].rows)) for name in ("input", "output")
        )
        with tf.device("CPU"):  # hash tables have no GPU kernel
            if trained.features.buckets_N is not None:
                # The last row is of all n-grams without one.
                rows_VD = tf.pad(rows_VD, [[0, 1], [0, 0]])
                buckets_N = trained.features.buckets_N
                self.buckets_N = tf.Variable(buckets_N, trainable=False, name="buckets")
                self._features = trained.features._replace(buckets_N=self.buckets_N)
            self.rows_VD = tf.Variable(rows_VD, trainable=False, name="rows")
            self.outputs_CD = tf.Variable(outputs_CD, trainable=False, name="outputs")
            line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
            names = tf.lookup.TextFileInitializer(labels_file, tf.int64, number, tf.string, line)
            self.ids = saved_model.line_numbers(words_file)
            self.names = tf.lookup.StaticHashTable(names, "")

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def classify(self, texts):
        """Return {"labels": (E, C) strings, "probabilities": (E, C) float32} of texts (E,)."""
        words_M, owners_M = self._split_words(texts)
        ids_M = self.ids.lookup(words_M)
        hashes_M = ids_M
        if self._features.needs_hashes:
            ids_M = tf.where(ids_M < 0, tf.constant(self._features.words, tf.int64), ids_M)
            hashes_M = line_features.hash_strings(words_M)
        known_M = tf.where(ids_M >= 0)[:, 0]
        features = self._features.extract(
            tf.cast(tf.gather(ids_M, known_M), tf.int32),
            tf.cast(tf.gather(owners_M, known_M), tf.int32),
            tf.gather(hashes_M, known_M),
        )
        hidden_ED = tf.sparse.segment_mean(self.rows_VD, *features, num_segments=tf.size(texts))
        scores_EC = tf.matmul(hidden_ED, self.outputs_CD, transpose_b=True)
        chances_EC, ids_EC = tf.math.top_k(self._probabilities(scores_EC), self._labels)
        labels_EC = self.names.lookup(tf.cast(ids_EC, tf.int64))
        return {"labels": labels_EC, "probabilities": chances_EC}


def _saved_model(config: ClassifyConfig, workdir: Workdir, path: str) -> str:
    """Write a trained classifier as a SavedModel, and return a message.

    The signature `classify`, also the serving default, takes `texts`, (E,) strings in UTF-8. It
    returns `labels`, (E, C) strings, and `probabilities`, (E, C) float32, the most probable label
    of each text first. To load it a program needs only TensorFlow if texts are split at white
    space, else also tensorflow_text. An earlier SavedModel in the folder is replaced.

    Raises:
        UsageError: The loss is not made of one row for each label, or the folder has other files.
        RunError: The SavedModel cannot be written.
    """
    if config.model.loss not in ROW_PER_WORD:
        raise UsageError(
            f"--format=saved_model needs one row per label, which --loss={config.model.loss} does "
            f"not have; train with --loss={' or '.join(ROW_PER_WORD)}"
        )
    trained = load_trained(config, workdir)
    make_module = functools.partial(_Classifier, trained, config)
    assets = {"words": trained.words.tokens, "labels": trained.labels.tokens}
    saved_model.save(make_module, "classify", assets, path)
    needs = (
        "" if config.corpus.tokenizer == "whitespace" else " (to load it: import tensorflow_text)"
    )
    return f"{path}: {len(trained.labels.tokens):,} labels of texts{needs}"


def _word2vec(config: ClassifyConfig, workdir: Workdir, path: str, binary: bool = False) -> str:
    """Write the vectors of a classifier's words to a file, without n-grams; return a message."""
    _, tables, words, *_ = load_trained(config, workdir)
    matrix_VD = tables["input"].gather(tf.range(len(words.tokens))).numpy()
    word2vec.write(WordVectors(words.tokens, matrix_VD, words.counts), path, binary=binary)
    return f"{path}: {len(words.tokens):,} words of {matrix_VD.shape[1]} numbers"


EXPORTS: dict[str, Callable[..., str]] = {
    "word2vec": _word2vec,
    "word2vec_binary": lambda config, workdir, path: _word2vec(config, workdir, path, binary=True),
    "fasttext": fasttext_export.write,
    "fasttext_quantized": fasttext_export.write_quantized,
    "saved_model": _saved_model,
}
