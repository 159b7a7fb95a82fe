from __future__ import annotations

import pytest

from app.errors import NoEffectError, RunError, UsageError
from app.input import counting
from app.settings import CorpusConfig, InputConfig
from app.text.corpus import gather_parts
from tests.teams import together


def test_all_get_the_part_of_each():
    made = together(3, lambda team: gather_parts(team, lambda: b"%d" % team.number))
    assert made == [[b"0", b"1", b"2"]] * 3


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RunError, RunError), (UsageError, UsageError), (NoEffectError, UsageError)],
)
def test_all_fail_by_the_error_of_one(error, kind):
    told = []

    def make(team):
        arguments = ("a", "b", "reason") if error is NoEffectError else ("reason",)
        if team.number:
            raise error(*arguments)
        return b""

    def call(team):
        with pytest.raises(kind, match="^reason$"):
            gather_parts(team, lambda: make(team))
        told.append(team.number)

    together(2, call)
    assert sorted(told) == [0, 1]


@pytest.mark.slow
def test_text_that_only_one_reads_fails_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"some words\n" * 10 + b"\xff\n")
    given = CorpusConfig(corpus=str(path), invalid_utf8="error")

    def count(team):
        settings = InputConfig(block_bytes=64)
        with pytest.raises(RunError, match="a.txt: byte 0xff at offset 110 is not UTF-8"):
            counting.count_tokens((str(path),), given, settings, 99, team=team)

    together(2, count)
