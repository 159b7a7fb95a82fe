import dataclasses
import logging
import os

import numpy as np
import pytest

from app.checkpoints.workdir import Workdir, read_settings
from app.errors import UsageError
from app.input import blocks
from app.input.token_rows import PAD
from app.settings.checks import make_config
from app.settings.flag_values import from_names
from app.tables.memory import Item
from app.tasks.words import words_data, words_job
from app.tasks.words.words_data import load_text
from app.tasks.words.words_job import make_model
from app.text import vocabulary
from app.training.job import PlacedTables
from tests.teams import together

LINES = "a b a c\nb a\n" * 50  # a 150, b 100, c 50


def of_epoch(batches, epoch, first=0):
    """The batches of one epoch, as arrays."""
    pairs = list(batches(range(epoch, epoch + 1), first))
    assert {number for number, _ in pairs} <= {epoch}
    return [batch.numpy() for _, batch in pairs]


def make_batches(text, config, device=""):
    epochs = 0 if config.run.plan_only else config.run.epochs
    text = dataclasses.replace(text, files=text.files._replace(settings=config.input))
    how = config.model.window, config.run.seed, epochs
    return words_job.make_batches(text, *how, device)


@pytest.fixture
def place(tmp_path):
    return Workdir(tmp_path / "run")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(LINES)
    return str(path)


def config(corpus, vocab="", cache="none", subsample=0.0, **changes):
    sizes = {"batch_tokens": 16, "row_tokens": 4, "steps_per_call": 2, "block_bytes": 1024}
    sizes |= {"corpus": corpus, "vocab": vocab, "min_count": 1, "cache": cache}
    return from_names(sizes | {"subsample": subsample} | changes)


def test_a_corpus_is_counted_once(place, corpus):
    found = load_text(config(corpus), place, finished=False)
    assert found.files.paths == (corpus,)
    assert (found.vocabulary.tokens, found.vocabulary.counts.tolist()) == (
        list("abc"),
        [150, 100, 50],
    )
    assert found.words == 300
    assert not place.path.exists()
    words_data.record(found, place)
    place.vocabulary.write_text("b\t9\na\t1\n")  # as if counted so: it is not counted again
    again = load_text(config(corpus), place, finished=False)
    assert again.vocabulary.tokens == ["b", "a"]
    assert (again.words, again.batches) == (found.words, found.batches)


@pytest.fixture
def sentences(tmp_path):
    """Two files, many blocks of unequal size, empty lines, and blocks of unknown words only."""
    random = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(40)])
    for number, lines in enumerate((400, 30)):
        texts = [" ".join(words[random.zipf(1.3, size) % 40]) for size in random.poisson(4, lines)]
        texts[100:100] = [f"rare{index}" for index in range(1000 * number, 1000 * number + 300)]
        (tmp_path / f"text{number}.txt").write_text("\n".join(texts))
    return str(tmp_path / "text*.txt")


ON_DEVICE = [{"subsample": 0.02, "documents": "file"}]
ON_DEVICE_SELDOM = [
    {},
    {"documents": "file", "window": 1, "shuffle": False},
    {"subsample": 0.02},
    {"documents": "none", "subsample": 0.3, "shuffle": False, "row_tokens": 8},
    {"subsample": 0.02, "batch_tokens": 8, "window": 7},  # rows are half a step
    {"subsample": 0.02, "batch_tokens": 512, "steps_per_call": 4},  # one batch, partly padding
    {"documents": "none", "subsample": 0.02, "steps_per_call": 16, "block_bytes": 4096},
]


@pytest.mark.parametrize(
    "values",
    [*ON_DEVICE, *(pytest.param(values, marks=pytest.mark.slow) for values in ON_DEVICE_SELDOM)],
    ids=str,
)
def test_a_device_makes_the_batches_of_the_pipeline(place, sentences, values):
    values = {"cache": "memory", "subsample": 0.0, "block_bytes": 1024, "batch_tokens": 16} | values
    values = {"corpus": sentences, "row_tokens": 4, "steps_per_call": 2} | values
    settings = from_names({"min_count": 1, "max_vocab_size": 30} | values)
    found = load_text(settings, place, finished=False)
    sizes = [len(block) for block in found.kept.blocks(blocks.ALL)]
    assert settings.input.block_bytes > 1024 or (len(sizes) > 10 and 0 in sizes)
    by_pipeline = make_batches(found, settings)
    by_device = make_batches(found, settings, "CPU:0")
    for epochs, first in ((range(2), 0), (range(2, 4), 3), (range(1), 10**6)):
        expected = [(epoch, batch.numpy()) for epoch, batch in by_pipeline(epochs, first)]
        made = [(epoch, batch.numpy()) for epoch, batch in by_device(epochs, first)]
        assert [epoch for epoch, _ in made] == [epoch for epoch, _ in expected]
        for (_, batch), (_, other) in zip(made, expected, strict=True):
            np.testing.assert_array_equal(batch, other)


def test_a_device_reads_the_text_of_a_run_that_goes_on(place, sentences):
    settings = from_names({"corpus": sentences, "block_bytes": 4096, "batch_tokens": 512})
    words_data.record(load_text(settings, place, finished=False), place)
    found = load_text(settings, place, finished=False)
    assert found.kept is None
    expected = of_epoch(make_batches(found, settings), 1)
    made = of_epoch(make_batches(found, settings, "CPU:0"), 1)
    np.testing.assert_array_equal(made, expected)


PLACED = PlacedTables({}, "CPU:0", 1, None, [Item("input", "2 x 100", "CPU:0", 900_000)])


def test_the_memory_of_token_ids_is_planned():
    settings = from_names({"device_memory": 0.001, "block_bytes": 1024})
    items, line = words_job._plan_input(20_000, settings, PLACED)
    assert [(item.place, item.bytes) for item in items] == [("CPU:0", 80_000), ("CPU:0", 512 * 26)]
    assert line == "token ids: 80.00 kB on CPU:0, which makes the batches"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"device_memory": 0.001},
            "they take 200.00 kB, which CPU:0 does not have beside the tables",
        ),
        ({"cache": "none"}, "they take 200.00 kB, and --cache=none does not keep them"),
        ({"table": "sharded"}, "--table=sharded"),
        ({"micro_batches": 2}, "--micro_batches=2"),
        ({"strategy": "mirrored"}, "--strategy=mirrored"),
    ],
)
def test_why_token_ids_stay_on_the_host(values, reason):
    found = words_job._plan_input(50_000, from_names(values), PLACED)
    assert found == ([], f"token ids stay on the host: {reason}")


@pytest.mark.slow
def test_a_vocabulary_of_other_text(place, corpus, tmp_path):
    other = tmp_path / "words.tsv"
    other.write_text("b\t9000\nc\t5000\nz\t4000\n")
    found = load_text(config(corpus, vocab=str(other)), place, finished=False)
    assert found.vocabulary.tokens == ["b", "c", "z"]
    assert found.vocabulary.counts.tolist() == [9000, 5000, 4000]
    assert found.words == 300
    counted = load_text(config(corpus), place, finished=False)
    assert found.batches == pytest.approx(counted.batches / 2, abs=1)


@pytest.mark.slow
def test_other_text_for_a_finished_run_only(place, corpus, tmp_path, caplog):
    words_data.record(load_text(config(corpus), place, finished=False), place)
    longer = tmp_path / "b.txt"
    longer.write_text("c b c b x\n" * 400)
    with pytest.raises(UsageError, match=f"^--corpus={longer} is not what --workdir="):
        load_text(config(str(longer)), place, finished=False)
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = load_text(config(str(longer)), place, finished=True)
    assert "other text than before; the vocabulary of --workdir is kept" in caplog.text
    assert found.vocabulary.tokens == list("abc")
    assert found.words == 2000
    assert found.batches == pytest.approx(1600 / 32, abs=3)


def test_a_corpus_that_was_moved_is_the_same(place, corpus, tmp_path):
    words_data.record(load_text(config(corpus), place, finished=False), place)
    (tmp_path / "deep").mkdir()
    moved = (tmp_path / "a.txt").rename(tmp_path / "deep" / "a.txt")
    assert load_text(config(str(moved)), place, finished=False).words == 300


def edit(path, old, new):
    """Change a text that keeps its size, and that its samples do not show."""
    text = path.read_text()
    assert len(old) == len(new) and text.count(old) == 1
    path.write_text(text.replace(old, new))
    later = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(later, later))


@pytest.fixture
def long_corpus(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("a a a b b c\n" * 6500 + "a a a a a a\n" + "a a a b b c\n" * 11500)
    return path


def test_a_corpus_edited_in_place_is_refused_in_the_middle_of_a_run(place, long_corpus):
    settings = config(str(long_corpus), block_bytes=1 << 20)
    words_data.record(load_text(settings, place, finished=False), place)
    edit(long_corpus, "a a a a a a\n", "c c c c c c\n")
    with pytest.raises(UsageError, match=f"^--corpus={long_corpus} is not what --workdir"):
        load_text(settings, place, finished=False)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["none", "memory"])
def test_an_epoch_can_be_entered_anywhere(place, corpus, cache):
    settings = config(corpus, cache=cache, subsample=0.05)
    found = load_text(settings, place, finished=False)
    plain = make_batches(found, config(corpus, subsample=0.05))
    expected = [of_epoch(plain, epoch) for epoch in range(2)]
    assert not np.array_equal(expected[0][0], expected[1][0])
    batches = make_batches(found, settings)
    for epoch, first in ((0, 3), (0, 0), (1, 0), (1, 2)):
        np.testing.assert_array_equal(of_epoch(batches, epoch, first), expected[epoch][first:])
    several = list(batches(range(2), 1))
    assert [epoch for epoch, _ in several] == [0] * len(expected[0][1:]) + [1] * len(expected[1])


@pytest.mark.slow
def test_the_digest_tells_texts_and_vocabularies_apart(place, corpus, tmp_path):
    found = load_text(config(corpus), place, finished=False)
    assert words_data.compute_digest(found) == words_data.compute_digest(
        load_text(config(corpus), place, finished=False)
    )
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "a.txt"
    other.write_text(LINES.replace("a", "x").replace("b", "a").replace("x", "b"))
    assert words_data.compute_digest(
        load_text(config(str(other)), place, False)
    ) != words_data.compute_digest(found)
    swapped = vocabulary.Vocabulary(list("bac"), found.vocabulary.counts, 300)
    changed = dataclasses.replace(found, vocabulary=swapped)
    assert words_data.compute_digest(changed) != words_data.compute_digest(found)


def rows_of(batches_SBL, part, micro):
    """The rows of a micro-batch of each step, with padding, (N, L)."""
    found = np.stack([np.split(batch, micro, axis=1)[part] for batch in batches_SBL])
    return found.reshape(-1, found.shape[-1])


def of_text(rows_NL):
    """Those that are not padding, sorted."""
    return sorted(map(tuple, rows_NL[(rows_NL != PAD).any(axis=1)]))


@pytest.mark.parametrize(
    ("micro", "cache"),
    [pytest.param(*both, marks=pytest.mark.slow) for both in ((3, "memory"), (2, "none"))],
)
def test_micro_batches_share_the_blocks_of_the_text(place, tmp_path, cache, micro):
    """Every row once, whoever reads; each process what another would read of its part."""
    path = tmp_path / "long.txt"
    random = np.random.default_rng(0)
    path.write_text("\n".join(" ".join(random.choice(list("abcd"), 20)) for _ in range(300)))
    options = {"subsample": 0.05, "cache": cache}
    one = config(str(path), **options)
    found = load_text(one, place, finished=False)
    whole = np.concatenate([batch.reshape(-1, batch.shape[-1]) for batch in
                            of_epoch(make_batches(found, one), 1)])  # fmt: skip
    settings = config(str(path), **options, micro_batches=micro, batch_tokens=16 * micro)
    expected = load_text(settings, place, finished=False).batches
    batches = make_batches(found, settings)
    assert of_epoch(batches, 0)  # as a cache of an epoch before has it
    together = of_epoch(batches, 1)
    assert len(together) == pytest.approx(expected, rel=0.15)
    parts = [rows_of(together, part, micro) for part in range(micro)]
    assert of_text(np.concatenate(parts)) == of_text(whole)
    for part in range(micro):
        alone = make_batches(found, settings)
        mine = [tokens.numpy() for _, tokens in alone(range(1, 2), 2, range(part, part + 1))]
        assert {tokens.shape[1] for tokens in mine} == {together[0].shape[1] // micro}
        assert of_text(rows_of(mine, 0, 1)) == of_text(rows_of(together[2:], part, micro))


@pytest.mark.slow
def test_a_team_loads_what_one_process_does(place, corpus):
    settings = config(corpus, block_bytes=100)
    expected = load_text(settings, place, finished=False)

    def load(team):
        return load_text(settings, place, finished=False, team=team)

    for found in together(2, load):
        assert found.vocabulary.tokens == expected.vocabulary.tokens
        assert dataclasses.replace(found, vocabulary=expected.vocabulary) == expected
        assert found.vocabulary.counts.tolist() == expected.vocabulary.counts.tolist()
    words_data.record(expected, place)
    for workers in (8, 9):  # seven blocks of 96 bytes, and of 24
        message = f"no text is left for worker 7.* has 7 block.s. of .* for {workers} workers"
        with pytest.raises(UsageError, match=message):
            together(workers, load)
    for found in together(2, load):  # nothing is counted again
        assert found.fingerprint == expected.fingerprint


@pytest.mark.slow
def test_a_vocabulary_of_a_single_word_has_nothing_to_learn(place, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("one " * 12)
    message = f"^--corpus={path}: the vocabulary has a single word, 'one', so .*; give more text"
    with pytest.raises(UsageError, match=message):
        load_text(config(str(path)), place, finished=False)
    found = load_text(config(str(path)), place, finished=False, ends_documents=True)
    assert set(found.vocabulary.tokens) == {"one", "<unk>", "<eos>"}
    path.write_text("one two")
    assert load_text(config(str(path)), place, finished=False).words == 2


def test_words_that_are_not_separated_are_reported_once(place, tmp_path, caplog):
    path = tmp_path / "a.txt"
    path.write_text("这是一个没有空格的句子\n我们不知道词在哪里\n" * 9, encoding="utf-8")
    found = load_text(config(str(path)), place, finished=False)
    (record,) = caplog.records
    message = f"--corpus={path}: {path} has Chinese or Japanese without spaces between words"
    assert message in record.getMessage() and "--tokenizer=whitespace" in record.getMessage()
    caplog.clear()
    words_data.record(found, place)
    load_text(config(str(path)), place, finished=False)
    assert not caplog.records


@pytest.mark.parametrize(
    ("column", "first", "count"), [("", "id;text", 1), ("text", "id;text", 0), ("", "a b", 0)]
)
def test_all_columns_of_a_table_are_reported_once(place, tmp_path, caplog, column, first, count):
    path = tmp_path / "a.CSV"
    path.write_text(f"{first}\n1;a b a b\n2;b a b a\n")
    load_text(config(str(path), text_column=column), place, finished=False)
    found = [text for text in caplog.messages if "--text_column=NAME reads one column" in text]
    assert len(found) == count


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, False),
        ({"contexts": "drawn"}, True),
        ({"loss": "sampled_softmax", "samples": 8}, False),
        ({"loss": "hierarchical_softmax"}, False),
        ({"loss": "class_softmax"}, True),
        ({"loss": "softmax"}, True),
        ({"loss": "adaptive_softmax"}, True),
    ],
)
def test_only_a_loss_that_lists_pairs_has_drawn_contexts_by_default(values, expected):
    config = make_config({"dim": 4, **values})
    assert make_model(config, np.arange(100, 0, -1)).draws_contexts == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("--dim=4\n", "drawn"), ("--task=words\n", "drawn"), ("--contexts=auto\n", "auto")],
)
def test_a_workdir_that_is_older_than_the_flag_draws_contexts(tmp_path, flags, expected):
    (tmp_path / "flags.cfg").write_text(flags)
    assert read_settings(tmp_path)["contexts"] == expected
    assert read_settings(tmp_path / "new") == {}
