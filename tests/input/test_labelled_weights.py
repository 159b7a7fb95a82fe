"""Weights of texts and of labels, from lines and from columns."""

from __future__ import annotations

import numpy as np
import pytest

from app.errors import UsageError
from app.input import labelled_files
from app.settings import flag_values


def config(**values):
    found = flag_values.from_names({"task": "classify"} | values)
    return found.corpus, found.labelled, found.input


def read(path, text, **values):
    path.write_text(text)
    return labelled_files.read((str(path),), *config(**values))


def shown(examples):
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
    assert shown(found) == [
        (["one", "two"], [("a", 1.0)], 0.5),
        ([*mark, "one"], [("b:0.5", 1.0)], 1.0),
        (["one"], [("a", 1.0)], 20.0),
    ]
    split = labelled_files.make_word_splitter(*config(tokenizer=tokenizer)[:2])
    assert split(["__weight__7 one __label__x two"])[0].numpy().tolist() == [b"one", b"two"]


@pytest.mark.slow
def test_a_prefix_can_be_turned_off(tmp_path):
    text = "__label__a __weight__x one\n"
    assert shown(read(tmp_path / "a.txt", text, weight_prefix="")) == [
        (["__weight__x", "one"], [("a", 1.0)], 1.0)
    ]


@pytest.mark.slow
def test_weights_of_labels(tmp_path):
    text = (
        "__label__good:0.75 __label__bad:0.25 one\n__label__a:b:1 __label__c __label__c:0.5 two\n"
    )
    found = read(tmp_path / "a.txt", text, label_weights=True)
    assert shown(found) == [
        (["one"], [("good", 0.75), ("bad", 0.25)], 1.0),
        (["two"], [("a:b", 1.0), ("c", 1.0)], 1.0),
    ]
    plain = read(tmp_path / "a.txt", text)
    assert plain.labels == ["good:0.75", "bad:0.25", "a:b:1", "c", "c:0.5"]
    assert plain.shares_N is None and plain.weights_E is None


def test_columns(tmp_path):
    text = "kind,weight,review\na:0.5|b:0.25, 3 ,one two\nb,1,two\n"
    columns = {"text_column": "review", "label_column": "kind", "label_separator": "|"}
    found = read(tmp_path / "a.csv", text, **columns, weight_column="weight", label_weights=True)
    assert shown(found) == [
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
    assert shown(found) == [(["one"], [("a", 1.0)], 1.0), (["three"], [("c", 0.5)], 1.0)]
    with pytest.raises(UsageError, match="every text has the weight 0"):
        read(tmp_path / "a.txt", "__label__a __weight__0 one\n")


@pytest.mark.slow
def test_examples_keep_their_weights_when_they_are_chosen(tmp_path):
    text = "".join(f"__label__l{n}:0.{n} __label__k __weight__{n} w{n}\n" for n in range(1, 6))
    found = read(tmp_path / "a.txt", text, label_weights=True)
    whole = shown(found)
    assert shown(found.select(np.array([False, True, False, True, True]))) == [
        whole[1], *whole[3:]
    ]  # fmt: skip
    assert shown(found.part(1, 3)) == whole[1:3]
    assert shown(found.with_names(found.words, found.labels)) == whole


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
