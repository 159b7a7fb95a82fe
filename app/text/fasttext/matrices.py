"""Matrices of a fastText file: dense or product-quantised, read a few rows at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

# Centroids of each part of a vector: one for each value of a byte (ProductQuantizer::ksub_).
CENTROIDS = 256


class Matrix(Protocol):
    """A matrix whose rows are read on demand.

    Attributes:
        shape: The number of rows and of columns.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""

    def take(self, rows_N: np.ndarray) -> np.ndarray:
        """Return some rows, (N, D) float32.

        Args:
            rows_N: The numbers of the rows, integers, with any repetitions.
        """


class DenseMatrix(NamedTuple):
    """A matrix of float32 numbers in a mapped file.

    Attributes:
        values_VD: The numbers, which are read from the file where they are used.
    """

    values_VD: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        rows, columns = self.values_VD.shape
        return rows, columns

    def take(self, rows_N: np.ndarray) -> np.ndarray:
        """Return some rows, (N, D) float32."""
        return np.asarray(self.values_VD[rows_N], np.float32)


class Quantizer(NamedTuple):
    """The centroids of a product quantizer (src/productquantizer.cc).

    A vector is divided into parts of equal length; the last part may be shorter. Each part is one
    of 256 centroids.

    Attributes:
        columns: The columns of a vector, D.
        length: The columns of a part; all but the last part have as many.
        numbers: The centroids of part after part, (256 D,) float32.
    """

    columns: int
    length: int
    numbers: np.ndarray

    @property
    def parts(self) -> int:
        """Return the number of parts of a vector."""
        return -(-self.columns // self.length)

    def decode(self, codes_NP: np.ndarray) -> np.ndarray:
        """Return vectors (N, D) float32.

        Args:
            codes_NP: The number of the centroid of each part, uint8.
        """
        decoded = []
        for part in range(self.parts):
            first = part * self.length
            stop = min(first + self.length, self.columns)
            centroids = self.numbers[CENTROIDS * first : CENTROIDS * stop]
            decoded.append(centroids.reshape(CENTROIDS, -1)[codes_NP[:, part]])
        return np.concatenate(decoded, axis=1)


class QuantizedMatrix(NamedTuple):
    """A matrix of product-quantised rows (src/quantmatrix.cc).

    Attributes:
        codes_VP: The centroid of each part of each row, uint8.
        quantizer: The centroids.
        norm_codes_V: The centroid of the norm of each row, uint8; None if the rows have theirs.
        norm_quantizer: The centroids of norms.
    """

    codes_VP: np.ndarray
    quantizer: Quantizer
    norm_codes_V: np.ndarray | None = None
    norm_quantizer: Quantizer | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        return len(self.codes_VP), self.quantizer.columns

    def take(self, rows_N: np.ndarray) -> np.ndarray:
        """Return some rows, (N, D) float32."""
        rows_ND = self.quantizer.decode(self.codes_VP[rows_N])
        if self.norm_codes_V is None:
            return rows_ND
        return rows_ND * self.norm_quantizer.decode(self.norm_codes_V[rows_N, np.newaxis])
