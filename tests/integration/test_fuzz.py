"""Commands with whatever flags, files and texts: they end well, or with one line.

To draw other cases, and fewer: LEXROW_FUZZ_SEED=7 LEXROW_FUZZ_CASES=40 make test-slow
ARGS=tests/integration/test_fuzz.py
"""

import collections
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import time
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from app.settings import flag_values
from app.settings.flag_values import NEEDS
from tests.integration.commands import SECONDS, Command, Ended, done, write_corpus

_CASES = int(os.environ.get("LEXROW_FUZZ_CASES", 5000))
_SEED = int(os.environ.get("LEXROW_FUZZ_SEED", 0))
# Of memory of its own: several times what a command on the small files of these tests takes.
MOST_BYTES = 4_000_000_000
# Given to every case, or of processes beside the one that is watched.
UNDRAWN = {"workdir", "corpus", "task", "plan_only", "data_dir", "strategy"}
TASKS = ("words", "language_model", "classify", "recommend")
ALWAYS = {
    "words": ("--min_count=1",),
    "language_model": ("--task=language_model", "--loss=class_softmax", "--min_count=1"),
    "classify": ("--task=classify", "--loss=softmax"),
    "recommend": ("--task=recommend",),
}
SMALL = ("--dim=4", "--batch_tokens=64", "--steps_per_call=2", "--epochs=1", "--device=CPU:0")
OF_TEXT = ("--row_tokens=8", "--block_bytes=4096")
OF_WORDS = ("--group_tokens=32", "--shared_negatives=4", "--window=2")

_NUMBERS = [-1, 0, 1, 2, 3, 7, 64, 1000, 10**6, 2**31 - 1, 2**31, 2**63, 10**30]
_FLOATS = [-1.0, -0.0, 0.0, 1e-320, 1e-30, 0.5, 1.0, 2.0, 1e6, 1e38, 1e308, float("inf")]
_TEXTS = [
    *("", " ", ",", ",,", "-", "a", "a,b", "1,2", "2,1", "1,1,1", "-1", "0", "1e999", "nan"),
    *("9" * 30, "9" * 5000, "x" * 300, "x" * 10_000, "a b", "\n", "a\nb", "\t", "a\0b", "\udcff"),
    *("~no_such_user/x", "no/such/file", ".", "..", "*", "[", "a=1,b=2", "a=", "=1", "a=nan"),
    *("\\E", "\\Q", "(", "\u00e9", "\u2028", "\x1b[31m", "127.0.0.1:1", "CPU:0", "CPU:99", "GPU:0"),
    *("{corpus}", "{folder}", "{workdir}", "{corpus}/x", "{workdir}/vocab.tsv", "1,2,3,4"),
]
_PIECES = [
    *(b"one two three ", b"one\n", b"\n", b"\r\n", b"\r", b"\t", b",", b"\0", b"\xff\xfe", b"\xef"),
    *(b"\xef\xbb\xbf", "\u2028\u0085\u3000".encode(), "e\u0301".encode(), b"x" * 10_000, b" "),
    *(b"__label__", b"__label__a b c\n", b"__label__ x\n", b'"', b'"open', b"'", b"#", b"::", b"|"),
    *(b"1", b"1 2 3\n", b"user item\n", b"u,i,5\n", b"u\ti\t1e999\n", b"1::2::3::4\n", b"nan"),
    *(b"-1", b"9" * 30, b"\x1f\x8b\x08", b"PAR1", b"<unk>", b"<eos>\t1\n", b"a\t5\n", b"a\tb\n"),
    *(b"2 2\n", b"a 1 2\nb 3 4\n", b"a 1 nan\n", bytes(16), b": section\na b c d\n", b"a b 1.5\n"),
    *(b"{", b"[]", b"\xba\x16O/\x0c\0\0\0"),  # how files of fastText begin
]
_DAMAGE = [
    "cut",
    "flip",
    "empty",
    "delete",
    "folder",
    "garbage",
    "[]",
    "{}",
    "null",
    '"x"',
    "1e999",
]


class Case(NamedTuple):
    """A command, and the files that are to be there.

    argv: `{folder}`, `{workdir}` and `{corpus}` stand for those of the case. content: of the file
    `{folder}/odd` with a suffix. damage: what happens before to which file of the workdir, and at
    which share of its bytes.
    """

    task: str
    argv: tuple[str, ...]
    content: bytes = b""
    suffix: str = ""
    damage: tuple[str, int, float] | None = None


def value(field: dataclasses.Field, is_small: bool = False) -> st.SearchStrategy[str]:
    """Draw a value of a flag of training: as it should be, at its bounds, or absurd.

    is_small: only numbers with which a run ends soon.
    """
    minimum, *most = field.metadata["bounds"] or [0]
    if isinstance(field.default, bool):
        return st.sampled_from(["true", "false", "1", "", "maybe"])
    if isinstance(field.default, (int, float)):
        small = [minimum, minimum + 1, minimum + 2, field.default]
        if is_small:
            return st.sampled_from(small).map(str)
        kind = st.integers() if isinstance(field.default, int) else st.floats()
        absurd = _NUMBERS if isinstance(field.default, int) else [*_FLOATS, *_NUMBERS]
        edges = [minimum - 1, *small, *(bound * by for bound in most for by in (0.5, 1, 2))]
        edges = [type(field.default)(edge) for edge in edges]
        return st.one_of(st.sampled_from([*edges, *absurd]), kind).map(str)
    if field.metadata["choices"]:
        return st.sampled_from([*field.metadata["choices"], *([] if is_small else ["", "other"])])
    return st.one_of(st.sampled_from(_TEXTS), st.text(max_size=8))


@st.composite
def training(draw: st.DrawFn, is_small: bool = False) -> Case:
    """Draw a run of one or two flags of its task, or a plan with flags of any task."""
    task = draw(st.sampled_from(TASKS))
    fields, every = flag_values.fields_of(flag_values.TASKS[task]), flag_values.fields()
    names = [name for name in (fields if is_small else every) if name not in UNDRAWN]
    flags = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        for other, known in NEEDS.get(name, {}).items() if name in fields else ():
            possible = fields[other].metadata["choices"] or known
            drawn = draw(st.sampled_from([one for one in known if one in possible]))
            flags.append(f"--{other}={drawn}")
        drawn = draw(value(fields.get(name, every[name]), is_small))
        flags.append(f"--{name}={drawn}")
    return Case(task, train(task, *flags, *(() if is_small else ("--plan_only",))))


def train(task: str, *more: str) -> tuple[str, ...]:
    """Return the command that trains a small model of a task."""
    small = SMALL + (OF_TEXT if task in ("words", "language_model") else ())
    small += OF_WORDS if task == "words" else ()
    workdir = ("app.train", "--workdir={workdir}", "--corpus={corpus}")
    return (*workdir, *ALWAYS[task], *small, *more)


@st.composite
def commands(draw: st.DrawFn) -> Case:
    """Draw another command on a finished run, with flags of any value."""
    task = draw(st.sampled_from(TASKS))
    module, more, names = draw(st.sampled_from(_commands(task)))
    flags = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        texts = [text for text in _TEXTS if not text.startswith("127")]
        flags.append(f"--{name}={draw(st.sampled_from([*map(str, _NUMBERS + _FLOATS), *texts]))}")
    return Case(task, (module, *more, *flags))


@st.composite
def damages(draw: st.DrawFn) -> Case:
    """Draw a command on a run one of whose files is damaged."""
    task = draw(st.sampled_from(TASKS))
    where = draw(st.sampled_from(_DAMAGE)), draw(st.integers(0, 99)), draw(st.floats(0, 1))
    resumed = train(task, "--epochs=2")
    others = [(module, *more) for module, more, _ in _commands(task) if module != "app.profile"]
    return Case(task, draw(st.sampled_from([resumed, *others])), damage=where)


@st.composite
def texts(draw: st.DrawFn) -> Case:
    """Draw a file of any content, where a command expects one."""
    content = b"".join(draw(st.lists(st.sampled_from(_PIECES), max_size=12)))
    suffix = draw(st.sampled_from([".txt", ".csv", ".tsv", ".gz", ".dat", ".parquet"]))
    task, odd = draw(st.sampled_from(TASKS)), "{folder}/odd" + suffix
    columns = ("--text_column=b", "--label_column=a", "--user_column=u", "--item_column=i")
    more = draw(st.sampled_from([(), ("--plan_only",)]))
    plan, evaluate = train(task, "--plan_only"), ("app.evaluate", "--workdir={workdir}")
    commands = [
        (*train(task, *more), f"--corpus={odd}"),
        (*train(task, *more), f"--corpus={odd}", *columns[:2]),
        (*train(task, *more), f"--corpus={odd}", *columns[2:]),
        *((*plan, f"--{flag}={odd}") for flag in ("vocab", "heldout", "pretrained_vectors")),
        (*plan, f"--flagfile={odd}"),
        (*train("classify", "--plan_only", "--fasttext_features"), f"--initial_model={odd}"),
        ("app.predict", f"--model={odd}"),
        ("app.neighbors", f"--vectors={odd}", "one"),
        ("app.evaluate", f"--vectors={odd}"),
        *((*evaluate, "--benchmarks=", f"--{flag}={odd}") for flag in ("pairs", "analogies")),
        (*evaluate, f"--heldout={odd}"),
    ]
    return Case(task, draw(st.sampled_from(commands)), content, suffix)


def _commands(task: str) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Return the commands for a run of a task, with the names of flags to draw for each."""
    here = ("--workdir={workdir}",)
    vectors = (*here, "--output={folder}/out")
    found = [
        ("app.evaluate", (*here, "--heldout={corpus}"), ["heldout", "top", "json"]),
        ("app.profile", here, ["before", "json", "plot"]),
        ("app.export", vectors, ["format", "limit", "restrict", "case", "vectors"]),
        (f"app.{'predict' if task == 'classify' else 'recommend'}", here, ["k", "threshold"]),
    ]
    if task == "words":
        scores = ["benchmarks", "pairs", "analogies", "json", "case", "restrict", "vectors"]
        found[0] = ("app.evaluate", (*here, "--benchmarks="), scores)
        found.append(("app.neighbors", (*here, "be"), ["k", "case", "restrict", "analogy"]))
    return found


def damage(workdir: pathlib.Path, how: str, which: int, share: float) -> None:
    """Damage a file of a workdir."""
    files = sorted(path for path in workdir.rglob("*") if path.is_file() and path.name != "lock")
    path = files[which % len(files)]
    content = path.read_bytes()
    at = int(share * max(len(content) - 1, 0))
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "delete":
        flipped = content[:at] + bytes(255 - byte for byte in content[at : at + 1])
        made = {"cut": content[:at], "flip": flipped + content[at + 1 :], "empty": b""}
        made["garbage"] = b"\0\xff\x80 garbage\n" * 9
        path.write_bytes(made.get(how, how.encode()))


def watched(command: Command) -> tuple[Ended, list[str]]:
    """Wait for a command; return how it ended, and what was wrong about what it took."""
    status = pathlib.Path(f"/proc/{command.process.pid}/status")
    deadline = time.monotonic() + SECONDS
    wrong = []
    while command.process.exitcode is None and not wrong:
        command.process.join(0.02)
        try:
            found = re.search(r"RssAnon:\s*(\d+) kB", status.read_text())
        except OSError:  # it has ended
            continue
        if found and int(found[1]) * 1024 > MOST_BYTES:
            wrong.append(f"took {int(found[1]) / 1e6:.1f} GB")
        if time.monotonic() > deadline:
            wrong.append(f"ran for {SECONDS} s")
    if wrong:
        command.process.kill()
    return command.ended(), wrong


def faults(command: str, ended: Ended) -> list[str]:
    """Return what is wrong about how a command ended."""
    lines = ended.err.splitlines()
    noise = r"Traceback|  File |[EFW]\d{4} |\*\*\* |[A-Za-z_.]+(Error|Exception|Warning)\b"
    found = [line for line in lines if re.match(noise, line)]
    if ended.code not in (0, 1, 2):
        found.append(f"exit code {ended.code}")
    said = [line for line in lines if line.startswith(f"{command}: ")]
    if ended.code in (1, 2) and not (len(said) == 1 and lines[-1] == said[0]):
        found.append(f"not one line: {lines[-3:]}")
    return found


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Return every file of a folder but locks, by its name."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


# Shares of the long draw: most plans are refused within a tenth of a second, and a run takes some.
_SHARES = {
    "plans": (training(), 0.66),
    "commands": (commands(), 0.14),
    "texts": (texts(), 0.1),
    "damages": (damages(), 0.06),
    "runs": (training(is_small=True), 0.04),
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A small corpus of each task."""
    folder = tmp_path_factory.mktemp("corpora")
    words = write_corpus(folder / "words.txt", 60)
    labelled, pairs = folder / "labelled.txt", folder / "pairs.txt"
    lines = words.read_text(encoding="utf-8").splitlines()
    labelled.write_text("".join(f"__label__{'ab'[i % 2]} {text}\n" for i, text in enumerate(lines)))
    pairs.write_text("".join(f"u{i % 9} i{i * i % 23} {i % 5}\n" for i in range(120)))
    return {"words": words, "language_model": words, "classify": labelled, "recommend": pairs}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory, corpora):
    """Return a finished run of a task; it is made when it is first asked for."""

    @functools.cache
    def run(task):
        folder = tmp_path_factory.mktemp(task)
        values = {"workdir": folder / "run", "folder": folder, "corpus": corpora[task]}
        done(folder, *(part.format(**values) for part in train(task)))
        return folder / "run"

    return run


@pytest.fixture
def fault(tmp_path_factory, corpora, run_of):
    """Run a case, and return what is wrong about how it ended."""

    def found(case: Case):
        folder = tmp_path_factory.mktemp("case")
        workdir, prints = folder / "run", tmp_path_factory.mktemp("prints")
        if case.damage or case.argv[0] != "app.train":
            shutil.copytree(run_of(case.task), workdir)
        if case.damage:
            damage(workdir, *case.damage)
        if case.suffix:
            (folder / f"odd{case.suffix}").write_bytes(case.content)
        argv = case.argv
        places = {"workdir": workdir, "folder": folder, "corpus": corpora[case.task]}
        for name, value in places.items():
            argv = tuple(part.replace(f"{{{name}}}", str(value)) for part in argv)
        before = contents(workdir)
        ended, wrong = watched(Command(prints, *argv, within=folder))
        command = argv[0].partition(".")[2]
        wrong = wrong or faults(command, ended)
        wrong += [f"left {path.name}" for path in folder.rglob(".*.new-*")]
        if ended.code == 2 and contents(workdir) != before:
            wrong.append("was refused, and changed the workdir")
        shutil.rmtree(folder)
        shutil.rmtree(prints)
        return wrong

    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", _SHARES)
def test_commands_of_all_kinds(name, fault):
    """All faults are collected; of those that look alike, the first is shown."""
    strategy, share = _SHARES[name]
    found, counts = {}, collections.Counter()

    def check(case):
        wrong = fault(case)
        if wrong:
            kind = re.sub(r"\d+|'[^']*'|/[^ ]*", "", str(wrong[-1]))
            counts[kind] += 1
            found.setdefault(kind, (case, wrong))

    options = {"deadline": None, "database": None, "print_blob": False}
    options |= {"max_examples": round(share * _CASES), "suppress_health_check": [*HealthCheck]}
    seed(_SEED)(settings(**options)(given(strategy)(check)))()
    lines = [f"{counts[kind]} x {wrong}: {case}" for kind, (case, wrong) in found.items()]
    assert not found, "\n".join(lines)
