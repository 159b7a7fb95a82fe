"""Export a classifier: as a SavedModel of raw texts, for fastText, or its word vectors.

A file of fastText is a `.bin`, or a quantised and many times smaller `.ftz`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ...assembly.learning import ROW_PER_WORD
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...exporting import fasttext_bin, saved_model, word2vec
from ...exporting.product_quantization import quantize
from ...input import labelled_files
from ...losses.tree.paths import canonical_code
from ...settings import ClassifyConfig
from ...tables.arrays import row_slices
from ...tables.base import Table
from ...text.fasttext import model_file
from ...text.fasttext.model_file import CENTROIDS, LINE_END, Args, Dictionary, QuantizedMatrix
from ...text.subwords import hash_strings
from ...text.vocabulary import Vocabulary
from ...types import WordVectors
from . import fasttext_start
from .classify_model import Classifier, load_trained

_TREE = "hierarchical_softmax"
# fastText's name of each loss of a classifier that it can have.
_LOSSES = {**dict.fromkeys(ROW_PER_WORD, "softmax"), "one_vs_all": "one_vs_all", _TREE: _TREE}
# Columns that share a centroid: the default of fastText for the input (-dsub), and its constant for
# the output (FastText::quantize).
_COLUMNS = 2
_PAIR = 8  # bytes of a kept bucket and its row, in a pruned dictionary


class _Classifier(tf.Module):
    """Classifies texts (E,): labels (E, C) and their probabilities (E, C), most probable first.

    Unknown words are ignored; a text without a known word gets the scores of a zero vector.

    Args:
        words_file: A file with the word of each id, a word a line.
        labels_file: A file with the label of each id, a label a line.
    """

    def __init__(
        self, trained: Classifier, config: ClassifyConfig, words_file: str, labels_file: str
    ):
        super().__init__()
        self._split_words = labelled_files.make_word_splitter(config.corpus, config.labelled)
        self._features = trained.features
        self._labels, tables = len(trained.labels.tokens), trained.tables
        self._probabilities = tf.sigmoid if trained.model.output.is_multi_label else tf.nn.softmax
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
            self.ids = saved_model.line_table(words_file)
            self.names = saved_model.line_table(labels_file, is_inverse=True)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def classify(self, texts):
        """Return {"labels": (E, C) strings, "probabilities": (E, C) float32} of texts (E,)."""
        words_M, owners_M = self._split_words(texts)
        ids_M = self.ids.lookup(words_M)
        hashes_M = ids_M
        if self._features.needs_hashes:
            ids_M = tf.where(ids_M < 0, tf.constant(self._features.words, tf.int64), ids_M)
            hashes_M = hash_strings(words_M)
        known_M = tf.where(ids_M >= 0)[:, 0]
        features = self._features.extract(
            tf.cast(tf.gather(ids_M, known_M), tf.int32),
            tf.cast(tf.gather(owners_M, known_M), tf.int32),
            tf.gather(hashes_M, known_M),
        )
        hidden_ED = tf.sparse.segment_mean(self.rows_VD, *features, num_segments=tf.size(texts))
        scores_EC = tf.matmul(hidden_ED, self.outputs_CD, transpose_b=True)
        chances_EC, ids_EC = tf.math.top_k(self._probabilities(scores_EC), self._labels)
        return {"labels": self.names.lookup(tf.cast(ids_EC, tf.int64)), "probabilities": chances_EC}


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
    needs = " (to load it: import tensorflow_text)" * (config.corpus.tokenizer != "whitespace")
    return f"{path}: {len(trained.labels.tokens):,} labels of texts{needs}"


class FastTextModel(NamedTuple):
    """A trained classifier in the terms of fastText.

    Attributes:
        dictionary: The words and labels.
        inputs: The table of the rows of words and n-grams.
        ids_N: The rows to write, in order; -1 for a row of zeros.
        outputs_RD: The rows of labels, or of a tree.
    """

    args: Args
    dictionary: Dictionary
    inputs: Table
    ids_N: np.ndarray
    outputs_RD: np.ndarray

    def input_blocks(self) -> Iterator[np.ndarray]:
        """Yield the input rows in blocks."""
        return _blocks(self.inputs, self.ids_N)

    def about(self) -> str:
        """Return the numbers of labels and words, for a message."""
        labels, words = len(self.dictionary.labels), len(self.dictionary.words)
        return f"{labels:,} labels of texts, {words:,} words"


def _fasttext(config: ClassifyConfig, workdir: Workdir, path: str) -> str:
    """Write a trained classifier for fastText, and return a message.

    Raises:
        UsageError: fastText has no such loss or features, or --output is no regular file.
        RunError: No checkpoint can be read, or a file cannot be written.
    """
    _check(config)
    model, words = convert(config, load_trained(config, workdir))
    target = fasttext_bin.model_path(path)
    blocks = model.input_blocks(), [model.outputs_RD]
    fasttext_bin.write_model(target, model.args, model.dictionary, *blocks)
    if target != path:
        rows_VD = np.concatenate([*_blocks(model.inputs, model.ids_N[: len(words.tokens)])])
        word2vec.write(WordVectors(words.tokens, rows_VD, words.counts), f"{path}.vec")
    return f"{target}: {model.about()}"


def convert(config: ClassifyConfig, trained: Classifier) -> tuple[FastTextModel, Vocabulary]:
    """Return a trained classifier as one of fastText, and its words.

    Labels get --label_prefix. For the loss `hierarchical_softmax` their counts are those that give
    our tree (see `fasttext_start.make_counts`), not those of the corpus.

    Raises:
        UsageError: The tree of the labels is too deep for fastText.
    """
    settings = config.labelled
    tables, words, labels = trained.tables, trained.words, trained.labels
    features = trained.features
    ids = np.arange(features.rows, dtype=np.int32)
    if features.buckets_N is not None:
        ids_B = np.full(features.buckets, -1, np.int32)
        ids_B[features.buckets_N] = ids[features.words :]
        ids = np.concatenate([ids[: features.words], ids_B])
    if not settings.fasttext_features and LINE_END in words.tokens:
        logging.warning("the word %s is left out: for fastText it ends every text", LINE_END)
        place = words.tokens.index(LINE_END)
        tokens = [token for token in words.tokens if token != LINE_END]
        words = Vocabulary(tokens, np.delete(words.counts, place), words.total)
        ids = np.delete(ids, place)
    counts_C, rows_R, sign = labels.counts, np.arange(len(labels.tokens)), 1
    if config.model.loss == _TREE:
        code = canonical_code(labels.counts)
        if not fasttext_start.has_tree(code):
            raise UsageError(
                f"--format=fasttext: the tree of --loss={_TREE} is {code.depth} turns deep, more "
                "than fastText can read; train with --loss=softmax"
            )
        counts_C, rows_R = fasttext_start.make_counts(code), fasttext_start.order_rows(code)
        sign = -1
    names = [settings.label_prefix + label for label in labels.tokens]
    dictionary = fasttext_bin.make_dictionary(words.tokens, words.counts, names, counts_C)
    args = fasttext_bin.make_args(
        *(_LOSSES[config.model.loss], "supervised", config.model.dim),
        epochs=config.run.epochs,
        min_count=config.vocabulary.min_count,
        word_ngrams=settings.word_ngrams,
        buckets=settings.buckets if settings.word_ngrams > 1 else 0,
    )
    outputs_RD = sign * tables["output"].gather(tf.constant(rows_R, tf.int32)).numpy()
    return FastTextModel(args, dictionary, tables["input"], ids, outputs_RD), words


def _check(config: ClassifyConfig) -> None:
    """Raise UsageError if fastText cannot have the loss or the features of a run."""
    if config.model.loss not in _LOSSES:
        raise UsageError(
            f"--format=fasttext: fastText has no --loss={config.model.loss}; train with --loss="
            f"{' or '.join(_LOSSES)}"
        )
    settings = config.labelled
    if settings.word_ngrams > 1 and not settings.fasttext_features:
        raise UsageError(
            f"--format=fasttext: the n-grams of this run (--word_ngrams={settings.word_ngrams}) "
            "are hashed from ids, and fastText hashes words; train a new --workdir with "
            "--fasttext_features"
        )


def _blocks(table: Table, ids: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of some ids in blocks, zeros for -1."""
    for part in row_slices(len(ids), table.columns):
        rows_ND = np.zeros((len(ids[part]), table.columns), np.float32)
        has_row_N = ids[part] >= 0
        rows_ND[has_row_N] = table.gather(tf.constant(ids[part][has_row_N], tf.int32))
        yield rows_ND


def _fasttext_quantized(
    config: ClassifyConfig,
    workdir: Workdir,
    path: str,
    cutoff: int = 0,
    qout: bool = False,
    bytes: int = 0,
) -> str:
    """Write a trained classifier as `fasttext quantize -qnorm` does, and return a message.

    With a cutoff, the model is not trained again (fastText's `-retrain`). N-grams whose bucket has
    no row are left out, as those below a cutoff are; fastText then ignores them.

    Args:
        path: The file; `.ftz` is added to another name.
        cutoff: The rows of words and n-grams to keep, those of the largest norms; 0 for all.
        qout: Whether to quantise the output rows, too.
        bytes: The most bytes of the file, for which further rows are left out; 0 for any.

    Raises:
        UsageError: fastText has no such loss or features, there are fewer than 256 rows to
            quantise, the file would have more bytes, Faiss is not installed, or --output is no
            regular file.
        RunError: No checkpoint can be read, or the file cannot be written.
    """
    _check(config)
    model, _ = convert(config, load_trained(config, workdir))
    model, inputs = _quantize_inputs(model, cutoff, qout, bytes)
    quantized = (
        quantize(lambda: [model.outputs_RD], len(model.outputs_RD), _COLUMNS) if qout else None
    )
    target = path if path.endswith(".ftz") else f"{path}.ftz"
    fasttext_bin.write_model(
        target, model.args, model.dictionary, inputs, quantized or [model.outputs_RD]
    )
    ngrams = len(model.ids_N) - len(model.dictionary.words)
    return f"{target}: {model.about()}, {ngrams:,} rows of n-grams"


def _quantize_inputs(
    model: FastTextModel, cutoff: int, qout: bool, most: int
) -> tuple[FastTextModel, QuantizedMatrix]:
    """Return a model without the rows that are left out, and its quantised input.

    The arguments are those of `_fasttext_quantized`, and so is the UsageError.
    """
    # As many as there are centroids at least, so that a small model can be written, too.
    rows = max(int((model.ids_N >= 0).sum()), min(CENTROIDS, len(model.ids_N)))
    kept = min(cutoff or rows, rows)
    if most:
        sizes_N = _file_sizes(model, qout)
        kept = min(kept, int(np.searchsorted(sizes_N, most, side="right")))
        if kept < min(CENTROIDS, rows):
            least = sizes_N[min(CENTROIDS, rows) - 1]
            raise UsageError(
                f"--bytes={most}: the file of this classifier has {least:,} bytes or more; give "
                "as many, or train with a smaller --dim"
            )
    if kept < len(model.ids_N):
        model = prune(model, kept)
    return model, quantize(model.input_blocks, len(model.ids_N), _COLUMNS)


def quantize_tables(config: ClassifyConfig, trained: Classifier, most: int) -> None:
    """Replace the input rows by those of its quantised file; those that it leaves out become 0.

    Args:
        most: The most bytes of the file.

    Raises:
        UsageError: There is no such file (see `_fasttext_quantized`).
    """
    _check(config)
    model, matrix = _quantize_inputs(convert(config, trained)[0], 0, False, most)
    table = trained.tables["input"]
    for part in row_slices(table.rows, table.columns):
        ids_N = tf.range(part.start, part.stop)
        table.assign(ids_N, tf.zeros([part.stop - part.start, table.columns]))
    (written_K,) = np.nonzero(model.ids_N >= 0)
    table.assign(tf.constant(model.ids_N[written_K], tf.int32), tf.constant(matrix[written_K]))


def _file_sizes(model: FastTextModel, qout: bool) -> np.ndarray:
    """Return the bytes of a quantised file that keeps the first 1, 2, ... rows of `_longest`."""
    names, args = model.dictionary, model.args
    entry, columns, labels = model_file.ENTRY.size + 1, args.dim, len(model.outputs_RD)
    parts = -(-columns // _COLUMNS)
    matrix = model_file.FLAG.size + model_file.QUANTIZED.size + 2 * model_file.QUANTIZER.size
    matrix += 4 * CENTROIDS * (columns + 1)  # the centroids of the parts and of the norms
    size = model_file.SIGNATURE.size + model_file.ARGS.size + model_file.SIZES.size + matrix
    size += sum(len(label) + entry for label in names.labels)
    if qout:
        size += matrix + labels * (parts + 1)
    else:
        size += model_file.FLAG.size + model_file.SHAPE.size + 4 * labels * columns
    words_V = np.array([len(word) + entry for word in names.words])
    pairs_B = np.full(len(model.ids_N) - len(words_V), _PAIR)
    return size + np.cumsum(np.concatenate([words_V, pairs_B])[_longest(model)] + parts + 1)


def _longest(model: FastTextModel) -> np.ndarray:
    """Return the numbers of the input rows by norm, the longest first.

    The row of `</s>` comes first, and rows of zeros come last.
    """
    words = model.dictionary.words
    norms_N = np.concatenate([np.linalg.norm(block, axis=1) for block in model.input_blocks()])
    norms_N[model.ids_N < 0] = -1
    if LINE_END.encode() in words:
        norms_N[words.index(LINE_END.encode())] = np.inf
    return np.argsort(-norms_N, kind="stable")


def prune(model: FastTextModel, cutoff: int) -> FastTextModel:
    """Return a model with the rows of largest norms only, and with the row of `</s>`.

    Words stay in order; buckets are in the order of their norms (FastText::selectEmbeddings and
    Dictionary::prune).

    Args:
        cutoff: The number of rows to keep; those of zeros are kept last.
    """
    words, counts_V = model.dictionary.words, model.dictionary.counts_V
    kept_K = _longest(model)[:cutoff]
    words_K, buckets_K = np.sort(kept_K[kept_K < len(words)]), kept_K[kept_K >= len(words)]
    dictionary = model.dictionary._replace(
        words=[words[row] for row in words_K],
        counts_V=counts_V[words_K],
        kept_buckets_K=buckets_K - len(words),
    )
    ids_N = model.ids_N[np.concatenate([words_K, buckets_K])]
    return model._replace(dictionary=dictionary, ids_N=ids_N)


EXPORTS: dict[str, Callable[..., str]] = {
    "fasttext": _fasttext,
    "fasttext_quantized": _fasttext_quantized,
    "saved_model": _saved_model,
}
