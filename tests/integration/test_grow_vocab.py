"""The vocabulary of a finished run grows by more text: rows, slots, counts and labels."""

import collections
import random
import shutil
import signal

import numpy as np
import pytest

from app.checkpoints import growth
from app.checkpoints.stored import read_rows
from app.checkpoints.workdir import Workdir, read_settings
from app.settings import flag_values
from app.settings.checks import make_config
from app.tasks import all_tasks, trained_vectors
from app.text import vocabulary
from tests.integration import test_classify
from tests.integration.commands import (
    WORDS,
    checkpoint,
    done,
    killed_when,
    newest_step,
    refused,
    run,
    tensors,
    train,
)

NEW = [f"x{word}" for word in WORDS]
GROW = ("--grow_vocab", "--epochs=4")
SLOTS = ("", "accumulator")


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    """A second text: new words, frequent and rare, among old ones."""
    draw = random.Random(11)
    words = [*NEW[:30], *WORDS[::2]]
    weights = [1 / (1 + rank % 30) for rank in range(len(words))]
    path = tmp_path_factory.mktemp("more") / "more.txt"
    lines = (" ".join(draw.choices(words, weights, k=draw.randrange(1, 20))) for _ in range(300))
    path.write_text("\n".join(lines) + "\nonce\n", encoding="utf-8")
    return path


def grow(workdir, **flags):
    """Let a workdir grow, but train no step; return the place."""
    values = {**read_settings(workdir), "grow_vocab": True, "epochs": 4, **flags}
    config, place = make_config(values), Workdir(workdir)
    with place.lock():
        job = all_tasks.JOBS[config.run.task](config, place, True)
        growth.check_growth(job.growth, job.model.tables(), config.model.loss, place)
        grown = job.growth, job.model.tables(), job.placed.tables
        growth.grow_workdir(*grown, flag_values.by_name(config), place)
    return place


def rows_by_name(folder, tokens, table, slot=""):
    return dict(zip(tokens, read_rows(folder, table, slot).tolist(), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [{}, {"table": "host"}, {"max_vocab_size": 70}])
def test_rows_and_slots_go_on_and_counts_are_merged(workdir, more, flags):
    before = vocabulary.load(str(workdir / "vocab.tsv"))
    rows = {
        (table, slot): rows_by_name(checkpoint(workdir), before.tokens, table, slot)
        for table in ("input", "output")
        for slot in SLOTS
    }
    state = (checkpoint(workdir) / "state.json").read_text()
    place = grow(workdir, corpus=str(more), **flags)
    after = vocabulary.load(str(place.vocabulary))
    counts = collections.Counter(more.read_text().split())
    expected = dict(zip(before.tokens, before.counts.tolist(), strict=True))
    new = [word for word, count in counts.items() if count >= 2 and word not in expected]
    if flags.get("max_vocab_size"):
        new = sorted(new, key=lambda word: (-counts[word], word))[: 70 - len(expected)]
    assert len(new) > 5 and "once" not in after.tokens
    expected = {word: expected.get(word, 0) + counts[word] for word in [*expected, *new]}
    ranked = sorted(expected.items(), key=lambda item: (-item[1], item[0]))
    assert list(zip(after.tokens, after.counts.tolist(), strict=True)) == ranked
    assert after.tokens[: len(before.tokens)] != before.tokens  # rows have to move
    folder = checkpoint(workdir)
    assert (folder / "state.json").read_text() == state
    for (table, slot), old in rows.items():
        found = rows_by_name(folder, after.tokens, table, slot)
        assert {word: found[word] for word in old} == old
        added = np.array([found[word] for word in new])
        if (table, slot) == ("input", ""):
            assert 0 < np.abs(added).max() <= 0.5 / 8
            assert len(np.unique(added)) > 0.99 * added.size
        else:
            assert len(np.unique(added)) == 1 and np.isfinite(added).all()
    assert not place.grown.exists() and not list(workdir.glob(".*"))


@pytest.mark.slow
def test_new_words_start_unlike_any_word_before(tmp_path, trained, more):
    workdir, corpus = tmp_path / "run", read_settings(trained)["corpus"]
    first, third = {}, tmp_path / "third.txt"
    third.write_text("ya yb yc yd ye yf yg yh yi yj\n" * 100)
    # The learning rate is too small to change the initial rows.
    done(tmp_path, *train(workdir, corpus, "--epochs=1", "--learning_rate=1e-30"))
    for text, epochs in ((more, 2), (third, 3)):
        flags = f"--corpus={text}", "--grow_vocab", f"--epochs={epochs}"
        done(tmp_path, "app.train", f"--workdir={workdir}", *flags)
        vectors = trained_vectors.load(workdir)
        found = dict(zip(vectors.tokens, map(tuple, vectors.matrix.round(6).tolist()), strict=True))
        assert len(set(found.values())) == len(found)
        assert first.items() <= found.items() and len(found) > len(first)
        first = found


def test_a_grown_run_trains_on_and_resumes_bit_for_bit(tmp_path, trained, more):
    whole, killed = (tmp_path / name for name in ("whole", "killed"))
    for folder in (whole, killed):
        shutil.copytree(trained, folder / "run")
    flags = ("--checkpoint_minutes=0", *GROW)
    ended = done(whole, *train(whole / "run", more, *flags))
    assert f"--grow_vocab: {len(WORDS)} words keep their rows, and 30 are new" in ended.err
    last, before = newest_step(whole / "run"), newest_step(trained)
    assert last > before + 4
    command = train(killed / "run", more, *flags)
    killed_when(lambda: newest_step(killed / "run") >= (before + last) // 2, killed, *command)
    ended = done(killed, "app.train", f"--workdir={killed / 'run'}")
    assert "resuming at step" in ended.err and "new" not in ended.err.splitlines()[0]
    assert tensors(killed / "run") == tensors(whole / "run")
    found = done(killed, "app.neighbors", f"--workdir={killed / 'run'}", NEW[0], "--k=3")
    assert len(found.out.splitlines()) == 4
    again = done(whole, *train(whole / "run", more, *flags))  # the same text does not count twice
    assert "words keep their rows" not in again.err and newest_step(whole / "run") == last


@pytest.mark.slow
@pytest.mark.parametrize("number", range(11))
def test_a_kill_leaves_the_old_or_the_new_workdir(tmp_path, workdir, trained, more, number):
    place = grow(shutil.copytree(trained, tmp_path / "grown" / "run"), corpus=str(more))
    old, new = trained_vectors.load(workdir), trained_vectors.load(place.path)
    flags = train(workdir, more, *GROW)[1:]
    ended = run(tmp_path, "tests.integration.killed_growth", str(number), *flags)
    if ended.code == 0:
        assert number >= 9
        return
    assert ended.code == -signal.SIGKILL
    found = trained_vectors.load(workdir)
    is_new = len(found.tokens) > len(old.tokens)
    expected = new if is_new else old
    assert found.tokens == expected.tokens
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    np.testing.assert_array_equal(found.counts, expected.counts)
    assert read_settings(workdir)["epochs"] == (4 if is_new else 2)
    neighbors = done(tmp_path, "app.neighbors", f"--workdir={workdir}", found.tokens[0], "--k=1")
    assert len(neighbors.out.splitlines()) == 2
    done(tmp_path, *(("app.train", f"--workdir={workdir}") if is_new else ("app.train", *flags)))
    undisturbed = shutil.copytree(trained, tmp_path / "undisturbed")
    done(tmp_path, *train(undisturbed, more, *GROW))
    assert tensors(workdir) == tensors(undisturbed)
    assert not [path for path in workdir.rglob("*") if "grown" in path.name]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--dim=16"], "--dim=16: --workdir={} was made with 8; give that, or a new --workdir"),
        (["--epochs=2"], "its epochs are made; to go on with this text, give more than --epochs=2"),
    ],
)
def test_growth_that_is_refused(tmp_path, workdir, more, flags, told):
    before = trained_vectors.load(workdir)
    command = "app.train", f"--workdir={workdir}", f"--corpus={more}", *GROW, *flags
    assert told.format(workdir) in refused(tmp_path, *command)
    after = trained_vectors.load(workdir)
    assert after.tokens == before.tokens
    np.testing.assert_array_equal(after.matrix, before.matrix)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--loss=hierarchical_softmax"], "--loss=hierarchical_softmax: its rows are not those of"),
        (["--loss=adaptive_softmax", "--cutoffs=20"], "--loss=adaptive_softmax: its rows are not"),
    ],
)
def test_losses_that_cannot_grow(tmp_path, corpus, more, flags, told):
    pairs = ("--group_tokens", "--shared_negatives")
    command = [part for part in train(tmp_path / "run", corpus) if not part.startswith(pairs)]
    done(tmp_path, *command, *flags, "--epochs=1")
    again = "app.train", f"--workdir={tmp_path}/run", f"--corpus={more}", *GROW
    assert told in refused(tmp_path, *again)


def test_an_unfinished_run_does_not_grow(tmp_path, workdir, more):
    flags = workdir / "flags.cfg"
    flags.write_text(flags.read_text().replace("--epochs=2", "--epochs=3"))
    line = refused(tmp_path, "app.train", f"--workdir={workdir}", f"--corpus={more}", *GROW)
    assert f"--corpus={more} is not what --workdir={workdir} was made with" in line


@pytest.mark.slow
def test_a_first_run_with_the_flag_is_as_without(tmp_path, trained, corpus):
    done(tmp_path, *train(tmp_path / "run", corpus, "--grow_vocab"))
    assert tensors(tmp_path / "run") == tensors(trained)


def test_rows_without_a_name_stay_the_tail():
    row_map = growth.RowMap(np.array([2, 0, 3]), 5)
    assert growth._new_ids(7, row_map, 9).tolist() == [2, 0, 3, 5, 6, 7, 8]
    assert growth._new_ids(7, row_map, 8) is None
    assert growth._new_ids(2, row_map, 4) is None


CLASSIFY = (*test_classify.SMALL, "--epochs=2")
GOOD = (["good", "bad"], WORDS, 1)
ODD = (["odd", "bad", "new"], [*NEW[:40], *WORDS], 2)


def write_texts(path, labels, words, seed):
    draw = random.Random(seed)
    text = []
    for _ in range(200):
        number = draw.randrange(len(labels))
        own = words[number * 10 : number * 10 + 10]
        text.append(f"__label__{labels[number]} {' '.join(draw.choices(own + words[-9:], k=8))}")
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "one_vs_all"])
def test_a_classifier_gets_new_labels_and_words(tmp_path, loss):
    first, second = (write_texts(tmp_path / name, *of) for name, of in (("a", GOOD), ("b", ODD)))
    workdir = tmp_path / "run"
    flags = (*CLASSIFY, f"--workdir={workdir}", f"--loss={loss}")
    done(tmp_path, "app.train", *flags, f"--corpus={first}")
    copied = shutil.copytree(workdir, tmp_path / "copy")
    tables = {"input": Workdir(workdir).vocabulary, "output": Workdir(workdir).labels}
    load = {"input": lambda path: vocabulary.load(str(path)), "output": vocabulary.load_names}
    before = {}
    for table, path in tables.items():
        tokens = load[table](path).tokens
        before[table] = [rows_by_name(checkpoint(workdir), tokens, table, s) for s in SLOTS]
    place = grow(copied, corpus=str(second))
    assert set(vocabulary.load_names(place.labels).tokens) == {"good", "bad", "odd", "new"}
    assert vocabulary.load_names(place.labels).tokens[0] == "bad"  # now the most frequent one
    for table, path in {"input": place.vocabulary, "output": place.labels}.items():
        tokens = load[table](path).tokens
        for slot, old in zip(SLOTS, before[table], strict=True):
            found = rows_by_name(checkpoint(copied), tokens, table, slot)
            assert len(found) > len(old) and {name: found[name] for name in old} == old
    more = (f"--corpus={second}", "--grow_vocab", "--epochs=6")
    ended = done(tmp_path, "app.train", *flags, *more)
    assert "--grow_vocab: " in ended.err and "2 labels keep theirs, and 2 are new: " in ended.err
    found = done(tmp_path, "app.predict", f"--workdir={workdir}", stdin=" ".join(NEW[:8]))
    assert "odd" in found.out


@pytest.mark.slow
def test_a_classifier_of_ngrams_does_not_grow(tmp_path):
    first, second = (write_texts(tmp_path / name, *of) for name, of in (("a", GOOD), ("b", ODD)))
    flags = (*CLASSIFY, f"--workdir={tmp_path}/run", "--word_ngrams=2", "--buckets=100")
    done(tmp_path, "app.train", *flags, f"--corpus={first}")
    line = refused(tmp_path, "app.train", *flags, f"--corpus={second}", *GROW)
    assert "--word_ngrams=2: the rows of n-grams depend on the ids" in line
