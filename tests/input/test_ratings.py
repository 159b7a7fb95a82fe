"""Files of ratings in every layout that is known, and what is wrong with others."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from app.config.ratings import RatingsConfig
from app.errors import UsageError
from app.input import ratings

NAMED = {"user_column": "who", "item_column": "what"}
FULL = [("196", "242", 3, 881250949), ("7", "242", 1.5, 5), ("196", "a b", 4, 6)]


def read(path, text, **settings):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        file.write(text)
    return ratings.read([str(path)], RatingsConfig(**settings))


def rows(found):
    columns = [
        [found.user_keys[user] for user in found.users_N],
        [found.item_keys[item] for item in found.items_N],
        *(part.tolist() for part in found[4:6] if part is not None),
    ]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("name", "text", "settings", "told"),
    [
        ("u.data", "196\t242\t3\t881250949\n7\t242\t1.5\t5\n196\ta b\t4\t6\n", {}, "tabs"),
        ("r.dat", "196::242::3::881250949\n7::242::1.5::5\n196::a b::4::6\n", {}, "`::`"),
        (
            "ratings.csv.gz",
            "userId,movieId,rating,timestamp\r\n196,242,3,881250949\r\n7,242,1.5,5\r\n"
            '196,"a b",4,6\r\n',
            {},
            "commas below a header",
        ),
        (
            "own.tsv",
            "t\twho\tmore\twhat\tstars\n881250949\t196\t\t242\t3\n"
            "5\t7\t\t242\t1.5\n6\t196\t\ta b\t4\n",
            {**NAMED, "rating_column": "stars", "time_column": "t"},
            "tabs below a header",
        ),
    ],
)
def test_pairs_with_ratings_and_times(tmp_path, name, text, settings, told):
    found = read(tmp_path / name, text, **settings)
    assert rows(found) == FULL
    assert found.layout == f"user, item, rating, time between {told}"
    assert [part.dtype for part in found[2:6]] == [np.int32, np.int32, np.float32, np.int64]


def test_lists_and_pairs_without_ratings(tmp_path):
    found = read(tmp_path / "a", "0 1 2 3\n5\n\n0 9\nx  1\n")
    assert rows(found) == [("0", "1"), ("0", "2"), ("0", "3"), ("0", "9"), ("x", "1")]
    assert found.ratings_N is None and found.layout.startswith("a user and then items")
    assert rows(read(tmp_path / "b", "0 1 4\n0 2 5\n")) == [("0", "1", 4), ("0", "2", 5)]
    assert rows(read(tmp_path / "b", "0 1 4\n0 2 5\n", layout="lists"))[1] == ("0", "4")
    assert rows(read(tmp_path / "b", "user0 item0\nuser1 item0\n"))[0] == ("user0", "item0")
    assert rows(read(tmp_path / "c", "0,1\n2,1")) == [("0", "1"), ("2", "1")]
    assert rows(read(tmp_path / "d", "0,1,2\n2,1,3", layout="lists"))[3] == ("2", "3")


def test_dates_are_times(tmp_path):
    found = read(tmp_path / "a.csv", "user,item,time\na,b,1970-01-02\na,c,1970-01-01 00:01\n")
    assert found.times_N.tolist() == [86400, 60]
    text = "user,item,time\na,b,1970-01-01T00:00:05Z\na,c,1970-01-01 01:00:06+01:00\n"
    assert read(tmp_path / "a.csv", text).times_N.tolist() == [5, 6]


def test_many_files_share_their_keys(tmp_path):
    for name, text in (("a", "u 1\n"), ("b", "v 1 2\n")):
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in "ab"]
    assert rows(ratings.read(paths, RatingsConfig())) == [("u", "1"), ("v", "1"), ("v", "2")]
    (tmp_path / "b").write_text("v\t1\t2\nv\t1\t2\n")
    with pytest.raises(UsageError, match="some have ratings and some have not"):
        ratings.read(paths, RatingsConfig())


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "is empty; give"),
        ("\n\n", {}, "is empty; give"),
        ("1\n2\n", {}, "no pair of a user and an item"),
        ("1\t2\t3\n1\t2\tx\n", {}, "line 2: 'x' is no rating; mend"),
        ("1\t2\t3\n\n1\t2\tnan\n", {}, "line 3: 'nan' is no rating"),
        ("1\t2\t3\n1\t2\n", {"layout": "pairs"}, "line 2: 2 of 3 fields"),
        ("1\t2\t3\n1\t2\n", {}, "lines of 2 and 3 fields; give --layout=lists if"),
        ("1,2,1e39\n1,3,4\n", {}, "line 1: '1e39' is no rating"),
        ("who,what\n1,2\n1,3\n", {}, "line 1: 'who,what' has no number, so may be a header"),
        ("who,what,stars\n1,2,3\n", {}, "line 1: 'who,what,stars' has no rating, so may be"),
        ("who,what,stars\n1,2,3\n", {"user_column": "whom"}, "--user_column=whom: .* who, what"),
        ("who,what,stars\n1,2,3\n", {"user_column": "who"}, "--item_column=: .* who, what, stars"),
        ("user,item,rating\n1,2,3\n1,2,?\n", {}, "line 3: '\\?' is no rating"),
        ("user,item,time\n1,2,3\n1,2,noon\n", {}, "line 3: 'noon' is no time"),
        ("user,item,time\n1,2,3\n1,2,\n1,3,4\n", {}, "line 3: '' is no time"),
        ("user,item,time\n1,2,3\n1,2,nan\n", {}, "line 3: 'nan' is no time"),
        ("user,item,time\n1,2,2020-01-01\n1,2,\n", {}, "line 3: '' is no time"),
        ("1,2,3,4,5\n1,2,3,4,5\n", {}, "5 columns; name them with --user_column"),
        ("user,item\n,2\n", {}, "'' is no name of a user or an item"),
    ],
)
def test_what_is_refused(tmp_path, text, settings, message):
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "ratings", text, **settings)


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
    (tmp_path / "a").write_bytes("a b\né c\n".encode("latin-1"))
    with pytest.raises(UsageError, match="byte 0xe9 at offset 4 is not UTF-8; convert the file$"):
        ratings.read([str(tmp_path / "a")], RatingsConfig())


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    path = tmp_path / "r.parquet"
    columns = {"userId": [196, 7, 196], "what": ["242", "242", "a b"], "rating": [3, 1.5, 4]}
    parquet.write_table(table(columns | {"time": [881250949, 5, 6]}), path)
    found = ratings.read([str(path)], RatingsConfig(item_column="what"))
    assert rows(found) == FULL and found.layout == "user, item, rating, time from Parquet columns"
    with pytest.raises(UsageError, match="--item_column=: .* userId, what, rating, time; give one"):
        ratings.read([str(path)], RatingsConfig())
    path.write_text("no")
    with pytest.raises(UsageError, match="no Parquet file"):
        ratings.read([str(path)], RatingsConfig(item_column="what"))
