"""What the functions of the Python door share: texts that a program gives, settings, and load."""

from __future__ import annotations

import contextlib
import gc
import gzip
import inspect
import os
import pathlib
import pydoc
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import app as lexrow
from app import trained
from app.checkpoints.checkpoint import newest_position
from app.checkpoints.workdir import Workdir, write_flags
from app.errors import RunError, StoppedError, UsageError
from app.settings import TableConfig
from app.system import devices, program_cache
from app.tasks import trained_vectors
from app.trained import Run, argument_names
from app.training import run as training
from tests import stubs
from tests.examples import QUICK
from tests.tasks.test_trained_vectors import trained as train_two_words


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
    tokens = [["a", "b"], ["c"]]
    lists = pa.array(tokens), [np.array(one) for one in tokens], (iter(one) for one in tokens)
    assert [given(tmp_path, one) for one in lists] == [("a b\nc\n", True)] * 3


def test_paths_are_values_of_the_flag(tmp_path):
    run = Run(tmp_path)
    assert run.corpus("a.txt,b*.txt") == ("a.txt,b*.txt", False)
    assert run.corpus(pathlib.Path("a.txt")) == ("a.txt", False)
    assert run.corpus([pathlib.Path("a.txt"), pathlib.Path("b.txt")]) == ("a.txt,b.txt", False)
    assert not any(tmp_path.iterdir())
    (tmp_path / "y.txt").write_text("a b\n")
    listed = f"{tmp_path}/x.txt,\n{tmp_path}/y.txt"
    assert run.corpus(listed) == (listed, False)


class Stream(list):
    """Texts of another library, with columns that it does not know."""

    column_names = None


def test_a_stream_without_known_columns_is_an_iterable(tmp_path):
    assert Run(tmp_path).corpus(Stream(["a b"])) == (str(tmp_path / "texts.txt"), False)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "corpus has no text"),
        (7, "corpus is int"),
        ({"text": ["a b"]}, "corpus is dict; give a path or texts"),
        ("a text\nof lines", "corpus is a text of 15 characters, and not a path; give a list of"),
        (["a", ["b"]], r"corpus\[1\] is list, and not a text"),
        ([{"text": "a b"}], r"corpus\[0\] is dict, and not a text"),
        ([{"a", "b"}], r"corpus\[0\] is set, and not a text"),
        ([["a"], "b"], r"corpus\[1\] is str, and not a list of tokens"),
        ([["a"], ["b", 1]], r"corpus\[1\] has a token that is int; give text"),
        ([1, 2], r"corpus\[0\] is int, and not a text"),
        (pd.DataFrame({"a": ["b c"]}), r"corpus is a table; give one of its columns, .*: a$"),
        ([__file__], r"corpus\[0\]='.*' names a file; give pathlib.Path"),
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
        ({"grow_vocab": True, "table": "dynamic"}, "; give grow_vocab=False, or train in a new"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        lexrow.train_words(iter_that_fails(), **settings)


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("train_words", {"window": 5, "learning_rate": 0.15}, "top"),
        ("train_classifier", {"word_ngrams": 1, "min_count": 1}, "window"),
        ("train_recommender", {"min_rating": ""}, "window"),
        ("train_language_model", {"cell": "gru"}, "window"),
    ],
)
def test_signatures_have_the_settings_of_the_task(name, has, lacks):
    parameters = inspect.signature(getattr(lexrow, name)).parameters
    for setting, default in has.items():
        assert parameters[setting].default == default
        assert parameters[setting].annotation.split()[0] == type(default).__name__
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
    quick = {"workdir": tmp_path, "dim": 4, "epochs": 1, "batch_tokens": 256, **QUICK}
    lexrow.train_words([["a", "b"]] * 30, **quick)
    before = (tmp_path / "texts.txt").read_bytes()
    with pytest.raises(ValueError, match="^dim=5: workdir=.* was made with 4"):
        lexrow.train_words([["c", "d"]] * 30, **quick | {"dim": 5})
    with Workdir(tmp_path).lock(), pytest.raises(ValueError, match="another job is running there"):
        lexrow.train_words([["c", "d"]] * 30, **quick | {"epochs": 2})
    # Nothing would be trained on these.
    with pytest.raises(ValueError, match="^corpus is not what .* are made; .* more than epochs=1$"):
        lexrow.train_words([["c", "d"]] * 30, **quick)
    assert (tmp_path / "texts.txt").read_bytes() == before
    assert sorted(lexrow.train_words([["a", "b"]] * 30, **quick)) == ["a", "b"]


def test_a_classifier_that_would_not_train_on_its_texts_is_refused(tmp_path):
    quick = {"workdir": tmp_path, "dim": 4, "epochs": 1, **QUICK}
    labels = ["yes", "no"] * 30
    lexrow.train_classifier(["a", "b"] * 30, labels, **quick)
    with pytest.raises(ValueError, match="^texts is not what .* are made; .* more than epochs=1$"):
        lexrow.train_classifier(["c", "d"] * 30, labels, **quick)


def test_whether_another_text_would_be_trained_on_is_seen_by_the_position(tmp_path):
    texts, labels = ["good film", "bad film"] * 40, ["yes", "no"] * 40
    ended = {"dim": 4, "patience": 1, "learning_rate": 1.0, "heldout_share": 0.2, **QUICK}
    run = {"workdir": tmp_path, **ended}
    lexrow.train_classifier(texts, labels, epochs=30, **run)
    before = (tmp_path / "texts.csv").read_bytes()
    made = newest_position(tmp_path / "checkpoints")
    for settings in ({"epochs": 30}, {"epochs": 31}):  # --patience has ended the run
        message = (
            f"^texts is not .* with, and none of its last 1 epochs .* patience above {made.since}"
        )
        with pytest.raises(ValueError, match=message):
            lexrow.train_classifier(texts[::-1], labels, **run | settings)
    with pytest.raises(ValueError, match=f"its epochs are made; .*epochs={made.epoch}$"):
        lexrow.train_classifier(texts[::-1], labels, **run | {"epochs": made.epoch, "patience": 9})
    assert (tmp_path / "texts.csv").read_bytes() == before
    lexrow.train_classifier(texts[::-1], labels, epochs=made.epoch + 1, **run | {"patience": 9})
    assert newest_position(tmp_path / "checkpoints").epoch == made.epoch + 1


def test_the_text_of_a_run_under_another_name_is_no_other_text(tmp_path):
    quick = {"workdir": tmp_path / "run", "dim": 4, "epochs": 1, "batch_tokens": 256, **QUICK}
    path = tmp_path / "day1.txt"
    path.write_text("a b c\nd e f\n" * 40)
    vectors = lexrow.train_words(str(path), **quick).vectors
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(path.read_bytes())
    for same in (path.rename(tmp_path / "b.txt"), f"{path}.gz", ["a b c", "d e f"] * 40):
        same = str(same) if isinstance(same, pathlib.Path) else same
        np.testing.assert_array_equal(lexrow.train_words(same, **quick).vectors, vectors)


def test_files_that_are_refused_are_put_back(tmp_path):
    run, path = Run(tmp_path), tmp_path / "texts.txt"
    run.corpus(["first"])
    for error, kept in ((ValueError, "first\n"), (RunError, "second\n")):
        with pytest.raises(error), run.undoing():
            run.corpus(["second"])
            with run.undoing(), run.writing("other.txt", "other"):
                pass
            raise error
        assert path.read_text() == kept
    assert sorted(os.listdir(tmp_path)) == ["lock", "other.txt", "texts.txt"]


def test_files_of_a_run_that_has_begun_or_of_another_stay(tmp_path):
    run, path = Run(tmp_path), tmp_path / "texts.txt"
    with pytest.raises(MemoryError), run.undoing():
        run.corpus(["of a run that began"])
        write_flags(tmp_path / "flags.cfg", {"task": "words"})
        raise MemoryError
    assert path.read_text() == "of a run that began\n"
    with pytest.raises(ValueError), run.undoing():
        run.corpus(["refused"])
        other = Run(tmp_path)
        with other.undoing():
            other.corpus(["of another run"])
        raise ValueError
    assert path.read_text() == "of another run\n"
    with contextlib.ExitStack() as held:
        with pytest.raises(ValueError), run.undoing():
            run.corpus(["kept, as another run has the lock"])
            held.enter_context(Workdir(tmp_path).lock())
            raise ValueError
    assert path.read_text() == "kept, as another run has the lock\n"
    assert sorted(os.listdir(tmp_path)) == ["flags.cfg", "lock", "texts.txt"]


def test_threads_are_set_only_on_request(tmp_path, monkeypatch):
    set_for = []
    monkeypatch.setattr(devices, "use_machine", set_for.append)
    monkeypatch.setattr(training, "train_and_evaluate", lambda *_, **__: "")
    for threads in (0, 1):
        Run(tmp_path).train("words", __file__, {"intra_op_threads": threads})
    assert [settings.intra_op_threads for settings in set_for] == [1]


def test_a_stopped_run_is_kept(monkeypatch):
    def stop(*_, **__):
        raise StoppedError("stopped as asked")

    monkeypatch.setattr(training, "train_and_evaluate", stop)
    run = Run(None)
    folder = run.path
    with pytest.raises(KeyboardInterrupt, match="the search is kept"):
        run.train("words", "docstrings", {})
    del run
    gc.collect()
    assert folder.is_dir()
    shutil.rmtree(folder)


def test_messages_name_arguments():
    with pytest.raises(RunError, match=r"^a=1; give fold_case=False, b, nope or `lexrow x --c`$"):
        with argument_names({"z=": "a="}):
            raise RunError("--z=1; give --nofold_case, --b, --nope or `lexrow x --c`")


def test_stored_settings_that_are_wrong(tmp_path):
    (tmp_path / "flags.cfg").write_text("--task=words\n--dim=0\n")
    message = "flags.cfg: dim=0: give at least 1.*; mend it, or choose a new workdir$"
    for use in (lexrow.load, Run.config.fget, lambda path: Run(path).settings("words", {})):
        with pytest.raises(ValueError, match=message):
            use(Run(tmp_path) if use is Run.config.fget else tmp_path)


@pytest.mark.parametrize("path", [None, 3, b"run", ["run"], ""])
def test_what_is_no_path(path):
    kinds = lexrow.Words, lexrow.Texts, lexrow.Items, lexrow.Language
    for load in (lexrow.load, *(kind.load for kind in kinds)):
        with pytest.raises((TypeError, ValueError), match="^path is .*; give the path of a file"):
            load(path)
    if path is not None:  # a temporary folder
        with pytest.raises((TypeError, ValueError), match="^workdir is .*; give the path of a"):
            lexrow.train_words(iter_that_fails(), workdir=path)


def test_a_workdir_that_is_a_file():
    with pytest.raises(NotADirectoryError, match="^workdir=.* is a file; name a folder$"):
        lexrow.train_words(iter_that_fails(), workdir=__file__)


def test_what_is_not_there_starts_no_tensorflow():
    program = """
import sys, app
def fails(function, *given):
    try:
        function(*given)
    except FileNotFoundError as error:
        print(error)
for name in ("words", "classifier", "recommender", "language_model"):
    fails(getattr(app, f"train_{name}"), "gone.txt")
for kind in (app.Words, app.Texts, app.Items, app.Language):
    fails(kind.load, "gone")
assert "tensorflow" not in sys.modules
"""
    printed = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()
    names = ["corpus", "texts", "pairs", "corpus"]
    assert printed[:4] == [f"{name}=gone.txt: no such file; check the path" for name in names]
    assert printed[4:] == ["gone: no such file or folder; check the path"] * 4


def test_loading_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        lexrow.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="no trained run there"):
        lexrow.load(tmp_path)
    (tmp_path / "vectors.json").touch()
    with pytest.raises(
        ValueError, match=r": an export \(vectors.json\), which other programs read"
    ):
        lexrow.load(tmp_path)
    with pytest.raises(ValueError, match="^tokenizer='unicode': a workdir has its own"):
        lexrow.load(tmp_path, tokenizer="unicode")
    (tmp_path / "v.txt").write_text("a 1 2\n")
    with pytest.raises(ValueError, match="^tokenizer='Unicode': give whitespace or unicode"):
        lexrow.load(tmp_path / "v.txt", tokenizer="Unicode")


def test_a_temporary_workdir_goes_with_its_result():
    words = lexrow.train_words([["a", "b"]] * 30, dim=4, epochs=1, batch_tokens=256, **QUICK)
    folder = pathlib.Path(words.workdir)
    assert folder.is_dir()
    del words
    assert not folder.exists()


@pytest.mark.parametrize("name", ["train_words", "train_classifier", "load"])
def test_a_package_that_is_not_installed_has_its_remedy(name):
    absent = "import sys; sys.modules.update(tensorflow_text=None, tqdm=None, absl=None)"
    program = f"{absent}; import app; app.{name}(['a b'])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1
    assert last.startswith("ModuleNotFoundError: ")
    assert 'is not installed; pip install "lexrow[train]", which has all that' in last


def test_editors_see_the_same_signatures():
    written = pathlib.Path(lexrow.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert written == stubs.text(), "python -m tests.stubs > app/__init__.pyi"


def test_help_is_one_screen():
    text = pydoc.plain(pydoc.render_doc(lexrow))
    assert len(text.partition("PACKAGE CONTENTS")[0].splitlines()) <= 25
    assert "lexrow.train_words" in text


def test_stored_settings_without_effect_beside_new_ones_are_left_out(tmp_path):
    write_flags(tmp_path / "flags.cfg", {"task": "words", "table": "host", "stage_steps": 4})
    run = Run(tmp_path)
    assert run.settings("words", {}).table.stage_steps == 4
    table = run.settings("words", {"table": "device"}).table
    assert (table.table, table.stage_steps) == ("device", TableConfig().stage_steps)
    with pytest.raises(ValueError, match="^stage_steps=4 means nothing to table=device, only to"):
        run.settings("words", {"table": "device", "stage_steps": 4})
    with pytest.raises(ValueError, match=f"^task=classify: workdir={tmp_path} was made with words"):
        run.settings("classify", {})


@pytest.mark.slow
def test_a_pool_of_threads_trains_and_asks_at_once():
    lists, settings = [["a", "b", "c"], ["d", "e", "f"]] * 200, {"dim": 8, "batch_tokens": 256}

    def train(kind):
        if kind == "classify":
            return lexrow.train_classifier(["good", "bad"] * 50, ["y", "n"] * 50).predict(["good"])
        if kind == "language_model":
            small = {"row_tokens": 16, "heldout_share": 0.0, **settings}
            return len(lexrow.train_language_model(["a b"] * 200, **small).next_words("a", k=3))
        words = lexrow.train_words(lists, epochs=2, **settings)
        return words.most_similar("b", topn=5), words.vectors.tolist()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(train, ("words", "classify", "language_model", "words")))
    assert found[1:3] == [["y"], 3]
    assert found[0] == found[3]  # to the bit, whatever ran beside it


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_trained(tmp_path):
    code = """
import os, pathlib, signal, tempfile, threading, time
import app as lexrow

def interrupt():
    folder = pathlib.Path(tempfile.gettempdir())
    while not any(path.stat().st_size for path in folder.glob("*/metrics.jsonl")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
texts, settings = [["a", "b"]] * 9000, {"dim": 4, "batch_tokens": 256, "log_seconds": 0.1}
try:
    lexrow.train_words(texts, epochs=10**6, **settings)
except KeyboardInterrupt as error:
    told, _, where = str(error).partition(": ")
    print(told)
words = eval(where)
print(sorted(words.tokens))
try:
    words.train(["a new b"] * 9)
except ValueError as error:
    print(str(error).replace(words.workdir, "IT"))
words = lexrow.train_words(texts, workdir=words.workdir, epochs=words._run.epochs + 1, **settings)
print(words.train(["a new b"] * 9).tokens[2:])
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout
    go_on = "first go on to its end with train_words(corpus, workdir='IT', epochs=…)"
    assert printed.splitlines() == [
        *("what was trained is kept", "['a', 'b']"),
        *(f"training in IT has not ended; {go_on}", "['new']"),
    ]
    assert lexrow.load(next(tmp_path.glob("lexrow-*"))).tokens[2:] == ["new"]  # as told


def flip(path):
    content = bytearray(path.read_bytes())
    content[::97] = bytes(255 - byte for byte in content[::97])
    path.write_bytes(content)


DAMAGES = {
    "empty": lambda folder: shutil.rmtree(folder),
    "flags cut": lambda folder: os.truncate(folder / "flags.cfg", 9),
    "no flags": lambda folder: os.remove(folder / "flags.cfg"),
    "no words": lambda folder: os.remove(folder / "vocab.tsv"),
    "no checkpoint": lambda folder: shutil.rmtree(folder / "checkpoints"),
    "checkpoint": lambda folder: flip(next(folder.glob("checkpoints/*/input/values"))),
    "manifest": lambda folder: flip(next(folder.glob("checkpoints/*/input/values.json"))),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_workdir_is_reported_as_in_the_shell(tmp_path, damage):
    folder = tmp_path / "run"
    train_two_words(folder, 1)
    damage(folder)
    folder.mkdir(exist_ok=True)
    with pytest.raises((UsageError, RunError)) as by_shell:
        trained_vectors.load(folder)
    with pytest.raises(type(by_shell.value)) as by_python:
        lexrow.load(folder)
    shown = re.sub("--(?=workdir)", "", str(by_shell.value))
    assert str(by_python.value) == shown and "\n" not in shown and str(folder) in shown


@pytest.mark.parametrize("kind", [lexrow.Texts, lexrow.Items, lexrow.Language])
def test_a_workdir_of_another_task_is_reported_as_in_the_shell(tmp_path, kind):
    write_flags(tmp_path / "flags.cfg", {"task": "words"})
    message = f"^workdir={tmp_path}: no run of task=[a-z_]+ there, but one of task=words; give "
    with pytest.raises(ValueError, match=message + "another workdir, or train one with `lexrow t"):
        kind.load(tmp_path)


@pytest.mark.slow
def test_loading_is_silent_and_needs_no_console(tmp_path):
    settings = {"max_ngram": 3, "ngram_buckets": 99, "dim": 4, "epochs": 1}
    lexrow.train_words([["a", "b"]] * 99, workdir=tmp_path, batch_tokens=256, **settings)
    code = f"""
import os, sys
import app as lexrow
words = lexrow.load({str(tmp_path)!r})
words.export({str(tmp_path / "words.txt")!r})
print(words.tokenize("a b"))
os.dup2(os.open(os.devnull, os.O_RDWR), 2)  # notes of TensorFlow on steps
sys.stderr = None
lexrow.train_words([["a", "b"]] * 99, dim=4, epochs=1, batch_tokens=256, verbose=True)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "['a', 'b']\n", "")


@pytest.mark.slow
def test_threads_of_operations_are_set_on_request():
    code = """
import app as lexrow
lexrow.train_words([["a", "b"]] * 99, dim=4, epochs=1, batch_tokens=256, intra_op_threads=1)
import tensorflow as tf
print(tf.config.threading.get_intra_op_parallelism_threads())
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    assert printed == "1\n"


@pytest.mark.slow
def test_models_in_one_process_free_what_they_took():
    def used():
        gc.collect()
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir("/proc/self/fd"))

    def train(number):
        small = {"dim": 8, "epochs": 1, "batch_tokens": 256, "seed": number + 1}
        if number % 3 == 0:
            lexrow.train_words([["a", "b"]] * 200, **small).most_similar("a")
        elif number % 3 == 1:
            lexrow.train_classifier(["good", "bad"] * 50, ["y", "n"] * 50).predict(["good"])
        else:
            small |= {"row_tokens": 16, "heldout_share": 0.0}
            lexrow.train_language_model(["a b"] * 200, **small).next_words("a")

    for number in range(6):
        train(number)
    memory, files = used()
    for number in range(6, 18):
        train(number)
    memory_after, files_after = used()
    assert files_after == files
    assert memory_after < memory + 40  # a fifteenth of what TensorFlow takes by itself


def test_a_program_stores_what_xla_compiles_as_a_command_does(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    monkeypatch.setattr(program_cache, "gpu_kind", lambda environ: "Some GPU")
    monkeypatch.setattr(trained.startup, "start_tensorflow", lambda: None)
    trained.start_tensorflow()  # TensorFlow is imported: too late
    assert "TF_XLA_FLAGS" not in os.environ
    monkeypatch.delitem(sys.modules, "tensorflow")
    trained.start_tensorflow()
    assert program_cache.folder(os.environ) == str(tmp_path / "lexrow" / "programs")
