"""Runs with subwords: unseen inflections, every way to ask for them, kills, and refusals."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from app.evaluation.lexicon import make_lexicon, nearest
from app.tasks import trained_vectors
from app.text.subwords import hash_words
from app.types import NgramRule
from tests.integration.commands import WORDS, done, export, refused, train
from tests.integration.test_tables import HALF, STAGED, assert_same, in_file, rows

SUBWORDS = ("--min_ngram=2", "--max_ngram=4", "--ngram_buckets=500")
LOSSES = ("softmax", "class_softmax", "sampled_softmax", "nce", "hierarchical_softmax")
LOSSES += ("adaptive_softmax",)
OPTIMIZERS = ("sgd", "momentum", "adagrad", "ftrl", "lazy_adam", "lazy_adamw")
SUFFIXES = ("ab", "emi", "or", "ush", "ilt", "ean")


@pytest.fixture(scope="module")
def morphology(tmp_path_factory):
    """A text of inflected stems among words of their own, and unseen inflections.

    The unseen inflection of each stem has the inflections of the stem and the words around them.
    """
    draw = random.Random(3)
    letters = "bcdfghjklmnpqrstvwxz"
    stems = ["".join(draw.sample(letters, 5)) for _ in range(12)]
    unseen = {stem: draw.choice(SUFFIXES) for stem in stems}
    lines = []
    for _ in range(1500):
        stem = draw.choice(stems)
        around = [f"{letter}{stems.index(stem)}" for letter in "cdef"]
        suffixes = [suffix for suffix in SUFFIXES if suffix != unseen[stem]]
        line = around + [stem + draw.choice(suffixes) for _ in range(4)]
        draw.shuffle(line)
        lines.append(" ".join(line))
    path = tmp_path_factory.mktemp("morphology") / "text"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    families = {
        stem + unseen[stem]: {
            *(stem + suffix for suffix in SUFFIXES),
            *(f"{letter}{number}" for letter in "cdef"),
        }
        for number, stem in enumerate(stems)
    }
    return path, families


@pytest.fixture(scope="module")
def with_subwords(tmp_path_factory, corpus):
    """A finished workdir with subwords."""
    folder = tmp_path_factory.mktemp("subwords")
    done(folder, *train(folder / "run", corpus, *SUBWORDS, "--checkpoint_minutes=0"))
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_unseen_inflections_land_by_their_stems(tmp_path, morphology, model):
    path, families = morphology
    flags = (f"--model={model}", "--dim=16", "--subsample=0", "--epochs=3")
    done(tmp_path, *train(tmp_path / "with", path, *SUBWORDS, *flags))
    lexicon = make_lexicon(trained_vectors.load(tmp_path / "with"))
    for word, family in families.items():
        assert word not in lexicon.words
        best = {near for near, _ in nearest(lexicon, [word], 3)[0]}
        assert best <= family, (word, best)
    done(tmp_path, *train(tmp_path / "without", path, *flags))
    line = refused(tmp_path, "app.neighbors", f"--workdir={tmp_path}/without", *families)
    assert line.count("unknown word") > 1


@pytest.mark.slow
def test_words_that_were_never_seen_get_answers(tmp_path, with_subwords):
    workdir = f"--workdir={with_subwords}"
    ended = done(tmp_path, "app.neighbors", workdir, "baba", "x" * 10_000, "--k=2")
    assert len(ended.out.splitlines()) == 6
    pairs, record = tmp_path / "pairs", tmp_path / "record"
    pairs.write_text("baba bebe 3\nda strange 5\nfa fe 1\n")
    done(tmp_path, "app.evaluate", workdir, f"--pairs={pairs}", f"--json={record}")
    scored = json.loads(record.read_text())
    for name in ("ws353", "simlex999", str(pairs)):
        assert scored[name]["skipped"] == 0 < scored[name]["used"]
    export(tmp_path, with_subwords, "saved_model", "model")
    lookup = tf.saved_model.load(str(tmp_path / "model")).signatures["lookup"]
    assert lookup(words=tf.constant(["baba"]))["vectors"].numpy().any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "sharded", "file"])
def test_other_tables_end_as_those_on_the_device(tmp_path, corpus, with_subwords, kind):
    flags = {"host": STAGED, "sharded": ("--table=sharded",), "file": in_file(tmp_path)}[kind]
    done(tmp_path, *train(tmp_path / "run", corpus, *SUBWORDS, *flags))
    assert_same(rows(tmp_path / "run"), rows(with_subwords))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "flags",
    [
        *((f"--loss={loss}",) for loss in LOSSES),
        *((f"--optimizer={optimizer}", "--learning_rate=0.01") for optimizer in OPTIMIZERS),
        HALF,
        ("--micro_batches=2",),
        ("--clip_row_norm=1", "--clip_global_norm=1"),
    ],
    ids=" ".join,
)
def test_every_loss_and_optimizer_trains(tmp_path, corpus, model, flags):
    command = train(tmp_path / "run", corpus, *SUBWORDS, f"--model={model}", *flags)
    if flags[0].startswith("--loss"):
        command = [flag for flag in command if not flag.startswith(("--group", "--shared"))]
    done(tmp_path, *command)
    assert np.isfinite(trained_vectors.load(tmp_path / "run").matrix).all()


@pytest.mark.slow
def test_a_plan_has_the_rows_of_the_buckets(tmp_path, corpus):
    ended = done(tmp_path, *train(tmp_path / "run", corpus, *SUBWORDS, "--plan_only"))
    buckets = np.unique(hash_words(WORDS, NgramRule(2, 4, 500)).buckets_N)
    assert f"input {len(WORDS) + len(buckets)} x 8" in ended.out
