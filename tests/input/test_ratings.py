"""Files of ratings in every layout that is known, and what is wrong with others."""

import gzip

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.input import ratings
from app.settings import RatingsConfig
from app.text import columns

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
        (",\n,,\n", {}, "has only separators; give"),
        ("1\n2\n", {}, "no pair of a user and an item"),
        ("1\t2\t3\n1\t2\tx\n", {}, "line 2: 'x' is not a rating; correct"),
        ("1\t2\t3\n\n1\t2\tnan\n", {}, "line 3: 'nan' is not a rating"),
        ("1\t2\t3\n1\t2\n", {"layout": "pairs"}, "line 2: 2 of 3 fields"),
        ("1\t2\t3\n1\t2\n", {}, "lines of 2 and 3 fields; give --layout=lists if"),
        ("u,A,5\nu,B,3\nv,A,4\nv,C,5\nw\n", {}, "line 5: 1 field.*, where most lines have 3; c"),
        ("u A 5\nu B 3\nv A 4\nv B C D 5\nw A 4\n", {}, "line 4: 5 field.*; correct it, or"),
        ("1,2,1e39\n1,3,4\n", {}, "line 1: '1e39' is not a rating"),
        ("who,what\n1,2\n1,3\n", {}, "line 1: 'who,what' has no number, so it may be a header"),
        ("who,what,stars\n1,2,3\n", {}, "line 1: 'who,what,stars' has no rating, so it may be"),
        ("who,what,stars\n1,2,3\n", {"user_column": "whom"}, "--user_column=whom: .* who, what"),
        ("who,what,stars\n1,2,3\n", {"user_column": "who"}, "--item_column=: .* who, what, stars"),
        ("u,item\n1,2\n", {"user_column": "item"}, "--item_column=item: is also --user_column"),
        ("user,item,rating\n1,2,3\n1,2,?\n", {}, "line 3: '\\?' is not a rating"),
        ("user,item,time\n1,2,3\n1,2,noon\n", {}, "line 3: 'noon' is not a time"),
        ("user,item,time\n1,2,3\n1,2,\n1,3,4\n", {}, "line 3: '' is not a time"),
        ("user,item,time\n1,2,3\n1,2,nan\n", {}, "line 3: 'nan' is not a time"),
        ("user,item,time\n1,2,2020-01-01\n1,2,\n", {}, "line 3: '' is not a time"),
        ("1,2,3,4,5\n1,2,3,4,5\n", {}, "5 columns; name them with --user_column"),
        ("user,item\n,2\n", {}, "line 2: the name of a user is empty; fill it in or remove"),
        ("u,i,3\nu,,3\n", {}, "line 2: the name of an item is empty"),
        ("u i\n" * 101 + "u i j\n", {}, "line 102: 3 fields where the first one has 2; quote"),
        ("u,i,3\n" * 101 + "u,i, j,3\n", {}, "line 102: 4 fields where the first one has 3; quote"),
        ('user,item\nu,"i\nj"\n', {}, r"line 2: 'i\\nj' has a line break, which a name cannot"),
        ('user,item\nu,i\nv,"i\nw,j\n', {}, "line 3: unexpected end of data; close, double or"),
        ('user,item\nu,"i"j\n', {}, "line 2: ',' expected after '\"'; close, double or"),
        ("user,item,user\nu,i,v\n", {}, "2 columns are named user; remove or rename"),
        ("who,what,what\n1,2,3\n", NAMED, "2 columns are named what; remove or rename"),
        ("1;2;3,5\n1;3;4,0\n", {}, "line 1: '1;2;3,5' has commas and semicolons; give"),
        ("1,2,1_0\n1,3,4\n", {}, "line 1: '1_0' is not a rating"),
        ("1,2,3,1e300\n1,3,4,5\n", {}, "line 1: '1e300' is not a time"),
    ],
)
def test_what_is_refused(tmp_path, text, settings, message):
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "ratings", text, **settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1::a::5::9\n2::b::4::8\n", [("1", "a", 5, 9), ("2", "b", 4, 8)]),
        ("1::a:\n2::b:\n", [("1", "a:"), ("2", "b:")]),
        ("user::item\n1::a:\n2::b::\n", [("1", "a:"), ("2", "b")]),
        ("user,item\r\r\n1,a\r\r\n2,b\r\r\n", [("1", "a"), ("2", "b")]),
        ("1,a\r2,b\r", [("1", "a"), ("2", "b")]),
        ("\ufeffuser,item\n1,a\n", [("1", "a")]),
        ("\n \nuser,item\n\n1,a\n  \n,,\n2,b", [("1", "a"), ("2", "b")]),
        ("user,item\n1,a\n,\n2,b\n", [("1", "a"), ("2", "b")]),
        ("user, item, note\n1, a ,\n1, 2,x\n", [("1", "a"), ("1", "2")]),
        ('user,item,note\n1,a,"one\r\n2,b,two"\n2,"c,"" d",""\n', [("1", "a"), ("2", 'c," d')]),
        ('"user","item, name",item\n1,2,3\n', [("1", "3")]),
        ('"user";"item"\n1;"a;b"\n2;c,d\n', [("1", "a;b"), ("2", "c,d")]),
        ("1;2;3\n1;4;5\n", [("1", "2", 3), ("1", "4", 5)]),
        ("user,item\n1,a\tb\n", [("1", "a\tb")]),
        ("007,9999999999999999999999\n7,1e3\n", [("007", "9" * 22), ("7", "1e3")]),
    ],
)
def test_lines_and_cells_as_the_formats_have_them(tmp_path, text, expected):
    for name in ("ratings", "ratings.gz"):
        assert rows(read(tmp_path / name, text)) == expected


def test_a_cell_goes_on_in_another_block(tmp_path, monkeypatch):
    text = "user,item,note\n" + "".join(
        f'u{n},i{n},"{n}\n{n}, ""x"""\nv{n},j{n},\n' for n in range(99)
    )
    expected = [(f"{u}{n}", f"{i}{n}") for n in range(99) for u, i in ("ui", "vj")]
    for size in (17, 18, 19, 20, 1 << 20):
        monkeypatch.setattr(ratings, "_BLOCK_BYTES", size)
        for ends in ("\n", "\r\n", "\r", "\r\r\n"):
            assert rows(read(tmp_path / "a.csv", text.replace("\n", ends))) == expected


def test_a_long_line_is_one_user_or_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ratings, "_BLOCK_BYTES", 16)
    line = "u i0 i1 i2 i3 i4 i5 i6 i7 i8\n"
    assert {user for user, _ in rows(read(tmp_path / "a", f"v i0\n{line}w i1\n"))} == {*"uvw"}
    monkeypatch.setattr(columns, "LONGEST", len(line) - 2)
    with pytest.raises(UsageError, match="a, line 2: longer than 27 characters; check that"):
        read(tmp_path / "a", f"v i0\n{line}w i1\n")
    text = 'user,item\nu,"i\n' + "v,j\n" * 9
    with pytest.raises(UsageError, match="line 2: field larger than field limit .27.; close"):
        read(tmp_path / "a", text)


def test_large_times_are_exact(tmp_path):
    found = read(tmp_path / "a", f"u,i,1,{2**60 + 1}\nu,j,1,{2**60}\n")
    assert found.times_N.tolist() == [2**60 + 1, 2**60]
    assert read(tmp_path / "a", "u,i,1,1.5e9\nu,j,1,2\n").times_N.tolist() == [1500000000, 2]


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
    with pytest.raises(UsageError, match="--item_column=: .* userId, what, rating, time; name one"):
        ratings.read([str(path)], RatingsConfig())
    path.write_text("no")
    with pytest.raises(UsageError, match="is not a Parquet file, as its name says; check"):
        ratings.read([str(path)], RatingsConfig(item_column="what"))


def of_parquet(path, users, items=("x", "y", "z"), **more):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"user": users, "item": [*items], **more}), path)
    return ratings.read([str(path)], RatingsConfig())


def test_keys_of_parquet_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path, items = tmp_path / "r.parquet", ["x\r", "\ty", "x\r"]
    for users in (
        ["1", "2", "1"],
        [1, 2, 1],
        [1.0, 2.0, 1.0],  # as pandas has whole numbers some of which were missing
        pyarrow.array([b"1", b"2", b"1"]),
        pyarrow.array(["1", "2", "1"]).dictionary_encode(),
    ):
        assert rows(of_parquet(path, users, items)) == [("1", "x\r"), ("2", "\ty"), ("1", "x\r")]


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["1", None, "3"], "column user has empty cells; remove their rows"),
        ([1, None, 3], "column user has empty cells"),
        ([1.0, float("nan"), 3.0], "column user has empty cells"),
        (["1", "", "3"], "r.parquet, row 2: the name of a user is empty"),
        (["1", "a\nb", "3"], r"r.parquet, row 2: 'a\\nb' has a line break"),
        ([["1"], ["2"], ["3"]], "column user is of list"),
        ([b"1", b"\xff", b"3"], "column user is not UTF-8; convert it"),
    ],
)
def test_keys_of_parquet_files_that_are_none(tmp_path, users, message):
    with pytest.raises(UsageError, match=message):
        of_parquet(tmp_path / "r.parquet", users)


def test_times_of_parquet_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path, seconds = tmp_path / "r.parquet", [86400, 5, 1500000000]
    for unit, scale in (("s", 1), ("ms", 10**3), ("ns", 10**9)):
        parts = pyarrow.array([time * scale for time in seconds])
        if unit == "ns":
            parts = pyarrow.array([time * scale + 1 for time in seconds])
        for zone in (None, "Europe/Paris"):
            time = parts.cast(pyarrow.timestamp(unit, tz=zone))
            assert of_parquet(path, [1, 2, 3], time=time).times_N.tolist() == seconds
    days = pyarrow.array([1, 2, 3], pyarrow.int32()).cast(pyarrow.date32())
    assert of_parquet(path, [1, 2, 3], time=days).times_N.tolist() == [86400, 172800, 259200]
    with pytest.raises(UsageError, match="column time has empty cells"):
        of_parquet(path, [1, 2, 3], time=[1, None, 3])
    with pytest.raises(UsageError, match="column rating has empty cells"):
        of_parquet(path, [1, 2, 3], rating=[1.5, None, 3])


def test_a_damaged_parquet_file(tmp_path):
    path = tmp_path / "r.parquet"
    of_parquet(path, [*range(999)], [*range(999)])
    whole = path.read_bytes()
    for low, high in ((4, 900), (100, 120), (len(whole) // 2, len(whole) // 2 + 99)):
        path.write_bytes(whole[:low] + b"\x55" * (high - low) + whole[high:])
        with pytest.raises((RunError, UsageError)) as error:
            ratings.read([str(path)], RatingsConfig())
        told = str(error.value)
        assert (
            f"{path} is truncated or corrupt (" in told
            and "write it again" in told
            and "\n" not in told
        )


TABLE = [("5800", "a 1", 4), ("17", "2", 3), ("5800", "3.5", -1)]
FILES = {
    "a.csv": "user,item,rating\n5800.0,a 1,4\n17.00,2.0,3.0\n5800,3.5,-1\n",
    "b.csv": "user;item;rating\r\n5800;a 1;4\r\n17;2.0;3\r\n5800.0;3.5;-1\r\n",
    "c.tsv": "user\titem\trating\n5800\ta 1\t4\n17.0\t2.0\t3\n5800\t3.5\t-1\n",
    "d.inter": "user_id:token\titem_id:token\tn:float\trating:float\n"
    "5800\ta 1\t0\t4\n17\t2\t0\t3\n5800\t3.5\t0\t-1\n",
    "e.dat": "user::item::rating\n5800.0::a 1::4\n17::2.0::3\n5800::3.5::-1\n",
    "f.jsonl": '{"user": 5800.0, "item": "a 1", "rating": 4}\n\n'
    '{"rating": 3, "user": 17, "item": 2.0}\n'
    '{"user": "5800", "item": 3.5, "rating": -1, "note": null}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_a_whole_number_is_one_key_in_every_format(tmp_path, name):
    for end, text in (("", FILES[name]), (".gz", FILES[name]), ("", "\ufeff" + FILES[name])):
        found = read(tmp_path / f"{name}{end}", text)
        assert rows(found) == TABLE and found.user_keys == ["5800", "17"]
    path = tmp_path / "named.txt"  # by its content
    path.write_bytes(gzip.compress(FILES[name].encode("utf-16")))
    assert rows(ratings.read([str(path)], RatingsConfig())) == TABLE


def test_a_whole_number_is_one_key_in_several_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    paths = [str(tmp_path / name) for name in FILES]
    for path, text in zip(paths, FILES.values(), strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    of_floats = pyarrow.table({"user": [5800.0, 17.0], "item": ["a 1", "2.0"], "rating": [1, 2]})
    parquet.write_table(of_floats, tmp_path / "pairs")
    found = ratings.read([*paths, str(tmp_path / "pairs")], RatingsConfig())
    assert (found.user_keys, found.item_keys) == (["5800", "17"], ["a 1", "2", "3.5"])
    for keys in ([1e16, 3.0], [10**16, 3]):
        assert of_parquet(tmp_path / "b", keys, "xy").user_keys == ["10000000000000000", "3"]
        text = "".join(f'{{"user": {key}, "item": 1}}\n' for key in keys)
        assert read(tmp_path / "c", text).user_keys == ["10000000000000000", "3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user_id:token\titem_id:token\nu1\ti1\nu2\ti1\n", [("u1", "i1"), ("u2", "i1")]),
        ("uid:token\tsid:token\tn:float\nu1\ti1\t2\n", [("u1", "i1")]),
        ("time:float\titem:token\tuser:token\n5\ti1\tu1\n", [("u1", "i1", 5)]),
        ("customer,product\n1,2\n1,3\n", [("1", "2"), ("1", "3")]),
        ("customer,product\nann,lamp\nbob,lamp\n", [("ann", "lamp"), ("bob", "lamp")]),
        ("Customer ID;Product ID\nann;lamp\n", [("ann", "lamp")]),
        ("date,reviewer_id,ASIN\n5,u1,B00X\n", [("u1", "B00X")]),
        ("product,user,item\np,u,i\n", [("u", "i")]),
        ("u1,game\nu2,game\n", [("u1", "game"), ("u2", "game")]),
        ("ann,lamp\nbob1,lamp\n", [("ann", "lamp"), ("bob1", "lamp")]),
        ("user a\nuser b\n", [("user", "a"), ("user", "b")]),
    ],
)
def test_headers_are_no_pairs_and_pairs_no_headers(tmp_path, text, expected):
    for data in (text, text.replace("\n", "\r\n"), "\ufeff" + text):
        assert rows(read(tmp_path / "a", data)) == expected


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("kunde,ware\nu1,B01\nu2,B02\n", {}, "line 1: 'kunde,ware' may be a header; name its"),
        ("user,thing\nann,lamp\nbob,lamp\n", {}, "line 1: 'user,thing' may be a header; name"),
        ("user items\n0 1 2\n1 2\n", {}, "'user items' may be a header; .* give --layout=lists"),
        (
            "user_id:token\titem_id:token\nu\ti\n",
            {"item_column": "item"},
            "--item_column=item: .* user_id, item_id; name one of them, such as item_id",
        ),
        ("user,item,user\nu,i,v\n", {}, "2 columns are named user; remove .*--layout=lists"),
        ('{"user": 1, "itm": 2}\n', {}, "--item_column=: .* columns user, itm; name one"),
        ('{"user": 1, "item": null}\n', {}, "line 1: the name of an item is empty"),
        ('{"user": 1, "item": 2, "rating": "x"}\n', {}, "line 1: 'x' is not a rating"),
        ('{"user": 1, "item": 2, "rating": 1}\n{"user": 1, "item": 3}\n', {}, "line 2: '' is not"),
        ('{"user": 1, "item": [2]}\n', {}, "line 1: item is a list or an object"),
        ('{"user": 1, "item": 2}\n{"user": 1,\n', {}, "line 2: is no JSON object"),
    ],
)
def test_headers_and_fields_that_are_refused(tmp_path, text, settings, message):
    with pytest.raises(UsageError, match=message) as raised:
        read(tmp_path / "a", text, **settings)
    assert "\n" not in str(raised.value)


def test_a_first_row_that_may_be_a_header_is_read_as_asked(tmp_path):
    text = "kunde,ware\nu1,B01\nu2,B02\n"
    assert rows(read(tmp_path / "a", text, layout="pairs"))[0] == ("kunde", "ware")
    named = {"user_column": "kunde", "item_column": "ware"}
    assert rows(read(tmp_path / "a", text, **named)) == [("u1", "B01"), ("u2", "B02")]
    found = read(tmp_path / "a", "user items\n0 1 2\n1 2\n", layout="lists")
    assert rows(found)[0] == ("user", "items")


def test_a_sentence_is_no_header(tmp_path):
    text = "the user of an item is a user\nand more of it\n"
    assert read(tmp_path / "a", text).layout.startswith("a user and then items")
