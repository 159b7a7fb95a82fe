"""The estimators for scikit-learn as its own tools use them."""

import concurrent.futures
import gc
import pickle
import sys
import tempfile

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import estimator_checks

from app.exporting import fasttext_bin, word2vec
from app.sklearn import TextClassifier, TextVectorizer
from app.types import WordVectors

KINDS = {"good": "warm funny fine", "bad": "dull long awful"}
SMALL = {"dim": 8, "settings": {"device": "CPU:0", "log_seconds": 0.0}}
ESTIMATORS = [TextClassifier(), TextVectorizer()]


def make_texts(count=60):
    draw = np.random.default_rng(0)
    labels = draw.choice(sorted(KINDS), size=count)
    return [f"a {draw.choice(KINDS[label].split())} film, __label__x" for label in labels], labels


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier(epochs=20, learning_rate=0.5, **SMALL).fit(*make_texts())


# scikit-learn's other checks fit tables of numbers: `parametrize_with_checks` skips them for
# estimators of texts, with a warning.
@pytest.mark.parametrize(
    "check",
    [
        *("estimator_cloneable", "estimator_tags_renamed", "valid_tag_types", "estimator_repr"),
        *("no_attributes_set_in_init", "do_not_raise_errors_in_init_or_set_params", "mixin_order"),
        *("parameters_default_constructible", "get_params_invariance", "set_params"),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["classifier", "vectorizer"])
def test_checks_of_scikit_learn(estimator, check):
    getattr(estimator_checks, f"check_{check}")(type(estimator).__name__, clone(estimator))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=["classifier", "vectorizer"])
@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_check_estimator(estimator):
    results = estimator_checks.check_estimator(clone(estimator), on_skip=None)
    assert {result["status"] for result in results} == {"passed"}


def test_a_classifier(fitted):
    texts, labels = make_texts()
    assert fitted.classes_.tolist() == ["bad", "good"]
    assert fitted.score(texts, labels) == 1
    chances = fitted.predict_proba(["an awful film", "fine", "", "unknown"])
    assert chances.shape == (4, 2) and chances[0, 0] > 0.5 > chances[1, 0]
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    assert fitted.predict([]).shape == (0,)


@pytest.mark.slow
def test_a_fitted_classifier_is_pickled(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    texts, _ = make_texts()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(texts), fitted.predict_proba(texts))
    assert len([*tmp_path.iterdir()]) == 1
    del again
    gc.collect()
    assert not [*tmp_path.iterdir()]
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(texts)


@pytest.mark.slow
def test_labels_are_numbers_and_texts_hold_anything(fitted):
    odd = ['one "quoted",\n\nline', "two\r\nlines, \ud800", "three\u2028three", "__label__1 four"]
    texts = odd * 10
    labels = np.array([10, 2, 7, 2] * 10)
    model = TextClassifier(epochs=20, learning_rate=0.5, loss="one_vs_all", **SMALL)
    assert (model.fit(texts, labels).predict(texts) == labels).all()
    assert model.classes_.tolist() == [2, 7, 10]
    np.testing.assert_allclose(model.predict_proba(texts).sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.slow
def test_threads_fit_as_one_alone():
    texts, labels = ["good one", "bad two"] * 20, ["a", "b"] * 20
    output = sys.stdout

    def fit(seed):
        model = TextClassifier(epochs=5, random_state=seed, **SMALL)
        return model.fit(texts, labels).predict_proba(texts)

    alone = [fit(seed) for seed in (0, 1)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(fit, seed) for seed in (0, 1)]
        while not all(each.done() for each in fits):
            assert sys.stdout is output
    together = [each.result() for each in fits]
    assert [each.tobytes() for each in together] == [each.tobytes() for each in alone]


@pytest.mark.slow
def test_weights_of_texts():
    texts, labels = ["one"] * 40, np.array(["a", "b"] * 20)
    weights = np.where(labels == "a", 3.0, 1.0)
    model = TextClassifier(epochs=60, learning_rate=0.2, **SMALL)
    chances = model.fit(texts, labels, sample_weight=weights).predict_proba(["one"])
    assert chances[0, 0] == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    ("texts", "labels", "weights", "message"),
    [
        (None, ["a"], None, "^X is NoneType; give a list of texts"),
        ("one text", ["a"], None, "^X is str; give a list of texts"),
        (["one", 2], ["a", "b"], None, r"X\[1\] is int, and not a text"),
        (["one", "two"], ["a"], None, "X has 2 texts, y the shape"),
        (["one", "two"], ["a", "a"], None, "y has 1 class"),
        (["one", "two"], [0.5, 0.1], None, "Unknown label type"),
        (["one", "two"], [["a"], ["a", "b"]], None, "MultiLabelBinarizer"),
        (["one", "two"], np.eye(3, dtype=int), None, "^X has 2 texts, y the shape"),
        (["one", "two"], ["a", "b"], [-1, 1], "egative"),
        (["one", "two"], ["a", "b"], [np.nan, 1], "NaN"),
        (
            ["one", "two"],
            ["a", "b"],
            [1, 1e38],
            r"^sample_weight\[1\]=1e\+38: give a number from 0 to 1,000,000$",
        ),
        (["one", "two"], ["a", "b"], [1, 0], "^sample_weight: .* fewer than two labels"),
        (["", " "], ["a", "b"], None, "^X: no text has a word; give texts of words$"),
        (["one", "two"], ["a", np.nan], None, r"^y\[1\] is no label, but None or NaN; give each"),
        (["one", "two"], [None, "a"], None, r"^y\[0\] is no label"),
        (["one", "two"], np.array([np.nan, 1]), None, r"^y\[0\] is no label"),
    ],
)
def test_data_that_cannot_be_used(texts, labels, weights, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(**SMALL).fit(texts, labels, sample_weight=weights)


@pytest.mark.slow
def test_texts_without_enough_words():
    for texts in ([], ["", " "]):
        with pytest.raises(ValueError, match="^X: no text has a word; give texts of words$"):
            TextVectorizer(**SMALL).fit(texts)
    with pytest.raises(ValueError, match="^min_count=5: no token .*: lower min_count or give more"):
        TextVectorizer(**SMALL).fit(["one two"])
    with pytest.raises(ValueError, match="^X: the vocabulary has a single word, .*lower min_count"):
        TextVectorizer(**SMALL).fit(["one"] * 9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epochs": 0}, "^epochs=0"),
        ({"epochs": "a"}, "^epochs='a': give a whole number$"),
        ({"settings": {"nothing": 1}}, "'nothing' is no setting"),
        ({"random_state": "a"}, "^random_state='a': give a whole number"),
        ({"settings": [1]}, "^settings=.1.: give a dictionary"),
        *(
            ({"settings": {name: 1}}, f"^settings: TextClassifier sets '{name}' itself")
            for name in ("dim", "seed", "text_column", "corpus", "workdir", "learning_rate")
        ),
    ],
)
def test_parameters_that_cannot_be_used(parameters, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(**parameters).fit(*make_texts())


@pytest.mark.slow
def test_any_random_state_of_scikit_learn():
    texts, labels = make_texts()
    states = [None, np.random.RandomState(3), np.random.RandomState(3), np.random.RandomState(4)]
    models = [TextClassifier(random_state=each, **SMALL).fit(texts, labels) for each in states]
    _, one, same, other = (model.predict_proba(texts) for model in models)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_several_labels_of_a_text(kind):
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(list("abcdef"), 4)) for _ in range(600)]
    names = MultiLabelBinarizer().fit([["a", "b", "c", "none"]])
    y = names.transform([sorted(set(text) & set("abc")) for text in texts])
    model = TextClassifier(epochs=40, **SMALL).fit(texts, kind(y))
    assert (model.predict(texts) == y).mean() > 0.99 and model.score(texts, y) > 0.97
    assert not y[:, 3].any() and not (y.any(axis=1)).all()  # an unused label, a text without any
    assert model.predict_proba(["a"]).shape == (1, 4)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="^loss='softmax' gives a text one label"):
        TextClassifier(loss="softmax", **SMALL).fit(texts, y)


def test_vectors_that_cannot_be_used(tmp_path):
    for vectors in ("", 5):
        with pytest.raises(ValueError, match=f"^vectors={vectors!r}: give the name of a workdir"):
            TextVectorizer(vectors).fit(["a"])
    with pytest.raises(ValueError, match=f"^vectors={tmp_path}: no trained run there"):
        TextVectorizer(str(tmp_path)).fit(["a"])


@pytest.mark.parametrize(
    ("write", "name"), [(word2vec.write, "vectors"), (fasttext_bin.write, "vectors.bin")]
)
def test_means_of_the_vectors_of_a_file(tmp_path, write, name):
    write(WordVectors(["one", "two"], np.array([[1, 2], [3, 6]], np.float32)), str(tmp_path / name))
    model = TextVectorizer(str(tmp_path / name))
    found = model.fit_transform(["one two", "two unknown two", "", "three"])
    np.testing.assert_array_equal(found, [[2, 4], [3, 6], [0, 0], [0, 0]])
    assert found.dtype == np.float32
    assert model.transform([]).shape == (0, 2)
    with pytest.raises(NotFittedError):
        clone(model).transform(["one"])
    assert model.get_feature_names_out().tolist() == ["textvectorizer0", "textvectorizer1"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(["one"]), [[1, 2]])
    with pytest.raises(FileNotFoundError, match="none: no such file"):
        TextVectorizer(str(tmp_path / "none")).fit(["one"])


def test_words_of_a_file_are_written_as_the_tokenizer_writes_them(tmp_path):
    words = WordVectors(["Straße", "strasse", "cafe\u0301"], np.eye(3, dtype=np.float32))
    word2vec.write(words, str(tmp_path / "vectors"))
    found = TextVectorizer(str(tmp_path / "vectors"), tokenizer="unicode").fit_transform(
        ["STRASSE!", "Caf\u00e9", "none"]
    )
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 1], [0, 0, 0]])


@pytest.mark.slow
def test_vectors_are_trained_in_a_pipeline():
    texts, labels = make_texts()
    words = TextVectorizer(epochs=2, min_count=1, **SMALL)
    model = make_pipeline(words, LogisticRegression())
    model.fit(texts, labels)
    assert model.predict(texts).shape == labels.shape
    assert words.transform(["film"]).shape == (1, 8)
    unicode = clone(words).set_params(tokenizer="unicode").fit(texts)
    np.testing.assert_array_equal(*unicode.transform(["FILM!", "film"])[:, None])


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [None, 2])
def test_a_grid_search(jobs, caplog):
    texts, labels = make_texts()
    grid = {"loss": ["softmax", "one_vs_all"], "word_ngrams": [1, 2]}  # nine fits
    model = TextClassifier(epochs=20, learning_rate=0.5, **SMALL)
    search = GridSearchCV(model, grid, cv=2, n_jobs=jobs).fit(texts, labels)
    assert search.best_score_ > 0.9 and search.best_params_["loss"] in grid["loss"]
    assert caplog.text == ""  # TensorFlow warns of functions that are traced again and again
