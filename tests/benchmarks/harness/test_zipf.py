from __future__ import annotations

import numpy as np

from app.benchmarks.harness.zipf import zipf_ids


def test_ids_are_by_zipfs_law():
    ids = zipf_ids(np.random.default_rng(1), 50, (5, 20, 2_000))
    assert ids.shape == (5, 20, 2_000) and ids.dtype == np.int32
    expected = 1 / np.arange(1, 51) / np.sum(1 / np.arange(1, 51))
    found = np.bincount(ids.flatten(), minlength=50) / ids.size
    assert len(found) == 50
    assert (abs(found - expected) < 5 * np.sqrt(expected / ids.size)).all()


def test_one_id():
    assert zipf_ids(np.random.default_rng(1), 1, 3).tolist() == [0, 0, 0]
