"""Quantised classifiers that fastText loads."""

from __future__ import annotations

import os

import pytest

from app.text.fasttext import model_file
from tests import fasttext_peer
from tests.integration.commands import done, refusal, run
from tests.integration.test_classify import make_texts, write_lines
from tests.integration.test_fasttext import NGRAMS, answers, texts_to_predict, train

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


@pytest.mark.parametrize("cutoff", [0, 400, 256])
def test_fasttext_predicts_as_we_do(tmp_path, workdir, cutoff):
    export = ("app.export", f"--workdir={workdir}", f"--output={tmp_path}/m")
    done(tmp_path, *export, "--format=fasttext")
    ended = done(tmp_path, *export, "--format=fasttext_quantized", f"--cutoff={cutoff}")
    assert ended.out.startswith(f"{tmp_path}/m.ftz: 3 labels of texts, ")
    ours = model_file.load(tmp_path / "m.ftz", is_supervised=True)
    assert ours.is_quantized and b"</s>" in ours.dictionary.words
    if cutoff:
        assert ours.input.shape[0] == cutoff
        assert os.path.getsize(tmp_path / "m.ftz") < os.path.getsize(tmp_path / "m.bin")
    texts, peer = texts_to_predict(), fasttext_peer.load(tmp_path / "m.ftz")
    found = answers(tmp_path, texts, f"--model={tmp_path}/m.ftz")
    whole = answers(tmp_path, texts, f"--model={tmp_path}/m.bin")
    for text, labels in zip(texts, found, strict=True):
        assert labels == pytest.approx(fasttext_peer.predict(peer, text), abs=1e-5)
    best = [[*labels][:1] == [*exact][:1] for labels, exact in zip(found, whole, strict=True)]
    assert sum(best) > 0.9 * len(best)


@pytest.mark.slow
def test_a_small_model_is_filled_up_with_zeros(tmp_path):
    corpus = write_lines(tmp_path / "a.txt", make_texts(20))
    done(tmp_path, *train(tmp_path / "run", corpus, *NGRAMS))
    export = ("app.export", f"--workdir={tmp_path}/run", "--format=fasttext_quantized")
    done(tmp_path, *export, "--cutoff=20000", f"--output={tmp_path}/m.ftz")
    assert model_file.load(tmp_path / "m.ftz", is_supervised=True).input.shape[0] == 256
    texts, peer = texts_to_predict(), fasttext_peer.load(tmp_path / "m.ftz")
    for text, labels in zip(
        texts, answers(tmp_path, texts, f"--model={tmp_path}/m.ftz"), strict=True
    ):
        assert labels == pytest.approx(fasttext_peer.predict(peer, text), abs=1e-5)


@pytest.mark.slow
def test_too_few_rows(tmp_path, workdir):
    export = ("app.export", f"--workdir={workdir}", "--format=fasttext_quantized")
    for option in ("--cutoff=255", "--qout"):
        ended = run(tmp_path, *export, option, f"--output={tmp_path}/m.ftz")
        assert "needs 256 rows of words and n-grams, and labels with --qout" in refusal(ended)
    ended = run(tmp_path, *export[:2], "--format=fasttext", "--qout", f"--output={tmp_path}/m.ftz")
    assert "--qout means nothing to --format=fasttext; leave it out" in refusal(ended)
    assert not (tmp_path / "m.ftz").exists()
