"""What damaged and missing files of a workdir lead to: one line that names the file.

The workdirs are as after training, but that nothing was trained.
"""

from typing import NamedTuple

import pytest
import tensorflow as tf

from app.checkpoints import workdir
from app.checkpoints.checkpoint import Position
from app.checkpoints.table_checkpoints import Checkpoints
from app.checkpoints.workdir import Workdir
from app.errors import RunError, UsageError
from app.settings import Config, flag_values
from app.tasks import all_tasks, trained_vectors
from app.tasks.classify import classify_model
from app.tasks.recommend import recommend_model
from app.tasks.words import words_export
from app.training.run import check_flags

TEXT = "".join(f"a b c{number % 7} d e\n" for number in range(200))
PAIRS = "".join(f"user{number % 20} item{number % 7}\n" for number in range(200))
LABELLED = "".join(f"__label__{number % 3} a b{number % 7} c\n" for number in range(200))
COMMON = {
    "dim": 4,
    "min_count": 1,
    "batch_tokens": 64,
    "row_tokens": 16,
    "group_tokens": 32,
    "steps_per_call": 2,
    "compute_dtype": "float32",
    "device": "CPU:0",
    "optimizer": "rowwise_adagrad",
}
# A run by name: its text and flags.
RUNS = {
    "words": (TEXT, {}),
    "growing words": (TEXT, {"table": "dynamic", "table_gb": 1e-4}),
    "words in a file": (TEXT, {"table": "host"}),
    "classify": (LABELLED, {"task": "classify", "word_ngrams": 2}),
    "recommend": (PAIRS, {"task": "recommend", "loss": "bpr"}),
    "growing recommend": (
        PAIRS,
        {"task": "recommend", "loss": "bpr", "table": "dynamic", "table_gb": 1e-4},
    ),
}


class Run(NamedTuple):
    """A workdir, with the flags by which it was made."""

    place: Workdir
    config: Config


def nested(data: bytes) -> bytes:
    return b'{"a": ' * 100_000


# What can happen to a file: its content afterwards, or None where it is gone.
DAMAGES = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "short": lambda data: data[: len(data) // 2],
    "shorter": lambda data: data[:3],
    "a byte short": lambda data: data[:-1],
    "flipped at first": lambda data: bytes(byte ^ 1 for byte in data[:1]) + data[1:],
    "flipped": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
    "flipped at last": lambda data: data[:-1] + bytes(byte ^ 4 for byte in data[-1:]),
    "a list": lambda data: b"[1, 2]",
    "a number": lambda data: b"3",
    "an object": lambda data: b"{}",
    "null": lambda data: b"null",
    "of strings": lambda data: data.replace(b": ", b': "').replace(b",", b'",'),
    "of other fields": lambda data: data.replace(b'":', b'x":'),
    "of negative numbers": lambda data: data.replace(b": ", b": -"),
    "of huge numbers": lambda data: data.replace(b": ", b": 9" + b"9" * 400),
    "nested": nested,
    "not UTF-8": lambda data: b"\xff\xfe" + data,
    "zeros": lambda data: bytes(len(data)),
}
SURE = ("missing", "empty", "a list", "nested", "not UTF-8", "zeros")  # never taken for whole


def make(folder, text: str, flags: dict) -> Run:
    """Makes a workdir with one checkpoint."""
    folder.mkdir()
    (folder / "text").write_text(text)
    values = {**COMMON, "corpus": str(folder / "text"), **flags, "task": flags.get("task", "words")}
    values = flag_values.defaults(values) | values
    values["workdir"] = str(folder / "run")
    if flags.get("table") == "host":
        values["table_file"] = str(folder / "rows")
    run = Run(Workdir(folder / "run"), flag_values.from_names(values))
    with run.place.lock():
        job = jobs(run)
        check_flags(job, run.config.run)
        workdir.write_flags(run.place.flags, flag_values.by_name(run.config))
        job.data.record()
        if flags.get("table") == "dynamic":  # some rows
            next(iter(job.data.batches(range(1), 0)))
            for table in job.placed.tables.values():
                table.gather(tf.range(4))
        Checkpoints(run.place.checkpoints, {**job.placed.tables, **job.extra_state}).save(
            Position(step=2)
        )
    return run


def jobs(run: Run):
    return all_tasks.JOBS[run.config.run.task](run.config, run.place, False)


def resume(run: Run) -> None:
    """Goes on with training, as lexrow train does, up to the first step."""
    job = jobs(run)
    check_flags(job, run.config.run)
    Checkpoints(run.place.checkpoints, {**job.placed.tables, **job.extra_state}).restore()


def use(run: Run) -> None:
    """Loads a run as the commands that use one do."""
    if run.config.run.task == "classify":
        classify_model.load_trained(run.config, run.place)
    elif run.config.run.task == "recommend":
        recommend_model.load_recommender(run.config, run.place)
    else:
        trained_vectors.load(run.place.path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function from a name in `RUNS` to the run, made once."""
    folder, found = tmp_path_factory.mktemp("runs"), {}

    def get(name: str) -> Run:
        if name not in found:
            found[name] = make(folder / name, *RUNS[name])
        return found[name]

    return get


USED = {
    "words": ["vocab.tsv"],
    "growing words": ["keys.json", "values.json", "counts", "keys", "keys.lengths", "values"],
    "words in a file": ["tables.json", "file.json"],
    "classify": ["labels.tsv", "vocab.tsv", "ngrams.npz", "corpus.json", "state.json"],
    "recommend": ["users.tsv", "items.tsv", "known.npz", "corpus.json"],
    "growing recommend": ["keys.json", "values.json", "values"],
}
RESUMED = {
    "words": ["vocab.tsv", "corpus.json", "state.json", "tables.json"],
    "growing words": ["corpus.json", "stream.json", "waiting", "keys.json"],
    "words in a file": ["owner.json", "file.json", "rows", "rows.undo-1", "tables.json"],
    "classify": ["labels.tsv", "ngrams.npz", "corpus.json"],
    "recommend": ["corpus.json"],
    "growing recommend": ["keys.json", "values.json", "values"],
}
# Loading takes a second or so, so most of it is left to the slow tests.
QUICK = {use: ("missing", "of strings", "flipped"), resume: ("of strings",)}
SLOW = ("growing recommend", "words in a file")
# What may go unnoticed, or be told by the name of the checkpoint: a checkpoint of old has no
# tables.json, what a journal lacks at its end was never overwritten, an archive begins anywhere.
UNSURE = {
    "tables.json": ("missing", "an object"),
    "rows.undo-1": tuple(DAMAGES),
    "known.npz": ("not UTF-8",),
    "ngrams.npz": ("not UTF-8",),
}


def cases(names, act):
    found = []
    for run, files in names.items():
        for file in files:
            quick = () if run in SLOW else QUICK[act]
            rest = tuple(name for name in DAMAGES if name not in quick)
            if quick:
                found.append(pytest.param(run, file, quick, id=f"{run}-{file}"))
            slow = pytest.mark.slow
            found.append(pytest.param(run, file, rest, id=f"{run}-{file}-rest", marks=slow))
    return pytest.mark.parametrize(("name", "file", "damages"), found)


@cases(USED, use)
def test_a_run_is_used(made, name, file, damages, caplog):
    check(made(name), file, damages, caplog, use)


@cases(RESUMED, resume)
def test_a_run_goes_on(made, name, file, damages, caplog):
    check(made(name), file, damages, caplog, resume)


def check(run: Run, file: str, damages, caplog, act) -> None:
    """Damages the first file of this name in each way, and looks at what `act` makes of it."""
    folder = run.place.path.parent
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    path = next(path for path in before if path.name == file)
    bad = []
    for damage in damages:
        wrong = DAMAGES[damage](before[path])
        if wrong is None:
            path.unlink()
        else:
            path.write_bytes(wrong)
        caplog.clear()
        is_sure = damage not in UNSURE.get(file, ())
        try:
            act(run)
            if damage in SURE and is_sure and wrong != before[path]:
                bad.append((damage, "no error"))
        except (UsageError, RunError) as error:
            told = str(error)
            names = (file, "the vocabulary that it was made with")
            is_named = any(name in told + caplog.text for name in names)
            if "\n" in told or (is_sure and not is_named):
                bad.append((damage, told))
        except Exception as error:
            bad.append((damage, repr(error)))
        restore(folder, before)
    assert not bad


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (TEXT, {"min_ngram": 2, "max_ngram": 3, "buckets": 50}),
        (LABELLED, {"task": "classify", "word_ngrams": 2, "buckets": 50}),
    ],
)
def test_names_that_do_not_fit_the_rows_of_words_and_ngrams(tmp_path, text, flags):
    run = make(tmp_path / "folder", text, flags)
    trained_vectors.load(run.place.path)
    lines = run.place.vocabulary.read_text().splitlines(keepends=True)
    run.place.vocabulary.write_text("".join(lines[:2] + lines[3:]))
    commands = [lambda: trained_vectors.load(run.place.path)]
    if run.config.run.task == "words":
        export = words_export.EXPORTS["fasttext"]
        commands.append(lambda: export(run.config, run.place, str(tmp_path / "out.bin")))
    for command in commands:
        with pytest.raises(RunError, match="vocab.tsv has .* names, which do not fit the .* rows"):
            command()
    assert not (tmp_path / "out.bin").exists()


def restore(folder, contents) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path not in contents:
            path.unlink()
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
