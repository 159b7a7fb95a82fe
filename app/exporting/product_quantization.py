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
        _make_quantizer(products, sample_ND.shape[1], length),
        _encode(norm_products, norms_V[:, np.newaxis])[:, 0],
        _make_quantizer(norm_products, 1, 1),
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


def _train(sample_ND: np.ndarray, length: int) -> list[tuple[slice, Any]]:
    """Return the columns and the trained quantizer of the whole parts, and of a shorter one."""
    faiss, trained = import_faiss("fasttext_quantized"), []
    whole = sample_ND.shape[1] // length * length
    for columns in (slice(whole), slice(whole, None)):
        rows_ND = np.ascontiguousarray(sample_ND[:, columns], np.float32)
        if not rows_ND.size:
            continue
        part = min(length, rows_ND.shape[1])
        bits = CENTROIDS.bit_length() - 1
        products = faiss.ProductQuantizer(rows_ND.shape[1], rows_ND.shape[1] // part, bits)
        products.cp.niter, products.cp.seed = _PASSES, _SEED
        products.cp.min_points_per_centroid = 1  # no warning about few rows
        products.train(rows_ND)
        trained.append((columns, products))
    return trained


def _encode(products: list[tuple[slice, Any]], rows_ND: np.ndarray) -> np.ndarray:
    """Return the number of the centroid of each part, (N, P) uint8."""
    codes = [
        product.compute_codes(np.ascontiguousarray(rows_ND[:, columns], np.float32))
        for columns, product in products
    ]
    return np.concatenate(codes, axis=1)


def _make_quantizer(products: list[tuple[slice, Any]], columns: int, length: int) -> Quantizer:
    """Return the centroids of trained quantizers."""
    faiss = import_faiss("fasttext_quantized")
    numbers = [faiss.vector_to_array(product.centroids) for _, product in products]
    return Quantizer(columns, length, np.concatenate(numbers))
