"""The examples of a run: what is held out, what is left out, which labels weigh what."""

from __future__ import annotations

import numpy as np
import pytest

from app.checkpoints.workdir import Workdir
from app.errors import UsageError
from app.settings import LabelledConfig, flag_values
from app.tasks.classify import classify_data
from app.text.vocabulary import Vocabulary

LABELS = Vocabulary(["a", "b c", "d=e"], np.array([6, 3, 1]), 10)


def data(tmp_path, lines, finished=False, **values):
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    names = {
        "task": "classify",
        "corpus": str(tmp_path / "a.txt"),
        "heldout_share": 0.0,
        "min_count": 1,
    } | values
    return classify_data.load_data(flag_values.from_names(names), Workdir(tmp_path), finished)


LINES = [f"__label__{'ab'[number % 2]} w{number} the" for number in range(40)]


@pytest.mark.slow
def test_a_share_is_held_out(tmp_path):
    found, other = (data(tmp_path, LINES, heldout_share=0.25, seed=seed) for seed in (1, 2))
    assert (len(found.training), len(found.heldout)) == (30, 10)
    # Words that are held out only have no id.
    assert len(found.words.tokens) == 31 and found.words.tokens[0] == "the"
    assert found.heldout.tokens_M.tolist() == [0] * 10
    assert found.words.tokens != other.words.tokens
    again = data(tmp_path, LINES, heldout_share=0.25, seed=1)
    assert again.words.tokens == found.words.tokens


@pytest.mark.slow
def test_names_stay_as_they_were(tmp_path):
    found = data(tmp_path, LINES)
    features = classify_data.make_features(LabelledConfig(), found.words)
    classify_data.record(found, features, Workdir(tmp_path))
    with pytest.raises(UsageError, match="is not what --workdir"):
        data(tmp_path, LINES[1:])
    found = data(tmp_path, [*LINES[1:9], "__label__new w1", "__label__a none"], finished=True)
    assert len(found.words.tokens) == 41 and len(found.labels.tokens) == 2
    assert len(found.training) == 8


@pytest.mark.slow
def test_words_of_a_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("the\t9\nw3\t1\n")
    found = data(tmp_path, LINES, vocab=str(tmp_path / "vocab.txt"))
    assert found.words.tokens == ["the", "w3"]
    assert found.training.lengths_E.tolist() == [1, 1, 1, 2] + [1] * 36


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "values", "told"),
    [
        (LINES[::2], {}, "every text to train on has the label 'a', so there is nothing to learn"),
        (
            LINES,
            {"heldout_share": 0.01},
            "--heldout_share=0.01 of 40 texts leaves no text to train",
        ),
        (LINES, {"min_count": 99}, "no text has a word that is known; give other text, or lower"),
        (LINES, {"heldout": "none.txt"}, "--heldout=none.txt: no such file"),
    ],
)
def test_texts_that_cannot_be(tmp_path, lines, values, told):
    with pytest.raises(UsageError) as error:
        data(tmp_path, lines, **values)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("none", [1, 1, 1]),
        ("balanced", [10 / 18, 10 / 9, 10 / 3]),  # n / (C n_c)
        ("b c=2", [1, 2, 1]),
        (" d=e = 0.5,a=3", [3, 1, 0.5]),
    ],
)
def test_weights(given, expected):
    np.testing.assert_allclose(
        classify_data.parse_class_weights(given, LABELS), expected, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("x=2", "'x' is not a label; give `none`, `balanced`, or LABEL=WEIGHT of a, b c, d=e"),
        ("balance", "'' is not a label"),
        ("", "'' is not a label"),
        ("a=0", "'0' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=-1", "'-1' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=1e300", "'1e300' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=nan", "'nan' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=two", "'two' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=", "'' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=1,b c=2,a=2", "'a' has two weights; give one"),
    ],
)
def test_weights_that_are_none(given, told):
    with pytest.raises(UsageError) as error:
        classify_data.parse_class_weights(given, LABELS)
    assert f"--class_weights={given}: {told}" in str(error.value)
