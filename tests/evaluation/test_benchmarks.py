from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from app.errors import UsageError
from app.evaluation import score_report
from app.evaluation.benchmarks import (
    read_pairs,
    read_questions,
    score_analogies,
    score_pairs,
    spearman,
)
from app.evaluation.lexicon import make_lexicon
from app.text.unicode_rules import FOLDED
from app.types import WordVectors

KINGS = ["man", "woman", "king", "queen", "Kings", "queens"]
KING_ROWS = [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [1, 0, 2], [1, 1, 2]]


@pytest.fixture
def questions(tmp_path):
    """A tenth of Google's questions, in all their sections."""
    with open(datapath("questions-words.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    path = tmp_path / "questions"
    kept = [line for n, line in enumerate(lines) if line.startswith(":") or n % 10 == 0]
    path.write_text("\n".join(kept))
    return path


@pytest.mark.parametrize("case", ["fold", "exact"])
def test_gensim_gives_the_same_answers(make_vectors, questions, case):
    found = sorted({word for _, words in read_questions(questions) for word in words})
    # Other spellings of some words, near enough to them to be answers themselves.
    found = found[::3] + found[1::3]
    twins = found[::6]
    found += [word.swapcase() for word in twins]
    random = np.random.default_rng(0)
    matrix = random.normal(size=(len(found), 8))
    rows = {word: row for row, word in enumerate(found)}
    relations = {}
    for section, (a, b, c, d) in read_questions(questions):  # so that some analogies hold
        relation = relations.setdefault(section, random.normal(size=8))
        for base, derived in ((a, b), (c, d)):
            if base in rows and derived in rows:
                matrix[rows[derived]] = matrix[rows[base]] + relation
    for word in twins:
        matrix[rows[word.swapcase()]] = matrix[rows[word]] + 0.1 * random.normal(size=8)
    vectors = make_vectors(found, matrix)
    ours = score_analogies(make_lexicon(vectors, case), questions, "analogy")
    peer = KeyedVectors(8)
    peer.add_vectors(vectors.tokens, vectors.matrix)
    accuracy, sections = peer.evaluate_word_analogies(
        str(questions), restrict_vocab=len(found), case_insensitive=case == "fold"
    )
    assert ours.value == pytest.approx(accuracy)
    assert ours.value > 0.2
    assert 0 < ours.used < ours.used + ours.skipped
    parts = {part.name: part for part in ours.parts}
    for section in sections[:-1]:
        part = parts[section["section"]]
        assert part.used == len(section["correct"]) + len(section["incorrect"])
        assert round((part.value or 0) * part.used) == len(section["correct"])
    assert parts["semantic"].used + parts["syntactic"].used == ours.used


def test_sections_totals_and_skipped_questions(make_vectors, tmp_path):
    path = tmp_path / "own"
    path.write_text(
        "// comment\n# another\n: royal\nman woman king queen\nMAN WOMAN KING QUEEN\n"
        ": gram1\nking kings queen queens\nking kings man men\n: gram2\na b c d\n"
    )
    result = score_analogies(make_lexicon(make_vectors(KINGS, KING_ROWS)), path, "own")
    assert (result.value, result.used, result.skipped) == (1, 3, 2)
    values = {part.name: (part.value, part.used, part.skipped) for part in result.parts}
    assert values == {
        "semantic": (1, 2, 0),
        "syntactic": (1, 1, 2),
        "royal": (1, 2, 0),
        "gram1": (1, 1, 1),
        "gram2": (None, 0, 1),
    }
    assert "unknown" in result.parts[-1].note
    assert "all 6 words" in result.protocol


def test_a_file_of_one_kind_is_not_split_into_kinds(make_vectors, tmp_path):
    path = tmp_path / "own"
    path.write_text("man woman king queen\n")
    result = score_analogies(make_lexicon(make_vectors(KINGS, KING_ROWS)), path, "own")
    assert [part.name for part in result.parts] == ["(no section)"]


def test_question_words_are_no_answers_in_any_spelling(make_vectors, tmp_path):
    path = tmp_path / "own"
    path.write_text("man woman king woman\nman woman king queen\n")
    words = ["man", "woman", "king", "KING", "queen"]
    matrix = [[1, 0, 0], [1, 0.1, 0], [0, 0, 1], [0, 0.1, 1], [0, 0.5, 1]]
    assert score_analogies(make_lexicon(make_vectors(words, matrix)), path, "own").value == 0.5


def test_no_known_question_and_no_words(make_vectors, tmp_path):
    path = tmp_path / "own"
    path.write_text("a b c d\n")
    for words in (KINGS, []):
        result = score_analogies(make_lexicon(make_vectors(words)), path, "own")
        assert (result.value, result.used, result.skipped) == (None, 0, 1)


@pytest.mark.parametrize(
    ("text", "message"), [(": s\na b c d\na b c\n", "line 3.*3 words"), (": s\n", "no question")]
)
def test_a_malformed_file_of_questions_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "own.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"own\.txt.*{message}.*four words"):
        read_questions(path)


@pytest.mark.parametrize("case", ["fold", "exact"])
@pytest.mark.parametrize("name", ["wordsim353.tsv", "simlex999.txt"])
def test_gensim_gives_the_same_rho(make_vectors, name, case):
    found = sorted({word for pair in read_pairs(datapath(name)) for word in pair[:2]})[::2]
    vectors = make_vectors([word.upper() if n % 5 == 0 else word for n, word in enumerate(found)])
    ours = score_pairs(make_lexicon(vectors, case), datapath(name), name)
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
def test_a_malformed_file_of_pairs_is_named_with_its_line(tmp_path, text, message):
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
    with zipfile.ZipFile(tmp_path / "pairs.zip", "w") as archive:
        archive.writestr("pairs.tsv", "a b 1\n")
    with pytest.raises(UsageError, match="pairs.zip is a zip archive; give a file of word pairs"):
        read_pairs(tmp_path / "pairs.zip")


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
    result = score_pairs(make_lexicon(make_vectors(words)), path, "own")
    assert result.value is None
    assert note in result.note
    assert result.used + result.skipped == 2


def test_every_benchmark_and_own_files_are_scored(make_vectors, tmp_path):
    pairs, analogies = tmp_path / "pairs", tmp_path / "analogies"
    pairs.write_text("tiger cat 1\nold new 2\nold cat 4\n")
    analogies.write_text(": gram\ntiger cat old new\n: other\nx y z tiger\n")
    vectors = make_vectors(["tiger", "cat", "old", "new", "smart"])
    scores = score_report.run(vectors, pairs=[str(pairs)], analogies=[str(analogies)])
    names = ["ws353", "simlex999", "analogy", str(pairs), str(analogies)]
    assert [score.name for score in scores] == names
    assert [score.used + score.skipped for score in scores] == [353, 999, 19544, 3, 2]

    table = score_report.table(scores)
    assert all(name in table for name in names)
    assert table.count("protocol of") == 2
    assert "n/a" in table and "nan" not in table
    words = [f" ({score.words})" for score in scores]
    assert words[-2:] == [" (0 of 4 words unknown)", " (3 of 7 words unknown)"]
    named = f"protocol of ws353{words[0]}, simlex999{words[1]}, {pairs}{words[3]}: Spearman"
    assert named in table

    summary = json.loads(json.dumps(score_report.summary(scores)))
    assert summary[str(pairs)]["value"] == pytest.approx(scores[3].value)
    assert summary["analogy"]["value"] is None
    assert summary[str(analogies)]["parts"]["other"]["skipped"] == 1
    assert all("5 words" in score["protocol"] for score in summary.values())


def test_the_columns_of_the_table_line_up(make_vectors):
    words = ["love", "sex", "tiger", "cat", "old", "new"]
    header, *rows = score_report.table(score_report.run(make_vectors(words))).splitlines()[:5]
    assert header.split() == ["benchmark", "measure", "score", "used", "skipped"]
    assert rows[0].split()[1:] == ["spearman", rows[0].split()[2], "3", "350"]
    ends = [header.index(title) + len(title) for title in ("score", "used", "skipped")]
    for row in rows:
        assert all(row[end - 1] != " " and row[end : end + 2].strip() == "" for end in ends)


def test_an_unknown_benchmark_is_named():
    with pytest.raises(UsageError, match="--benchmarks=ws354.*ws353, simlex999, analogy"):
        score_report.run(None, ["ws354"])


def test_the_carried_files_are_gensims():
    datapath = pytest.importorskip("gensim.test.utils").datapath
    for name in ("wordsim353.tsv", "simlex999.txt", "questions-words.txt"):
        assert str(score_report._gensim_file(name)) == datapath(name)
    assert len(read_pairs(score_report._gensim_file("simlex999.txt"))) == 999


def test_scoring_needs_neither_tensorflow_nor_gensim_in_memory():
    check = (
        "import sys; from app.evaluation import score_report as s; "
        "s._gensim_file('simlex999.txt'); "
        "sys.exit('tensorflow' in sys.modules or 'gensim' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize("form", ["", FOLDED])
def test_scores_of_an_epoch_are_those_of_all_vectors(form):
    folder = score_report._folder()
    words = read_pairs(folder / "wordsim353.tsv") + read_pairs(folder / "simlex999.txt")
    tokens = list(dict.fromkeys(word for pair in words for word in pair[:2]))
    questions = read_questions(folder / "questions-words.txt")
    others = {word for _, four in questions[::50] for word in four} - {*tokens}
    rare = [f"x{number}" for number in range(score_report._ANALOGY_WORDS)]
    # Pairs before and after the words of the analogies; of equal spellings the first counts.
    tokens = [*tokens[::2], *sorted(others), *rare, *tokens[1::2], tokens[0].upper()]
    matrix = np.random.default_rng(1).normal(size=(len(tokens), 8)).astype(np.float32)
    vectors, asked = WordVectors(tokens, matrix, form=form), []

    def read(ids_N):
        asked.append(len(ids_N))
        return matrix[ids_N]

    found = score_report.make_epoch_scorer(tokens, form, read)()()
    (analogy,) = score_report.run(vectors, ["analogy"], restrict=score_report._ANALOGY_WORDS)
    expected = {score.name: score.value for score in score_report.run(vectors, ["ws353"])}
    expected |= {score.name: score.value for score in score_report.run(vectors, ["simlex999"])}
    assert found == expected | {"analogy_10k": analogy.value}
    assert asked[0] < len(tokens)


def test_no_scores_of_an_epoch_without_words_of_the_benchmarks(monkeypatch):
    assert score_report.make_epoch_scorer(["@", "#"], "", pytest.fail)()() == {}
    monkeypatch.setattr(score_report, "_folder", lambda: None)
    assert score_report.make_epoch_scorer(["king"], "", pytest.fail) is None
