import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.input import pipeline, sequences
from app.input.blocks import TextFiles, raise_read_errors
from app.input.token_rows import PAD
from app.settings import CorpusConfig, InputConfig
from app.text.reading import Progress
from app.text.vocabulary import EOS, UNK, Vocabulary

STREAMS, STEPS, END = 3, 4, 99
SMALL = InputConfig(batch_tokens=STREAMS * STEPS, row_tokens=STEPS, steps_per_call=2)


def dataset(blocks):
    signature = tf.TensorSpec([None], tf.int32)
    return tf.data.Dataset.from_generator(lambda: iter(blocks), output_signature=signature)


def batches(found, settings=SMALL):
    pairs = pipeline.make_batches([found], range(1), 0, 1, settings).as_numpy_iterator()
    return np.concatenate([batch for _, batch in pairs])


def read(batches_SBL):
    """The streams of each row of a batch, joined: (ids, predecessors) from one beginning on."""
    streams = []
    for row in range(STREAMS):
        for tokens in batches_SBL[:, row]:
            first = tokens[0]
            real = tokens[1:] != PAD
            if first < 0:
                streams.append(([], []))
                first = ~first
            if real.any():
                before = [first, *tokens[1:-1]]
                streams[-1][0].extend(tokens[1:][real].tolist())
                streams[-1][1].extend(np.array(before)[real].tolist())
    return streams


@pytest.mark.parametrize(
    "size",
    [0, 13, 48, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4, 5, 11, 12, 25, 100))],
)
def test_every_token_is_predicted_once_from_the_one_before_it(size):
    ids = np.arange(size, dtype=np.int32)
    found = sequences.make_epoch_rows(dataset([ids]), 0.0, END, SMALL)
    if not size:
        assert list(found(tf.constant(0, tf.int64)).unbatch()) == []
        return
    streams = read(batches(found))
    assert sum((stream for stream, _ in streams), []) == ids.tolist()
    for stream, before in streams:  # an empty one is padding alone
        assert before == [place - 1 if place else END for place in stream]
    lengths = [len(stream) for stream, _ in streams if stream]
    assert len(set(lengths[:-1])) <= 1 and lengths[0] % STEPS in (0, size % STEPS)


def test_streams_go_on_from_batch_to_batch_and_begin_anew_with_a_block():
    blocks = [np.arange(first, first + size, dtype=np.int32) for first, size in ((0, 50), (60, 7))]
    found = batches(sequences.make_epoch_rows(dataset(blocks), 0.0, END, SMALL))
    rows = -(-50 // (STREAMS * STEPS))
    assert found.shape == (6, STREAMS, STEPS + 1)
    assert (found[[0, rows], 0, 0] < 0).all()
    began = (found[:, :, 0] < 0) & (found[:, :, 0] != PAD)
    assert began[0].all() and not began[1:rows].any()
    # Within a stream, a row begins where the one before it ends.
    for row in range(STREAMS):
        for one, other in zip(found[: rows - 1, row], found[1:rows, row], strict=True):
            assert one[-1] == other[0]
    assert found[rows, 0].tolist() == [~END, 60, 61, 62, 63]
    assert found[rows, 1].tolist() == [~63, 64, 65, 66, PAD]
    assert (found[rows, 2] == PAD).all()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_what_is_held_out_is_the_end_of_every_block_and_nothing_else(share):
    blocks = [np.arange(size, dtype=np.int32) + 100 * size for size in (30, 9, 1)]
    trained, held = (
        read(batches(sequences.make_epoch_rows(dataset(blocks), share, END, SMALL, heldout)))
        if 0 < share < 1 or heldout == (share == 1)
        else []
        for heldout in (False, True)
    )
    cuts = [len(block) - int(share * len(block)) for block in blocks]
    before = {
        int(token): int(ids[place - 1]) if place else END
        for ids in blocks
        for place, token in enumerate(ids)
    }
    for streams, parts in (
        (trained, [ids[:cut] for ids, cut in zip(blocks, cuts, strict=True)]),
        (held, [ids[cut:] for ids, cut in zip(blocks, cuts, strict=True)]),
    ):
        tokens = sum((stream for stream, _ in streams), [])
        assert sorted(tokens) == sorted(np.concatenate(parts).tolist())
        assert [before[token] for token in tokens] == sum((known for _, known in streams), [])


@pytest.mark.slow
def test_batches_are_about_as_many_as_expected():
    blocks = [np.zeros(size, np.int32) for size in (200, 200, 130)]
    for share in (0.0, 0.2):
        settings = dataclasses.replace(SMALL, heldout_share=share)
        found = batches(sequences.make_epoch_rows(dataset(blocks), share, END, settings))
        expected = sequences.estimate_batches(530, settings, len(blocks))
        assert len(found) / SMALL.steps_per_call == pytest.approx(expected, abs=1)
    everything = dataclasses.replace(SMALL, heldout_share=0.2, heldout="a.txt")
    assert sequences.heldout_share(everything) == 0


TOKENS = ["the", EOS, UNK, "cat", "sat"]
VOCABULARY = Vocabulary(TOKENS, np.array([5, 4, 3, 2, 1], np.int64), 15)


@pytest.mark.slow
def test_text_becomes_ids_of_all_its_tokens(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("dog the cat\n\n \nnone of them\n<unk> sat\n")
    progress = Progress.make((str(path),))

    def words(documents):
        corpus = CorpusConfig(documents=documents)
        tokenize = sequences.make_block_tokenizer(corpus, VOCABULARY)
        files = TextFiles((str(path),), corpus, InputConfig())
        blocks = pipeline.map_blocks(files, progress, tokenize)
        with raise_read_errors(progress):
            (ids,) = blocks.as_numpy_iterator()
        return " ".join(TOKENS[token] for token in ids)

    assert words("line") == ("<unk> the cat <eos> <unk> <unk> <unk> <eos> <unk> sat <eos>")
    assert words("none") == "<unk> the cat <unk> <unk> <unk> <unk> sat <eos>"
