from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError
from app.input import cache

BLOCKS = [[1, ~2, 3], [], [4], [5, 6]]


def arrays(blocks):
    return (np.array(block, np.int32) for block in blocks)


def read(dataset):
    assert dataset.element_spec == tf.TensorSpec([None], tf.int32)
    return [block.tolist() for block in dataset.as_numpy_iterator()]


def makers(path):
    return cache.in_memory, lambda blocks: cache.on_disk(blocks, path)


@pytest.mark.parametrize("blocks", [BLOCKS, [[]], [[], []], []])
def test_blocks_come_back_as_they_were_in_every_pass(tmp_path, blocks):
    for make in makers(tmp_path / "tokens"):
        dataset = make(arrays(blocks))
        for _ in range(2):
            assert read(dataset) == blocks


def test_blocks_are_asked_for_once(tmp_path):
    for make in makers(tmp_path / "tokens"):
        blocks = arrays(BLOCKS)
        dataset = make(blocks)
        assert list(blocks) == []
        assert read(dataset) == BLOCKS


def test_a_file_that_is_there_is_used_as_it_is(tmp_path):
    path = tmp_path / "tokens"
    cache.on_disk(arrays(BLOCKS), path)
    later = arrays([[9]])
    assert read(cache.on_disk(later, path)) == BLOCKS
    assert len(list(later)) == 1


def test_a_file_without_its_sizes_is_made_anew(tmp_path):
    path = tmp_path / "tokens"
    path.write_bytes(b"of a run that was killed")
    assert read(cache.on_disk(arrays(BLOCKS), path)) == BLOCKS


def test_a_corpus_that_fails_leaves_nothing_behind(tmp_path):
    def broken():
        yield np.array([1], np.int32)
        raise RunError("the corpus is damaged")

    with pytest.raises(RunError, match="damaged"):
        cache.on_disk(broken(), tmp_path / "tokens")
    assert list(tmp_path.iterdir()) == []
