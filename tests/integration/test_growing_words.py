"""Words that get rows as they come, without a vocabulary, from the command line."""

from __future__ import annotations

import functools

import pytest

from app.text import vocabulary
from tests.integration import commands
from tests.integration.commands import done, refused, run

DYNAMIC = (*commands.SMALL, "--table=dynamic", "--table_gb=0.1")
train = functools.partial(commands.train, small=DYNAMIC)


@pytest.mark.slow
def test_it_trains_and_is_used_as_any_run(tmp_path, corpus):
    workdir = tmp_path / "run"
    ended = done(tmp_path, *train(workdir, corpus))
    assert "vocabulary  grows with the text" in ended.out
    words = vocabulary.load(str(workdir / "vocab.tsv"))
    first = done(tmp_path, "app.neighbors", f"--workdir={workdir}", words.tokens[0])
    assert any(word in first.out for word in words.tokens[1:])
    plan = done(tmp_path, *train(workdir, corpus, "--plan_only"))
    assert "words and their counts" in plan.out
    done(tmp_path, *train(workdir, corpus, "--epochs=3"))
    again = vocabulary.load(str(workdir / "vocab.tsv"))
    assert again.counts.sum() == pytest.approx(1.5 * words.counts.sum(), rel=0.01)


@pytest.mark.slow
def test_too_few_rows_and_another_kind_of_table_end_in_one_line(tmp_path, corpus):
    command = train(tmp_path / "few", corpus, "--table_gb=0.000001", "--dim=300")
    assert "--table_gb=1e-06: a word takes" in refused(tmp_path, *command)
    few = run(tmp_path, *train(tmp_path / "few", corpus, "--table_gb=0.000003"))
    assert few.code == 1 and "rows are full" in few.err.splitlines()[-1]
    one, other = tmp_path / "one", tmp_path / "other"
    usual = ("--epochs=1", "--table_gb=2.0", "--min_count=5")  # which a workdir keeps
    done(tmp_path, *commands.train(one, corpus, "--min_count=5", "--epochs=1"))
    found = run(tmp_path, *train(one, corpus, *usual))
    assert found.code == 1 and "by id, and --table=dynamic" in found.err.splitlines()[-1]
    done(tmp_path, *train(other, corpus, *usual))
    found = run(tmp_path, *commands.train(other, corpus, "--min_count=5", "--table=device"))
    assert found.code == 1 and "by key and not by id" in found.err.splitlines()[-1]
