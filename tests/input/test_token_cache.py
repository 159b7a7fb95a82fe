import functools
import re
import threading

import numpy as np
import pytest
import tensorflow as tf

from app.input import counting, device_batches, pipeline, token_cache
from app.input.blocks import ALL, Share, TextFiles, share_of
from app.input.token_cache import KeptTokens
from app.settings import CorpusConfig, InputConfig, VocabularyConfig
from app.text.phrase_table import PhraseTable
from app.text.reading import Progress
from app.text.vocabulary import Vocabulary
from app.types import ALONE
from tests.teams import together

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


@pytest.mark.parametrize(
    ("kind", "epochs", "tokens", "expected"),
    [
        ("auto", 2, 1 << 28, True),
        ("auto", 2, (1 << 28) + 1, False),
        ("auto", 1, 10, False),
        ("memory", 1, 10, True),
        ("none", 9, 10, False),
    ],
)
def test_auto_keeps_small_texts_that_are_read_again(kind, epochs, tokens, expected):
    assert token_cache.keeps(kind, epochs, tokens) == expected


# Blocks that are kept while a text is counted equal those that are read and split again.

# Documents without a word, with rare words only, and with rare words at their start.
TEXT = "a b c a\n\nrare1\nrare2 b a b\n \nc c rare3 a\n" * 40 + "b a " + "x" * 2000 + " a\nb"
INPUT = InputConfig(block_bytes=128)
B_A = PhraseTable([("b", "a")], np.array([9]), np.array([9.0]))


def keep(sources, corpus, limit=1 << 30, entries=1 << 20, phrases=(), team=ALONE):
    kept = KeptTokens(limit, share_of(team))
    files = TextFiles(sources, corpus, INPUT)
    tally, total = counting.count_tokens(files, entries, phrases=phrases, team=team, kept=kept)
    return kept, tally, total


def read_again(sources, corpus, vocabulary, share, phrases=()):
    tokenize = pipeline.make_block_tokenizer(corpus, vocabulary, phrases)
    blocks = pipeline.map_blocks(
        TextFiles(sources, corpus, INPUT), Progress.make(sources), tokenize, share
    )
    return [*blocks.as_numpy_iterator()]


@pytest.fixture
def sources(tmp_path):
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    paths[0].write_text(TEXT)
    paths[1].write_text("a a b rare4 c\n" * 30)
    return tuple(map(str, paths))


@pytest.mark.slow
@pytest.mark.parametrize("share", [ALL, Share(1, 3)])
@pytest.mark.parametrize("documents", ["line", "file", "none"])
@pytest.mark.parametrize("phrases", [(), (B_A,)])
def test_kept_blocks_are_those_that_are_read(sources, documents, share, phrases):
    corpus = CorpusConfig(documents=documents)
    kept, tally, total = keep(sources, corpus, phrases=phrases)
    vocabulary = counting.select_tokens(tally, total, VocabularyConfig(min_count=31))
    kept.identify(vocabulary)
    expected = read_again(sources, corpus, vocabulary, share, phrases)
    assert len(expected) > 3
    for _ in range(2):  # the first pass replaces numbers by ids
        blocks = [*token_cache.read_kept(kept, share).as_numpy_iterator()]
        assert [block.tolist() for block in blocks] == [block.tolist() for block in expected]
        assert all(block.dtype == np.int32 for block in blocks)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_a_process_of_a_team_keeps_its_share(sources, parts):
    corpus = CorpusConfig()
    kept_by_process = together(3, lambda team: keep(sources, corpus, team=team))
    for process, (kept, tally, total) in enumerate(kept_by_process):
        vocabulary = counting.select_tokens(tally, total, VocabularyConfig(min_count=31))
        kept.identify(vocabulary)
        for number in range(3 * parts):
            share = Share(number, 3 * parts)
            assert kept.covers(share) is (number % 3 == process)
            if kept.covers(share):
                blocks = [*token_cache.read_kept(kept, share).as_numpy_iterator()]
                expected = read_again(sources, corpus, vocabulary, share)
                assert len(expected) > 1
                assert [block.tolist() for block in blocks] == [b.tolist() for b in expected]
        assert not any(map(kept.covers, [ALL, Share(process, 2), Share(process, 4)]))


@pytest.mark.slow
def test_a_team_keeps_nothing_when_counts_are_dropped(sources):
    tokens = len(keep(sources, CorpusConfig())[1])
    # Too few entries for a share, too few for all shares together, and enough.
    for entries, keeps in ((3, False), (tokens - 1, False), (tokens, True)):
        count = functools.partial(keep, sources, CorpusConfig(), entries=entries)
        found = together(2, lambda team, count=count: count(team=team)[0].is_complete)
        assert found == [keeps, keeps]


@pytest.mark.slow
def test_a_given_vocabulary_gives_the_ids(sources):
    corpus, vocabulary = CorpusConfig(), Vocabulary(["c", "unseen", "a"], np.array([3, 2, 1]), 6)
    kept, _, _ = keep(sources, corpus)
    kept.identify(vocabulary)
    expected = read_again(sources, corpus, vocabulary, ALL)
    blocks = [*token_cache.read_kept(kept, ALL).as_numpy_iterator()]
    assert [block.tolist() for block in blocks] == [block.tolist() for block in expected]


@pytest.mark.slow
def test_too_many_tokens_are_not_kept(sources):
    tokens = keep(sources, CorpusConfig())[2]
    assert keep(sources, CorpusConfig(), limit=4 * tokens)[0].is_complete
    assert not keep(sources, CorpusConfig(), limit=4 * tokens - 1)[0].is_complete


def test_nothing_is_kept_when_counts_are_dropped(sources):
    assert not keep(sources, CorpusConfig(), entries=3)[0].is_complete


def test_which_caches_keep_tokens():
    for kind, keeps in {"auto": True, "memory": True, "none": False}.items():
        assert (token_cache.make_kept(kind, ALL) is not None) is keeps


# Batches on a device: those that are made there, on a CPU under XLA, and copies.


WINDOW = 3
SETTINGS = InputConfig(batch_tokens=16, row_tokens=4, steps_per_call=2)
KEEP = np.linspace(0.2, 1.4, 500).clip(max=1).astype(np.float32)


def make_blocks(sizes, documents=0.05):
    random = np.random.default_rng(0)
    blocks = []
    for size in sizes:
        ids = (random.zipf(1.5, size) % len(KEEP)).astype(np.int32)
        blocks.append(np.where(random.random(size) < documents, ~ids, ids))
    return blocks


def by_pipeline(blocks, epochs, first=0, settings=SETTINGS):
    signature = tf.TensorSpec([None], tf.int32)
    dataset = tf.data.Dataset.from_generator(lambda: iter(blocks), output_signature=signature)
    rows = pipeline.make_epoch_rows(dataset, KEEP, WINDOW, settings, 1)
    made = pipeline.make_batches([rows], epochs, first, 2 * WINDOW, settings)
    return list(made.as_numpy_iterator())


def by_device(blocks, settings=SETTINGS):
    return device_batches.make_batches(lambda: blocks, KEEP, WINDOW, settings, 1, "CPU:0")


def assert_equal(made, expected):
    assert [epoch for epoch, _ in made] == [epoch for epoch, _ in expected]
    for (_, batch), (_, other) in zip(made, expected, strict=True):
        assert batch.dtype == tf.int32
        np.testing.assert_array_equal(batch, other)


@pytest.mark.slow
def test_blocks_of_any_size_and_every_place_to_go_on_from():
    # The first programs are for blocks of 900, the others for at most 56 tokens.
    blocks = make_blocks([500, 0, 300, 900, 7, 1, 56, 57, 0, 333, 900, 12])
    make = by_device(blocks)
    expected = by_pipeline(blocks, range(4, 6))
    assert_equal(list(make(range(4, 6), 0)), expected)
    in_first = sum(epoch == 4 for epoch, _ in expected)
    for first in range(1, in_first + 2):
        assert_equal(list(make(range(4, 6), first)), expected[min(first, in_first) :])


@pytest.mark.parametrize(
    "sizes",
    [[], [3, 0, 2], *(pytest.param(s, marks=pytest.mark.slow) for s in ([0], [0, 0, 0], [1]))],
    ids=str,
)
def test_a_text_smaller_than_a_batch(sizes):
    blocks = make_blocks(sizes)
    expected = by_pipeline(blocks, range(3))
    assert len(expected) <= 3
    assert_equal(list(by_device(blocks)(range(3), 0)), expected)


@pytest.mark.slow
def test_equal_keys_of_rows_keep_their_order():
    """Of 20,000 keys of 23 bits, some are equal."""
    settings = InputConfig(batch_tokens=4096, row_tokens=1, steps_per_call=5)
    blocks = make_blocks([30_000])
    keys = tf.random.stateless_uniform((20_000,), (1, 2)).numpy()
    assert len(np.unique(keys)) < len(keys)
    expected = by_pipeline(blocks, range(1), settings=settings)
    assert_equal(list(by_device(blocks, settings)(range(1), 0)), expected)


def test_the_programs_have_no_loop_and_serve_all_blocks():
    """No loop over tokens, and neither the corpus nor the block are constants of the program."""
    shape, size = (2, 4, 10), 50_000
    functions = device_batches._row_functions(KEEP, WINDOW, SETTINGS, 1, shape)
    corpus, block = tf.zeros([3 * size], tf.uint32), tf.zeros([5], tf.int64)
    for function, others in zip(functions, ((), (tf.zeros(shape, tf.uint32),)), strict=True):
        text = function.experimental_get_compiler_ir(corpus, block, *others, size)(stage="hlo")
        assert " while(" not in text and text.count(" sort(") == text.count("is_stable=true")
        layout = re.search(r"entry_computation_layout=\{\((.*?)\)->", text)[1]
        assert "u32[150000]" in layout and "s64[5]" in layout


def test_copies_come_in_order_and_errors_are_raised():
    def batches():
        for number in range(5):
            yield number, {"ids": tf.fill([2, 3], number), "weights": (tf.fill([2], 0.5),)}
        raise ValueError("mine")

    asked = iter([True, True, False, True, True])
    copies = device_batches.copy_ahead(batches(), "CPU:0", lambda: next(asked))
    with pytest.raises(ValueError, match="mine"):
        for expected, (number, data) in enumerate(copies):
            assert number == expected
            np.testing.assert_array_equal(data["ids"], np.full([2, 3], number))
            assert (
                data["ids"].dtype == tf.int32 and data["weights"][0].numpy().tolist() == [0.5] * 2
            )
    assert expected == 4


def test_the_thread_that_copies_is_one_batch_ahead_and_ends():
    taken = []

    def batches():
        for number in range(100):
            taken.append(number)
            yield number, tf.constant(number)

    copies = device_batches.copy_ahead(batches(), "CPU:0", lambda: True)
    next(copies)
    assert taken == [0], "no thread makes tensors while the first call is traced"
    for _ in range(2):
        next(copies)
    copies.close()
    assert len(taken) == 4
    assert not any(thread.name.startswith("copy") for thread in threading.enumerate())
