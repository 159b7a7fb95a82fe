"""The examples of a run: what is held out, what is left out, which labels weigh what."""

import numpy as np
import pytest

from app.checkpoints.workdir import Workdir
from app.errors import DamagedError, UsageError
from app.losses.tree.paths import canonical_code
from app.settings import LabelledConfig, flag_values
from app.tasks.classify import classify_data, fasttext_start
from app.text.fasttext.line_features import build_tree
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
    assert data(tmp_path, LINES, heldout_share=0.25, seed=1).words.tokens == found.words.tokens


@pytest.mark.slow
def test_names_stay_as_they_were(tmp_path):
    found = data(tmp_path, LINES)
    workdir = Workdir(tmp_path)
    features = classify_data.load_features(LabelledConfig(), found.words, workdir)
    classify_data.record(found, features, workdir)
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
        ("a=1e300", "'1e300' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=nan", "'nan' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=", "'' of 'a' is not a number from 1e-06 to 1e+06"),
        ("a=1,b c=2,a=2", "'a' has two weights; give one"),
    ],
)
def test_weights_that_are_none(given, told):
    with pytest.raises(UsageError) as error:
        classify_data.parse_class_weights(given, LABELS)
    assert f"--class_weights={given}: {told}" in str(error.value)


# Which buckets of n-grams have a row, in new runs and in those of earlier versions.


LINES_OF_NGRAMS = [f"__label__{'ab'[number % 2]} w{number % 7} the end" for number in range(40)]
OTHERS = ["__label__a the w1 w2 the", "__label__b new words the end"]


def fitted(tmp_path, lines, finished=False, **values):
    """The data, the features and the encoded texts of a run."""
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    names = {"task": "classify", "corpus": str(tmp_path / "a.txt"), "heldout_share": 0.0}
    names |= {"min_count": 1, "word_ngrams": 2, "buckets": 5000} | values
    config, workdir = flag_values.from_names(names), Workdir(tmp_path)
    data = classify_data.load_data(config, workdir, finished)
    found = classify_data.fit_features(data.training, 99, data.words, config.labelled, workdir)
    return config, data, *found


@pytest.mark.slow
def test_a_new_run_has_a_row_for_each_bucket_that_occurs(tmp_path):
    config, data, features, texts = fitted(tmp_path, LINES_OF_NGRAMS)
    assert len(data.words.tokens) == 9
    # `the end`, a pair for each of seven words, and the first bucket.
    assert features.rows == texts.rows == 9 + 1 + 7 + 1
    assert texts.ids_F.max() < features.rows and np.diff(texts.starts_E).tolist() == [5] * 40
    classify_data.record(data, features, workdir := Workdir(tmp_path))
    assert dict(classify_data.about(data, features))["vocabulary"] == "9 words, 9 rows of n-grams"
    _, again, same, _ = fitted(tmp_path, LINES_OF_NGRAMS)
    assert same.rows == features.rows and again.words.tokens == data.words.tokens
    np.testing.assert_array_equal(same.buckets_N, features.buckets_N)
    # Other texts have no new rows, and their unknown n-grams count as zeros.
    *_, other, texts = fitted(tmp_path, OTHERS, finished=True)
    np.testing.assert_array_equal(other.buckets_N, features.buckets_N)
    assert texts.sizes_E.tolist() == [7, 3]
    # the, w1, w2, `w2 the`; the, end, `the end`
    assert np.diff(texts.starts_E).tolist() == [4, 3]
    assert texts.shares_F.tolist() == pytest.approx([2 / 7, *[1 / 7] * 3, *[1 / 3] * 3])
    np.savez(workdir.ngrams, buckets_N=features.buckets_N[::-1])
    with pytest.raises(DamagedError, match="ngrams.npz is damaged: it does not list 9 buckets"):
        classify_data.load_features(config.labelled, data.words, workdir)
    np.savez(workdir.ngrams, buckets_N=np.arange(4992, 5001, dtype=np.int32))
    with pytest.raises(DamagedError, match="it has the bucket 5000 of 5000"):
        classify_data.load_features(config.labelled, data.words, workdir)


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_record_was_whole_is_new(tmp_path):
    config, data, features, _ = fitted(tmp_path, LINES_OF_NGRAMS)
    classify_data.record(data, features, workdir := Workdir(tmp_path))
    workdir.corpus.unlink()
    *_, again, _ = fitted(tmp_path, LINES_OF_NGRAMS)
    np.testing.assert_array_equal(again.buckets_N, features.buckets_N)


@pytest.mark.slow
def test_texts_of_one_word_have_a_bucket(tmp_path):
    *_, features, texts = fitted(tmp_path, ["__label__a one", "__label__b two"])
    assert features.buckets_N.tolist() == [0] and texts.ids_F.tolist() == [0, 1]


@pytest.mark.slow
def test_a_run_of_an_earlier_version_keeps_all_buckets(tmp_path):
    _, data, features, _ = fitted(tmp_path, LINES_OF_NGRAMS)
    every = features._replace(buckets_N=None)
    classify_data.record(data, every, Workdir(tmp_path))
    *_, features, texts = fitted(tmp_path, LINES_OF_NGRAMS)
    assert features.buckets_N is None and features.rows == texts.rows == 9 + 5000
    assert not Workdir(tmp_path).ngrams.exists()


@pytest.mark.slow
def test_single_words_have_no_buckets(tmp_path):
    *_, features, texts = fitted(tmp_path, LINES_OF_NGRAMS, word_ngrams=1)
    assert features.buckets_N is None and features.rows == texts.rows == 9


def path_of(parents, is_right, leaf):
    """The inner nodes from a leaf to the root, and whether each turn is to the right."""
    found = []
    while leaf < len(parents):
        found.append((int(parents[leaf]), bool(is_right[leaf])))
        leaf = parents[leaf]
    return found


@pytest.mark.parametrize("labels", [2, 3, 8, 9, 150])
@pytest.mark.parametrize("kind", ["equal", "many ties", "few ties", "steep"])
def test_our_tree_from_counts(labels, kind):
    draw = np.random.default_rng(labels)
    counts = {
        "equal": np.ones(labels, int),
        "many ties": draw.integers(1, 4, labels),
        "few ties": draw.integers(1, 10**9, labels),
        "steep": (1.5 ** np.minimum(np.arange(labels), 40)).astype(int) + 1,
    }[kind]
    code = canonical_code(np.sort(counts)[::-1])
    made = fasttext_start.make_counts(code)
    tree, order = build_tree(made), fasttext_start.order_rows(code)
    assert fasttext_start.has_tree(code) and fasttext_start.is_canonical(made)
    assert (np.diff(made) <= 0).all() and sorted(order) == [*range(labels - 1)]
    for leaf in range(labels):
        length = int(np.searchsorted(code.ends_E, leaf, side="right"))
        place, expected = code.last_E[length] - leaf, []
        for depth in reversed(range(length)):
            expected.append((code.rows_E[depth] + (place >> 1), bool(place & 1)))
            place >>= 1
        found = path_of(tree.parents, tree.is_right, leaf)
        assert [(order[node - labels], is_right) for node, is_right in found] == expected


def test_a_tree_that_is_too_deep():
    fibonacci = [1, 1]
    while len(fibonacci) < 60:
        fibonacci.append(sum(fibonacci[-2:]))
    assert not fasttext_start.has_tree(canonical_code(np.array(fibonacci[::-1])))
    assert not fasttext_start.is_canonical(np.array(fibonacci[::-1]))
    assert not fasttext_start.is_canonical(np.array([5, 3, 2]))
