from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError
from app.input import token_cache
from app.text.reading import Progress

BLOCKS = [[1, ~2, 3], [], [4], [5, 6]]


class Source:
    """A dataset of blocks that counts how often it is read from its start."""

    def __init__(self, blocks):
        self.blocks, self.passes = blocks, 0
        signature = tf.TensorSpec([None], tf.int32)
        self.dataset = tf.data.Dataset.from_generator(self.read, output_signature=signature)

    def read(self):
        self.passes += 1
        for block in self.blocks:
            yield np.array(block, np.int32)


def read(dataset):
    assert dataset.element_spec == tf.TensorSpec([None], tf.int32)
    return [block.tolist() for block in dataset.as_numpy_iterator()]


@pytest.fixture(params=["memory", "disk"])
def kept(request, tmp_path):
    """From a dataset to the same, kept in one way or the other."""
    if request.param == "memory":
        return lambda blocks: token_cache.cache_in_memory(blocks, Progress.make(()))
    return lambda blocks: token_cache.cache_on_disk(blocks, tmp_path / "tokens", Progress.make(()))


@pytest.mark.parametrize("blocks", [BLOCKS, [[]], [[], []], []])
def test_blocks_come_back_as_they_were_and_are_read_once(kept, blocks):
    source = Source(blocks)
    dataset = kept(source.dataset)
    for _ in range(3):
        assert read(dataset) == blocks
    assert source.passes == 1


def test_a_pass_that_stops_early_keeps_nothing(kept):
    source = Source(BLOCKS)
    dataset = kept(source.dataset)
    assert len(read(dataset.take(2))) == 2
    assert read(dataset) == BLOCKS
    assert source.passes == 2


def test_a_file_that_is_there_is_used_as_it_is(tmp_path):
    path = tmp_path / "tokens"
    read(token_cache.cache_on_disk(Source(BLOCKS).dataset, path, Progress.make(())))
    later = Source([[9]])
    assert read(token_cache.cache_on_disk(later.dataset, path, Progress.make(()))) == BLOCKS
    assert later.passes == 0


@pytest.mark.parametrize("disk", [False, True])
def test_a_corpus_that_fails_midway_is_not_kept(tmp_path, disk):
    progress = Progress.make(())
    passes = []

    def fail_once():
        passes.append(progress.error)
        yield np.array([1], np.int32)
        if len(passes) == 1:
            progress.error = RunError("the corpus is damaged")
            return
        yield np.array([2], np.int32)

    signature = tf.TensorSpec([None], tf.int32)
    blocks = tf.data.Dataset.from_generator(fail_once, output_signature=signature)
    path = tmp_path / "tokens"
    kept = (
        token_cache.cache_on_disk(blocks, path, progress)
        if disk
        else token_cache.cache_in_memory(blocks, progress)
    )
    assert read(kept) == [[1]]
    # The epoch after it, which is made ahead, leaves nothing behind.
    assert not disk or read(kept) == []
    assert not list(tmp_path.iterdir())
    progress.error = None
    assert read(kept) == [[1], [2]] and read(kept) == [[1], [2]]
    assert len(passes) == 2


def test_a_run_goes_on_without_a_file_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way of a folder")
    source, progress = Source(BLOCKS), Progress.make(())
    dataset = token_cache.cache_on_disk(source.dataset, tmp_path / "file" / "tokens", progress)
    assert [read(dataset) for _ in range(2)] == [BLOCKS] * 2
    assert (source.passes, progress.error) == (2, None)
    assert caplog.text.count("--cache=disk: cannot write") == 1


def test_a_run_goes_on_where_the_disk_is_full(tmp_path, caplog, monkeypatch):
    blocks = [[number] * 3000 for number in range(9)]
    with monkeypatch.context() as patched:
        patched.setattr(token_cache, "open", opened_on_a_full_disk, raising=False)
        dataset = token_cache.cache_on_disk(
            Source(blocks).dataset, tmp_path / "tokens", Progress.make(())
        )
        assert [read(dataset) for _ in range(2)] == [blocks] * 2
    assert "No space left on device; free the disk or choose another folder; the run" in caplog.text
    assert list(tmp_path.iterdir()) == []


def opened_on_a_full_disk(path, mode):
    path.touch()
    return open("/dev/full", mode)


def made(tmp_path, blocks=BLOCKS):
    """The file of a cache on the disk."""
    path = tmp_path / "tokens"
    dataset = token_cache.cache_on_disk(Source(blocks).dataset, path, Progress.make(()))
    assert read(dataset) == blocks
    assert list(tmp_path.iterdir()) == [path]
    return path


def damage(data, kind):
    """Return the bytes of a file that is cut, or has a wrong byte, or is of an earlier version."""
    if kind == "flip":
        return data[:17] + bytes([data[17] ^ 1]) + data[18:]
    return {"cut": data[:-2], "cut at the end of a block": data[:-16]}.get(kind, data[20:])


@pytest.mark.parametrize("kind", ["cut", "cut at the end of a block", "flip", "other", "gone"])
def test_a_damaged_cache_is_made_anew(tmp_path, kind, caplog):
    path = made(tmp_path)
    whole = path.read_bytes()
    if kind == "gone":
        path.unlink()
    else:
        path.write_bytes(damage(whole, kind))
    source, progress = Source(BLOCKS), Progress.make(())
    dataset = token_cache.cache_on_disk(source.dataset, path, progress)
    for _ in range(3):
        assert read(dataset) == BLOCKS
    assert path.read_bytes() == whole
    assert progress.error is None
    assert source.passes == (1 if kind == "gone" else 2)  # one epoch of the text, one to keep
    assert ("tokens is damaged" in caplog.text) == (kind != "gone")


@pytest.mark.slow
def test_a_cache_that_is_cut_short_while_it_is_read(tmp_path, caplog):
    blocks = [[number] * 300_000 for number in range(9)]  # more than is read ahead
    path = made(tmp_path, blocks)
    source, progress = Source(blocks), Progress.make(())
    dataset = token_cache.cache_on_disk(source.dataset, path, progress)
    found = []
    for block in dataset.as_numpy_iterator():
        if not found:
            os.truncate(path, 2_000_000)
        found.append(block.tolist())
    assert found == blocks
    assert "tokens is damaged; the text is read again" in caplog.text


@pytest.mark.parametrize(
    ("kind", "epochs", "tokens", "expected"),
    [
        ("auto", 2, 1 << 28, "memory"),
        ("auto", 2, (1 << 28) + 1, "none"),
        ("auto", 1, 10, "none"),
        ("disk", 1, 10, "disk"),
        ("none", 9, 10, "none"),
    ],
)
def test_auto_keeps_small_texts_that_are_read_again(kind, epochs, tokens, expected):
    assert token_cache.choose(kind, epochs, tokens) == expected
