import io

import numpy as np
import pytest

from app.errors import NoEffectError, RunError, UsageError
from app.input import counting
from app.settings import CorpusConfig, InputConfig
from app.text import teamwork
from app.text.teamwork import gather_parts
from app.types import Team
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
        arguments = ("a", "reason") if error is NoEffectError else ("reason",)
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


def test_arrays_of_others_cannot_run_anything():
    file = io.BytesIO()
    np.savez(file, tokens=np.array([print], object))
    team = Team(0, lambda own: [own, b"p" + file.getvalue()], ("0", "1"))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        teamwork.gather_arrays(team, lambda: {"tokens": np.arange(3)})


def test_tokens_are_joined_and_split():
    for tokens in ([], [b"a"], [b"a", "\u00e9".encode(), b"\r"]):
        assert teamwork.split_tokens(teamwork.join_tokens(tokens)) == tokens
