"""What the functions of the Python door share: texts that a program gives, settings, and load."""

from __future__ import annotations

import inspect
import pathlib
import pydoc

import pytest

import app as lexrow
from app.checkpoints.workdir import Workdir
from app.trained import Run
from tests import stubs


def given(tmp_path, texts):
    """The lines of the file that is written for texts, and whether these are tokens."""
    value, is_tokens = Run(tmp_path).corpus(texts)
    return pathlib.Path(value).read_text(), is_tokens


def test_texts_are_lines(tmp_path):
    assert given(tmp_path, iter(["one text", "two\nlines\r\nhere", ""])) == (
        "one text\ntwo lines here\n\n",
        False,
    )
    assert given(tmp_path, [["New York", "is"], ("big",), []]) == ("New_York is\nbig\n\n", True)
    assert given(tmp_path, ["\ud800"]) == ("?\n", False)


def test_paths_are_values_of_the_flag(tmp_path):
    run = Run(tmp_path)
    assert run.corpus("a.txt,b*.txt") == ("a.txt,b*.txt", False)
    assert run.corpus(pathlib.Path("a.txt")) == ("a.txt", False)
    assert run.corpus([pathlib.Path("a.txt"), pathlib.Path("b.txt")]) == ("a.txt,b.txt", False)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "corpus has no text"),
        (7, "corpus is int"),
        (["a", ["b"]], r"corpus\[1\] is list, and not a text"),
        ([["a"], "b"], r"corpus\[1\] is str, and not a list of tokens"),
        ([["a"], ["b", 1]], r"corpus\[1\] is list, and not a list of tokens"),
        ([1, 2], r"corpus\[0\] is int"),
    ],
)
def test_bad_texts(tmp_path, texts, message):
    with pytest.raises(ValueError, match=message):
        Run(tmp_path).corpus(texts)
    assert not any(tmp_path.iterdir())


def test_an_iterable_that_fails_leaves_its_own_error(tmp_path):
    def texts():
        yield "a text"
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        lexrow.train_words(texts(), workdir=tmp_path)
    assert not any(tmp_path.iterdir())


def iter_that_fails():
    """An iterable that must not be read."""
    raise AssertionError
    yield


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 0}, "^dim=0: give at least 1"),
        ({"vector_size": 100}, "vector_size.* is no setting; did you mean dim"),
        ({"dim": "many"}, "dim='many'"),
        ({"plan_only": True}, "plan_only is no setting of this function"),
        ({"top": "10"}, "^top=10: task=words has no such"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        lexrow.train_words(iter_that_fails(), **settings)


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("train_words", {"window": 5, "dim": 100}, "top"),
        ("train_classifier", {"word_ngrams": 1, "min_count": 1}, "window"),
        ("train_recommender", {"min_rating": ""}, "window"),
        ("train_language_model", {"cell": "gru"}, "window"),
    ],
)
def test_signatures_have_the_settings_of_the_task(name, has, lacks):
    parameters = inspect.signature(getattr(lexrow, name)).parameters
    for setting, default in has.items():
        assert parameters[setting].default == default
        assert parameters[setting].annotation == type(default).__name__
    assert not {lacks, "task", "corpus"} & parameters.keys() - {"corpus"}


def test_an_example_of_settings_is_weaker_than_arguments(tmp_path):
    config = Run(tmp_path).settings("words", {"preset": "subwords", "dim": 7}, "a.txt")
    assert (config.model.dim, config.model.negatives) == (7, 3)  # of 100 there, and of 5 by default
    assert config.corpus.corpus == "a.txt"
    with pytest.raises(
        ValueError, match="^preset=classify: an example of task=classify, not of wo"
    ):
        Run(tmp_path).settings("words", {"preset": "classify"}, "a.txt")
    with pytest.raises(ValueError, match="^preset=more: no such example; choose from classify, "):
        Run(tmp_path).settings("words", {"preset": "more"})


def test_a_run_that_is_refused_keeps_its_text(tmp_path):
    quick = {"workdir": tmp_path, "dim": 4, "epochs": 1, "batch_tokens": 256}
    lexrow.train_words([["a", "b"]] * 30, **quick)
    before = (tmp_path / "texts.txt").read_bytes()
    with pytest.raises(ValueError, match="^dim=5: workdir=.* was made with 4"):
        lexrow.train_words([["c", "d"]] * 30, **quick | {"dim": 5})
    with Workdir(tmp_path).lock(), pytest.raises(ValueError, match="another job is running there"):
        lexrow.train_words([["c", "d"]] * 30, **quick | {"epochs": 2})
    assert (tmp_path / "texts.txt").read_bytes() == before


def test_a_corpus_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="^corpus=gone.txt: no such file; check the path"):
        lexrow.train_words("gone.txt")


def test_loading_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        lexrow.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="no trained run there"):
        lexrow.load(tmp_path)


def test_a_temporary_workdir_goes_with_its_result():
    words = lexrow.train_words([["a", "b"]] * 30, dim=4, epochs=1, batch_tokens=256)
    folder = pathlib.Path(words.workdir)
    assert folder.is_dir()
    del words
    assert not folder.exists()


def test_editors_see_the_same_signatures():
    written = pathlib.Path(lexrow.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert written == stubs.text(), "python -m tests.stubs > app/__init__.pyi"


def test_help_is_one_screen():
    text = pydoc.plain(pydoc.render_doc(lexrow))
    assert len(text.splitlines()) <= 60
    assert "lexrow.train_words" in text
