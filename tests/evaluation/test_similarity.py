from __future__ import annotations

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from app.errors import UsageError
from app.evaluation.lexicon import make_lexicon
from app.evaluation.similarity import read_pairs, score, spearman


@pytest.mark.parametrize("case", ["fold", "exact"])
@pytest.mark.parametrize("name", ["wordsim353.tsv", "simlex999.txt"])
def test_gensim_gives_the_same_rho(make_vectors, name, case):
    found = sorted({word for pair in read_pairs(datapath(name)) for word in pair[:2]})[::2]
    vectors = make_vectors([word.upper() if n % 5 == 0 else word for n, word in enumerate(found)])
    ours = score(make_lexicon(vectors, case), datapath(name), name)
    peer = KeyedVectors(8)
    peer.add_vectors(vectors.tokens, vectors.matrix)
    _, spearman_result, unknown_percent = peer.evaluate_word_pairs(
        datapath(name), restrict_vocab=len(found), case_insensitive=case == "fold"
    )
    assert ours.value == pytest.approx(spearman_result[0], abs=1e-6)
    assert 100 * ours.skipped / (ours.used + ours.skipped) == pytest.approx(unknown_percent)


def test_separators_comments_and_a_header(tmp_path):
    path = tmp_path / "pairs"
    path.write_text(
        "\ufeff# note\nword 1,word 2,score\n\na,b,1.5\nnew york\tcity\t2\tmore\nc  d 3\n", "utf-8"
    )
    assert read_pairs(path) == [("a", "b", 1.5), ("new york", "city", 2), ("c", "d", 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b 1\na b\n", "line 2"),
        ("a b 1\na b x\n", "line 2"),
        ("a b c\na b c\n", "line 2"),
        ("a b nan\n", "line 1"),
        ("a\t\t1\n", "line 1"),
        ("one\n", "line 1"),
        ("# nothing\n", "holds no pair"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "pairs.tsv"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"pairs\.tsv.*{message}.*word word score"):
        read_pairs(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match="missing.*No such file"):
        read_pairs(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b"caf\xe9 tea 1\n")
    with pytest.raises(UsageError, match="latin: not UTF-8"):
        read_pairs(tmp_path / "latin")


def test_rho_shares_ranks_among_ties():
    scipy_stats = pytest.importorskip("scipy.stats")
    x, y = np.random.default_rng(0).integers(0, 5, size=(2, 40))
    assert spearman(x, y) == pytest.approx(scipy_stats.spearmanr(x, y)[0])


@pytest.mark.parametrize(
    ("words", "note"), [("xy", "fewer than two"), ("abx", "fewer than two"), ("abcd", "equal")]
)
def test_an_undefined_score_is_none_and_says_why(make_vectors, tmp_path, words, note):
    path = tmp_path / "pairs"
    path.write_text("a b 1\nc d 1\n")
    result = score(make_lexicon(make_vectors(words)), path, "own")
    assert result.value is None
    assert note in result.note
    assert result.used + result.skipped == 2
