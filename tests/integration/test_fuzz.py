"""Commands with whatever flags, files and texts: they end well, or with one line.

LEXROW_FUZZ_SEED=7 LEXROW_FUZZ_CASES=5000 draws other cases, and more, and goes on after the first
fault: pytest -m slow tests/integration/test_fuzz.py
"""

from __future__ import annotations

import collections
import os
import re
import shutil

import pytest
from hypothesis import HealthCheck, given, seed
from hypothesis import settings as hypothesis_settings

from tests.integration import fuzzing
from tests.integration.commands import Command, done, write_corpus
from tests.integration.fuzzing import Case

_CASES = int(os.environ.get("LEXROW_FUZZ_CASES", 5000))
_SEED = int(os.environ.get("LEXROW_FUZZ_SEED", 0))
# Shares of the long draw: most plans are refused within a tenth of a second, and a run takes some.
_SHARES = {
    "plans": (fuzzing.training(), 0.66),
    "commands": (fuzzing.commands(), 0.14),
    "texts": (fuzzing.texts(), 0.1),
    "damages": (fuzzing.damages(), 0.06),
    "runs": (fuzzing.training(is_small=True), 0.04),
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
    made = {}

    def run(task):
        if task not in made:
            folder = tmp_path_factory.mktemp(task)
            values = {"workdir": folder / "run", "folder": folder, "corpus": corpora[task]}
            done(folder, *(part.format(**values) for part in fuzzing.train(task)))
            made[task] = folder / "run"
        return made[task]

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
            fuzzing.damage(workdir, *case.damage)
        if case.suffix:
            (folder / f"odd{case.suffix}").write_bytes(case.content)
        values = {"workdir": workdir, "folder": folder, "corpus": corpora[case.task]}
        argv = case.argv
        for name, value in values.items():
            argv = tuple(part.replace(f"{{{name}}}", str(value)) for part in argv)
        before = fuzzing.contents(workdir)
        ended, wrong = fuzzing.watched(Command(prints, *argv, within=folder))
        command = argv[0].partition(".")[2]
        wrong = wrong or fuzzing.faults(command, ended)
        wrong += [f"left {path.name}" for path in folder.rglob(".*.new-*")]
        if ended.code == 2 and fuzzing.contents(workdir) != before:
            wrong.append("was refused, and changed the workdir")
        shutil.rmtree(folder)
        shutil.rmtree(prints)
        return wrong

    return found


def draw(strategy, count, check):
    """Try so many cases of a strategy, the same at each time unless LEXROW_FUZZ_SEED is given."""
    options = {"max_examples": count, "deadline": None, "database": None, "print_blob": False}
    checks = [*HealthCheck]
    if "LEXROW_FUZZ_SEED" not in os.environ:
        options["derandomize"] = True
    drawn = hypothesis_settings(**options, suppress_health_check=checks)(given(strategy)(check))
    seed(_SEED)(drawn)() if "LEXROW_FUZZ_SEED" in os.environ else drawn()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "count"),
    [
        (fuzzing.training(), 28),
        (fuzzing.commands(tasks=("words",)), 6),
        (fuzzing.texts(), 4),
        (fuzzing.damages(tasks=("words",)), 2),
    ],
    ids=["plans", "commands", "texts", "damages"],
)
def test_a_few(strategy, count, fault):
    def check(case):
        assert fault(case) == []

    draw(strategy, count, check)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SHARES)
def test_many(name, fault):
    """All faults are collected; of those that look alike, the first is shown."""
    strategy, share = _SHARES[name]
    found, counts = {}, collections.Counter()

    def check(case):
        wrong = fault(case)
        if wrong:
            kind = re.sub(r"\d+|'[^']*'|/[^ ]*", "", str(wrong[-1]))
            counts[kind] += 1
            found.setdefault(kind, (case, wrong))

    draw(strategy, round(share * _CASES), check)
    lines = [f"{counts[kind]} x {wrong}: {case}" for kind, (case, wrong) in found.items()]
    assert not found, "\n".join(lines)
