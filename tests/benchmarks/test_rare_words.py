from __future__ import annotations

import collections
import random

import numpy as np
import pytest

from app.evaluation.benchmarks import read_pairs, spearman
from tests.benchmarks import rare_words


@pytest.fixture
def source(tmp_path):
    """Two topics with words of their own among 60 frequent words; 40 words are seldom enough."""
    draw = random.Random(0)
    shared = [f"shared{number}" for number in range(60)]
    topics = [
        [f"{name}{letter}" for letter in "abcdefghijklmnopqrst"] for name in ("north", "south")
    ]
    contexts = [[f"{name}{number}" for number in range(30)] for name in ("ice", "sun")]
    lines = []
    for _ in range(4000):
        topic = draw.randrange(2)
        words = draw.choices(contexts[topic], k=6) + draw.choices(shared, k=30)
        lines.append(
            " ".join([*words, draw.choice(topics[topic]), *draw.choices(contexts[topic], k=4)])
        )
    path = tmp_path / "source"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_held_out_words_leave_the_text_and_are_paired(source, tmp_path):
    text, path = tmp_path / "text", tmp_path / "pairs"
    count = rare_words.hold_out(source, text, path)
    assert count == 20  # half of the words of letters that occur 50 to 500 times
    before, after = (collections.Counter(file.read_text().split()) for file in (source, text))
    gone = before - after
    assert len(gone) == count and not set(gone) & set(after)
    assert after == collections.Counter({w: n for w, n in before.items() if w not in gone})
    pairs = read_pairs(path)
    firsts, seconds, judgements = zip(*pairs, strict=True)
    assert set(firsts) == set(gone) and set(seconds) <= set(after)
    assert min(judgements) >= 0 and max(judgements) <= 1.000001
    same = np.array([a[:5] == b[:5] for a, b in zip(firsts, seconds, strict=True)], float)
    assert spearman(same, np.array(judgements)) > 0.5


def test_a_short_text_has_no_pairs(tmp_path):
    source, text, pairs = (tmp_path / name for name in "abc")
    source.write_text("some words\nof text\n")
    assert rare_words.hold_out(source, text, pairs) == 0
    assert text.read_text() == source.read_text() and pairs.read_text() == ""
