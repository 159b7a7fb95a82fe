import json
import subprocess
import sys

import pytest

from app.errors import UsageError
from app.evaluation import score_report
from app.evaluation.benchmarks import read_pairs


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
