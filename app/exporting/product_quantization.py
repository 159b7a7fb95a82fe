"""Quantise rows by products of centroids, as `fasttext quantize` does (src/quantmatrix.cc)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import RunError, UsageError, needs_package
from ..text.fasttext.model_file import CENTROIDS, QuantizedMatrix, Quantizer

# Of fastText's k-means (src/productquantizer.h): passes, the most rows, the seed of their choice.
_PASSES, _MOST_ROWS, _SEED = 25, 256 * CENTROIDS, 1234
_MOST_CODES = 2**31 - 1  # a file stores their number as int32


def quantize(
    read_blocks: Callable[[], Iterable[np.ndarray]], rows: int, length: int
) -> QuantizedMatrix:
    """Return rows of which each part of some columns is one of 256 centroids.

    The norms of rows are quantised on their own, which `fasttext quantize -qnorm` does.

    Args:
        read_blocks: Called several times; returns all rows in order, in blocks (N, D) float32.
        length: The columns of a part (`-dsub`); the last part may have fewer.

    Raises:
        UsageError: There are fewer rows than centroids or more than a file can have, or Faiss is
            not installed.
        RunError: A number is not finite.
    """
    if rows < CENTROIDS:
        raise UsageError(
            f"--format=fasttext_quantized needs {CENTROIDS} rows of words and n-grams, and labels "
            f"with --qout; there are {rows}; use --format=fasttext, or change --cutoff or --qout "
            "if you gave them"
        )
    block = next(iter(read_blocks()))
    if rows * -(-block.shape[1] // length) > _MOST_CODES:
        raise UsageError(
            f"--format=fasttext_quantized cannot have {rows:,} rows of {block.shape[1]} columns; "
            "give a --cutoff"
        )
    chosen_N = np.random.default_rng(_SEED).permutation(rows)[:_MOST_ROWS]
    norms_V, sample_ND = _read_sample(read_blocks(), np.sort(chosen_N))
    products = _train(sample_ND, length)
    norm_products = _train(norms_V[np.sort(chosen_N), np.newaxis], 1)
    codes = [_encode(products, _normalize(block)[0]) for block in read_blocks()]
    return QuantizedMatrix(
        np.concatenate(codes),
        _make_quantizer(products, sample_ND.shape[1]),
        _encode(norm_products, norms_V[:, np.newaxis])[:, 0],
        _make_quantizer(norm_products, 1),
    )


def import_faiss(format_name: str) -> Any:
    """Return the module of Faiss; raise UsageError, with the name of the format, without it."""
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it logs each variant it tries
    with needs_package(f"--format={format_name} needs Faiss; pip install faiss-cpu"):
        return importlib.import_module("faiss")


def _read_sample(
    blocks: Iterable[np.ndarray], chosen_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the norms of all rows (V,), and chosen rows (N, D) of norm 1; their numbers rise."""
    norms, sample, first = [], [], 0
    for block in blocks:
        unit_ND, norms_N = _normalize(block)
        low, high = np.searchsorted(chosen_N, [first, first + len(block)])
        sample.append(unit_ND[chosen_N[low:high] - first])
        norms.append(norms_N)
        first += len(block)
    return np.concatenate(norms), np.concatenate(sample)


def _normalize(rows_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm 1 and the norms, float32; a row of zeros stays as it is."""
    norms_N = np.linalg.norm(rows_ND, axis=1)
    if not np.isfinite(norms_N).all():
        raise RunError("a row of the model has numbers that are not finite; train it anew")
    return rows_ND / np.where(norms_N > 0, norms_N, 1)[:, np.newaxis], norms_N


def _fill(rows_ND: np.ndarray, length: int) -> np.ndarray:
    """Return rows as float32, with zeros after a last part that is shorter than the others."""
    return np.pad(rows_ND.astype(np.float32, copy=False), [(0, 0), (0, -rows_ND.shape[1] % length)])


def _train(sample_ND: np.ndarray, length: int) -> Any:
    """Return the trained quantizer of Faiss for rows with parts of some columns."""
    faiss, filled_ND = import_faiss("fasttext_quantized"), _fill(sample_ND, length)
    parts, bits = filled_ND.shape[1] // length, CENTROIDS.bit_length() - 1
    products = faiss.ProductQuantizer(filled_ND.shape[1], parts, bits)
    products.cp.niter, products.cp.seed = _PASSES, _SEED
    products.cp.min_points_per_centroid = 1  # no warning about few rows
    products.train(filled_ND)
    return products


def _encode(products: Any, rows_ND: np.ndarray) -> np.ndarray:
    """Return the number of the centroid of each part, (N, P) uint8."""
    return products.compute_codes(_fill(rows_ND, products.dsub))


def _make_quantizer(products: Any, columns: int) -> Quantizer:
    """Return the centroids of a trained quantizer, without the columns that were filled in."""
    faiss = import_faiss("fasttext_quantized")
    numbers = faiss.vector_to_array(products.centroids).reshape(products.M, CENTROIDS, -1)
    last = numbers[-1, :, : columns - (products.M - 1) * products.dsub]
    return Quantizer(columns, products.dsub, np.concatenate([numbers[:-1].ravel(), last.ravel()]))
