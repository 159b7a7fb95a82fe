import errno
import io
import logging as std_logging
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from absl import flags as absl_flags
from absl import logging

import app.train
from app.checkpoints import workdir
from app.cli import flags
from app.cli.flags import checked_output, set_up_logging
from app.errors import RunError, UsageError
from app.settings import flag_values as names

MISSING = 'is not installed; pip install "lexrow[train]", which has all that training needs'
LESS = "end other programs, or train with a lower --dim or --batch_tokens"


@pytest.fixture
def parse(monkeypatch):
    """Defines the flags of training afresh; call it with arguments for the settings they make."""
    given = absl_flags.FlagValues()
    monkeypatch.setattr(absl_flags, "FLAGS", given)
    flags.define_settings()

    def parsed(*arguments):
        for name in given:
            given[name].unparse()
        flags.parse(["train", *arguments])
        return flags.parsed()

    return parsed


@pytest.fixture
def stored(tmp_path, parse):
    """A workdir with flags that are not the defaults."""
    settings = parse("--dim=7", "--noshuffle", "--learning_rate=0.1", f"--workdir={tmp_path}")
    workdir.write_flags(tmp_path / "flags.cfg", names.by_name(settings))
    for name in names.fields():
        absl_flags.FLAGS[name].unparse()
    return f"--workdir={tmp_path}"


def test_every_setting_is_a_flag(parse):
    settings = parse("--workdir=none", "--dim=7", "--subsample=1e-5", "--noshuffle", "--corpus=a,b")
    expected = names.defaults({})
    expected |= {"workdir": "none", "dim": 7, "subsample": 1e-5}
    expected |= {"shuffle": False, "corpus": "a,b"}
    assert names.by_name(settings) == expected


def test_the_help_of_a_task_has_its_flags_and_no_others():
    for task, kind in names.TASKS.items():
        text = "\n\n".join(flags.training_flags(task))
        shown = re.findall(r"^  --(?:\[no\])?(\w+)$", text, re.M)
        assert sorted(shown) == sorted(names.fields_of(kind))
        assert "One of: constant, linear, cosine." in text and "Distribution:" in text
        assert f"flags of --task={task}." in text and max(map(len, text.splitlines())) <= 88
    text = "\n\n".join(flags.training_flags("classify"))
    assert "Labelled:" in text and "Ratings:" not in text
    assert "One of: softmax, one_vs_all" in text and "in_batch_softmax" not in text
    assert "Default: 16384." in text and "Only with --loss=sampled_softmax." in text


def test_a_flag_of_another_task_is_refused_with_the_nearest(parse):
    message = "--{}: --task={} has no such flag, only {}"
    for task, flag, remedy in (
        ("words", "cell=gru", "language_model; leave it out"),
        ("classify", "ngram_buckets=9", "words; did you mean --buckets?"),
        ("recommend", "negatives=5", "words; did you mean --pair_negatives?"),
    ):
        with pytest.raises(UsageError) as refused:
            parse(f"--task={task}", f"--{flag}", "--workdir=x")
        assert str(refused.value) == message.format(flag, task, remedy)


def test_the_flags_of_an_older_workdir_are_a_flagfile(parse, tmp_path):
    """They have the flags of all tasks, with the defaults of then."""
    path = tmp_path / "a.cfg"
    path.write_text("--dim=7\n--layers=64,32\n--model=cbow\n--contexts=drawn\n--cell=gru\n")
    assert parse(f"--flagfile={path}", "--workdir=x").model.dim == 7
    path.write_text("--loss=bpr\n")
    with pytest.raises(UsageError, match="^--loss=bpr: not one of .* for --task=words"):
        parse(f"--flagfile={path}", "--workdir=x")


@pytest.mark.parametrize("value", ["-1", "-1e-9", "nan"])
def test_a_learning_rate_that_is_not_positive(parse, value):
    message = f"^--learning_rate={float(value)}: give at least 0$"
    with pytest.raises(UsageError, match=message):
        parse("--workdir=none", f"--learning_rate={value}")


def test_a_flag_that_is_not_given_is_that_of_the_workdir(parse, stored):
    settings = parse(stored, "--epochs=9")
    assert (settings.model.dim, settings.input.shuffle) == (7, False)
    assert (settings.optimizer.learning_rate, settings.run.epochs) == (0.1, 9)
    # A default that is given is given.
    assert parse(stored, "--learning_rate=0").optimizer.learning_rate == 0


def test_the_workdir_is_the_one_given_even_if_it_was_moved(parse, stored, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "flags.cfg").rename(moved / "flags.cfg")
    settings = parse(f"--workdir={moved}")
    assert (settings.run.workdir, settings.model.dim) == (str(moved), 7)


def test_a_fixed_flag_may_not_change(parse, stored, tmp_path):
    message = f"^--dim=8: --workdir={tmp_path} was made with 7; give that, or a new --workdir$"
    with pytest.raises(UsageError, match=message):
        parse(stored, "--dim=8")
    assert parse(stored, "--dim=7").model.dim == 7


def test_the_flags_of_a_workdir_are_a_flagfile(parse, stored, tmp_path):
    again = parse(f"--flagfile={tmp_path}/flags.cfg", "--workdir=other")
    assert (again.model.dim, again.input.shuffle, again.run.workdir) == (7, False, "other")


def test_a_workdir_of_parameter_servers_is_read_and_they_are_refused(parse, stored, tmp_path):
    (tmp_path / "flags.cfg").write_text("--strategy=parameter_server\n--exchange=call\n--dim=5\n")
    found = parse(stored)
    assert (found.model.dim, found.run.strategy) == (5, "none")
    (tmp_path / "flags.cfg").write_text("--cache=disk\n--dim=5\n")
    assert parse(stored).input.cache == "auto"
    message = "^--strategy=parameter_server: not one of none, mirrored, multi_worker$"
    with pytest.raises(UsageError, match=message):
        parse("--strategy=parameter_server", "--workdir=other")


def test_a_flag_that_is_gone_is_left_out_of_a_flagfile_and_refused_if_typed(parse, tmp_path):
    path = tmp_path / "a.cfg"
    path.write_text(
        "--exchange=step\n--data_service=\n--data_workers=0\n--ps=1\n--noaudit\n--dim=7\n"
    )
    assert parse(f"--flagfile={path}", "--workdir=x").model.dim == 7
    servers = "parameter servers are gone; leave it out, as --strategy=multi_worker needs none$"
    with pytest.raises(UsageError, match=f"^--exchange=step: {servers}"):
        parse("--exchange=step", "--workdir=x")
    with pytest.raises(UsageError, match="^--noaudit: the steps are audited by the tests alone; l"):
        parse("--noaudit", "--workdir=x")
    with pytest.raises(UsageError, match="^--data_service=: the tf.data service is gone; leave it"):
        parse(f"--flagfile={path}", "--data_service=", "--workdir=x")


def test_a_flag_that_is_gone_is_refused_with_a_value_that_changed_the_run(parse, tmp_path):
    (tmp_path / "flags.cfg").write_text("--class_devices=1\n--dim=7\n")
    assert parse(f"--workdir={tmp_path}").model.dim == 7
    (tmp_path / "flags.cfg").write_text("--class_devices=2\n--dim=7\n")
    with pytest.raises(UsageError, match="flags.cfg: --class_devices=2: a run of an earlier ver"):
        parse(f"--workdir={tmp_path}")
    with pytest.raises(UsageError, match="^--class_devices=2: classes are on one device; lea"):
        parse(f"--flagfile={tmp_path}/flags.cfg", "--workdir=x")
    (tmp_path / "a.cfg").write_text("--layers=64,32\n--audit\n--dim\n7\n--shard_rule=mod\n")
    assert parse(f"--flagfile={tmp_path}/a.cfg", "--workdir=x").model.dim == 7


def test_a_workdir_with_a_value_without_an_effect_is_resumed(parse, tmp_path):
    """As made by an earlier version, whose default it was."""
    lines = "--task=recommend\n--cosine=false\n--loss=sampled_items\n--temperature=0.15\n"
    (tmp_path / "flags.cfg").write_text(lines)
    assert not parse(f"--workdir={tmp_path}").ratings.cosine


def test_a_run_of_a_model_that_is_gone_is_refused_in_one_line(parse, tmp_path):
    lines = "--task=recommend\n--model=neumf\n--layers=64,32\n--loss=bpr\n"
    (tmp_path / "flags.cfg").write_text(lines)
    with pytest.raises(UsageError, match="flags.cfg: --model=neumf: a run of an earlier version"):
        parse(f"--workdir={tmp_path}")


def test_the_model_of_a_recommender_is_no_flag_any_more(parse, tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    path, where = tmp_path / "flags.cfg", f"--workdir={tmp_path}"
    path.write_text("--task=recommend\n--model=mf\n--dim=7\n")
    assert parse(where).model.dim == 7 and not caplog.messages  # a run of then goes on
    assert parse(f"--flagfile={path}", "--workdir=x").model.dim == 7
    none = "--model=mf: --task=recommend has no such flag, only words; leave it out"
    assert caplog.messages == [f"ignored in the flagfile: {none}"]
    with pytest.raises(UsageError, match=f"^{none}$"):
        parse("--task=recommend", "--model=mf", "--workdir=x")
    for model in ("=gmf", "\nmlp", "=neumf"):
        path.write_text(f"--task=recommend\n--model{model}\n")
        for given in ((f"--flagfile={path}",), ("--task=recommend", f"--model={model[1:]}")):
            gone = f"^--model={model[1:]}: the neural recommenders are gone; leave it out$"
            with pytest.raises(UsageError, match=gone):
                parse(*given, "--workdir=x")


def test_damaged_flags_of_a_workdir(parse, stored, tmp_path):
    (tmp_path / "flags.cfg").write_text("--dim=x\n--no_longer_a_flag=1\n")
    with pytest.raises(UsageError, match="flags.cfg: --dim=x: .*; mend it, or choose a new"):
        parse(stored)
    (tmp_path / "flags.cfg").write_text("--no_longer_a_flag=1\n--dim=5\n")
    assert parse(stored).model.dim == 5


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a main with arguments; its exit code (None: it returned) and what it printed."""
    monkeypatch.setattr(flags, "set_up_logging", lambda: None)
    monkeypatch.setattr(absl_flags, "FLAGS", absl_flags.FlagValues())

    def ended(main, *arguments, **options):
        monkeypatch.setattr(sys, "argv", ["folder/train.py", *arguments])
        try:
            flags.run(main, **options)
        except SystemExit as end:
            return end.code, capsys.readouterr().err
        return None, capsys.readouterr().err

    return ended


def raising(error):
    def main(_):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("--dim=0: give more"), 2, "train: --dim=0: give more\n"),
        (RunError("the disk\nis full"), 1, "train: the disk is full\n"),
        (KeyboardInterrupt(), 130, "train: interrupted\n"),
        (ModuleNotFoundError("No module named 'tqdm'", name="tqdm"), 2, f"train: tqdm {MISSING}\n"),
        (MemoryError(), 1, f"train: there is not enough memory (an allocation failed); {LESS}\n"),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM of shape[9,9]\nmore of it"),
            1,
            f"train: there is not enough memory (OOM of shape[9,9]); {LESS}\n",
        ),
    ],
)
def test_how_a_command_ends(run, error, code, line):
    assert run(raising(error)) == (code, line)


def test_a_gpu_without_memory_is_named_with_what_helps(run, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    code, line = run(raising(tf.errors.ResourceExhaustedError(None, None, "Out of memory")))
    assert code == 1 and line.count("\n") == 1
    assert "other programs on the GPU" in line and "--device_memory" in line


def test_a_command_that_ends_well(run):
    assert run(lambda _: None) == (None, "")


def test_a_mistake_of_ours_is_not_hidden(run):
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()))
    with pytest.raises(ModuleNotFoundError):
        run(raising(ModuleNotFoundError("No module named 'app.none'", name="app.none")))


def test_what_is_no_flag(run):
    code, line = run(raising(AssertionError()), "--none=1")
    assert (code, line) == (2, "train: --none=1: no such flag; see --help\n")
    code, line = run(raising(AssertionError()), "word")
    assert (code, line) == (
        2,
        "train: 'word' is not a flag; write it as --NAME=VALUE, see --help\n",
    )
    assert run(lambda words: words.remove("word"), "word", arguments=True) == (None, "")


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("--vector_size=9", "did you mean --dim?"),
        ("-lr", "did you mean --learning_rate?"),
        ("--minCount=2", "did you mean --min_count?"),
        ("--word-ngrams=2", "did you mean --word_ngrams?"),
        ("--bucket=9", "did you mean --ngram_buckets or --buckets?"),
        ("--regularization=0.1", "did you mean --row_l2 or --l2?"),
        ("--hs=1", "did you mean --loss=hierarchical_softmax?"),
        ("--dimm=3", "did you mean --dim?"),
        ("--noshufle", "did you mean --noshuffle or --shuffle?"),
        ("--strange", "see --help"),
        ("-5", "see --help"),
    ],
)
def test_the_flag_that_is_meant(parse, tmp_path, written, remedy):
    (tmp_path / "a.cfg").write_text(f"{written}\n")
    for given in (written, f"--flagfile={tmp_path}/a.cfg"):
        with pytest.raises(UsageError) as refused:
            parse(given)
        assert str(refused.value) == f"{written}: no such flag; {remedy}"


def test_names_of_other_libraries_are_for_flags_that_there_are():
    others = {"k", "items", "vectors"}  # of commands that ask a trained run
    assert names._MEANINGS
    for flag, names_elsewhere in names._MEANINGS.items():
        name, _, value = flag.partition("=")
        assert name in others or value in ("", *names.fields()[name].metadata["choices"])
        assert names_elsewhere == names._plain(names_elsewhere)


@pytest.mark.parametrize("name", ["-5", "--5", "--help", "-h", "--", "--flagfile=x"])
def test_a_name_that_looks_like_a_flag(run, name):
    given = []
    assert run(given.extend, "--", name, arguments=True) == (None, "")
    assert given == [name]
    code, line = run(raising(AssertionError()), "-5", arguments=True)
    assert code == 2 and line.endswith(
        "or write a name that begins with - after --, as in: -- -5\n"
    )


def test_help_that_nobody_reads_to_its_end():
    command = f"{sys.executable} -m app.train --help | head -1"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Train a model.") and ended.stdout.count("\n") == 1


BLANKS = [" ", " a", "a\t", "\n", "a\nb", "\r", "a\x0bb", "\x85", "\u2028"]
QUOTES = ['"', '""', '" "', '"\\" \\""', '"x"', "'", "\\", "\\n"]
ODD = [*BLANKS, *QUOTES, "|", "#", "//", "--dim=3", "a=b", "=", "", "\u00e9", "\x1b[31m"]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_any_text_reads_back_from_the_flags_of_a_workdir(parse, tmp_path, value):
    given = (f"--text_column={value or 'a'}", "--label_column=a", "--task=classify")
    given += (f"--label_separator={value}", f"--label_prefix={value}")
    settings = parse(f"--workdir={tmp_path}", *given)
    workdir.write_flags(tmp_path / "flags.cfg", names.by_name(settings))
    assert parse(f"--workdir={tmp_path}") == settings
    assert parse(f"--flagfile={tmp_path}/flags.cfg") == settings


def test_flags_written_before_are_read_as_before(parse, tmp_path):
    path = tmp_path / "flags.cfg"
    path.write_text('--task=classify\n--text_column="x"\n--label_column=" \n--label_separator= \n')
    assert workdir.read_flags(path)["label_separator"] == " "
    read = parse(f"--workdir={tmp_path}")
    assert read == parse(f"--workdir={tmp_path}")
    assert (read.corpus.text_column, read.labelled.label_column) == ('"x"', '" ')
    assert parse(f"--flagfile={path}", "--workdir=x").corpus.text_column == '"x"'


def test_flagfiles_within_flagfiles(parse, tmp_path):
    inner, outer = tmp_path / "inner.cfg", tmp_path / "outer.cfg"
    inner.write_text("--dim=3\n--epochs=3\n")
    outer.write_text(f"# words\n\n// more\n--dim=2\n  --flagfile={inner}  \n-window=2 \n")
    settings = parse("--dim=1", "--flagfile", str(outer), "--epochs=7", "--workdir=x")
    assert (settings.model.dim, settings.run.epochs, settings.model.window) == (3, 7, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "^--flagfile=.*a.cfg: No such file or directory; check the path$"),
        (b"\xff", "^--flagfile=.*a.cfg: .*; name a text file of flags$"),
        (b"--flagfile={}", "^--flagfile=.*a.cfg includes itself; take that line out of the file$"),
        (b"--flagfile=", "^--flagfile= is empty; name a file of flags"),
    ],
)
def test_a_flagfile_that_cannot_be_read(parse, tmp_path, content, message):
    path = tmp_path / "a.cfg"
    if content is not None:
        path.write_bytes(content.replace(b"{}", bytes(path)))
    with pytest.raises(UsageError, match=message):
        parse(f"--flagfile={path}")


def test_a_home_folder_in_a_path(parse, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    settings = parse("--workdir=~/x", "--corpus=~/a.txt,b~, ~/c.txt", "--label_prefix=~/x",
                     "--task=classify")  # fmt: skip
    assert settings.run.workdir == "/home/me/x"
    assert settings.corpus.corpus == "/home/me/a.txt,b~,/home/me/c.txt"
    assert settings.labelled.label_prefix == "~/x"
    assert flags.Names().parse("~/a,b") == ["/home/me/a", "b"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--workdir=a\0b", "a NUL character is in it; leave it out"),
        ("--table_file=data/" + "x" * 256, "longer than 255 bytes; shorten it"),
        ("--label_prefix=\udcff", "it is not UTF-8; give other text, or rename the file"),
        ("--noshuffle=1", "--noshuffle=1 does not take an argument"),
        ("--dim=" + "9" * 5000, "9: give a smaller number$"),
        ("--dim", "Missing value for flag --dim"),
    ],
)
def test_text_that_cannot_be_a_value(parse, argument, message):
    with pytest.raises(UsageError, match=message):
        parse(argument)


def test_an_error_is_one_line_whatever_is_in_it(run):
    code, line = run(raising(UsageError("--a=\x1b[31m\u2028\n\0\udcff: give b")))
    assert (code, line) == (2, "train: --a=\\x1b[31m  \\x00\\udcff: give b\n")


def test_what_a_flagfile_has_no_use_for_is_left_out(parse, tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(flags.logging, "info", lambda text, *more: notes.append(text % more))
    path = tmp_path / "a.cfg"
    path.write_text("--task=words\n--cache=memory\n--model=cbow\n--window=3\n")
    settings = parse(f"--flagfile={path}", "--table=dynamic", "--workdir=x")
    assert (settings.input.cache, settings.model.window) == ("auto", 3)
    assert len(notes) == 1
    assert notes[0].startswith("ignored in the flagfile: --cache=memory needs a vocabulary")
    settings = parse(f"--flagfile={path}", "--task=language_model", "--loss=softmax", "--workdir=x")
    assert (settings.input.cache, settings.model.model) == ("memory", "skipgram")
    with pytest.raises(UsageError, match="^--cache=memory needs a vocabulary"):
        parse(f"--flagfile={path}", "--table=dynamic", "--cache=memory", "--workdir=x")


def test_damaged_numbers_of_a_workdir(parse, stored, tmp_path):
    (tmp_path / "flags.cfg").write_text("--dim=99999999999\n")
    with pytest.raises(
        UsageError, match="flags.cfg: --dim=99999999999: give at most 1000000; mend"
    ):
        parse(stored)


def test_older_workdirs_keep_the_learning_rate(tmp_path, parse):
    values = names.by_name(parse(f"--workdir={tmp_path}", "--learning_rate=0"))
    del values["learning_rate_power"]  # it is newer than the workdir
    workdir.write_flags(tmp_path / "flags.cfg", values)
    assert parse(f"--workdir={tmp_path}").optimizer.learning_rate_power == -0.5


# Which messages a command prints, and what it does where nothing can be printed.


FULL = "cannot write standard output: No space left on device; free the disk, or send the output"


@pytest.fixture
def handler(monkeypatch):
    """The handler of absl; the log of this process is as before once the test is over."""
    handler = logging.get_absl_handler()
    for logger in (handler, std_logging.getLogger("tensorflow")):
        monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(std_logging.root, "handlers", [*std_logging.root.handlers])
    verbosity, formatter = logging.get_verbosity(), handler.formatter
    yield handler
    logging.set_verbosity(verbosity)
    handler.setFormatter(formatter)


@pytest.mark.parametrize(
    ("level", "path", "is_printed"),
    [
        (std_logging.INFO, app.train.__file__, True),
        (std_logging.INFO, "/lib/tensorflow/python/checkpoint.py", False),
        (std_logging.WARNING, "/lib/tensorflow/python/checkpoint.py", True),
    ],
)
def test_notes_of_other_packages_are_left_out(level, path, is_printed, handler):
    set_up_logging()
    record = std_logging.LogRecord("absl", level, path, 1, "a note", None, None)
    assert bool(handler.filter(record)) == is_printed


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_standard_output_that_is_full(unbuffered):
    code, line = ended_help(">/dev/full", unbuffered)
    assert code == 1 and line == f"train: {FULL} elsewhere\n"


@pytest.mark.slow
def test_a_standard_output_that_is_closed():
    assert ended_help(">&-") == (0, "")


def ended_help(redirection, unbuffered=""):
    """The exit code and standard error of `app.train --help` with a redirection."""
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m app.train --help {redirection}"],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stderr


class FailingStream(io.StringIO):
    """A stream that raises an error where it should write."""

    def __init__(self, number):
        super().__init__()
        self.error = OSError(number, os.strerror(number))

    def write(self, text):
        raise self.error


def test_only_errors_of_standard_output_are_converted(monkeypatch):
    monkeypatch.setattr(sys, "stdout", FailingStream(errno.ENOSPC))
    with pytest.raises(RunError, match=f"^{FULL} elsewhere$"), checked_output():
        print("text")
    with pytest.raises(FileNotFoundError), checked_output():
        pathlib.Path("/none/file").read_text()
    monkeypatch.setattr(sys, "stdout", FailingStream(errno.EPIPE))
    with pytest.raises(BrokenPipeError), checked_output():
        print("text")


# TensorFlow is started once, and quickly left.


_START = """
import gc
from app.cli import startup
startup.start_tensorflow()
import tensorflow
print(gc.isenabled(), gc.get_freeze_count() > 100_000, tensorflow.constant(3).numpy())
"""


@pytest.mark.slow
def test_the_garbage_collector_runs_but_leaves_tensorflow_alone():
    ended = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["True", "True", "3"], "")


@pytest.mark.slow
def test_keras_is_imported_only_where_it_is_used():
    use = """
import sys

import pytest
print("keras" in sys.modules)
import keras
print(keras.optimizers.Adam().name, tensorflow.keras.layers.Dense(1).units)
"""
    ended = subprocess.run([sys.executable, "-c", _START + use], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()[3:]) == (0, ["False", "adam", "1"])


@pytest.mark.slow
def test_keras_stays_if_it_is_imported_first():
    use = "import sys; print('keras' in sys.modules, tensorflow.keras.layers.Dense(1).units)"
    program = f"import keras\n{_START}\n{use}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.split()[3:]) == (0, ["True", "1"])


def test_an_import_that_fails_is_shown():
    broken = "import sys; sys.modules['tensorflow'] = None\n" + _START
    ended = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True)
    assert ended.returncode == 1 and "ModuleNotFoundError" in ended.stderr
