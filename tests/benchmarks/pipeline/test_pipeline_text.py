from __future__ import annotations

import numpy as np
import pytest

from app.benchmarks.pipeline import pipeline_case, pipeline_text
from app.config import CorpusConfig
from app.text import vocabulary
from app.text.reading import Progress
from app.text.vocabulary import Vocabulary

LINES = ["Die Straße, die STRASSE", "a b2 c d", "unknown only", "b c (c) ﬁn fin", "a"] * 30
KNOWN = {
    "whitespace": ["c", "a", "b", "die", "fin"],
    "unicode": ["die", "c", "fin", "strasse", "a", "b"],
}


def made(tmp_path, tokenizer):
    text = tmp_path / "text"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    corpus = CorpusConfig(corpus=str(text), tokenizer=tokenizer)
    tokens = KNOWN[tokenizer]
    return (
        corpus,
        Vocabulary(tokens, np.arange(len(tokens), 0, -1), 99),
        Progress.make((str(text),)),
    )


def test_there_is_a_program_for_every_side():
    assert set(pipeline_text.SIDES) == set(pipeline_case.SIDES["text"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokenizer", ["whitespace", pytest.param("unicode", marks=pytest.mark.slow)]
)
def test_every_way_gives_the_same_ids_at_every_pass(tmp_path, tokenizer):
    corpus, known, progress = made(tmp_path, tokenizer)
    found = {}
    for side, make in pipeline_text.SIDES.items():
        ids = make(corpus, known, progress)
        for _ in range(2):
            tokens = np.concatenate(list(ids.as_numpy_iterator()))
            # Ours also marks where a document begins (see `input.tokens`).
            found.setdefault(side, []).append(np.where(tokens < 0, ~tokens, tokens).tolist())
    first, *others = (tokens for passes in found.values() for tokens in passes)
    assert len(first) >= 7 * 30 and all(tokens == first for tokens in others)


@pytest.mark.parametrize("side", ["vectorised", "cached", "map", "generator"])
def test_a_side_returns_its_figures(tmp_path, monkeypatch, side):
    corpus, known, _ = made(tmp_path, "whitespace")
    vocabulary.save(known, str(tmp_path / "vocab.tsv"))
    monkeypatch.setattr(pipeline_text, "_SECONDS", 0.01)
    words = sum(len(line.split()) for line in LINES)
    job = {"side": side, "text": corpus.corpus, "words": words, "tokenizer": "whitespace"}
    values = pipeline_text.measure(job | {"vocabulary": str(tmp_path / "vocab.tsv")})
    tokens = [token for line in LINES for token in line.split()]
    assert values["known"] == sum(token in KNOWN["whitespace"] for token in tokens)
    assert values["seconds"] >= 0.01 and values["first_seconds"] > 0
    speed = values["passes"] * words / values["seconds"]
    assert values["words_per_second"] == pytest.approx(speed)


def test_passes_are_doubled_until_they_take_long_enough(tmp_path, monkeypatch):
    taken = []

    def timed(ids, passes, progress):
        taken.append(passes)
        return 0.5 * passes, 7 * passes

    monkeypatch.setattr(pipeline_text, "timed", timed)
    corpus, known, _ = made(tmp_path, "whitespace")
    vocabulary.save(known, str(tmp_path / "vocab.tsv"))
    job = {"side": "map", "text": corpus.corpus, "words": 10, "tokenizer": "whitespace"}
    values = pipeline_text.measure(job | {"vocabulary": str(tmp_path / "vocab.tsv")})
    assert taken == [1, 1, 2, 4]
    assert values["words_per_second"] == 20 and values["known"] == 7
