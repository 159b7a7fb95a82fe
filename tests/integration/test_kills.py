"""Runs that are killed at random moments, again and again, end as one that nothing disturbed.

Two environment variables change how much is tried: KILLS, the kills of each kind of run, and
KILL_SEEDS, the seeds by which their moments are drawn:

    KILL_SEEDS=1,2 make test-slow ARGS=tests/integration/test_kills.py
"""

import json
import os
import random
import re
import signal
import time

import pytest

from app.checkpoints.checkpoint import list_checkpoints
from app.checkpoints.stored import read_rows
from tests.integration.commands import SECONDS, SMALL, Command, logged, newest_step, tensors
from tests.integration.test_classify import make_texts, write_lines
from tests.integration.test_recommend import write_pairs

KILLS = int(os.environ.get("KILLS", "20"))
STARTING = 0.25  # share of the kills before the first step, which is in this part of a run's time
SEEDS = [int(seed) for seed in os.environ.get("KILL_SEEDS", "0").split(",")]

SHARED = ("--dim=8", "--steps_per_call=2", "--device=CPU:0", "--log_seconds=0")
ALWAYS_SAVE = ("--checkpoint_minutes=0", "--keep_checkpoints=2")
TASKS = {
    "words": (*SMALL, "--epochs=6"),
    "classify": ("--batch_tokens=128", "--word_ngrams=2", "--buckets=500", "--epochs=3"),
    "recommend": ("--batch_tokens=64", "--optimizer=lazy_adam", "--epochs=6"),
}
ADAMW = ("--optimizer=lazy_adamw", "--correct_skipped", "--schedule=cosine", "--warmup=0.1")
ADAMW += ("--clip_row_norm=1", "--clip_global_norm=3", "--readers=1", "--tokenizer=unicode")
HOST = ("--table=host", "--hot_rows=20", "--stage_steps=4")
DYNAMIC = ("--table=dynamic", "--table_gb=0.001")
# Rows for half of the words, so that some go and come again.
FEW = ("--table=dynamic", "--table_gb=0.0065", "--max_age=3", "--block_bytes=1024")
KINDS = {
    "words on the device": ("--cache=memory",),
    "words by XLA": ("--steps_per_call=4", "--epochs=8"),
    "words on the host by XLA": (*HOST, "--steps_per_call=4", "--epochs=8"),
    "words without a cache": ("--cache=none",),
    "words of cbow by sgd": ("--model=cbow", "--optimizer=sgd", "--documents=file"),
    "words of cbow by ftrl": ("--model=cbow", "--optimizer=ftrl", "--documents=none"),
    "words by adamw": ADAMW,
    "words and phrases": (
        "--phrases=2",
        "--phrase_threshold=1.2",
        "--phrase_min_count=2",
    ),
    "words on the host": HOST,
    "words in a file": (*HOST, "--table_file=rows"),
    "words in a dynamic table": FEW,
    "words with subwords": ("--min_ngram=2", "--max_ngram=4", "--ngram_buckets=500"),
    "classify on the device": ("--class_weights=balanced",),
    "classify in a dynamic table": DYNAMIC,
    "recommend on the device": (),
    "recommend on the host": HOST,
    "recommend in a dynamic table": DYNAMIC,
}
NAMES = ("vocab.tsv", "phrases.tsv", "labels.tsv", "users.tsv", "items.tsv", "known.npz")
# Ends of the names of metrics that depend on the clock, or on how calls fall into intervals.
OF_THE_CLOCK = ("_second", "_seconds", "_left", "_wait", "_rate", "_bytes", "_stall")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, corpus):
    """A value of --corpus for each task."""
    folder = tmp_path_factory.mktemp("corpora")
    return {
        "words": corpus,
        "classify": write_lines(folder / "texts.txt", make_texts(600, several=True)),
        "recommend": write_pairs(folder / "pairs.txt", users=80),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments(tmp_path, corpora, kind, seed):
    task, draw = re.match(r"\w+", kind)[0], random.Random(seed)
    module = "tests.integration.train_by_xla" if kind.endswith("XLA") else "app.train"

    def start(folder):
        folder.mkdir(exist_ok=True)
        flags = [flag.replace("=rows", f"={folder}/rows") for flag in KINDS[kind]]
        flags += [f"--task={task}", f"--workdir={folder}/run", f"--corpus={corpora[task]}"]
        return Command(folder, module, *TASKS[task], *SHARED, *ALWAYS_SAVE, *flags)

    begun = time.monotonic()
    ended = start(tmp_path / "whole").ended()
    assert ended.code == 0, ended.err
    seconds = time.monotonic() - begun
    expected, last = result(tmp_path / "whole" / "run"), newest_step(tmp_path / "whole" / "run")

    kills, runs = 0, 0
    while kills < KILLS:
        runs += 1  # one that ends before its kill is compared, and another is begun
        folder, code = tmp_path / str(runs), -signal.SIGKILL
        while code == -signal.SIGKILL:
            before, command = newest_step(folder / "run"), start(folder)
            if kills < KILLS:
                wait(command.process, folder / "run", draw, before, last, seconds)
                command.process.kill()
            ended = command.ended()
            code = ended.code
            kills += code == -signal.SIGKILL
        assert code == 0, ended.err
        assert_same(
            result(folder / "run"), expected, f"{kind}, seed {seed}, run {runs}, kill {kills}"
        )
        assert not list((folder / "run").rglob(".*"))


def wait(process, workdir, draw, before, last, seconds):
    """Wait until a moment drawn from what is left of a run: in its start, or at a step and later.

    Steps, and not seconds alone, so that a busy machine does not end most runs before their kill.
    A run that has its last checkpoint may end.
    """
    if before >= last:
        process.join(SECONDS)
        return
    if draw.random() < STARTING:
        process.join(draw.uniform(0, STARTING * seconds))
        return
    step, later = draw.randint(max(before + 1, 0), last), draw.uniform(0, 4 * seconds / last)
    while process.is_alive() and newest_step(workdir) < step:
        time.sleep(0.002)
    process.join(later)


def result(workdir):
    """Everything that a finished run leaves but times: tables, slots, state, names, metrics."""
    newest = list_checkpoints(workdir / "checkpoints")[0]
    state = json.loads((newest / "state.json").read_text())
    # Which epochs before the last one are scored while steps go on depends on the clock, and where
    # these scores are written.
    rows = [row for row in logged(workdir) if "ws353" not in row or row["step"] == state["step"]]
    found = {"state": {**state, "seconds": None}, "metrics": [*map(without_times, rows)]}
    found |= {name: (workdir / name).read_bytes() for name in NAMES if (workdir / name).exists()}
    layouts = json.loads((newest / "tables.json").read_text())
    for name, layout in layouts.items():
        if layout["kind"] == "file":
            found[name] = [read_rows(newest, name, slot).tobytes() for slot in ("", "accumulator")]
        elif layout["kind"] == "dynamic":
            files = [path for path in (newest / name).rglob("*") if path.is_file()]
            found |= {str(path.relative_to(newest)): path.read_bytes() for path in files}
    if "device" in {layout["kind"] for layout in layouts.values()}:
        found |= tensors(workdir)
    return found


def without_times(row):
    return {name: value for name, value in row.items() if not name.endswith(OF_THE_CLOCK)}


def assert_same(found, expected, about):
    assert found.keys() == expected.keys(), about
    different = [name for name in expected if found[name] != expected[name]]
    assert not different, (about, different)
