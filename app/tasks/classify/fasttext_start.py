"""Start the training of a classifier from one of fastText (--initial_model)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from ...assembly.learning import ROW_PER_WORD
from ...errors import UsageError
from ...losses.tree.paths import Code, canonical_code
from ...settings import ClassifyConfig
from ...tables.arrays import row_slices
from ...tables.base import Table
from ...text.fasttext import model_file
from ...text.fasttext.model_file import Matrix, Model
from ...text.vocabulary import Vocabulary

# Sums of counts must stay below those of nodes that are not made (buildTree, src/loss.cc).
_DEEPEST = 49
_TREE = "hierarchical_softmax"


def load(config: ClassifyConfig) -> Model:
    """Load the classifier of --initial_model.

    Raises:
        UsageError: The file is no classifier of fastText, or was trained with other features.
    """
    settings, is_dynamic = config.labelled, config.table.is_dynamic
    path = settings.initial_model
    if not settings.fasttext_features or is_dynamic:
        remedy = "another --table" if is_dynamic else "--fasttext_features, too"
        raise UsageError(
            f"--initial_model={path} has the features of fastText, and a row for each word; give "
            f"{remedy}"
        )
    model = model_file.load(path, is_supervised=True)
    args = model.args
    if args.max_ngram > 0 or model.dictionary.kept_buckets_K is not None:
        what = "n-grams of characters" if args.max_ngram > 0 else "a pruned dictionary"
        raise UsageError(
            f"--initial_model={path} has {what}, which --task=classify cannot train; give a model "
            f"of `fasttext supervised -maxn 0`, or only predict with `lexrow predict --model`"
        )
    needed = {"dim": args.dim, "word_ngrams": max(1, args.word_ngrams)}
    found = {"dim": config.model.dim, "word_ngrams": settings.word_ngrams}
    if args.word_ngrams > 1:
        needed["buckets"], found["buckets"] = args.buckets, settings.buckets
    if needed != found:
        flags = " ".join(f"--{name}={value}" for name, value in needed.items())
        raise UsageError(f"--initial_model={path} was trained with other settings; give {flags}")
    return model


def read_names(model: Model, prefix: str) -> tuple[Vocabulary, Vocabulary]:
    """Return the words and the labels of a model, without the prefix of labels."""
    dictionary = model.dictionary
    words = _decode(dictionary.words, dictionary.counts_V, model.path)
    labels = _decode(dictionary.labels, dictionary.counts_C, model.path)
    names = [name.removeprefix(prefix) for name in labels.tokens]
    return words, Vocabulary(names, labels.counts, labels.total)


def assign_rows(model: Model, run_loss: str, tables: Mapping[str, Table]) -> None:
    """Copy the rows of a model to the tables `input` and `output` of a run.

    The rows of the output are copied if both models have a row for each label, or the same tree;
    else a warning is logged, and they keep their initial values.

    Args:
        model: The model of --initial_model.
        run_loss: The value of --loss.
    """
    _assign(tables["input"], model.input, np.arange(model.input.shape[0]))
    loss = model_file.LOSSES[model.args.loss]
    if loss != _TREE and run_loss in ROW_PER_WORD:
        _assign(tables["output"], model.output, np.arange(model.output.shape[0]))
    elif loss == run_loss == _TREE and is_canonical(model.dictionary.counts_C):
        rows = np.argsort(order_rows(canonical_code(model.dictionary.counts_C)))
        _assign(tables["output"], model.output, rows, sign=-1)
    else:
        logging.warning(
            "--initial_model=%s was trained with the loss %s: its output layer does not fit "
            "--loss=%s, which starts anew",
            *(model.path, loss, run_loss),
        )


def _decode(names: list[bytes], counts: np.ndarray, path: str) -> Vocabulary:
    """Return words or labels as text; raise UsageError for bytes or counts that a run cannot have.

    Files of fastText are sorted by count.
    """
    try:
        tokens = [name.decode() for name in names]
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--initial_model={path}: {error.object!r} in it is not UTF-8; give a model of UTF-8"
        ) from error
    if counts.min(initial=1) < 1 or (np.diff(counts) > 0).any():
        raise UsageError(f"--initial_model={path}: its counts are not descending; give another")
    return Vocabulary(tokens, np.array(counts), int(counts.sum()))


def _assign(table: Table, matrix: Matrix, rows_V: np.ndarray, sign: int = 1) -> None:
    """Assign rows of a matrix to the ids 0 to V - 1 of a table, in parts.

    An input without n-grams may have rows of buckets that nothing reads: they are left out.
    """
    for part in row_slices(min(table.rows, len(rows_V)), table.columns):
        ids = np.arange(part.start, part.stop, dtype=np.int32)
        table.assign(tf.constant(ids), tf.constant(sign * matrix[rows_V[part]]))


def has_tree(code: Code) -> bool:
    """Return whether fastText can have the tree: no path is longer than 49 turns."""
    return code.depth <= _DEEPEST


def make_counts(code: Code) -> np.ndarray:
    """Return the counts of the labels from which fastText builds the tree, (C,) int64.

    fastText makes its tree when it loads a file, from the counts of the labels there. With the
    count 2 ** (longest path - path) for each label it makes our canonical tree: every depth has the
    same nodes in the same order. Only the rows are numbered from the deepest nodes up, and a score
    is for the right child instead of the left one.
    """
    return np.repeat(2 ** (code.depth - np.arange(code.depth + 1)), code.words_E)


def order_rows(code: Code) -> np.ndarray:
    """Return our row of each inner node in the order of fastText, (C - 1,) int64.

    The rows have the opposite sign there.
    """
    depths = reversed(range(code.depth))
    return np.concatenate([code.rows_E[d] + np.arange(code.inner_E[d]) for d in depths])


def is_canonical(counts_C: np.ndarray) -> bool:
    """Return whether fastText builds our canonical tree from some counts."""
    code = canonical_code(counts_C)
    return has_tree(code) and np.array_equal(make_counts(code), counts_C)
