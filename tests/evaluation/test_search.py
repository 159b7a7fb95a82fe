from __future__ import annotations

import numpy as np
import pytest

from app.evaluation import search
from app.evaluation.lexicon import make_lexicon
from app.evaluation.search import nearest_rows


@pytest.mark.parametrize("k", [1, 4])
def test_blocks_of_any_size_find_what_a_full_sort_finds(make_vectors, monkeypatch, k):
    words = make_lexicon(make_vectors([str(n) for n in range(50)]))
    queries = np.random.default_rng(1).normal(size=(23, 8)).astype(np.float32)
    excluded = [[n, n + 20] if n % 3 else [] for n in range(23)]
    cosines = queries @ (words.matrix / words.norms[:, None]).T
    cosines /= np.linalg.norm(queries, axis=1, keepdims=True)
    for query, rows in enumerate(excluded):
        cosines[query, rows] = -np.inf
    wanted = np.argsort(-cosines, axis=1)[:, :k]
    monkeypatch.setattr(search, "_QUERIES_PER_BLOCK", 5)
    for rows_per_block in (3, 7, 64):
        monkeypatch.setattr(search, "_ROWS_PER_BLOCK", rows_per_block)
        rows, values = nearest_rows(words, queries, k, excluded)
        np.testing.assert_array_equal(rows, wanted)
        np.testing.assert_allclose(values, np.take_along_axis(cosines, wanted, 1), rtol=1e-5)


@pytest.mark.parametrize("k", [1, 3])
def test_a_tie_goes_to_the_more_frequent_word(make_vectors, monkeypatch, k):
    monkeypatch.setattr(search, "_ROWS_PER_BLOCK", 2)
    words = make_lexicon(make_vectors("abcdef", [[0, 1], [1, 0], [2, 0], [1, 0], [4, 0], [0, 1]]))
    rows, _ = nearest_rows(words, np.array([[1, 0]], np.float32), k, [[]])
    assert rows.tolist() == [[1, 2, 3][:k]]


def test_fewer_words_than_asked_for(make_vectors):
    words = make_lexicon(make_vectors("ab", [[1, 0], [0, 1]]))
    rows, cosines = nearest_rows(words, np.array([[1, 0]], np.float32), 3, [[0]])
    assert rows.tolist() == [[1, -1, -1]]
    assert cosines[0, 1] == -np.inf
