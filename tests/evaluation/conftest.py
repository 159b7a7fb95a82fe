import numpy as np
import pytest

from app.types import WordVectors


@pytest.fixture
def make_vectors():
    """Vectors of the given words, drawn from a seed unless a matrix is given."""

    def make(words, matrix=None, columns=8, seed=0):
        if matrix is None:
            matrix = np.random.default_rng(seed).normal(size=(len(words), columns))
        return WordVectors(list(words), np.asarray(matrix, np.float32))

    return make
