"""Labels of texts as a person trains, scores, predicts and exports them."""

import functools
import json
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints.checkpoint import list_checkpoints
from app.checkpoints.stored import read_rows
from app.text import vector_files
from tests.integration import commands
from tests.integration.commands import ROOT, done, export, logged, refused, tensors

SMALL = (
    "--task=classify",
    "--dim=8",
    "--batch_tokens=128",
    "--steps_per_call=2",
    "--device=CPU:0",
    "--log_seconds=0",
)
train = functools.partial(commands.train, small=SMALL)
LABELS = {"neg": "bad poor awful", "pos": "good fine great", "x y": "odd strange weird"}


def make_texts(count=300, seed=0, several=False):
    """(labels, words): words of a text's labels among words that tell nothing."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        labels = draw.sample(sorted(LABELS), draw.randrange(1, 3) if several else 1)
        words = draw.choices(["one", "two", "three", "four", "five"], k=draw.randrange(1, 9))
        words += [draw.choice(LABELS[label].split()) for label in labels]
        found.append((labels, draw.sample(words, len(words))))
    return found


def write_lines(path, texts):
    lines = (
        " ".join([*(f"__label__{label.replace(' ', '-')}" for label in labels), *words])
        for labels, words in texts
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def write_columns(path, texts):
    lines = (f'{"|".join(labels)},"{" ".join(words)}"' for labels, words in texts)
    path.write_text("kind,text\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def corpus(tmp_path):
    """A set that can be told apart."""
    return write_lines(tmp_path / "a.txt", make_texts())


def predicted(workdir, texts, *more):
    """What lexrow predict answers to standard input."""
    predict = ("app.predict", f"--workdir={workdir}", *more)
    return done(workdir.parent, *predict, stdin=texts).out.splitlines()


def test_from_texts_to_predictions(tmp_path, corpus):
    """A set that can be told apart is, in every way out of a run."""
    heldout = write_lines(tmp_path / "b.txt", make_texts(90, seed=1))
    workdir = tmp_path / "run"
    config = (f"--flagfile={ROOT}/configs/classify.cfg", f"--heldout={heldout}")
    ended = done(tmp_path, *train(workdir, corpus, *config, "--word_ngrams=2", "--buckets=500"))
    assert re.search(r"^examples +300 texts of 5\.\d words, and 90 held out$", ended.out, re.M)
    assert "words and n-grams" in ended.out
    rows = [row for row in logged(workdir) if "heldout_accuracy" in row]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[-1]["heldout_accuracy"] == rows[-1]["heldout_macro_f1"] == 1
    assert any("examples_per_second" in row for row in logged(workdir))
    assert "90 texts: accuracy 1.0000" in ended.err

    evaluate = ("app.evaluate", f"--workdir={workdir}", f"--heldout={heldout}")
    ended = done(tmp_path, *evaluate, f"--json={tmp_path}/score.json")
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["accuracy"] == 1 and score["labels"]["x-y"]["f1"] == 1
    assert "90 texts: accuracy 1.0000" in ended.out
    line = refused(tmp_path, *evaluate[:2])
    assert "holds a run of --task=classify; give --heldout=FILE" in line
    line = refused(tmp_path, *evaluate, "--top=5")
    assert "--top means nothing to --task=classify; leave it out" in line

    texts = "one good two\n\nunknown\n__label__pos bad awful\nweird odd"
    found = [line.split() for line in predicted(workdir, texts, "--k=2")]
    assert [line[0] for line in found] == ["pos", found[1][0], found[2][0], "neg", "x-y"]
    assert all(len(line) == 4 and float(line[1]) >= float(line[3]) for line in found)
    assert found[1] == found[2] and float(found[1][1]) == pytest.approx(1 / 3)

    folder = tmp_path / "saved"
    export(tmp_path, workdir, "saved_model", "saved")
    assert (folder / "saved_model.pb").stat().st_size < 200_000  # no rows and words in it
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](
        texts=tf.constant(texts.split("\n"))
    )
    assert [*served["labels"].numpy().astype(str)[[0, 3, 4], 0]] == ["pos", "neg", "x-y"]
    chances = [float(line[1]) for line in found]
    np.testing.assert_allclose(served["probabilities"][:, 0], chances, rtol=1e-4)
    ended = export(tmp_path, workdir, "safetensors", "words")
    words = len((workdir / "vocab.tsv").read_text().splitlines())
    assert ended.out.startswith(f"{tmp_path}/words: {words} vectors of ")


@pytest.mark.slow
def test_texts_of_weight_0_change_nothing(tmp_path):
    corpus = write_lines(tmp_path / "a.txt", make_texts(60))
    more = tmp_path / "b.txt"
    more.write_text(corpus.read_text() + "__label__other __weight__0 one strange word\n" * 9)
    for name, text in (("without", corpus), ("with", more)):
        done(tmp_path, *train(tmp_path / name, text, "--epochs=2"))
    for name in ("vocab.tsv", "labels.tsv"):
        assert (tmp_path / "without" / name).read_text() == (tmp_path / "with" / name).read_text()
    rows = [
        read_rows(list_checkpoints(tmp_path / name / "checkpoints")[-1], "input")
        for name in ("without", "with")
    ]
    np.testing.assert_array_equal(*rows)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "one_vs_all", "hierarchical_softmax"])
def test_probabilities_of_labels_are_learned(tmp_path, loss):
    """The best prediction for a word is the probability of its label."""
    corpus = tmp_path / "a.txt"
    lines = "__label__a:0.8 __label__b:0.2 one\n__label__a:0.4 __label__b:0.6 two __weight__3\n"
    corpus.write_text(lines * 50)
    more = ("--label_weights", "--heldout_share=0", f"--loss={loss}", "--epochs=40")
    done(tmp_path, *train(tmp_path / "run", corpus, *more))
    for text, wanted in (("one", {"a": 0.8, "b": 0.2}), ("two", {"a": 0.4, "b": 0.6})):
        (line,) = predicted(tmp_path / "run", text, "--k=2", "--json")
        assert json.loads(line) == pytest.approx(wanted, abs=0.05)


@pytest.mark.slow
def test_columns_with_several_labels(tmp_path):
    corpus = write_columns(tmp_path / "a.csv", make_texts(several=True))
    columns = ("--text_column=text", "--label_column=kind", "--label_separator=|")
    workdir = tmp_path / "run"
    ended = done(tmp_path, *train(workdir, corpus, *columns, "--loss=one_vs_all", "--epochs=20"))
    assert "270 texts" in ended.out and "30 held out" in ended.out
    last = [row for row in logged(workdir) if "heldout_precision_at_1" in row][-1]
    assert last["heldout_precision_at_1"] == last["heldout_f1"] == last["heldout_macro_f1"] == 1
    (line,) = predicted(workdir, "good strange", "--k=3", "--threshold=0.5", "--json")
    assert json.loads(line).keys() == {"pos", "x y"}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["sampled_softmax", "hierarchical_softmax", "class_softmax"])
def test_other_losses(tmp_path, corpus, loss):
    more = ("--classes=2",) if loss == "class_softmax" else ()
    done(tmp_path, *train(tmp_path / "run", corpus, f"--loss={loss}", "--epochs=10", *more))
    assert logged(tmp_path / "run")[-1]["heldout_accuracy"] == 1
    if loss == "sampled_softmax":
        export(tmp_path, tmp_path / "run", "saved_model", "saved")
    else:
        saved = ("app.export", f"--workdir={tmp_path}/run", "--format=saved_model")
        line = refused(tmp_path, *saved, f"--output={tmp_path}/saved")
        assert f"--loss={loss}" in line and "train with --loss=softmax" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        ("--table=host", "--hot_rows=20", "--stage_steps=4"),
        ("--table=sharded",),
        ("--table=dynamic", "--table_gb=0.001"),
        ("--table_dtype=bfloat16",),
    ],
    ids=lambda flags: flags[0],
)
def test_every_table(tmp_path, corpus, table):
    more = ("--word_ngrams=2", "--buckets=500", "--epochs=10")
    done(tmp_path, *train(tmp_path / "run", corpus, *more, *table))
    assert logged(tmp_path / "run")[-1]["heldout_accuracy"] == 1
    if table[0] == "--table=host":
        done(tmp_path, *train(tmp_path / "device", corpus, *more))
        assert tensors(tmp_path / "run") == tensors(tmp_path / "device")


@pytest.mark.slow
def test_vectors_to_start_from(tmp_path, corpus):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("3 8\none" + " 0.5" * 8 + "\nnone" + " 1" * 8 + "\ngood" + " -1" * 8 + "\n")
    more = (f"--pretrained_vectors={vectors}", "--learning_rate=1e-9", "--epochs=1")
    ended = done(tmp_path, *train(tmp_path / "run", corpus, *more))
    assert f"{vectors} has vectors of 2 of the 14 words" in ended.err
    export(tmp_path, tmp_path / "run", "word2vec", "out.txt")
    words = vector_files.read(tmp_path / "out.txt")
    found = dict(zip(words.tokens, words.matrix, strict=True))
    np.testing.assert_allclose(found["one"], [0.5] * 8, rtol=1e-6)
    np.testing.assert_allclose(found["good"], [-1] * 8, rtol=1e-6)
    assert 0 < abs(found["two"]).max() < 1 / 8
    line = refused(tmp_path, *train(tmp_path / "other", corpus, *more, "--dim=9"))
    assert "has vectors of 8 numbers; give --dim=8" in line


def test_what_cannot_be(tmp_path, corpus):
    line = refused(tmp_path, *train(tmp_path / "run", corpus, "--class_weights=neg=2,none=3"))
    assert "--class_weights=neg=2,none=3: 'none' is not a label; give" in line
    assert not (tmp_path / "run" / "flags.cfg").exists()


@pytest.mark.slow
def test_odd_texts(tmp_path):
    """Empty ones, a label only to be scored on, one of a single text, one of too many words."""
    texts = make_texts() + [(["neg"], []), (["rare"], ["hapax"]), (["neg"], ["bad"] * 200)]
    corpus = write_lines(tmp_path / "a.txt", texts)
    heldout = write_lines(
        tmp_path / "b.txt", [(["new"], ["one"]), (["pos"], ["good"]), (["neg"], [])]
    )
    more = (f"--heldout={heldout}", "--class_weights=balanced", "--epochs=10")
    ended = done(tmp_path, *train(tmp_path / "run", corpus, *more))
    assert "1 texts without a known word or label are left out" in ended.err
    assert "1 texts have more words and n-grams than --batch_tokens=128: cut to 128" in ended.err
    assert "1 of 3 held-out texts have a label that no training text has" in ended.err
    assert logged(tmp_path / "run")[-1]["heldout_accuracy"] in (
        pytest.approx(1 / 3),
        pytest.approx(2 / 3),
    )


@pytest.mark.slow
def test_in_programs_of_its_own(tmp_path, corpus):
    """The SavedModel needs TensorFlow alone; predictions that nobody reads on end quietly."""
    workdir, folder = tmp_path / "run", tmp_path / "saved"
    done(tmp_path, *train(workdir, corpus))
    export(tmp_path, workdir, "saved_model", "saved")
    program = (
        "import sys, tensorflow as tf; "
        f"serve = tf.saved_model.load({str(folder)!r}).signatures['serving_default']; "
        "assert 'tensorflow_text' not in sys.modules; "
        "print(serve(texts=tf.constant(['a good day']))['labels'].numpy()[0, 0])"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout == "b'pos'\n", ended.stderr
    command = f"yes good | {sys.executable} -m app.predict --workdir={workdir} | head -2"
    ended = subprocess.run(command, cwd=ROOT, shell=True, capture_output=True, text=True)
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["pos", "pos"]
    assert ended.stderr == ""
