"""Labelled texts that a team reads: those of one process, in their order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from app.errors import UsageError
from app.input import labelled_files
from app.settings import flag_values
from tests.teams import together

LINES = [
    f"__label__{'abc'[number % 3]}{' __label__x' * (number % 5 == 0)} w{number % 37} \u00e9t\u00e9"
    f" same{' __weight__0.5' * (number % 7 == 0)}"
    for number in range(400)
]


def read(path, team=None, **values):
    names = {"task": "classify", "min_count": 1, "block_bytes": 1024, **values}
    arguments = () if team is None else (team,)
    config = flag_values.from_names(names)
    sections = config.corpus, config.labelled, config.input
    return labelled_files.read((str(path),), *sections, *arguments)


def assert_equal(found, expected):
    for field in dataclasses.fields(expected):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_a_team_reads_the_texts_of_one_process(tmp_path, workers):
    lines, columns = tmp_path / "a.txt", tmp_path / "a.csv"
    lines.write_text("\n".join(LINES) + "\n")
    rows = (f'"a text of {number} words","l{number % 4}\nx"' for number in range(300))
    columns.write_text("text,label\n" + "\n".join(rows) + "\n")
    for path, values in (
        (lines, {"weight_prefix": "__weight__"}),
        (columns, {"text_column": "text", "label_column": "label"}),
    ):
        expected = read(path, **values)
        for found in together(
            workers, lambda team, how=(path, values): read(how[0], team, **how[1])
        ):
            assert_equal(found, expected)


@pytest.mark.slow
def test_a_wrong_line_in_the_share_of_one_is_told_by_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join([*LINES[:300], "no label", *LINES[300:]]))
    told = []

    def wrong(team):
        with pytest.raises(UsageError, match=f"{path}, line 301: ") as caught:
            read(path, team)
        told.append(str(caught.value))

    together(2, wrong)
    assert len(told) == 2 and len(set(told)) == 1
