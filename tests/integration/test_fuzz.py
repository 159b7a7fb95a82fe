"""Commands with whatever flags, files and texts: they end well, or with one line.

To draw other cases, and fewer: LEXROW_FUZZ_SEED=7 LEXROW_FUZZ_CASES=40 make test-slow
ARGS=tests/integration/test_fuzz.py
"""

from __future__ import annotations

import collections
import functools
import os
import re
import shutil

import pytest
from hypothesis import HealthCheck, given, seed, settings

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

    @functools.cache
    def run(task):
        folder = tmp_path_factory.mktemp(task)
        values = {"workdir": folder / "run", "folder": folder, "corpus": corpora[task]}
        done(folder, *(part.format(**values) for part in fuzzing.train(task)))
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
            fuzzing.damage(workdir, *case.damage)
        if case.suffix:
            (folder / f"odd{case.suffix}").write_bytes(case.content)
        argv = case.argv
        places = {"workdir": workdir, "folder": folder, "corpus": corpora[case.task]}
        for name, value in places.items():
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
