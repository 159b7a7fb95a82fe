"""Features of users and items, read from files and given as cells."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from app.errors import UsageError
from app.input import named_features
from app.input.named_features import gather, with_names

CELLS = [
    ("1", "Drama|Comedy", "1999", "A tale, a dog"),
    ("2", "Drama", "", "Dog"),
    ("3", "", "2000", ""),
]
EXPECTED = {
    "1": [
        "genre=Drama",
        "genre=Comedy",
        "year=1999",
        *(f"title={t}" for t in ("a", "tale", "dog")),
    ],
    "2": ["genre=Drama", "title=dog"],
    "3": ["year=2000"],
}
NAMES = ("movieId", "genre", "year", "title")


def write(path, kind):
    if signs := {"csv": ",", "semicolons": ";", "tabs": "\t"}.get(kind):
        rows = [NAMES, *((a, b, c, f'"{d}"') for a, b, c, d in CELLS)]
        path.write_text("\n".join(map(signs.join, rows)) + "\n")
    elif kind == "json":
        rows = [dict(zip(NAMES, row, strict=True)) for row in CELLS]
        rows[0]["genre"], rows[1]["year"], rows[2]["title"] = ["Drama", "Comedy"], None, None
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    else:
        frame = pd.DataFrame(CELLS, columns=NAMES).assign(year=[1999.0, np.nan, 2000.0])
        frame["genre"] = [["Drama", "Comedy"], ["Drama", "Drama"], []]
        frame.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "semicolons", "tabs", "json", "parquet"])
def test_files(tmp_path, kind):
    path = write(tmp_path / f"items.{kind}", kind)
    assert named_features.read([path], "item", "", ["title"], "item_features") == EXPECTED


def test_white_space_is_one_blank(tmp_path):
    (tmp_path / "items.csv").write_text('id,"a\nb"\n7,"Sci\n\t Fi |\r\n| x"\n')
    found = named_features.read([str(tmp_path / "items.csv")], "item", "", [], "item_features")
    assert found == {"7": ["a b=Sci Fi", "a b=x"]}


def test_rows_of_one_name_are_joined(tmp_path):
    (tmp_path / "tags.csv").write_text("id,tag\n7,sea\n8,sky\n7.0,sky\n7,sea\n")
    found = named_features.read([str(tmp_path / "tags.csv")], "item", "", [], "item_features")
    assert found == {"7": ["tag=sea", "tag=sky"], "8": ["tag=sky"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "_features=.*: no column names the items among a, b; name one item_id"),
        ("item,b\n,2\n", "line 2: the item has no name; fill it in or"),
        ("item,b\n1,2,3\n", "line 2: 3 fields where the first one has 2"),
        ("item,b\n1\n", "line 2: 1 of 2 fields"),
        ("item,item,b\n1,1,2\n", "2 columns are named item"),
        ("item,b,b\n1,2,3\n", "2 columns are named b; remove or rename all but one"),
        ("item,b\n", "no row below its header"),
        ('{"item": 1, "b": {"c": 2}}\n', "line 1: b is .'c': 2.; give text, a number, or a list"),
        ('{"item": 1, "b": [[2]]}\n', "line 1: b is .2.; give text"),
    ],
)
def test_bad_files(tmp_path, text, message):
    (tmp_path / "items").write_text(text)
    with pytest.raises(UsageError, match=message):
        named_features.read([str(tmp_path / "items")], "item", "", [], "item_features")


def test_parquet_whose_text_is_not_utf8(tmp_path):
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    names = pyarrow.array([b"a", b"\xff"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"item": names, "b": [1, 2]}), tmp_path / "items")
    with pytest.raises(UsageError, match="items: its text is not UTF-8; convert it"):
        named_features.read([str(tmp_path / "items")], "item", "", [], "item_features")


def test_a_header_of_very_many_columns(tmp_path):
    (tmp_path / "wide.csv").write_text(f"item,{','.join(f'c{n}' for n in range(100_000))}\na,1\n")
    with pytest.raises(UsageError, match="line 2: 2 of 100001 fields"):
        named_features.read([str(tmp_path / "wide.csv")], "item", "", [], "item_features")
    (tmp_path / "wide.csv").write_text("c," * 100_000 + "d\n")
    with pytest.raises(UsageError, match="no column names the items among c, c, .*; name") as told:
        named_features.read([str(tmp_path / "wide.csv")], "item", "", [], "item_features")
    assert len(str(told.value)) < 1000


def test_features_that_only_new_items_have_are_left_out():
    by_name = {"a": ["x", "y"], "b": ["x"], "new": ["z", "y"], "other": []}
    found = gather(by_name, ["b", "a", "c", "new", "other"], trained=3)
    assert found.names.tokens == ["x", "y"] and found.names.counts.tolist() == [2, 1]
    assert found.starts.tolist() == [0, 1, 3, 3, 4, 4]
    assert found.features_N.tolist() == [0, 0, 1, 1]
    again = with_names([["y", "y", "z"], []], found.names)
    assert again.starts.tolist() == [0, 1, 1] and again.features_N.tolist() == [1]


def test_rows_of_the_table():
    found = gather({"a": ["x", "y"], "new": ["y"]}, ["a", "b", "new"], trained=2)
    rows_N, starts, count = found.table_rows(2)
    lists = [sorted(part.tolist()) for part in np.split(rows_N, starts[1:-1])]
    x, y = (3 + found.names.tokens.index(name) for name in "xy")
    assert lists == [sorted([0, 2, x, y]), [1, 2], sorted([2, y])] and count == 5
