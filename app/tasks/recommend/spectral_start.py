"""Compute vectors of users and items to start from: singular vectors of the matrix of pairs."""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging

from ...input.named_features import NamedFeatures
from ...input.ratings import Ratings
from ...tables import memory
from ...types import HOST

# Further columns of the search, and rounds of it (Halko, Martinsson & Tropp 2011, section 4.5: five
# or ten columns, and one or two rounds; a round takes 0.2 s for 810,000 pairs).
_MORE_COLUMNS = 16
_ROUNDS = 3
_COPIES = 3  # of the vectors of the search that are in memory at once
# The ridge penalty of rows of features, and the steps that solve for them.
_RIDGE, _SOLVING = 1.0, 30
_TINY = np.finfo(np.float32).tiny
# The smallest share of the largest singular value that is told from 0.
_LEAST = 1e-3


def when_needed(
    compute: Callable[[], tuple[np.ndarray, np.ndarray]],
) -> Callable[[], tuple[tf.Tensor, tf.Tensor]]:
    """Return a function that computes the vectors of users and items in its first call.

    So memory is planned before it is used.
    """

    @functools.cache
    def vectors() -> tuple[tf.Tensor, tf.Tensor]:
        """Return the vectors, in host memory."""
        began = time.perf_counter()
        # A table is made in the scope of its device, where TensorFlow may have no product with a
        # sparse matrix.
        with tf.device(None), tf.device(HOST):
            users_UK, items_VK = map(tf.constant, compute())
        logging.info("vectors to start from: computed in %.1f s", time.perf_counter() - began)
        return users_UK, items_VK

    return vectors


def compute_digest(users_UK: tf.Tensor, items_VK: tf.Tensor) -> int:
    """Return a checksum of vectors: processors of different kinds may round differently."""
    return zlib.crc32(items_VK.numpy().tobytes(), zlib.crc32(users_UK.numpy().tobytes()))


def spectral_vectors(
    pairs: Ratings, shape: tuple[int, int], weighted: bool, columns: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of users and items whose inner products approximate the matrix of pairs.

    The matrix has the weight of each pair, divided by the roots of the sums of weights of its user
    and of its item. Its largest singular vectors are found by randomized subspace iteration (Halko,
    Martinsson & Tropp 2011, algorithm 4.4), in time and memory linear in pairs, users and items.

    Args:
        pairs: The training pairs. Each user and item has a pair.
        shape: The number of users U and of items V.
        weighted: Whether the weight of a pair is its rating; else it is 1.
        columns: The number of columns of a vector, D.

    Returns:
        The vectors of users (U, K) and of items (V, K), float32, with K = min(D, U, V). Their
        length is 1.
    """
    users_N, items_N = pairs.users_N, pairs.items_N
    weights_N = pairs.ratings_N if weighted else np.ones(len(users_N), np.float32)
    sums_U = np.bincount(users_N, weights_N, shape[0])
    sums_V = np.bincount(items_N, weights_N, shape[1])
    shares_N = (weights_N / np.sqrt(sums_U[users_N] * sums_V[items_N])).astype(np.float32)
    by_user = _product_function(users_N, items_N, shares_N, shape)
    by_item = _product_function(items_N, users_N, shares_N, shape[::-1])
    width = min(columns + _MORE_COLUMNS, *shape)
    basis_VM = np.random.default_rng(seed).standard_normal((shape[1], width), np.float32)
    for _ in range(_ROUNDS):
        basis_VM = _orthonormal(by_item(_orthonormal(by_user(basis_VM))))
    images_UM = by_user(basis_VM)
    squares_M, rotation_MM = np.linalg.eigh((images_UM.T @ images_UM).astype(np.float64))
    largest = slice(None, -min(columns, width) - 1, -1)  # eigenvalues ascend
    values_K = np.sqrt(np.maximum(squares_M[largest], squares_M[-1] * _LEAST**2))
    rotation_MK = rotation_MM[:, largest]
    users_UK = images_UM @ (rotation_MK / np.sqrt(values_K)).astype(np.float32)
    items_VK = basis_VM @ (rotation_MK * np.sqrt(values_K)).astype(np.float32)
    return _normalized(users_UK), _normalized(items_VK)


def divide_by_features(vectors_VK: np.ndarray, features: NamedFeatures) -> np.ndarray:
    """Return rows of V users or items and of their features that add up to given vectors.

    The rows of features, and the row that all share, predict the vectors as well as they can with
    a ridge penalty, so that a new user or item starts where similar ones are. The own row of a user
    or an item is the rest. The equations are solved by conjugate gradients (Hestenes & Stiefel
    1952), in time and memory linear in the entries of the lists.

    Args:
        vectors_VK: The vectors, float32.
        features: The features of these users or items, and then of others.

    Returns:
        The own rows, the shared row and the rows of the F features, (V + 1 + F, K) float32.
    """
    count, names = len(vectors_VK), len(features.names.tokens)
    owners_N, features_N = (part[: features.starts[count]] for part in features.pairs)
    mean_K = vectors_VK.mean(axis=0)
    rest_VK = vectors_VK - mean_K
    if not len(owners_N):
        return np.concatenate([rest_VK, [mean_K], np.zeros((names, len(mean_K)), np.float32)])
    ones_N = np.ones(len(owners_N), np.float32)
    add = _product_function(owners_N, features_N, ones_N, (count, names))
    add_back = _product_function(features_N, owners_N, ones_N, (names, count))
    rows_FK = np.zeros((names, vectors_VK.shape[1]), np.float32)
    residual_FK = direction_FK = add_back(rest_VK)
    square_K = np.square(residual_FK).sum(axis=0)
    for _ in range(_SOLVING):
        image_FK = add_back(add(direction_FK)) + _RIDGE * direction_FK
        step_K = square_K / np.maximum((direction_FK * image_FK).sum(axis=0), _TINY)
        rows_FK += step_K * direction_FK
        residual_FK = residual_FK - step_K * image_FK
        square_K, former_K = np.square(residual_FK).sum(axis=0), square_K
        direction_FK = residual_FK + square_K / np.maximum(former_K, _TINY) * direction_FK
    return np.concatenate([rest_VK - add(rows_FK), [mean_K], rows_FK])


def memory_item(users: int, items: int, columns: int) -> memory.Item:
    """Return the host memory that the search for the vectors takes."""
    count = _COPIES * 4 * (users + items) * (columns + _MORE_COLUMNS)
    return memory.Item("vectors to start from", "", memory.HOST, count)


def _product_function(
    rows_N: np.ndarray, columns_N: np.ndarray, values_N: np.ndarray, shape: tuple[int, int]
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from matrices (V, K) to their product with a sparse matrix, (U, K) float32.

    Args:
        rows_N: The row of each number of the sparse matrix.
        columns_N: The column of each number.
        values_N: The numbers, float32.
        shape: The numbers of rows U and of columns V.
    """
    order_N = np.argsort(rows_N.astype(np.int64) * shape[1] + columns_N)
    places_N2 = np.stack([rows_N, columns_N], axis=1)[order_N]
    with tf.device(HOST):
        # Its products take half the time of tf.sparse.sparse_dense_matmul, and nothing is compiled.
        matrix = tf.raw_ops.SparseTensorToCSRSparseMatrix(
            indices=tf.constant(places_N2, tf.int64),
            values=tf.constant(values_N[order_N]),
            dense_shape=shape,
        )

    def multiply(other_VK: np.ndarray) -> np.ndarray:
        """Return the product, (U, K)."""
        with tf.device(HOST):
            return tf.raw_ops.SparseMatrixMatMul(a=matrix, b=tf.constant(other_VK)).numpy()

    return multiply


def _orthonormal(vectors_NK: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns, (N, K); columns of zeros where they depend."""
    squares_K, rotation_KK = np.linalg.eigh((vectors_NK.T @ vectors_NK).astype(np.float64))
    is_kept_K = squares_K > squares_K[-1] * _LEAST**2
    scale_K = np.where(is_kept_K, 1 / np.sqrt(np.where(is_kept_K, squares_K, 1)), 0)
    return vectors_NK @ (rotation_KK * scale_K).astype(np.float32)


def _normalized(vectors_NK: np.ndarray) -> np.ndarray:
    """Return the vectors scaled to length 1; zeros are replaced by equal numbers."""
    lengths_N1 = np.linalg.norm(vectors_NK, axis=1, keepdims=True)
    equal = np.float32(vectors_NK.shape[1] ** -0.5)
    return np.where(lengths_N1 > 0, vectors_NK / np.where(lengths_N1 > 0, lengths_N1, 1), equal)
