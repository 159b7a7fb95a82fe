"""Export trained word vectors with the settings and the output layer of their run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ...assembly.learning import ROW_PER_WORD
from ...checkpoints import checkpoint
from ...checkpoints.stored import read_rows
from ...checkpoints.workdir import Workdir
from ...exporting import fasttext_bin, word2vec
from ...models.row_lists import SubwordRows
from ...settings import Config
from ...tables.arrays import row_slices
from ...text import vocabulary
from ...types import NgramRule
from .. import trained_vectors

# fastText's name of each loss whose table `output` has a row for each word.
_ROW_LOSSES = {"negative_sampling": "negative_sampling", **dict.fromkeys(ROW_PER_WORD, "softmax")}
# Without such rows: fastText and gensim each make a tree of their own.
_OTHER_LOSSES = {"hierarchical_softmax": "hierarchical_softmax"}


def _fasttext(config: Config, workdir: Workdir, path: str) -> str:
    """Write the word vectors of a run for fastText and gensim, and return a message.

    The file has the settings of the run and, if the loss has a row for each word, its output rows,
    so that gensim can train on. Other output rows are 0.

    Raises:
        UsageError: The workdir has no run, a word cannot be written, or --output is no file.
        RunError: No checkpoint can be read, or a file cannot be written.
    """
    target = fasttext_bin.model_path(path)
    if config.table.is_dynamic:  # its rows are by key
        vectors = trained_vectors.load(workdir.path)
        fasttext_bin.write(vectors, path)
        return f"{target}: {len(vectors.tokens):,} vectors of {config.model.dim} numbers"
    workdir.has(workdir.vocabulary)  # raises if the file is missing beside a checkpoint
    words = vocabulary.load(str(workdir.vocabulary))
    dictionary = fasttext_bin.make_dictionary(words.tokens, words.counts, tokens=words.total)
    loss = _ROW_LOSSES.get(config.model.loss)
    rule = trained_vectors.ngram_rule(config.model) or NgramRule(0, 0, 0)
    args = fasttext_bin.make_args(
        loss or _OTHER_LOSSES.get(config.model.loss, "negative_sampling"),
        *(config.model.model, config.model.dim),
        window=config.model.window,
        epochs=config.run.epochs,
        min_count=config.vocabulary.min_count,
        negatives=config.model.negatives,
        subsample=config.input.subsample,
        buckets=rule.buckets,
        min_ngram=rule.shortest,
        max_ngram=rule.longest,
    )

    def write(folder: Path) -> str:
        """Write the rows in the folder of a checkpoint, and return a message."""
        inputs = _input_blocks(folder, words.tokens, rule, workdir.vocabulary)
        # Read when the input is written, so that only one of them is in memory.
        outputs = (read_rows(folder, name) for name in ("output",) if loss)
        fasttext_bin.write_model(target, args, dictionary, inputs, outputs)
        return f"{target}: {len(words.tokens):,} vectors of {config.model.dim} numbers"

    message = checkpoint.read_newest(workdir.trained, write)
    if target != path:
        word2vec.write(trained_vectors.load(workdir.path), f"{path}.vec")
    return message


def _input_blocks(
    folder: Path, tokens: Sequence[str], rule: NgramRule, path: Path
) -> Iterator[np.ndarray]:
    """Yield the rows of words, then of all buckets, in blocks; buckets without a row have 0.

    Raise RunError if the number of rows does not fit the words, which are those of the file `path`.
    """
    rows_VD = read_rows(folder, "input")
    count, columns = len(tokens), rows_VD.shape[1]
    buckets_N = SubwordRows(tokens, rule).buckets_N if rule.buckets else np.zeros(0, np.int32)
    if len(rows_VD) != count + len(buckets_N):
        raise trained_vectors.misfit(path, count, folder, len(rows_VD))
    yield rows_VD[:count]
    for part in row_slices(rule.buckets, columns):
        first, last = np.searchsorted(buckets_N, [part.start, part.stop])
        block_ND = np.zeros((part.stop - part.start, columns), np.float32)
        block_ND[buckets_N[first:last] - part.start] = rows_VD[count + first : count + last]
        yield block_ND


EXPORTS: dict[str, Callable[[Config, Workdir, str], str]] = {"fasttext": _fasttext}
