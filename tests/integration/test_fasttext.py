"""Models that go to fastText and gensim, and models of fastText that come here."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
from gensim.models.fasttext import load_facebook_model, load_facebook_vectors

from app.tasks import trained_vectors
from app.text import subwords, vector_files
from app.text.fasttext import model_file
from tests import fasttext_peer
from tests.integration import commands
from tests.integration.commands import done, export, refusal, refused, run
from tests.integration.test_classify import make_texts, train, write_lines

NGRAMS = ("--fasttext_features", "--word_ngrams=3", "--buckets=700")
LOSSES = {"softmax": "softmax", "one_vs_all": "ova", "hierarchical_softmax": "hs"}  # and theirs
ADDED = 1e-5  # by fastText to each probability, before it takes the logarithm


def answers(folder, texts, *given):
    """What lexrow predict answers to texts: labels and probabilities."""
    lines = done(folder, "app.predict", *given, "--k=9", "--json", stdin="\n".join(texts) + "\n")
    return [json.loads(line) for line in lines.out.splitlines()]


def texts_to_predict():
    texts = [" ".join(words) for _, words in make_texts(80, seed=5, several=True)]
    return [*texts, "unknown good", "one \u00fcnknown two", *fasttext_peer.random_strings(20)]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("texts") / "a.txt", make_texts(several=True))


@pytest.mark.slow
@pytest.mark.parametrize("ngrams", [(), NGRAMS], ids=["words", "ngrams"])
@pytest.mark.parametrize("loss", LOSSES)
def test_fasttext_predicts_as_we_do(tmp_path, labelled, loss, ngrams):
    workdir, texts = tmp_path / "run", texts_to_predict()
    done(tmp_path, *train(workdir, labelled, f"--loss={loss}", "--min_count=20", *ngrams))
    ended = export(tmp_path, workdir, "fasttext", "model")
    assert ended.out.startswith(f"{tmp_path}/model.bin: 3 labels of texts, ")
    assert (tmp_path / "model.vec").exists()
    ours = answers(tmp_path, texts, f"--workdir={workdir}")
    again = answers(tmp_path, texts, f"--model={tmp_path}/model.bin")
    peer = fasttext_peer.load(tmp_path / "model.bin")
    saved = None
    if loss != "hierarchical_softmax":
        export(tmp_path, workdir, "saved_model", "saved")
        saved = served(tmp_path / "saved", texts)
    assert any("unknown" in text for text in texts)
    for number, text in enumerate(texts):
        expected = fasttext_peer.predict(peer, text)
        assert again[number] == pytest.approx(expected, abs=1e-6)
        if saved is not None:
            assert saved[number] == pytest.approx(ours[number], abs=1e-5)
        if not expected:  # fastText has no answer for a text without a feature
            assert len(set(np.round([*ours[number].values()], 6))) == 1 or loss[0] == "h"
        elif loss == "softmax":
            added = {label: chance + ADDED for label, chance in ours[number].items()}
            assert expected == pytest.approx(added, abs=1e-6)
        elif loss == "one_vs_all":  # its sigmoid has steps of 1 / 32
            assert expected == pytest.approx(ours[number], abs=1 / 32 / 4 + 1e-4)
        else:  # added at each of at most two turns
            assert expected == pytest.approx(ours[number], abs=2.1 * ADDED)


def served(folder, texts):
    """The answers of a SavedModel."""
    model = tf.saved_model.load(str(folder))  # which has the variables of its functions
    found = model.classify(tf.constant(texts))
    answers = zip(found["labels"].numpy().astype(str), found["probabilities"].numpy(), strict=True)
    return [dict(zip(labels, chances, strict=True)) for labels, chances in answers]


@pytest.mark.slow
def test_what_fasttext_cannot_have(tmp_path, labelled):
    workdir = tmp_path / "run"
    done(tmp_path, *train(workdir, labelled, "--word_ngrams=2", "--buckets=50", "--epochs=1"))
    command = ("app.export", "--format=fasttext", f"--output={tmp_path}/m")
    message = "--word_ngrams=2) are hashed from ids, and fastText hashes words; train a new"
    assert message in refused(tmp_path, *command, f"--workdir={workdir}")
    resumed = train(workdir, labelled, "--epochs=2", "--fasttext_features", "--word_ngrams=2")
    assert "--fasttext_features=true: --workdir=" in refused(tmp_path, *resumed)
    assert not (tmp_path / "m.bin").exists()
    other = tmp_path / "other"
    done(tmp_path, *train(other, labelled, "--loss=class_softmax", "--classes=2", "--epochs=1"))
    message = "fastText has no --loss=class_softmax; train with --loss=softmax or "
    assert message in refused(tmp_path, *command, f"--workdir={other}")


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_training_goes_on_from_a_model_of_fasttext(tmp_path, labelled, loss):
    """Almost without steps, the run predicts as the model that it began with."""
    path, texts = tmp_path / "first.bin", texts_to_predict()
    settings = {
        "loss": LOSSES[loss],
        "wordNgrams": 2,
        "bucket": 300,
        "dim": 8,
        "epoch": 20,
        "lr": 1.0,
    }
    peer = fasttext_peer.fasttext.train_supervised(str(labelled), verbose=0, thread=1, **settings)
    peer.save_model(str(path))
    flags = (f"--loss={loss}", "--word_ngrams=2", "--buckets=300", "--fasttext_features")
    frozen = (*flags, f"--initial_model={path}", "--learning_rate=1e-9", "--epochs=1")
    workdir = tmp_path / "run"
    ended = done(tmp_path, *train(workdir, labelled, *frozen))
    ours = answers(tmp_path, texts, f"--workdir={workdir}")
    if loss == "hierarchical_softmax" and "its output layer does not fit" in ended.err:
        return  # the tree of fastText is of another shape
    wide = 1e-2 if loss == "one_vs_all" else 3 * ADDED
    for text, labels in zip(texts, ours, strict=True):
        assert labels == pytest.approx(fasttext_peer.predict(peer, text), abs=wide)
    done(tmp_path, *train(workdir, labelled, "--epochs=2"))


@pytest.mark.slow
def test_a_tree_that_we_wrote_is_trained_on(tmp_path, labelled):
    first, second, texts = tmp_path / "first", tmp_path / "second", texts_to_predict()
    flags = ("--loss=hierarchical_softmax", "--fasttext_features")
    done(tmp_path, *train(first, labelled, *flags))
    export(tmp_path, first, "fasttext", "first.bin")
    frozen = (f"--initial_model={tmp_path}/first.bin", "--learning_rate=1e-9", "--epochs=1")
    assert "does not fit" not in done(tmp_path, *train(second, labelled, *flags, *frozen)).err
    found, expected = (answers(tmp_path, texts, f"--workdir={place}") for place in (second, first))
    for labels, other in zip(found, expected, strict=True):
        assert labels == pytest.approx(other, abs=1e-5)


@pytest.mark.slow
def test_models_that_cannot_be_trained_on(tmp_path, labelled):
    plain = fasttext_peer.train(tmp_path, "supervised", wordNgrams=2)
    given = train(tmp_path / "run", labelled, f"--initial_model={plain}")
    assert "give --fasttext_features, too" in refused(tmp_path, *given)
    given += ("--fasttext_features",)
    message = "other settings; give --dim=10 --word_ngrams=2 --buckets=900"
    assert message in refused(tmp_path, *given)
    for path, message in (
        (fasttext_peer.train(tmp_path, "skipgram"), "word vectors of fastText, not a classifier"),
        (fasttext_peer.train(tmp_path, "supervised", minn=2, maxn=3), "n-grams of characters, wh"),
        (tmp_path / "none.bin", "none.bin: No such file"),
    ):
        assert message in refused(tmp_path, *given, f"--initial_model={path}", "--dim=10")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["skipgram", "supervised"])
def test_a_file_where_vectors_are_wanted(tmp_path, labelled, kind):
    path = fasttext_peer.train(tmp_path, kind, minn=2, maxn=4)
    commands = (
        ("app.neighbors", f"--vectors={path}", "w1", "w2"),
        ("app.evaluate", f"--vectors={path}"),
        ("app.export", f"--vectors={path}", f"--output={tmp_path}/vectors.txt"),
        train(tmp_path / "run", labelled, f"--pretrained_vectors={path}", "--dim=10", "--epochs=1"),
    )
    for command in commands:
        ended = run(tmp_path, *command)
        if kind == "supervised":
            assert f"{path}: a classifier of fastText, not word vectors; give" in refusal(ended)
        else:
            assert ended.code == 0, ended.err
    path.write_bytes(path.read_bytes()[:-9])
    for command in (*commands[:3], (*commands[3], f"--workdir={tmp_path}/other")):
        expected = "a classifier" if kind == "supervised" else "ends within the output matrix, aft"
        assert f"{path}: {expected}" in refused(tmp_path, *command)


def test_a_model_or_a_workdir(tmp_path):
    given = ("app.predict", f"--workdir={tmp_path}", f"--model={tmp_path}/a.bin")
    assert "give either --workdir=" in refused(tmp_path, *given)
    (tmp_path / "a.bin").write_text("no model")
    assert "does not begin as a file of fastText" in refused(tmp_path, given[0], given[2])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_unseen_words_have_the_same_vectors_elsewhere(tmp_path, corpus, model):
    workdir, path = tmp_path / "run", tmp_path / "model.bin"
    subword_flags = ("--min_ngram=2", "--max_ngram=4", "--ngram_buckets=500")
    done(tmp_path, *commands.train(workdir, corpus, f"--model={model}", *subword_flags))
    export(tmp_path, workdir, "fasttext", "model.bin")
    ours = trained_vectors.load(workdir)
    unseen = sorted(set(fasttext_peer.random_strings(1000)) - set(ours.tokens))
    expected = {
        **dict(zip(ours.tokens, ours.matrix, strict=True)),
        **dict(zip(unseen, subwords.compose_unseen(unseen, ours.ngrams), strict=True)),
    }
    peer, gensim = fasttext_peer.load(path), load_facebook_vectors(str(path))
    for word, vector in expected.items():
        np.testing.assert_allclose(peer.get_word_vector(word), vector, atol=1e-5)
        if vector.any():  # gensim has no vector for a word without n-grams
            np.testing.assert_allclose(gensim[word], vector, atol=1e-5)
    np.testing.assert_allclose(vector_files.read(path).matrix, ours.matrix, atol=1e-6)
    nearest = [
        done(tmp_path, "app.neighbors", place, "unseenword", "--k=2").out
        for place in (f"--workdir={workdir}", f"--vectors={path}")
    ]
    assert nearest[0] == nearest[1] and nearest[0].startswith("unseenword\n")


def test_gensim_trains_our_word_vectors_further(trained, tmp_path):
    export(tmp_path, trained, "fasttext", "model")
    ours, found = trained_vectors.load(trained), load_facebook_model(str(tmp_path / "model.bin"))
    assert found.wv.index_to_key == ours.tokens
    np.testing.assert_array_equal(found.wv.vectors, ours.matrix)
    output = model_file.load(tmp_path / "model.bin", is_supervised=False).output
    np.testing.assert_array_equal(found.syn1neg, output[: len(ours.tokens)])
    assert found.syn1neg.any() and (found.sg, found.window, found.negative) == (1, 2, 5)
    assert (found.epochs, found.min_count, found.sample) == (2, 2, 0.05)
    assert [found.wv.get_vecattr(word, "count") for word in ours.tokens] == ours.counts.tolist()
    texts = [ours.tokens] * 5
    found.train(texts, total_examples=len(texts), epochs=1)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The workdir of a classifier of words and n-grams."""
    pytest.importorskip("faiss")
    folder = tmp_path_factory.mktemp("quantized")
    texts = write_lines(folder / "a.txt", make_texts(several=True))
    # A cutoff keeps the rows of the largest norms. From small accumulators, rare rows grow as large
    # as others, and fewer answers stay the same.
    learning = "--initial_accumulator=0.1", "--learning_rate=0.3"
    done(folder, *train(folder / "run", texts, *NGRAMS, "--dim=17", *learning))
    return folder / "run"


def answers_of_both(folder, texts):
    """The answers of m.ftz, which are those of fastText with it."""
    found, peer = (
        answers(folder, texts, f"--model={folder}/m.ftz"),
        fasttext_peer.load(folder / "m.ftz"),
    )
    for text, labels in zip(texts, found, strict=True):
        assert labels == pytest.approx(fasttext_peer.predict(peer, text), abs=1e-5)
    return found


@pytest.mark.parametrize("cutoff", [0, 256])
def test_fasttext_predicts_as_we_do_from_a_quantized_file(tmp_path, classifier, cutoff):
    export(tmp_path, classifier, "fasttext", "m")
    ended = export(tmp_path, classifier, "fasttext_quantized", "m", f"--cutoff={cutoff}")
    assert ended.out.startswith(f"{tmp_path}/m.ftz: 3 labels of texts, ")
    ours = model_file.load(tmp_path / "m.ftz", is_supervised=True)
    assert isinstance(ours.input, model_file.QuantizedMatrix) and b"</s>" in ours.dictionary.words
    if cutoff:
        assert ours.input.shape[0] == cutoff
        assert os.path.getsize(tmp_path / "m.ftz") < os.path.getsize(tmp_path / "m.bin")
    texts = texts_to_predict()
    found = answers_of_both(tmp_path, texts)
    whole = answers(tmp_path, texts, f"--model={tmp_path}/m.bin")
    best = [[*labels][:1] == [*exact][:1] for labels, exact in zip(found, whole, strict=True)]
    assert sum(best) > 0.9 * len(best)


@pytest.mark.slow
def test_a_small_model_is_filled_up_with_zeros(tmp_path):
    corpus = write_lines(tmp_path / "a.txt", make_texts(20))
    done(tmp_path, *train(tmp_path / "run", corpus, *NGRAMS))
    export(tmp_path, tmp_path / "run", "fasttext_quantized", "m.ftz", "--cutoff=20000")
    assert model_file.load(tmp_path / "m.ftz", is_supervised=True).input.shape[0] == 256
    answers_of_both(tmp_path, texts_to_predict())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "option", "message"),
    [
        ("fasttext_quantized", "--cutoff=255", "needs 256 rows of words and n-grams, and labels"),
        (
            "fasttext_quantized",
            "--qout",
            "needs 256 rows of words and n-grams, and labels with --q",
        ),
        ("fasttext", "--qout", "--qout means nothing to --format=fasttext; leave it out"),
    ],
)
def test_too_few_rows(tmp_path, classifier, form, option, message):
    command = ("app.export", f"--workdir={classifier}", f"--output={tmp_path}/m.ftz")
    assert message in refused(tmp_path, *command, f"--format={form}", option)
    assert not (tmp_path / "m.ftz").exists()
