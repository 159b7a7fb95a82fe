import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError, UsageError
from app.input.blocks import TextFiles
from app.input.token_rows import PAD
from app.losses.negative_sampling import NegativeSampling
from app.models.skipgram import SkipGram
from app.optimizers.adagrad import rowwise_adagrad
from app.settings.flag_values import from_names
from app.tables.dynamic.dynamic import RowStore
from app.tables.dynamic.keys import STRING, KeyMap
from app.tables.initial import Constant, Uniform
from app.tasks.words import growing_words
from app.tasks.words.growing_words import PINNED_STEPS, WordStream
from app.text import vocabulary
from app.training.step import train_function

UNIFORM = Uniform(0.5, seed=1)
STEPS, BATCH, ROW, WINDOW = 2, 16, 4, 1


@pytest.fixture
def text():
    """Lines of words of which few are frequent, and others come and go."""
    random = np.random.default_rng(0)
    words = [f"w{int(i**2.5 / 40) + line // 60 * (i > 14)}" for line, i in places(random)]
    lines = itertools.count()
    return "".join(f"{word}{' ' if next(lines) % 9 else chr(10)}" for word in words)


def places(random):
    return [(line, i) for line in range(300) for i in random.integers(0, 30, 9)]


class Run:
    """A stream with its map, its tables, and what it was told."""

    def __init__(
        self, path, text, capacity=200, block_bytes=700, sightings=1, max_age=0, **options
    ):
        corpus = path / "corpus.txt"
        corpus.write_text(text)
        settings = {"batch_tokens": BATCH, "row_tokens": ROW, "steps_per_call": STEPS}
        settings |= {"block_bytes": block_bytes, "subsample": 0.0, "shuffle": False}
        settings |= {"corpus": str(corpus), "window": WINDOW, "dim": 3}
        self.config = from_names(settings | options)
        self.files = TextFiles((str(corpus),), self.config.corpus, self.config.input)
        self.keys = KeyMap(capacity, STRING, sightings, max_age, PINNED_STEPS)
        self.stores = [
            RowStore(self.keys, 3, initial, rowwise_adagrad().slots)
            for initial in (UNIFORM, Constant(0.0))
        ]
        self.weights, self.vocab = [], path / "vocab.tsv"
        self.stream = WordStream(
            *(self.files, WINDOW, self.config.run.seed),
            *(self.keys, self.stores, self._reweigh, self.vocab),
        )

    def _reweigh(self, counts_V):
        self.weights.append(counts_V.copy())

    def batches(self, epochs=1, first=(0, 0)):
        return self.stream.batches(range(first[0], epochs), first[1])

    def words(self, batch):
        """The words of the centres, by the map as it is now."""
        rows = batch.numpy()[..., WINDOW:-WINDOW].reshape(-1)
        rows = rows[rows != PAD]
        named = dict(zip(self.keys.in_use().tolist(), self.keys.keys().tolist(), strict=True))
        return [named[row].decode() for row in np.where(rows < 0, ~rows, rows).tolist()]


def is_part(part, whole):
    """Whether the words come in this order, others between them or not."""
    rest = iter(whole)
    return all(word in rest for word in part)


def test_the_text_comes_word_for_word(tmp_path, text):
    run = Run(tmp_path, text)
    shapes, found, starts = set(), [], 0
    for epoch, batch in run.batches():
        assert epoch == 0
        shapes.add(tuple(batch.shape))
        found += run.words(batch)
        starts += (batch.numpy()[..., WINDOW:-WINDOW] < 0).sum()
    assert shapes == {(STEPS, BATCH // ROW, ROW + 2 * WINDOW)}
    assert found == text.split()
    assert starts == len(text.splitlines())  # a document is a line
    first = UNIFORM.rows(tf.constant(run.keys.hashes(run.keys.keys())), 3)
    np.testing.assert_array_equal(run.stores[0].gather(run.keys.in_use()), first)
    np.testing.assert_array_equal(run.stores[1].gather(run.keys.in_use()), np.zeros_like(first))


@pytest.mark.slow
@pytest.mark.parametrize(
    "block_bytes", [pytest.param(40, marks=pytest.mark.slow), 700]
)  # far less than a batch, and more
def test_words_keep_their_rows_until_they_are_trained(tmp_path, text, block_bytes):
    run = Run(tmp_path, text, capacity=45, block_bytes=block_bytes, max_age=16)
    found, rows = [], set()
    for _, batch in run.batches(epochs=2):
        found += run.words(batch)  # KeyError if a row had been taken away
        rows |= set(run.keys.keys().tolist())
    assert len(rows) > 60 and len(run.keys) <= 45  # some were
    assert found == text.split() * 2


@pytest.mark.slow
def test_negatives_are_drawn_by_the_counts_so_far(tmp_path, text):
    run = Run(tmp_path, text, capacity=45)
    for _ in run.batches():
        np.testing.assert_array_equal(run.weights[-1], run.keys.counts_V[: run.keys.used])
        assert set(np.flatnonzero(run.weights[-1])) == set(run.keys.in_use())
    loss = NegativeSampling(np.array([1, 0, 0, 0, 0]), 3, 0.75, 4, 64, 5)
    loss.reweigh(np.array([0, 3, 1, 0]))
    drawn = loss.lookups(tf.zeros((1, 0), tf.int32), 4, tf.constant([1, 2]))["output"].numpy()
    assert set(drawn) == {1, 2} and (drawn == 1).mean() == pytest.approx(
        3**0.75 / (3**0.75 + 1), abs=0.03
    )


@pytest.mark.slow
def test_rare_words_are_left_out_until_they_are_admitted(tmp_path, text):
    run = Run(tmp_path, text, sightings=3)
    found = [word for _, batch in run.batches() for word in run.words(batch)]
    assert is_part(found, text.split())
    count = {word: text.split().count(word) for word in set(text.split())}
    assert {word.decode() for word in run.keys.keys().tolist()} == {
        w for w, n in count.items() if n >= 3
    }
    assert 0.8 < len(found) / len(text.split()) < 1


@pytest.mark.slow
def test_frequent_words_are_left_out_by_chance(tmp_path, text):
    run = Run(tmp_path, text, subsample=0.02)
    found = [word for _, batch in run.batches() for word in run.words(batch)]
    assert is_part(found, text.split())
    count = {word: text.split().count(word) for word in set(text.split())}
    often, share = max(count, key=count.get), max(count.values()) / len(text.split())
    keep = (0.02 / share) ** 0.5 + 0.02 / share
    assert found.count(often) == pytest.approx(keep * count[often], rel=0.15)
    again = [
        word
        for _, batch in Run(tmp_path, text, subsample=0.02).batches()
        for word in run.words(batch)
    ]
    assert len(again) == len(found)


def begin(tmp_path, text):
    """A run of the smallest words, with its kept parts and the function that trains them."""
    run = Run(tmp_path, text, capacity=45, sightings=2, max_age=16, subsample=0.05, shuffle=True)
    loss = NegativeSampling(np.arange(45) == 0, 3, 0.75, ROW, 4, 5)
    run.stream._reweigh = loss.reweigh
    tables, optimizer = dict(zip(("input", "output"), run.stores, strict=True)), rowwise_adagrad()
    function = train_function(SkipGram(45, 3, WINDOW, loss, seed=1), tables, optimizer, 1)
    return run, {"stream": run.stream, **tables}, function


def contents(run):
    """Keys, sightings, rows and slots."""
    parts = [
        part.gather(run.keys.in_use()) for store in run.stores for part in store.stores().values()
    ]
    return [
        run.keys.keys().tolist(),
        run.keys.counts_V[run.keys.in_use()].tolist(),
        *(p.numpy().tobytes() for p in parts),
    ]


@pytest.mark.slow
def test_it_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path, text):
    moments, positions = [], {}
    run, kept, function = begin(tmp_path, text)
    batch = 0
    for number, (epoch, tokens) in enumerate(run.batches(epochs=2)):
        batch = batch + 1 if number and epoch == positions[number - 1][0] else 0
        positions[number] = epoch, batch
        if number in (1, 50, 51) or (epoch == 1 and batch == 0):
            moments.append(number)  # before it is trained on, as the loop does
            for name, part in kept.items():
                (tmp_path / f"{number}" / name).mkdir(parents=True)
                part.snapshot(tmp_path / f"{number}" / name)
        function(tokens, tf.constant(number * STEPS, tf.int64), tf.constant(0.1))
    expected, calls = contents(run), len(positions)
    assert len(moments) == 4 and positions[51][0] == 0

    run, kept, function = begin(tmp_path, text)
    for moment in moments:
        for name, part in kept.items():
            part.restore(tmp_path / f"{moment}" / name)
        for number, (epoch, tokens) in enumerate(run.batches(2, positions[moment]), moment):
            assert epoch == positions[number][0]
            function(tokens, tf.constant(number * STEPS, tf.int64), tf.constant(0.1))
        assert number + 1 == calls and contents(run) == expected, moment


@pytest.mark.slow
def test_the_words_are_kept_with_a_checkpoint(tmp_path, text):
    run = Run(tmp_path, text)
    list(run.batches())
    for name, part in (("stream", run.stream), ("input", run.stores[0])):
        (tmp_path / "step" / name).mkdir(parents=True)
        part.snapshot(tmp_path / "step" / name)
    run.stream.commit([tmp_path / "step" / "stream", tmp_path / "older"])
    words = vocabulary.load(str(run.vocab))
    count = {word: text.split().count(word) for word in set(text.split())}
    assert words.tokens == sorted(count, key=lambda word: (-count[word], word))
    assert words.counts.tolist() == sorted(count.values(), reverse=True)
    found = growing_words.load(tmp_path / "step")
    assert found.tokens == words.tokens and found.counts.tolist() == words.counts.tolist()
    named = np.array([token.encode() for token in found.tokens], object)
    np.testing.assert_array_equal(found.matrix, run.stores[0].gather(run.keys.rows(named)))
    (tmp_path / "step" / "stream" / "stream.json").write_text("{}")
    with pytest.raises(DamagedError, match="stream.json is damaged"):
        run.stream.restore(tmp_path / "step" / "stream")


@pytest.mark.slow
def test_how_long_the_text_is_is_guessed_by_its_beginning(tmp_path, text):
    run = Run(tmp_path, text * 5, shuffle=True)
    words, batches = growing_words.estimate_size(run.files, 1)
    assert words == pytest.approx(5 * len(text.split()), rel=0.05)
    assert batches == pytest.approx(len(list(run.batches())), rel=0.15)
    empty = Run(tmp_path, "\n \n")
    with pytest.raises(UsageError, match="--corpus=.* there is no word"):
        growing_words.estimate_size(empty.files, 1)
    rare = Run(tmp_path, "a b c\n", sightings=2)
    with pytest.raises(RunError, match="no word was seen 2 times; lower --min_count"):
        list(rare.batches())


@pytest.mark.slow
def test_a_file_that_cannot_be_read_ends_the_run(tmp_path, text):
    run = Run(tmp_path, text)
    batches = run.batches()
    next(batches)
    run.stream._files = run.files._replace(paths=(str(tmp_path / "gone.txt"),))
    with pytest.raises(RunError, match="gone.txt"):
        list(run.stream.batches(range(run.stream._epoch, 1), run.stream._batch))
