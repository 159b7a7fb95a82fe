"""Words that follow each other often are one token: in training, in queries and in exports."""

import json
import random
import shutil

import pytest
import tensorflow as tf

from app.text import vocabulary
from tests.integration.commands import WORDS, done, export, newest_step, refused, train

PHRASES = ("--phrases=2", "--phrase_threshold=5")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A corpus in which `new york city` and `los angeles` are seen among other words."""
    draw = random.Random(7)
    parts = [*([word] for word in WORDS), *[["new", "york"], ["new", "york", "city"]] * 2]
    parts += [["los", "angeles"]] * 3
    lines = [sum(draw.choices(parts, k=draw.randrange(1, 20)), []) for _ in range(400)]
    path = tmp_path_factory.mktemp("text") / "cities.txt"
    path.write_text("\n".join(map(" ".join, lines)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def joined(tmp_path_factory, text):
    """The workdir of a finished run with phrases."""
    folder = tmp_path_factory.mktemp("joined")
    done(folder, *train(folder / "run", text, *PHRASES))
    return folder / "run"


@pytest.mark.slow
def test_phrases_are_words_of_the_run(joined, text, tmp_path):
    tokens = vocabulary.load(str(joined / "vocab.tsv")).tokens
    assert {"new_york", "new_york_city", "los_angeles"} < set(tokens)
    assert not {"york", "angeles", "los"} & set(tokens)
    rows = [line.split("\t") for line in (joined / "phrases.tsv").read_text().splitlines()]
    assert ["2", "new_york", "city"] in [row[:3] for row in rows]
    counts = dict(zip(tokens, vocabulary.load(str(joined / "vocab.tsv")).counts, strict=True))
    words = text.read_text().replace("\n", " ").replace("new york city", "N").split(" ")
    assert counts["new_york_city"] == words.count("N")
    found = [
        done(tmp_path, "app.neighbors", f"--workdir={joined}", query, "--k=2").out
        for query in ("new york", "new_york", " New  York ")
    ]
    assert found[0].splitlines()[1:] == found[1].splitlines()[1:] == found[2].splitlines()[1:]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("new york\tlos angeles\t9\nnew_york\tbe\t1\nbe\tbi\t2\nunknown\tbi\t1\n")
    scores = tmp_path / "scores.json"
    done(
        *(tmp_path, "app.evaluate", f"--workdir={joined}", "--benchmarks="),
        *(f"--pairs={pairs}", f"--json={scores}"),
    )
    assert "'used': 3" in str(json.loads(scores.read_text()))


@pytest.mark.slow
def test_a_saved_model_knows_phrases(joined, tmp_path):
    export(tmp_path, joined, "saved_model", "model")
    model = tf.saved_model.load(str(tmp_path / "model"))
    words = ["new york", "new_york", "los\tangeles", "york", "no such", "", " "]
    found = model.lookup(tf.constant(words))
    assert found["known"].numpy().tolist() == [True, True, True, False, False, False, False]
    assert (found["vectors"][0] == found["vectors"][1]).numpy().all()


@pytest.mark.slow
def test_another_table_or_other_flags_are_refused(tmp_path, joined):
    workdir = shutil.copytree(joined, tmp_path / "run")
    table = workdir / "phrases.tsv"
    content = table.read_text()
    again = "app.train", f"--workdir={workdir}", "--epochs=3"
    for damage in (content[:-9], content.replace("new_york", "old_york"), ""):
        table.write_text(damage)
        line = refused(tmp_path, *again, code=1)
        assert f"{table} is damaged: it is not the table of phrases" in line
    table.unlink()
    assert f"{table} is missing" in refused(tmp_path, *again, code=1)
    table.write_text(content)
    told = refused(tmp_path, *again, "--phrases=1")
    assert f"--phrases=1: --workdir={workdir} was made with 2; give that" in told
    assert newest_step(workdir) == newest_step(joined)


@pytest.mark.slow
def test_a_vocabulary_that_grows_keeps_its_phrases(tmp_path, joined, text):
    workdir, more = shutil.copytree(joined, tmp_path / "run"), tmp_path / "more.txt"
    more.write_text("new york city has bagels\nlos angeles has stars and bagels\n" * 50)
    before = (workdir / "phrases.tsv").read_bytes()
    flags = f"--workdir={workdir}", f"--corpus={more}", "--grow_vocab", "--epochs=3"
    ended = done(tmp_path, "app.train", *flags)
    assert "words keep their rows, and 4 are new" in ended.err
    counts = [
        dict(zip(words.tokens, words.counts.tolist(), strict=True))
        for words in (vocabulary.load(str(run / "vocab.tsv")) for run in (joined, workdir))
    ]
    assert counts[1].keys() - counts[0].keys() == {"has", "bagels", "stars", "and"}
    assert counts[1]["new_york_city"] == counts[0]["new_york_city"] + 50
    assert (workdir / "phrases.tsv").read_bytes() == before
    ended = done(tmp_path, "app.train", f"--workdir={workdir}", "--epochs=4")
    assert "--phrases:" not in ended.err  # not counted again
