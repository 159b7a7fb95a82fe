"""Language models in Python."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import app as lexrow
from app import language as module
from app.language import Language
from tests import examples

FAST = {"dim": 8, "epochs": 6, "heldout_share": 0.0, "learning_rate": 0.05}
FAST |= {"batch_tokens": 256, "row_tokens": 16, **examples.QUICK}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Language:
    path = tmp_path_factory.mktemp("door") / "run"
    return lexrow.train_language_model(["a b c", "d e"] * 400, workdir=path, **FAST)


def test_examples(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples.run(module, {"model": trained})


def test_probabilities_are_those_of_next_words(trained):
    chances = dict(trained.next_words("a b", k=len(trained)))
    assert sum(chances.values()) == pytest.approx(1, abs=1e-4)
    assert trained.next_words("a b", k=1)[0][0] == "c"
    text, log_p = "", 0.0
    for word in ("a", "b", "<eos>"):
        log_p += math.log(dict(trained.next_words(text, k=len(trained)))[word])
        text = f"{text} {word}"
    assert trained.log_probability("a b") == pytest.approx(log_p, abs=1e-3)


def test_a_long_text_is_scored_as_its_tokens_one_by_one(trained):
    text = " ".join(["a b c"] * 60)  # several rows
    total, hidden, state = 0.0, *trained._model.read([])
    for token in [*text.split(), "<eos>"]:
        word = trained.tokens.index(token)
        total += float(trained._model.log_probabilities(hidden)[word])
        hidden, state = trained._model.read([word], state)
    assert trained.log_probability(text) == pytest.approx(total, rel=1e-4)


def test_texts_of_many_lengths_bring_no_warning_of_tensorflow(trained, caplog):
    model = lexrow.load(trained.workdir)
    assert model.perplexity([" ".join(["a"] * number) for number in (1, 3, 6, 12, 25, 50)]) > 1
    assert caplog.messages == []


def test_perplexity(trained):
    texts = ["a b c", "d e", "", "z"]
    tokens = [4, 3, 1, 2]
    log_p = sum(map(trained.log_probability, texts))
    assert trained.perplexity(texts) == pytest.approx(math.exp(-log_p / sum(tokens)))


def test_generating(trained):
    assert trained.generate("a", temperature=0) == "b c"
    assert trained.generate("a", tokens=1, temperature=0) == "b"
    drawn = [trained.generate(seed=seed) for seed in range(40)]
    assert drawn[:5] == [trained.generate(seed=seed) for seed in range(5)]
    firsts = [text.split()[0] for text in drawn if text]
    assert 10 <= firsts.count("a") <= 30 and 10 <= firsts.count("d") <= 30
    assert "<unk>" not in " ".join(drawn)
    assert {trained.generate("a", top_k=1, seed=seed) for seed in range(5)} == {"b c"}


def test_draws_have_the_chances_of_the_softmax():
    generator, log_p = np.random.default_rng(1), np.log([0.5, 0.3, 0.2])
    drawn = [module._draw(log_p, 1.0, 0, generator) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.5, 0.3, 0.2], atol=0.03)
    drawn = [module._draw(log_p, 0.5, 2, generator) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [25 / 34, 9 / 34], atol=0.03)


def test_loading_and_bad_questions(trained):
    again = lexrow.load(trained.workdir)
    assert again.log_probability("a b c") == pytest.approx(trained.log_probability("a b c"))
    with pytest.raises(ValueError, match="temperature=-1"):
        trained.generate(temperature=-1)
    with pytest.raises(ValueError, match="top_k=-1: ask for at least one word, or give 0 for all"):
        trained.generate(top_k=-1)
    with pytest.raises(TypeError, match=r"^top_k is float; give a whole number$"):
        trained.generate(top_k=2.5)
    with pytest.raises(ValueError, match="tokens=-1: ask for at least one"):
        trained.generate(tokens=-1)
    with pytest.raises(ValueError, match="texts has no text"):
        trained.perplexity([])
    with pytest.raises(ValueError, match="no run of task=language_model"):
        Language.load(".")


LAYERS = {
    "softmax": {},
    "class_softmax": {"cell": "lstm", "classes": 3},
    "sampled_softmax": {"samples": 3, "tie_weights": True, "dropout": 0.2},
    "hierarchical_softmax": {},
}


@pytest.mark.slow
def test_an_exported_model_predicts_the_same_in_plain_tensorflow(tmp_path):
    texts, expected = ["", "a b", "d nothing", "a b c"], {}
    for loss, settings in LAYERS.items():
        model = lexrow.train_language_model(
            ["a b c", "d e"] * 40, **FAST | {"epochs": 1, "loss": loss} | settings
        )
        model.export(tmp_path / loss)
        expected[loss] = [dict(model.next_words(text, k=len(model))) for text in texts]
    rows = [[*text.split(), *[""] * (3 - len(text.split()))] for text in texts]
    code = f"""
import json, sys
sys.modules["app"] = sys.modules["tensorflow_text"] = None  # an import fails
import tensorflow as tf
found = {{}}
for loss in {list(LAYERS)}:
    predict = tf.saved_model.load({str(tmp_path)!r} + "/" + loss).signatures["serving_default"]
    result = predict(tokens=tf.constant({rows}))
    words = [word.decode() for word in result["words"].numpy()]
    chances = tf.exp(result["log_probabilities"]).numpy().tolist()
    found[loss] = [dict(zip(words, row)) for row in chances]
print(json.dumps(found))
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout
    for loss, found in json.loads(printed).items():
        for chances, own in zip(found, expected[loss], strict=True):
            assert chances == pytest.approx(own, rel=1e-5), loss
            assert sum(chances.values()) == pytest.approx(1, abs=1e-4)
