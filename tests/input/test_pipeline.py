import gc

import numpy as np
import pytest
import tensorflow as tf

from app.input import pipeline, token_rows
from app.input.blocks import TextFiles, raise_read_errors
from app.input.token_rows import PAD, decode, encode
from app.settings import CorpusConfig, InputConfig
from app.text.reading import Progress
from app.text.vocabulary import Vocabulary

WINDOW, CENTRES = 3, 4
SMALL = InputConfig(batch_tokens=2 * CENTRES, row_tokens=CENTRES, steps_per_call=2, shuffle=False)
SHUFFLED = InputConfig(batch_tokens=2 * CENTRES, row_tokens=CENTRES, steps_per_call=2)
INSIDE = slice(WINDOW, -WINDOW)


def block(ids, first=(0,)):
    """A block of tokens: these ids, and the places of the first tokens of documents."""
    tokens = np.array(ids, np.int32)
    tokens[list(first)[: len(tokens)]] = ~tokens[list(first)[: len(tokens)]]
    return tokens


def dataset(blocks):
    signature = tf.TensorSpec([None], tf.int32)
    return tf.data.Dataset.from_generator(lambda: iter(blocks), output_signature=signature)


def batches(blocks, settings=SMALL, keep=None, seed=1, epoch=0):
    keep = np.ones(1000, np.float32) if keep is None else np.asarray(keep, np.float32)
    found = pipeline.make_epoch_rows(dataset(blocks), keep, WINDOW, settings, seed)
    return of_epoch(found, epoch, settings)


def of_epoch(found, epoch, settings, first=0):
    """The batches of one epoch, as arrays."""
    epochs = range(epoch, epoch + 1)
    pairs = list(
        pipeline.make_batches([found], epochs, first, 2 * WINDOW, settings).as_numpy_iterator()
    )
    assert {number for number, _ in pairs} <= {epoch}
    return [batch for _, batch in pairs]


def rows(found):
    """All rows that hold a centre, (rows, L), in order."""
    length = CENTRES + 2 * WINDOW
    joined = np.concatenate(found).reshape(-1, length) if found else np.zeros([0, length])
    return joined[(joined[:, INSIDE] != PAD).any(axis=1)]


def centres(found):
    inside = rows(found)[:, INSIDE]
    return inside[inside != PAD]


def framed(tokens):
    """The rows of a block, place by place."""
    return [
        [
            tokens[place] if 0 <= place < len(tokens) else PAD
            for place in range(start - WINDOW, start + CENTRES + WINDOW)
        ]
        for start in range(0, len(tokens), CENTRES)
    ]


BLOCKS = [
    block(range(100, 121), first=(0, 5, 6, 20)),  # the last row is not full
    block(range(200, 202)),  # shorter than a row
    block([]),
    block(range(300, 312), first=(0, 4)),  # rows that are just full
    block([400]),
]


@pytest.mark.slow
def test_every_token_is_a_centre_once_between_its_true_neighbours():
    found = batches(BLOCKS)
    np.testing.assert_array_equal(rows(found), sum(map(framed, BLOCKS), []))
    np.testing.assert_array_equal(centres(found), np.concatenate(BLOCKS))


def test_a_batch_has_its_shape_and_the_last_is_filled_up():
    found = batches(BLOCKS)
    assert {(array.shape, array.dtype) for array in found} == {((2, 2, 10), np.dtype(np.int32))}
    # 6 + 1 + 0 + 3 + 1 rows make 2.75 batches of 4.
    assert len(found) == 3
    assert (found[2][1, 1] == PAD).all() and (found[2][1, 0] != PAD).any()


@pytest.mark.parametrize(
    "blocks",
    [
        [block([]), block([])],
        *(pytest.param(blocks, marks=pytest.mark.slow) for blocks in ([], [block([])])),
    ],
)
def test_nothing_gives_nothing(blocks):
    assert batches(blocks) == []


def test_shuffling_permutes_the_rows_of_a_block_and_nothing_else():
    long = block(range(100, 100 + 50 * CENTRES), first=range(0, 200, 7))
    found = rows(batches([long, *BLOCKS], SHUFFLED)).tolist()
    assert found[:50] != framed(long)
    assert sorted(found[:50]) == sorted(framed(long))
    assert sorted(found[50:56]) == sorted(framed(BLOCKS[0]))


@pytest.mark.slow
def test_a_seed_and_an_epoch_give_the_same_batches_at_any_parallelism():
    random = np.random.default_rng(0)
    blocks = [block(random.integers(0, 50, size=size)) for size in (500, 0, 300, 900, 7) * 4]
    keep = np.full(50, 0.6, np.float32)

    def stream(parallelism=1, **changes):
        settings = InputConfig(
            batch_tokens=8, row_tokens=4, steps_per_call=2, map_parallelism=parallelism
        )
        return np.concatenate(batches(blocks, settings, keep, **changes))

    one = stream()
    for parallelism in (8, 8, -1):
        np.testing.assert_array_equal(stream(parallelism), one)
    for changed in (stream(seed=2), stream(epoch=1)):
        assert sorted(centres([changed])) != sorted(centres([one]))


def test_equal_blocks_are_subsampled_differently():
    found = centres(batches([block(range(200))] * 2, keep=np.full(200, 0.5)))
    kept = np.where(found < 0, ~found, found)
    half = np.flatnonzero(np.diff(kept) < 0)[0] + 1
    assert kept[:half].tolist() != kept[half:].tolist()


@pytest.mark.slow
def test_ids_are_kept_as_often_as_asked():
    keep = np.array([0.0, 0.01, 0.3, 0.9, 1.0], np.float32)
    size = 40_000
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(5), size))
    found = centres(batches(np.split(block(ids), 10), keep=keep))
    counts = np.bincount(np.where(found < 0, ~found, found), minlength=5)
    assert (abs(counts - size * keep) <= 5 * np.sqrt(size * keep * (1 - keep))).all()


def test_halos_are_made_after_subsampling():
    ids = np.random.default_rng(0).integers(0, 10, size=100)
    keep = np.ones(10)
    keep[3:6] = 0
    kept = ids[(ids < 3) | (ids > 5)]
    np.testing.assert_array_equal(rows(batches([block(ids)], keep=keep)), framed(block(kept)))


def test_document_ends_survive_the_loss_of_first_tokens():
    random = np.random.default_rng(0)
    documents = np.sort(random.integers(0, 40, size=300))
    ids = np.arange(300)
    keep = (random.random(300) < 0.5).astype(np.float32)
    firsts = np.flatnonzero(np.diff(documents, prepend=-1))
    assert 0 < keep[firsts].sum() < len(firsts)

    found = centres(batches([block(ids, firsts)], keep=keep))
    kept = np.flatnonzero(keep)
    np.testing.assert_array_equal(np.where(found < 0, ~found, found), kept)
    np.testing.assert_array_equal(found < 0, np.diff(documents[kept], prepend=-1) != 0)


def test_a_halo_knows_where_its_centre_s_document_ends():
    tokens = block(range(30), first=(0, 3, 7, 8, 15))
    document = np.cumsum(tokens < 0)
    decoded = decode(tf.constant(rows(batches([tokens]))))
    for ids, real, numbers in zip(*(part.numpy() for part in decoded), strict=True):
        ids, numbers = ids[real], numbers[real]
        np.testing.assert_array_equal(
            numbers[:, None] == numbers[None], document[ids][:, None] == document[ids][None]
        )


COUNTS = np.array([500, 300, 100, 60, 30, 6, 3, 1])


@pytest.mark.parametrize("subsample", [1e-3, 0.02, 0.3])
def test_the_chance_to_be_kept_is_gensims(subsample):
    from gensim.models import Word2Vec

    model = Word2Vec(vector_size=1, min_count=1, sample=subsample)
    model.build_vocab_from_freq({f"w{i}": int(count) for i, count in enumerate(COUNTS)})
    theirs = [model.wv.get_vecattr(f"w{i}", "sample_int") / (2**32 - 1) for i in range(8)]
    ours = token_rows.keep_probability(COUNTS, subsample)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert ours.max() <= 1


def test_no_subsampling_keeps_all():
    np.testing.assert_array_equal(token_rows.keep_probability(COUNTS, 0), np.ones(8))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        *((160, 10), (161, 11)),
        *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((1, 1), (159, 10), (48, 3))),
    ],
)
def test_batches_are_foretold(size, expected):
    assert pipeline.estimate_batches(np.array([size]), np.ones(1), SMALL) == expected
    assert len(batches([block([0] * size)])) == expected


def test_the_expected_number_of_batches_allows_for_subsampling():
    assert pipeline.estimate_batches(np.array([6400, 3200]), np.array([0.25, 0.5]), SMALL) == 200


WORDS = ["the", "cat", "sat", "mat", "éclair"]
VOCABULARY = Vocabulary(WORDS, np.array([5, 4, 3, 2, 1], np.int64), 15)


def read(paths, vocabulary=VOCABULARY, corpus=None, **settings):
    """The blocks of files as lists of (word, first of its document)."""
    sources = tuple(map(str, paths))
    progress = Progress.make(sources)
    corpus = corpus or CorpusConfig()
    tokenize = pipeline.make_block_tokenizer(corpus, vocabulary)
    files = TextFiles(sources, corpus, InputConfig(**settings))
    blocks = pipeline.map_blocks(files, progress, tokenize)
    del tokenize
    gc.collect()  # what the dataset needs must not hang on this function's caller
    with raise_read_errors(progress):
        return [
            [(vocabulary.tokens[~token if token < 0 else token], token < 0) for token in tokens]
            for tokens in blocks.as_numpy_iterator()
        ]


def test_text_becomes_known_ids_with_marks_where_documents_start(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("dog the cat\n\nunknown only\nélan éclair dog the\nmat\n", encoding="utf-8")
    assert read([path]) == [
        [("the", True), ("cat", False), ("éclair", True), ("the", False), ("mat", True)]
    ]
    assert read([path], corpus=CorpusConfig(documents="none")) == [
        [("the", True), ("cat", False), ("éclair", False), ("the", False), ("mat", False)]
    ]


@pytest.mark.slow
def test_a_block_without_known_words_is_an_empty_block(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("dog\n" * 300 + "cat\n" * 300)
    found = read([path], block_bytes=1024)
    assert [] in found and sum(map(len, found)) == 300
    assert all(first for tokens in found for _, first in tokens)


def test_from_files_to_batches_each_epoch_anew(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("the cat sat\non the mat\n" * 100)
    sources = (str(path),)
    progress = Progress.make(sources)
    tokenize = pipeline.make_block_tokenizer(CorpusConfig(), VOCABULARY)
    files = TextFiles(sources, CorpusConfig(), SHUFFLED)
    blocks = pipeline.map_blocks(files, progress, tokenize)
    keep = token_rows.keep_probability(np.array([200, 100, 100, 100, 0]) + 1, 0.2)
    found = pipeline.make_epoch_rows(blocks, keep, WINDOW, SHUFFLED, seed=1)
    with raise_read_errors(progress):
        one, again, other = (
            np.concatenate(of_epoch(found, epoch, SHUFFLED)) for epoch in (0, 0, 1)
        )
        joined = pipeline.make_batches([found], range(3), 2, 2 * WINDOW, SHUFFLED)
        several = list(joined.as_numpy_iterator())
    np.testing.assert_array_equal(one, again)
    assert one.shape != other.shape or (one != other).any()
    # Epochs that follow one another are those made alone, but for what is left out of the first.
    joined = {number: [batch for at, batch in several if at == number] for number in range(3)}
    np.testing.assert_array_equal(np.concatenate(joined[0]), one[4:])
    np.testing.assert_array_equal(np.concatenate(joined[1]), other)
    assert [number for number, _ in several] == sorted(number for number, _ in several)
    assert joined[2]


def test_ids_and_firsts_survive_the_round_trip():
    random = np.random.default_rng(0)
    ids = random.integers(0, PAD, size=1000).astype(np.int32)
    ids[:3] = 0, 1, PAD - 1
    for share in (0.0, 0.1, 1.0):
        first = random.random(1000) < share
        tokens = encode(tf.constant(ids), tf.constant(first))
        assert tokens.dtype == tf.int32
        decoded = decode(tokens[tf.newaxis])
        np.testing.assert_array_equal(decoded.ids[0], ids)
        np.testing.assert_array_equal(decoded.document[0], np.cumsum(first))
        assert decoded.real.numpy().all()


def test_padding_is_no_token_and_has_an_id_that_can_be_looked_up():
    decoded = decode(tf.constant([[PAD, ~0, 5, PAD], [PAD, PAD, PAD, ~7]], tf.int32))
    np.testing.assert_array_equal(decoded.ids, [[0, 0, 5, 0], [0, 0, 0, 7]])
    np.testing.assert_array_equal(
        decoded.real, [[False, True, True, False], [False, False, False, True]]
    )


def test_documents_are_numbered_in_each_row_alone():
    decoded = decode(tf.constant([[1, 2, ~3, 4, ~5], [~1, 2, 3, 4, 5]], tf.int32))
    np.testing.assert_array_equal(decoded.document, [[0, 0, 1, 1, 2], [1, 1, 1, 1, 1]])
