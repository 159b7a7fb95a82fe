"""Write `.bin` and `.ftz` files that fastText loads (FastText::saveModel of src/fasttext.cc).

gensim loads `.bin` files, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import UsageError
from ..system.files import replacing
from ..text.fasttext import model_file
from ..text.fasttext.model_file import Args, Dictionary, QuantizedMatrix, Quantizer
from ..types import WordVectors
from . import word2vec

_ZERO_ROWS = 4_096  # written at once


def make_args(loss: str, model: str, dim: int, **others: Any) -> Args:
    """Return settings for a file; those that are not given are fastText's defaults.

    Args:
        loss: One of `model_file.LOSSES`.
        model: One of `model_file.MODELS`.
        dim: The columns of a vector.
        **others: Other fields of `Args`.
    """
    numbers = {"loss": model_file.LOSSES.index(loss), "model": model_file.MODELS.index(model)}
    return Args(dim, **numbers, **others)


def make_dictionary(
    words: Sequence[str],
    counts_V: np.ndarray | None,
    labels: Sequence[str] = (),
    counts_C: np.ndarray | None = None,
    tokens: int = 0,
) -> Dictionary:
    """Return the dictionary of a model.

    Args:
        counts_V: Their counts, descending; None for counts of 1.
        labels: The labels, with their prefix.
        counts_C: Their counts, descending.
        tokens: The tokens of the corpus; by default the sum of the counts.

    Raises:
        UsageError: A name is empty, has a NUL character, or is there twice.
    """
    names = [*words, *labels]
    known: set[str] = set()
    for name in names:
        if not name or "\0" in name or name in known:
            wrong = "there twice" if name in known else "empty or has a NUL character"
            raise UsageError(
                f"--format=fasttext: {name!r} is {wrong}, which this format cannot have; rename it"
            )
        known.add(name)
    counts_V = np.ones(len(words), np.int64) if counts_V is None else counts_V
    counts_C = np.zeros(0, np.int64) if counts_C is None else counts_C
    encoded = [name.encode("utf-8", "replace") for name in names]
    size = len(words)
    return Dictionary(
        encoded[:size], counts_V, encoded[size:], counts_C, tokens or int(counts_V.sum())
    )


def write_model(
    path: str | Path,
    args: Args,
    dictionary: Dictionary,
    inputs: Iterable[np.ndarray] | QuantizedMatrix,
    outputs: Iterable[np.ndarray] | QuantizedMatrix,
) -> None:
    """Write a model block by block; it replaces an earlier file.

    The output can be quantised only if the input is.

    Args:
        dictionary: The words and labels, and the buckets that are kept.
        inputs: Blocks (N, D) of the rows of words, then of buckets. Missing rows are 0.
        outputs: Blocks (N, D) of the rows of labels, or of words. Missing rows are 0.

    Raises:
        UsageError: `path` is no regular file.
        RunError: The file cannot be written.
    """
    words, labels, kept_K = dictionary.words, dictionary.labels, dictionary.kept_buckets_K
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(
            model_file.SIGNATURE.pack(model_file.MAGIC, model_file.VERSION)
            + model_file.ARGS.pack(*args)
        )
        pairs = -1 if kept_K is None else len(kept_K)
        sizes = len(words) + len(labels), len(words), len(labels), dictionary.tokens, pairs
        file.write(model_file.SIZES.pack(*sizes))
        entries = (
            (words, dictionary.counts_V, model_file.WORD),
            (labels, dictionary.counts_C, model_file.LABEL),
        )
        for names, counts, kind in entries:
            file.writelines(
                name + b"\0" + model_file.ENTRY.pack(count, kind)
                for name, count in zip(names, counts.tolist(), strict=True)
            )
        if kept_K is not None:
            file.write(np.stack([kept_K, np.arange(pairs)], axis=1).astype("<i4").tobytes())
        _write_matrix(file, len(words) + args.buckets, args.dim, inputs)
        _write_matrix(file, len(labels if args.is_supervised else words), args.dim, outputs)


def write(vectors: WordVectors, path: str | Path) -> None:
    """Write word vectors without n-grams, and without output rows, which are 0.

    A name that ends in `.bin` is the file. Else `.bin` and `.vec` are added to the name, and the
    second file has the vectors as text, as fastText's `-output` does.

    Args:
        path: The file, or its name without suffix.

    Raises:
        UsageError: A word cannot be written, or `path` is no regular file.
        RunError: A file cannot be written.
    """
    dictionary = make_dictionary(vectors.tokens, vectors.counts)
    args = make_args("negative_sampling", "skipgram", vectors.matrix.shape[1])
    target = model_path(path)
    write_model(target, args, dictionary, [vectors.matrix], [])
    if target != str(path):
        word2vec.write(vectors, f"{path}.vec")


def model_path(path: str | Path) -> str:
    """Return the name of the `.bin` file of an --output.

    Args:
        path: The value of --output.
    """
    return str(path) if str(path).endswith(".bin") else f"{path}.bin"


def _write_matrix(
    file: BinaryIO, rows: int, columns: int, blocks: Iterable[np.ndarray] | QuantizedMatrix
) -> None:
    """Write a matrix; rows that the blocks lack are 0."""
    if isinstance(blocks, QuantizedMatrix):
        file.write(model_file.FLAG.pack(True))
        _write_quantized(file, blocks)
        return
    file.write(model_file.FLAG.pack(False) + model_file.SHAPE.pack(rows, columns))
    for block_ND in blocks:
        file.write(np.ascontiguousarray(block_ND, "<f4").data)
        rows -= len(block_ND)
    while rows > 0:
        count = min(rows, _ZERO_ROWS)
        file.write(bytes(4 * columns * count))
        rows -= count


def _write_quantized(file: BinaryIO, matrix: QuantizedMatrix) -> None:
    """Write a quantised matrix, as QuantMatrix::save does."""
    has_norms = matrix.norm_codes_V is not None
    file.write(model_file.QUANTIZED.pack(has_norms, *matrix.shape, matrix.codes_VP.size))
    file.write(np.ascontiguousarray(matrix.codes_VP).data)
    _write_quantizer(file, matrix.quantizer)
    if has_norms:
        file.write(np.ascontiguousarray(matrix.norm_codes_V).data)
        _write_quantizer(file, matrix.norm_quantizer)


def _write_quantizer(file: BinaryIO, quantizer: Quantizer) -> None:
    """Write centroids, as ProductQuantizer::save does."""
    last = quantizer.columns - (quantizer.parts - 1) * quantizer.length
    sizes = quantizer.columns, quantizer.parts, quantizer.length, last
    file.write(model_file.QUANTIZER.pack(*sizes) + quantizer.numbers.astype("<f4").tobytes())
