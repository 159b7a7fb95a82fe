"""Export a classifier as a file of fastText: `.bin`, or quantised and many times smaller `.ftz`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ...assembly.learning import ROW_PER_WORD
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...exporting import fasttext_bin
from ...exporting.product_quantization import quantize
from ...input.features import Features
from ...losses.tree.huffman import canonical_code
from ...settings import ClassifyConfig
from ...tables.base import Table
from ...tables.row_reads import row_slices
from ...text.fasttext.model_file import CENTROIDS, LINE_END, Args, Dictionary
from ...text.vocabulary import Vocabulary
from ...types import WordVectors
from . import fasttext_start
from .classify_model import load_trained

_TREE = "hierarchical_softmax"
# fastText's name of each loss of a classifier that it can have.
_LOSSES = {
    **dict.fromkeys(ROW_PER_WORD, "softmax"),
    "one_vs_all": "one_vs_all",
    _TREE: _TREE,
}
# Columns that share a centroid: the default of fastText for the input (-dsub), and its constant for
# the output (FastText::quantize).
_COLUMNS = 2


class FastTextModel(NamedTuple):
    """A trained classifier in the terms of fastText.

    Attributes:
        dictionary: The words and labels.
        inputs: The table of the rows of words and n-grams.
        ids_N: The rows to write, in order; -1 for a row of zeros.
        outputs: The table of the rows of labels, or of a tree.
        ids_R: Its rows to write, in order.
        sign: The number by which these are multiplied.
    """

    args: Args
    dictionary: Dictionary
    inputs: Table
    ids_N: np.ndarray
    outputs: Table
    ids_R: np.ndarray
    sign: int

    def input_blocks(self) -> Iterator[np.ndarray]:
        """Yield the input rows in blocks."""
        return _blocks(self.inputs, self.ids_N)

    def output_blocks(self) -> Iterator[np.ndarray]:
        """Yield the output rows in blocks."""
        return _blocks(self.outputs, self.ids_R, self.sign)


def write(config: ClassifyConfig, workdir: Workdir, path: str) -> str:
    """Write a trained classifier for fastText, and return a message.

    Raises:
        UsageError: fastText has no such loss or features, or --output is no regular file.
        RunError: No checkpoint can be read, or a file cannot be written.
    """
    model, words = convert(config, workdir)
    target = fasttext_bin.model_path(path)
    blocks = model.input_blocks(), model.output_blocks()
    fasttext_bin.write_model(target, model.args, model.dictionary, *blocks)
    if target != path:
        rows_VD = np.concatenate([*_blocks(model.inputs, model.ids_N[: len(words.tokens)])])
        fasttext_bin.write_vec(path, WordVectors(words.tokens, rows_VD, words.counts))
    labels = len(model.dictionary.labels)
    return f"{target}: {labels:,} labels of texts, {len(words.tokens):,} words"


def convert(config: ClassifyConfig, workdir: Workdir) -> tuple[FastTextModel, Vocabulary]:
    """Return a trained classifier as one of fastText, and its words.

    Labels get --label_prefix. For the loss `hierarchical_softmax` their counts are those that give
    our tree (see `fasttext_start.make_counts`), not those of the corpus.

    Raises:
        UsageError: fastText has no such loss or features.
        RunError: No checkpoint can be read.
    """
    settings = config.labelled
    _check(config)
    _, tables, words, labels, features = load_trained(config, workdir)
    ids = _row_ids(features)
    if not settings.fasttext_features and LINE_END in words.tokens:
        words, ids = _without_line_end(words, ids)
    counts_C, outputs_R, sign = labels.counts, np.arange(len(labels.tokens)), 1
    if config.model.loss == _TREE:
        code = canonical_code(labels.counts)
        if not fasttext_start.has_tree(code):
            raise UsageError(
                f"--format=fasttext: the tree of --loss={_TREE} is {code.depth} turns deep, more "
                "than fastText can read; train with --loss=softmax"
            )
        counts_C, outputs_R, sign = (
            fasttext_start.make_counts(code),
            fasttext_start.order_rows(code),
            -1,
        )
    names = [settings.label_prefix + label for label in labels.tokens]
    dictionary = fasttext_bin.make_dictionary(words.tokens, words.counts, names, counts_C)
    args = fasttext_bin.make_args(
        *(_LOSSES[config.model.loss], "supervised", config.model.dim),
        epochs=config.run.epochs,
        min_count=config.vocabulary.min_count,
        word_ngrams=settings.word_ngrams,
        buckets=settings.buckets if settings.word_ngrams > 1 else 0,
    )
    tables_of_model = tables["input"], ids, tables["output"], outputs_R, sign
    return FastTextModel(args, dictionary, *tables_of_model), words


def _row_ids(features: Features) -> np.ndarray:
    """Return the id of each word and of each bucket, int32; -1 for a bucket without a row."""
    ids_N = np.arange(features.rows, dtype=np.int32)
    if features.buckets_N is None:
        return ids_N
    words_V, rows_N = np.split(ids_N, [features.words])
    ids_B = np.full(features.buckets, -1, np.int32)
    ids_B[features.buckets_N] = rows_N
    return np.concatenate([words_V, ids_B])


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


def _without_line_end(words: Vocabulary, ids: np.ndarray) -> tuple[Vocabulary, np.ndarray]:
    """Return the words without `</s>`, which fastText would add to each text, and their rows."""
    place = words.tokens.index(LINE_END)
    logging.warning("the word %s is left out: for fastText it ends every text", LINE_END)
    tokens = [*words.tokens[:place], *words.tokens[place + 1 :]]
    return Vocabulary(tokens, np.delete(words.counts, place), words.total), np.delete(ids, place)


def _blocks(table: Table, ids: np.ndarray, sign: int = 1) -> Iterator[np.ndarray]:
    """Yield the rows of some ids in blocks, zeros for -1."""
    for part in row_slices(len(ids), table.columns):
        rows_ND = np.zeros((len(ids[part]), table.columns), np.float32)
        has_row_N = ids[part] >= 0
        rows_ND[has_row_N] = sign * table.gather(tf.constant(ids[part][has_row_N], tf.int32))
        yield rows_ND


def write_quantized(
    config: ClassifyConfig, workdir: Workdir, path: str, cutoff: int, qout: bool
) -> str:
    """Write a trained classifier as `fasttext quantize -qnorm` does, and return a message.

    With a cutoff, the model is not trained again (fastText's `-retrain`). N-grams whose bucket has
    no row are left out, as those below a cutoff are; fastText then ignores them.

    Args:
        path: The file; `.ftz` is added to another name.
        cutoff: The rows of words and n-grams to keep, those of the largest norms; 0 for all.
        qout: Whether to quantise the output rows, too.

    Raises:
        UsageError: fastText has no such loss or features, there are fewer than 256 rows to
            quantise, Faiss is not installed, or --output is no regular file.
        RunError: No checkpoint can be read, or the file cannot be written.
    """
    model, _ = convert(config, workdir)
    # As many as there are centroids at least, so that a small model can be written, too.
    rows = max(int((model.ids_N >= 0).sum()), min(CENTROIDS, len(model.ids_N)))
    kept = min(cutoff or rows, rows)
    if kept < len(model.ids_N):
        model = prune(model, kept)
    inputs = quantize(model.input_blocks, len(model.ids_N), _COLUMNS)
    outputs = (
        quantize(model.output_blocks, len(model.ids_R), _COLUMNS) if qout else model.output_blocks()
    )
    target = path if path.endswith(".ftz") else f"{path}.ftz"
    fasttext_bin.write_model(target, model.args, model.dictionary, inputs, outputs)
    words, ngrams = len(model.dictionary.words), len(model.ids_N) - len(model.dictionary.words)
    labels = len(model.dictionary.labels)
    return f"{target}: {labels:,} labels of texts, {words:,} words, {ngrams:,} rows of n-grams"


def prune(model: FastTextModel, cutoff: int) -> FastTextModel:
    """Return a model with the rows of largest norms only, and with the row of `</s>`.

    Words stay in order; buckets are in the order of their norms (FastText::selectEmbeddings and
    Dictionary::prune).

    Args:
        cutoff: The number of rows to keep; those of zeros are kept last.
    """
    words, counts_V = model.dictionary.words, model.dictionary.counts_V
    norms_N = np.concatenate([np.linalg.norm(block, axis=1) for block in model.input_blocks()])
    norms_N[model.ids_N < 0] = -1
    if LINE_END.encode() in words:
        norms_N[words.index(LINE_END.encode())] = np.inf
    kept_K = np.argsort(-norms_N, kind="stable")[:cutoff]
    words_K, buckets_K = np.sort(kept_K[kept_K < len(words)]), kept_K[kept_K >= len(words)]
    dictionary = model.dictionary._replace(
        words=[words[row] for row in words_K],
        counts_V=counts_V[words_K],
        kept_buckets_K=buckets_K - len(words),
    )
    ids_N = model.ids_N[np.concatenate([words_K, buckets_K])]
    return model._replace(dictionary=dictionary, ids_N=ids_N)
