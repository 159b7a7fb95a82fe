"""Export a classifier as a quantised file of fastText, `.ftz`, many times smaller."""

from __future__ import annotations

import numpy as np

from ...checkpoints.workdir import Workdir
from ...exporting import fasttext_bin
from ...exporting.product_quantization import quantize
from ...settings import ClassifyConfig
from ...text.fasttext.matrices import CENTROIDS
from ...text.fasttext.parts import LINE_END
from .fasttext_export import FastTextModel, convert

# Columns that share a centroid: the default of fastText for the input (-dsub), and its constant for
# the output (FastText::quantize).
_COLUMNS = 2


def write(config: ClassifyConfig, workdir: Workdir, path: str, cutoff: int, qout: bool) -> str:
    """Write a trained classifier as `fasttext quantize -qnorm` does, and return a message.

    With a cutoff, the model is not trained again (fastText's `-retrain`). N-grams whose bucket has
    no row are left out, as those below a cutoff are; fastText then ignores them.

    Args:
        config: The configuration of the run.
        workdir: The workdir of the run.
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
        model: A model.
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
