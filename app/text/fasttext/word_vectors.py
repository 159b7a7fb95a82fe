"""Word vectors of a fastText file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import UsageError
from ...types import NgramVectors, WordVectors
from ..finite_vectors import check_finite
from .line_features import LineFeatures, make_rule, mean_rows
from .matrices import DenseMatrix
from .model_file import Model, load

_WORDS_AT_ONCE = 1 << 14


def read(path: str | Path) -> WordVectors:
    """Read the vectors of the words of a file, `.bin` or `.ftz`.

    A word's vector is the mean of its own row and those of its character n-grams, if the model has
    any (FastText::getWordVector). Bytes of a word that are not UTF-8 become U+FFFD.

    Args:
        path: The file.

    Returns:
        Words, vectors (V, D) float32, counts, and the vectors of n-grams, which stay in the file
        until they are used.

    Raises:
        UsageError: The file cannot be read, is a classifier (see `model_file.load`), is quantised,
            which fastText does with classifiers only, or the vector of a word is not finite.
    """
    model = load(path, is_supervised=False)
    tokens = [word.decode(errors="replace") for word in model.dictionary.words]
    # Of quantised rows a small file can have more than any memory.
    if not isinstance(model.input, DenseMatrix):
        raise UsageError(f"{path}: quantised word vectors; give a .bin file of fastText")
    ngrams = None
    if model.args.max_ngram > 0:
        ngrams = NgramVectors(make_rule(model.args), model.input.values_VD[len(tokens) :])
    matrix_VD = compose(model)
    check_finite(path, tokens, matrix_VD)
    return WordVectors(tokens, matrix_VD, model.dictionary.counts_V, ngrams)


def compose(model: Model) -> np.ndarray:
    """Return the vectors of the words of a model, (V, D) float32.

    Args:
        model: The model.
    """
    words, features = model.dictionary.words, LineFeatures(model)
    matrix_VD = np.empty((len(words), model.args.dim), np.float32)
    for first in range(0, len(words), _WORDS_AT_ONCE):
        part = words[first : first + _WORDS_AT_ONCE]
        rows_N, counts_W = features.of_words(part)
        owners_N = np.repeat(np.arange(len(part)), counts_W)
        matrix_VD[first : first + len(part)] = mean_rows(model, rows_N, owners_N, len(part))
    return matrix_VD
