import random

import pytest
import tensorflow as tf

from app.settings import CorpusConfig
from app.text.tokenize import LONGEST_TOKEN, make_tokenizer

# A curly quote, a ligature, a wide space, Han before Latin, an Arabic digit.
TEXT = "The don\u2019t (1,000) 3.14, x2! \ufb01ne STRA\u00dfE\u3000\u4e2d\u6587abc - $5 \u0661"
AS_WRITTEN = {"fold_case": False, "drop_punctuation": False}


def tokens(texts, **settings):
    dataset = tf.data.Dataset.from_tensors(tf.constant(texts))
    ragged = next(iter(dataset.map(make_tokenizer(CorpusConfig(**settings)))))
    return [[token.decode() for token in row] for row in ragged.to_list()]


def test_whitespace_splits_at_any_white_space_and_nowhere_else():
    texts = ["a\tb  C-d\u00a0e\u3000f\r\n", "", " ", "x\0y"]
    assert tokens(texts, tokenizer="whitespace") == [
        ["a", "b", "C-d", "e", "f"],
        [],
        [],
        ["x\0y"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        (TEXT, {}, "the don t 1,000 3.14 x 2 fine strasse \u4e2d\u6587 abc 5 \u0661"),
        ("--", {}, ""),
        (TEXT, {"drop_numbers": True}, "the don t x fine strasse \u4e2d\u6587 abc"),
        ("Wait... (12) U.S.", AS_WRITTEN, "Wait ... (12) U . S ."),
        ("Wait... (12) U.S.", {**AS_WRITTEN, "drop_numbers": True}, "Wait ... U . S ."),
        ("cafe\u0301 \uff21\uff22", {}, "caf\u00e9 ab"),
    ],
)
def test_options_of_unicode_tokens(text, settings, expected):
    found = tokens([text, ""], tokenizer="unicode", **settings)
    assert found == [expected.split(), []]


@pytest.mark.slow
def test_white_space_always_splits():
    draw = random.Random(4)
    alphabet = "ab1 2.,$\u00e9\u4e2d\u30fc\u3042\u0661\u0301\u2028\u0085\n\t\v\f\r"
    texts = ["".join(draw.choices(alphabet, k=30)) for _ in range(2000)]
    words = [text.split() for text in texts]
    assert tokens(texts, tokenizer="whitespace") == words
    settings = {"tokenizer": "unicode", **AS_WRITTEN}
    pieces = iter(tokens([word for row in words for word in row], **settings))
    expected = [[piece for _ in row for piece in next(pieces)] for row in words]
    assert tokens(texts, **settings) == expected


@pytest.mark.parametrize("safe", [True, False])
def test_whitespace_is_the_same_in_any_locale(monkeypatch, safe):
    if not safe:
        # As where the C library takes bytes above 0x7F for white space.
        monkeypatch.setattr(tf.strings, "split", lambda texts: tf.ragged.constant([["x", "y"]]))
    found = make_tokenizer(CorpusConfig())(tf.constant(["\u00e0 b\u3000c\u00a0\u00e0", ""]))
    assert found.to_list() == [["\u00e0".encode(), b"b", b"c", "\u00e0".encode()], []]


@pytest.mark.parametrize("name", ["whitespace", "unicode"])
def test_a_token_that_is_too_long_is_dropped(name):
    longest, longer = "a" * LONGEST_TOKEN, "a" * (LONGEST_TOKEN + 1)
    texts = [f"one {longer} two", longest, longer, "\u00e9" * (LONGEST_TOKEN // 2 + 1)]
    assert tokens(texts, tokenizer=name) == [["one", "two"], [longest], [], []]
