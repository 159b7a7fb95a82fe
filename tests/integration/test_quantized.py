"""Quantised classifiers that fastText loads."""

from __future__ import annotations

import os

import pytest

from app.text.fasttext import model_file
from tests import fasttext_peer
from tests.integration.commands import done, export, refused
from tests.integration.test_classify import make_texts, train, write_lines
from tests.integration.test_fasttext import NGRAMS, answers, texts_to_predict

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A classifier of words and n-grams."""
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
def test_fasttext_predicts_as_we_do(tmp_path, workdir, cutoff):
    export(tmp_path, workdir, "fasttext", "m")
    ended = export(tmp_path, workdir, "fasttext_quantized", "m", f"--cutoff={cutoff}")
    assert ended.out.startswith(f"{tmp_path}/m.ftz: 3 labels of texts, ")
    ours = model_file.load(tmp_path / "m.ftz", is_supervised=True)
    assert ours.is_quantized and b"</s>" in ours.dictionary.words
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
def test_too_few_rows(tmp_path, workdir, form, option, message):
    command = ("app.export", f"--workdir={workdir}", f"--output={tmp_path}/m.ftz")
    assert message in refused(tmp_path, *command, f"--format={form}", option)
    assert not (tmp_path / "m.ftz").exists()
