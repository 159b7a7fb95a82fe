"""Labelled texts as people write them, against what Python reads of them line by line."""

import gzip
import json

import numpy as np
import pytest

from app.errors import UsageError
from app.input import labelled_files
from app.input.labelled_files import Files
from app.settings import flag_values
from app.text import columns
from app.text.reading import Progress, grouped

LINES = "__label__a one two\n\n  __label__b __label__a\ttwo two three\n__label__b\nsix __label__c\n"


def config(**values):
    found = flag_values.from_names({"task": "classify"} | values)
    return found.corpus, found.labelled, found.input


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return (str(path),)


def shown(examples):
    """Each text as its words and its labels."""
    words = [examples.words[token] for token in examples.tokens_M]
    labels = [examples.labels[label] for label in examples.labels_N]
    return [
        (words[start:stop], labels[first:last])
        for (start, stop), (first, last) in zip(
            zip(examples.starts_E, examples.starts_E[1:], strict=False),
            zip(examples.label_starts_E, examples.label_starts_E[1:], strict=False),
            strict=True,
        )
    ]


EXPECTED = [
    (["one", "two"], ["a"]),
    (["two", "two", "three"], ["b", "a"]),
    ([], ["b"]),
    (["six"], ["c"]),
]


@pytest.mark.parametrize(
    "text",
    [LINES, gzip.compress(LINES.encode()), LINES.replace("\n", "\r\n")],
    ids=["plain", "gzip", "windows"],
)
def test_lines(tmp_path, text):
    found = labelled_files.read(written(tmp_path / "a.txt", text), *config())
    assert shown(found) == EXPECTED
    assert len(found) == 4
    assert found.lengths_E.tolist() == [2, 3, 0, 1]


@pytest.mark.slow
def test_many_blocks_of_many_files_are_one_text(tmp_path):
    draw = np.random.default_rng(0)
    sources, expected = (), []
    for number in range(2):
        texts = [[f"w{word}" for word in draw.integers(50, size=5)] for _ in range(300)]
        labels = [[f"l{label}"] for label in draw.integers(3, size=300)]
        lines = (f"__label__{x[0]} {' '.join(t)}\n" for t, x in zip(texts, labels, strict=True))
        sources += written(tmp_path / f"{number}.txt", "".join(lines))
        expected += [*zip(texts, labels, strict=True)]
    assert shown(labelled_files.read(sources, *config(block_bytes=1024, readers=1))) == expected


@pytest.mark.slow
def test_a_tokenizer_does_not_see_labels(tmp_path):
    text = "Fine,\u00a0__label__Good-one FILM!\n__label__bad Awful\n"
    found = labelled_files.read(written(tmp_path / "a.txt", text), *config(tokenizer="unicode"))
    assert shown(found) == [(["fine", "film"], ["Good-one"]), (["awful"], ["bad"])]
    words_M, owners_M = labelled_files.make_word_splitter(*config(tokenizer="unicode")[:2])(
        ["", "__label__x Fine day"]
    )
    assert words_M.numpy().tolist() == [b"fine", b"day"] and owners_M.numpy().tolist() == [1, 1]


@pytest.mark.slow
def test_another_prefix_and_a_label_twice(tmp_path):
    found = labelled_files.read(
        written(tmp_path / "a.txt", "#x #y.+ #x w #\n"), *config(label_prefix="#")
    )
    assert shown(found) == [(["w", "#"], ["x", "y.+"])]


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["\\E", "\\Q", ".", "[", " #", "\u00e9-", "$^"])
def test_a_prefix_is_no_pattern(tmp_path, prefix):
    found = labelled_files.read(
        written(tmp_path / "a.txt", f"{prefix.strip()}x w\n"), *config(label_prefix=prefix.strip())
    )
    assert shown(found) == [(["w"], ["x"])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("__label__a one\n\ntwo\n", "line 3: has no label; give lines such as `__label__good a"),
        ("\n \n", "no example in it"),
    ],
)
def test_lines_that_are_none(tmp_path, text, told):
    with pytest.raises(UsageError) as error:
        labelled_files.read(written(tmp_path / "a.txt", text), *config())
    assert f"{tmp_path}/a.txt" in str(error.value) and told in str(error.value)


def test_a_line_longer_than_a_block(tmp_path):
    given = written(tmp_path / "a.txt", "__label__a" + " one" * 1000 + "\n")
    with pytest.raises(UsageError, match="--block_bytes=1024: .*a.txt, line 1 is longer, so"):
        labelled_files.read(given, *config(block_bytes=1024))


def test_a_cell_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr("app.text.columns.LONGEST", 1024)
    # Not even a cell that goes over many lines fills the memory.
    text = 'review,kind\n"' + "one two\n" * 1000 + '",a\n'
    given = written(tmp_path / "a.csv", text)
    with pytest.raises(UsageError, match=r"a.csv, line \d+: .*1024"):
        labelled_files.read(given, *config(**COLUMNS, block_bytes=1024))


def test_long_cells_are_read_a_few_at_a_time():
    rows = [("x" * size, ["a"], []) for size in (1, 2, 9, 1, 10, 1)]
    found = list(grouped(rows, 4096, 10, lambda row: len(row[0])))
    assert [[len(text) for text, *_ in group] for group in found] == [[1, 2, 9], [1, 10], [1]]


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["whitespace", "unicode"])
def test_tokens_that_are_too_long_are_dropped_and_told_once(tmp_path, caplog, tokenizer):
    given = written(tmp_path / "a.txt", f"__label__a one {'x' * 1001}\n__label__b {'y' * 1001}\n")
    found = labelled_files.read(given, *config(tokenizer=tokenizer))
    assert shown(found) == [(["one"], ["a"]), ([], ["b"])]
    assert caplog.text.count("dropped 2 tokens of more than 1000 bytes") == 1


def test_a_file_that_is_cut(tmp_path):
    given = written(tmp_path / "a.gz", gzip.compress(LINES.encode() * 99)[:-9])
    with pytest.raises(UsageError, match="truncated or corrupt"):
        labelled_files.read(given, *config())


def test_the_first_line_without_a_label(tmp_path):
    for text, line in (
        (LINES + "text,label\none,a\n", 6),
        ("\ufeff__label__ one\n__label__a two", 1),
        ("\n\r\n__label__a one\ntwo __label__b\n \tthree\r\n", 5),
    ):
        given = written(tmp_path / "a.txt", text)
        told = str(labelled_files.explain_line(Files(given, *config(block_bytes=1024))))
        assert told.startswith(f"{tmp_path}/a.txt, line {line}: has no label; give lines such as")


COLUMNS = {"text_column": "review", "label_column": "kind"}


def test_columns(tmp_path):
    text = '\ufeffid, kind ,review\n1,a,"one, ""two""\nthree"\n\n2, Sci  Fi ,\n'
    found = labelled_files.read(written(tmp_path / "a.csv", text), *config(**COLUMNS))
    assert shown(found) == [(["one,", '"two"', "three"], ["a"]), ([], ["Sci Fi"])]


def test_columns_of_every_format(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [("one two", "a", 1), ("three", "b", 0.5), ("", "a", 2)]
    expected = [(text.split(), [label]) for text, label, _ in rows]
    objects = [dict(zip(("review", "kind", "w"), row, strict=True)) for row in rows]
    lines = "".join(json.dumps(row) + "\n" for row in objects)
    table = pyarrow.Table.from_pylist([{**row, "w": str(row["w"])} for row in objects])
    parquet.write_table(table, tmp_path / "p")
    texts = {"j": lines, "u": lines.encode("utf-16"), "z": gzip.compress(lines.encode())}
    for sign in ",;\t":
        texts[f"c{sign}"] = "review,kind,w\none two,a,1\nthree,b,0.5\n,a,2\n".replace(",", sign)
    for name in [*texts, "p"]:
        path = tmp_path / name
        given = written(path, texts[name]) if name in texts else (str(path),)
        found = labelled_files.read(given, *config(**COLUMNS, weight_column="w"))
        assert shown(found) == expected and found.weights_E.tolist() == [1, 0.5, 2]


def test_labels_that_are_lists_or_numbers(tmp_path):
    rows = [{"review": "one", "kind": ["a", "b c"]}, {"review": None, "kind": 3}]
    given = written(tmp_path / "a", "".join(json.dumps(row) + "\n" for row in rows))
    found = labelled_files.read(given, *config(**COLUMNS))
    assert shown(found) == [(["one"], ["a", "b c"]), ([], ["3"])]
    given = written(tmp_path / "a", '{"review": "one", "kind": []}\n')
    with pytest.raises(UsageError, match="a, line 1: has no label; correct"):
        labelled_files.read(given, *config(**COLUMNS))


@pytest.mark.parametrize(
    "ends", ["\r\n", *(pytest.param(e, marks=pytest.mark.slow) for e in ("\n", "\r\r\n", "\r"))]
)
def test_rows_of_columns_longer_than_blocks(tmp_path, ends):
    words = [f"w{number}" for number in range(400)]
    rows = ["review,kind", " ".join(words) + ",a", '"' + "\n".join(words) + '",b', "one two,c", ""]
    given = written(tmp_path / "a.csv", "\n".join(rows).replace("\n", ends))
    found = labelled_files.read(given, *config(**COLUMNS, block_bytes=1024))
    assert shown(found) == [(words, ["a"]), (words, ["b"]), (["one", "two"], ["c"])]


def test_a_quote_that_is_not_closed_is_not_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "LONGEST", 2000)
    given = written(tmp_path / "a.csv", 'review,kind\n"one,a\n' + "two,b\n" * 9999)
    files = Files(given, *config(**COLUMNS, block_bytes=1024))
    rows = labelled_files.read_columns(files, Progress.make(given), 0)
    with pytest.raises(UsageError, match="line 2: field larger than field limit .2000.; close"):
        list(rows)


@pytest.mark.slow
def test_columns_between_tabs_with_several_labels_compressed(tmp_path):
    text = "review\tkind\n" + "one two\ta| b |\n" * 5000 + "x " * 100_000 + "\tc\n"
    given = written(tmp_path / "a.tsv.gz", gzip.compress(text.encode()))
    found = labelled_files.read(given, *config(**COLUMNS, label_separator="|"))
    assert len(found) == 5001
    assert shown(found)[4999:] == [(["one", "two"], ["a", "b"]), (["x"] * 100_000, ["c"])]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,kind\n1,a\n", "--text_column=review: {path} has the columns id, kind; name"),
        ("review,id\n1,a\n", "--label_column=kind: {path} has the columns review, id; name"),
        (LINES, "--text_column=review: {path} has the columns __label__a one two; name"),
        ('review,kind\n"one\ntwo", \n', "{path}, line 2: has no label"),
        ("kind,review,kind\na,one,b\n", "{path}: 2 columns are named kind; remove or rename"),
    ],
)
def test_columns_that_are_not_there(tmp_path, text, told):
    path = tmp_path / "a.csv"
    files = Files(written(path, text), *config(**COLUMNS))
    with pytest.raises(UsageError) as error:
        [*labelled_files.read_columns(files, Progress.make(files.sources), 0)]
    assert told.format(path=path) in str(error.value)


def test_examples_are_chosen_cut_and_renamed(tmp_path):
    found = labelled_files.read(written(tmp_path / "a.txt", LINES), *config())
    assert shown(found.select(np.array([False, True, False, True]))) == EXPECTED[1::2]
    renamed = found.with_names(["three", "two", "none"], ["c", "b"])
    assert renamed.tokens_M.tolist() == [1, 1, 1, 0]
    assert renamed.lengths_E.tolist() == [1, 3, 0, 0]
    assert renamed.labels_N.tolist() == [-1, 1, -1, 1, 0]
    assert renamed.label_counts_E.tolist() == [1, 2, 1, 1]


@pytest.mark.slow
def test_a_word_at_the_end_of_each_text_and_words_without_an_id(tmp_path):
    found = labelled_files.read(written(tmp_path / "a.txt", LINES), *config())
    ended = labelled_files.read(written(tmp_path / "a.txt", LINES), *config(fasttext_features=True))
    lists = [[found.words[token] for token in part] for part in split(found)]
    assert [[ended.words[token] for token in part] for part in split(ended)] == [
        [*words, "</s>"] for words in lists
    ]
    known = ["</s>", found.words[-1]]
    named = ended.with_names(known, found.labels, keeps_unknown=True)
    assert named.words[:2] == known and sorted(named.words) == sorted(ended.words)
    assert [[named.words[token] for token in part] for part in split(named)] == [
        [*words, "</s>"] for words in lists
    ]


def split(examples):
    return np.split(examples.tokens_M, examples.starts_E[1:-1])


# Weights of texts and of labels, from lines and from columns.


def read(path, text, **values):
    path.write_text(text)
    return labelled_files.read((str(path),), *config(**values))


def weighted(examples):
    """Each text as its words, its labels with their weights, and its weight."""
    shares = [1.0] * len(examples.labels_N) if examples.shares_N is None else examples.shares_N
    weights = [1.0] * len(examples) if examples.weights_E is None else examples.weights_E
    found = []
    for text in range(len(examples)):
        words = examples.tokens_M[slice(*examples.starts_E[text : text + 2])]
        labels = slice(*examples.label_starts_E[text : text + 2])
        names = [examples.labels[label] for label in examples.labels_N[labels]]
        pairs = [*zip(names, map(float, shares[labels]), strict=True)]
        found.append(([examples.words[word] for word in words], pairs, float(weights[text])))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["whitespace", "unicode"])
def test_weights_in_lines(tmp_path, tokenizer):
    text = (
        "__label__a __weight__0.5 one two\n__label__b:0.5 __weight__ one\n"
        "one __label__a __weight__2e1\n"
    )
    found = read(tmp_path / "a.txt", text, tokenizer=tokenizer)
    mark = ["__weight__"] if tokenizer == "whitespace" else ["weight"]
    assert weighted(found) == [
        (["one", "two"], [("a", 1.0)], 0.5),
        ([*mark, "one"], [("b:0.5", 1.0)], 1.0),
        (["one"], [("a", 1.0)], 20.0),
    ]
    split = labelled_files.make_word_splitter(*config(tokenizer=tokenizer)[:2])
    assert split(["__weight__7 one __label__x two"])[0].numpy().tolist() == [b"one", b"two"]


@pytest.mark.slow
def test_a_prefix_can_be_turned_off(tmp_path):
    assert weighted(read(tmp_path / "a.txt", "__label__a __weight__x one\n", weight_prefix="")) == [
        (["__weight__x", "one"], [("a", 1.0)], 1.0)
    ]


@pytest.mark.slow
def test_weights_of_labels(tmp_path):
    text = (
        "__label__good:0.75 __label__bad:0.25 one\n__label__a:b:1 __label__c __label__c:0.5 two\n"
    )
    assert weighted(read(tmp_path / "a.txt", text, label_weights=True)) == [
        (["one"], [("good", 0.75), ("bad", 0.25)], 1.0),
        (["two"], [("a:b", 1.0), ("c", 1.0)], 1.0),
    ]
    plain = read(tmp_path / "a.txt", text)
    assert plain.labels == ["good:0.75", "bad:0.25", "a:b:1", "c", "c:0.5"]
    assert plain.shares_N is None and plain.weights_E is None


def test_weights_in_columns(tmp_path):
    text = "kind,weight,review\na:0.5|b:0.25, 3 ,one two\nb,1,two\n"
    columns = {"text_column": "review", "label_column": "kind", "label_separator": "|"}
    found = read(tmp_path / "a.csv", text, **columns, weight_column="weight", label_weights=True)
    assert weighted(found) == [
        (["one", "two"], [("a", 0.5), ("b", 0.25)], 3.0),
        (["two"], [("b", 1.0)], 1.0),
    ]


@pytest.mark.slow
def test_texts_and_labels_of_weight_0_are_left_out(tmp_path):
    text = (
        "__label__a one\n__weight__0 __label__x two\n__label__b:0 __label__c:0.5 three\n"
        "__label__d:0 four\n"
    )
    found = read(tmp_path / "a.txt", text, label_weights=True)
    assert weighted(found) == [(["one"], [("a", 1.0)], 1.0), (["three"], [("c", 0.5)], 1.0)]
    with pytest.raises(UsageError, match="every text has the weight 0"):
        read(tmp_path / "a.txt", "__label__a __weight__0 one\n")


@pytest.mark.slow
def test_examples_keep_their_weights_when_they_are_chosen(tmp_path):
    text = "".join(f"__label__l{n}:0.{n} __label__k __weight__{n} w{n}\n" for n in range(1, 6))
    found = read(tmp_path / "a.txt", text, label_weights=True)
    whole = weighted(found)
    assert weighted(found.select(np.array([False, True, False, True, True]))) == [
        whole[1], *whole[3:]
    ]  # fmt: skip
    assert weighted(found.with_names(found.words, found.labels)) == whole


@pytest.mark.slow
@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "1_0", "x", "1e9", "0,5"])
def test_weights_that_are_wrong_are_named_with_their_line(tmp_path, weight):
    lines = f"__label__a one\n\n__label__b __weight__{weight} two\n"
    with pytest.raises(UsageError, match=r"a.txt, line 3: the weight '.*' is not a number from 0"):
        read(tmp_path / "a.txt", lines)
    columns = {"text_column": "review", "label_column": "kind", "weight_column": "w"}
    rows = f'review,kind,w\n"one\ntwo",a,1\nthree,b,"{weight}"\n'
    with pytest.raises(UsageError, match=r"a.csv, line 4: the weight '.*' is not a number from 0"):
        read(tmp_path / "a.csv", rows, **columns)
    label = f"__label__a:0.5 one\n__label__b:{weight} two\n"
    with pytest.raises(UsageError, match=r"a.txt, line 2: the label 'b:.*' has no number from 0"):
        read(tmp_path / "a.txt", label, label_weights=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "values", "told"),
    [
        ("__label__a __weight__1 __weight__2 x\n", {}, "line 1: has 2 weights; give one"),
        ("__label__a __weight__-1 b", {}, "or another --weight_prefix$"),
        ("__label__:0.5 x\n", {"label_weights": True}, "line 1: the label ':0.5' has no number"),
        ("__label__a:2 b", {"label_weights": True}, "give one such as __label__good:0.7, or --nol"),
        ("__weight__1 x\n", {}, "line 1: has no label"),
    ],
)
def test_other_faults(tmp_path, text, values, told):
    with pytest.raises(UsageError, match=told):
        read(tmp_path / "a.txt", text, **values)


@pytest.mark.slow
def test_an_empty_cell_and_a_missing_column(tmp_path):
    columns = {"text_column": "review", "label_column": "kind", "weight_column": "w"}
    with pytest.raises(UsageError, match="line 2: the weight '' is not a number"):
        read(tmp_path / "a.csv", "review,kind,w\none,a,\n", **columns)
    with pytest.raises(UsageError, match="--weight_column=w: .* has the columns review, kind"):
        read(tmp_path / "a.csv", "review,kind\none,a\n", **columns)
