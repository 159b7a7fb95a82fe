import numpy as np
import pytest

from app.types import WordVectors


@pytest.fixture
def vectors():
    """Words of several scripts, and numbers that only nine digits give back."""
    words = ["</s>", "the", "café", "中文", "a-b_c", "\u00a0", "𝛼"]
    matrix = np.random.default_rng(0).normal(size=(len(words), 5)).astype(np.float32)
    matrix[1] = [0.1, 1e-30, -3.4e38, 1 / 3, 0]
    return WordVectors(words, matrix, np.arange(len(words), 0, -1, np.int64))
